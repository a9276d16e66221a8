// Package doctor looks for what keeps a gateway from working, and for what makes it unsafe.
//
// [Examine] looks at the configuration, the data, the programs and the networks that a gateway
// needs, and says of each thing how it is and, in a sentence, what to do. [Audit] compares the
// configuration and the modes of files with [Rules], whose ids never change, and [Fix] corrects
// the modes.
//
// Nothing is changed but by Fix, and a gateway may run meanwhile. What goes to a network waits five
// seconds at most. No finding has a secret in it. The package owns no tables and no files.
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

// A Finding is what was found of one thing.
type Finding struct {
	ID     string `json:"id"`   // of the check
	What   string `json:"what"` // was looked at
	State  State  `json:"state"`
	Text   string `json:"text"`             // how it is
	Remedy string `json:"remedy,omitempty"` // what to do, a sentence; "" unless it is Bad
}

// A Case is the gateway that is looked at.
type Case struct {
	Config     *config.Config
	File       string // the configuration file, which need not be there
	Migrations []store.Migration
	Offline    bool // no network is used

	// Sandbox finds and tests the sandbox for commands; nil is returned if none are wanted.
	Sandbox func(ctx context.Context) (*sandbox.Sandbox, error)
	// LastBackup returns when the last backup was made, the zero time if there never was one.
	LastBackup func() (time.Time, error)
	// WhatsApp returns the file with the keys of an account.
	WhatsApp func(account string) string

	// What the machine says. The zero values ask it.
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

// Examine looks at everything.
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
