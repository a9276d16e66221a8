// Package doctor finds problems that keep a gateway from working or make it unsafe.
//
// [Examine] checks the configuration, the data, the programs and the networks that a gateway needs.
// Each [Finding] describes one of them and, if something is wrong, has a remedy of one sentence.
// [Audit] compares the configuration and the modes of files with [Rules], whose ids never change.
// [Fix] corrects the modes.
//
// Only Fix changes anything, and a gateway may run at the same time. A network request waits five
// seconds at most. No finding contains a secret. The package owns no tables and no files.
package doctor

import (
	"context"
	"net/http"
	"os/exec"
	"sync"
	"time"

	"gateway/agent/tools/shell/sandbox"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// A State says how something is.
type State string

// The states.
const (
	OK   State = "ok"
	Note State = "note" // worth knowing; nothing is to be done
	Bad  State = "bad"  // somebody must do something
)

// A Finding is the result of one check.
type Finding struct {
	ID     string `json:"id"`   // of the check
	What   string `json:"what"` // the thing that was checked
	State  State  `json:"state"`
	Text   string `json:"text"`             // how it is
	Remedy string `json:"remedy,omitempty"` // what to do, a sentence; "" unless it is Bad
}

// A Case is the gateway to check.
type Case struct {
	Config     *config.Config
	File       string // the configuration file, which may be missing
	Migrations []store.Migration
	Offline    bool // no network is used

	// Sandbox finds and tests the sandbox for commands; nil is returned if none are wanted.
	Sandbox func(ctx context.Context) (*sandbox.Sandbox, error)
	// LastBackup returns when the last backup was made, the zero time if there never was one.
	LastBackup func() (time.Time, error)
	// WhatsApp returns the file with the keys of an account.
	WhatsApp func(account string) string

	// Answers of the machine, for tests. The zero values ask it.
	Now       func() time.Time
	Transport *http.Transport
	Disk      func(dir string) (Space, error)
	LookPath  func(program string) (string, error)
}

// Space is the room on a disk.
type Space struct {
	Free   uint64 // bytes
	Files  uint64 // that can still be made
	Counts bool   // the disk counts files
}

// networkTime is how long a network may take to answer.
const networkTime = 5 * time.Second

// storeTime is how long the database may be checked.
const storeTime = 10 * time.Second

// Examine makes all checks, side by side.
func Examine(ctx context.Context, c Case) []Finding {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Disk == nil {
		c.Disk = diskSpace
	}
	if c.LookPath == nil {
		c.LookPath = exec.LookPath
	}
	if c.Transport == nil {
		c.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment}
		defer c.Transport.CloseIdleConnections()
	}
	checks := []func(context.Context) []Finding{
		c.examineFile, c.examineHome, c.examineDisk, c.examineFiles, c.examineStore,
		c.examineBackup, c.examineClock, c.examineSandbox, c.examineServers,
		c.examineListener, c.examineReady, c.examineNetwork,
	}
	return all(ctx, checks)
}

// all runs checks side by side and returns what they find in their order.
func all(ctx context.Context, checks []func(context.Context) []Finding) []Finding {
	found := make([][]Finding, len(checks))
	var wg sync.WaitGroup
	for i, check := range checks {
		wg.Go(func() { found[i] = check(ctx) })
	}
	wg.Wait()
	var list []Finding
	for _, f := range found {
		list = append(list, f...)
	}
	return list
}

// Sick counts the findings that are [Bad].
func Sick(list []Finding) (n int) {
	for _, f := range list {
		if f.State == Bad {
			n++
		}
	}
	return n
}

// one is a single finding.
func one(id, what string, state State, text, remedy string) []Finding {
	return []Finding{{ID: id, What: what, State: state, Text: text, Remedy: remedy}}
}
