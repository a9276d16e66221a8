// Package doctor finds problems that keep a gateway from working or make it unsafe.
//
// [Examine] checks the configuration, the data, the programs and the networks that a gateway
// needs. Each [Finding] describes one of them. If something is wrong, it has a remedy of one
// sentence. [Audit] checks the configuration and file modes against [Rules], whose ids never
// change. [Fix] corrects the modes.
//
// Only Fix changes anything. A gateway may run at the same time. A network request takes at most
// five seconds by default. No finding contains a secret. The package owns no tables and no files.
package doctor

import (
	"context"
	"net/http"
	"os/exec"
	"sync"
	"time"

	"gateway/agent/tools/shell/sandbox"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/ops"
	"gateway/store"
)

// A State is the result of a check.
type State string

// The states.
const (
	OK   State = "ok"
	Note State = "note" // for information; no action is needed
	Bad  State = "bad"  // somebody must act
)

// A Finding is the result of one check.
type Finding struct {
	ID     string `json:"id"`   // id of the check
	What   string `json:"what"` // the thing that was checked
	State  State  `json:"state"`
	Text   string `json:"text"`             // the result
	Remedy string `json:"remedy,omitempty"` // one sentence; "" unless the state is Bad
}

// A Case describes the gateway to check.
type Case struct {
	Config     *config.Config
	File       string // the configuration file; it may be missing
	Migrations []store.Migration
	Offline    bool          // skips all checks that need a network
	Timeout    time.Duration // of a network request; default 5 s

	// Sandbox finds and tests the sandbox for commands. It returns nil if none is configured.
	Sandbox func(ctx context.Context) (*sandbox.Sandbox, error)
	// LastBackup returns the time of the last backup, or the zero time if there is none.
	LastBackup func() (time.Time, error)
	// WhatsApp returns the file that contains the keys of an account.
	WhatsApp func(account string) string

	// Persona returns the folder with the documents of a persona. SkillNames returns the names of
	// all skills.
	Persona    func(name string) string
	SkillNames func() ([]string, error)

	// Replacements for the real system, for tests. The zero values use the real system.
	Now       func() time.Time
	Transport *http.Transport
	Disk      func(dir string) (ops.Space, error)
	LookPath  func(program string) (string, error)
}

// networkTime is the timeout of a network request.
const networkTime = 5 * time.Second

// storeTime is the timeout of the database check.
const storeTime = 10 * time.Second

// Examine runs all checks concurrently.
func Examine(ctx context.Context, c Case) []Finding {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Disk == nil {
		c.Disk = ops.DiskSpace
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
		func(context.Context) []Finding { return examinePersonas(c) },
	}
	return runChecks(ctx, checks)
}

// runChecks runs checks concurrently and returns their findings in the order of the checks.
func runChecks(ctx context.Context, checks []func(context.Context) []Finding) []Finding {
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

// CountBad returns the number of findings that are [Bad].
func CountBad(list []Finding) (n int) {
	for _, f := range list {
		if f.State == Bad {
			n++
		}
	}
	return n
}

// oneFinding returns a list with a single finding.
func oneFinding(id, what string, state State, text, remedy string) []Finding {
	return []Finding{{ID: id, What: what, State: state, Text: text, Remedy: remedy}}
}
