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
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"gateway/agent/persona"
	"gateway/agent/suggest"
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
	defer c.setDefaults()()
	checks := []func(context.Context) []Finding{
		c.examineFile, c.examineHome, c.examineDisk, c.examineFiles, c.examineStore,
		c.examineBackup, c.examineClock, c.examineSandbox, c.examineServers,
		c.examineListener, c.examineReady, c.examineNetwork,
		func(context.Context) []Finding { return examinePersonas(c) },
	}
	return runChecks(ctx, checks)
}

// setDefaults sets the fields that are nil to the real system. The caller calls end at the end.
func (c *Case) setDefaults() (end func()) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Disk == nil {
		c.Disk = ops.DiskSpace
	}
	if c.LookPath == nil {
		c.LookPath = exec.LookPath
	}
	if c.Transport != nil {
		return func() {}
	}
	c.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment}
	return c.Transport.CloseIdleConnections
}

// runChecks runs checks concurrently and returns their findings in the order of the checks. The
// checks must not depend on each other.
func runChecks(ctx context.Context, checks []func(context.Context) []Finding) []Finding {
	found := make([][]Finding, len(checks))
	var wg sync.WaitGroup
	for i, check := range checks {
		wg.Go(func() { found[i] = check(ctx) })
	}
	wg.Wait()
	return slices.Concat(found...)
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

// A subject is what a check is about. Its methods return a list with one finding.
type subject struct{ id, what string }

// part returns the subject of a check of a part of s.
func (s subject) part(name string) subject { return subject{s.id + "." + name, s.what} }

func (s subject) ok(text string) []Finding { return s.found(OK, text, "") }

func (s subject) note(text string) []Finding { return s.found(Note, text, "") }

func (s subject) bad(text, remedy string) []Finding { return s.found(Bad, text, remedy) }

func (s subject) found(state State, text, remedy string) []Finding {
	return []Finding{{ID: s.id, What: s.what, State: state, Text: text, Remedy: remedy}}
}

// examineSandbox runs the self-test of the sandbox.
func (c Case) examineSandbox(ctx context.Context) []Finding {
	about := subject{"sandbox", "Sandbox"}
	box, err := c.Sandbox(ctx)
	switch {
	case err != nil:
		return about.bad(err.Error(), "The agent runs no commands. Install bubblewrap, "+
			`or use a kernel with Landlock; [exec] sandbox = "none" runs them unconfined.`)
	case box == nil:
		return about.ok("commands are switched off")
	}
	list := about.ok(box.String())
	if c.Config.Exec.Sandbox == "none" {
		list[0].State = Bad
		list[0].Remedy = "Commands can do all that the gateway can; each must be approved unless " +
			"[tools.exec] says otherwise."
	}
	report := box.Report()
	for _, proof := range report.Passed {
		list = append(list, about.part("proof").ok("proven: "+proof)...)
	}
	for _, weak := range report.Weak {
		list = append(list, about.part("weak").note("limit of this sandbox: "+weak)...)
	}
	if len(report.Weak) > 0 && box.Name() == sandbox.Landlock {
		list = append(list, about.part("weak").note("bubblewrap has fewer limits: install it, as "+
			"with apt install bubblewrap, and restart the gateway")...)
	}
	for _, other := range report.Others {
		list = append(list, about.part("other").note("not used: "+other)...)
	}
	return list
}

// examineServers checks whether the programs of the MCP servers are installed.
func (c Case) examineServers(context.Context) []Finding {
	var list []Finding
	for name, s := range config.Sorted(c.Config.MCP) {
		if !s.Enabled || len(s.Command) == 0 {
			continue
		}
		about := subject{"mcp." + name, "MCP server " + name}
		if _, err := c.LookPath(s.Command[0]); err != nil {
			list = append(list, about.bad(err.Error(), fmt.Sprintf("Install %s, or set enabled = false in "+
				"[mcp.%s].", s.Command[0], name))...)
			continue
		}
		list = append(list, about.ok("its program is installed")...)
	}
	return list
}

// examineListener checks whether the address of the HTTP server is free or used by this gateway. It
// listens for a moment, which also shows whether the address is one of this machine.
func (c Case) examineListener(ctx context.Context) []Finding {
	about := subject{"http", "HTTP"}
	address := c.Config.HTTP.Listen
	if address == "" {
		return about.ok("switched off")
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		if err := listener.Close(); err != nil {
			return about.note(err.Error())
		}
		return about.ok("can listen on " + address)
	}
	end, known := ops.ReadEndpoint(c.Config.Gateway.Home)
	switch {
	// The gateway itself uses its address. ReadEndpoint fails if none runs.
	case errors.Is(err, syscall.EADDRINUSE) && known == nil:
		return about.ok("the gateway serves " + end.Address)
	case errors.Is(err, syscall.EADDRINUSE):
		return about.bad(address+" is used by another program",
			"Stop that, or set another address: [http] listen.")
	}
	return about.bad(err.Error(), "Set an address of this machine: [http] listen.")
}

// examineReady asks a running gateway whether it is ready.
func (c Case) examineReady(ctx context.Context) []Finding {
	about := subject{"ready", "Readiness"}
	end, err := ops.ReadEndpoint(c.Config.Gateway.Home)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return about.bad(err.Error(), "Restart the gateway: it writes the file anew.")
	}
	c.Transport = c.Transport.Clone()
	c.Transport.Proxy = nil // no proxy may see the token
	defer c.Transport.CloseIdleConnections()
	a, err := c.ask(ctx, "http://"+end.Address+"/readyz", authorization("Bearer "+end.Token), "")
	if err != nil {
		return about.note(fmt.Sprintf("process %d does not answer at %s; it may have been killed",
			end.PID, end.Address))
	}
	var report ops.Report
	// A gateway that is not ready sends its report with status 503.
	if json.Unmarshal(a.body, &report) != nil ||
		a.status != http.StatusOK && a.status != http.StatusServiceUnavailable {
		return about.bad(fmt.Sprintf("another program answers at %s", end.Address),
			"Stop that, and restart the gateway.")
	}
	if report.Ready {
		return about.ok(fmt.Sprintf("process %d is ready", end.PID))
	}
	var list []Finding
	for _, r := range report.Checks {
		if !r.OK {
			part := about.part(strings.ReplaceAll(r.Name, " ", "-"))
			list = append(list, part.bad(r.Name+": "+r.State,
				"See the log of the gateway, and gateway channels.")...)
		}
	}
	return list
}

// examinePersonas reports personas without effect, and skills in personas and policies that don't
// exist.
func examinePersonas(c Case) (list []Finding) {
	skills := make(map[string][]string) // by table
	chosen := make(map[string]bool)
	for name, p := range c.Config.Policies {
		skills["policies."+name], chosen[p.Persona] = p.Skills, true
	}
	for name, p := range config.Sorted(c.Config.Personas) {
		skills["personas."+name] = p.Skills
		about := subject{"personas", "[personas." + name + "]"}
		docs, _ := fs.Glob(os.DirFS(c.Persona(name)), "*.md") // a valid pattern
		switch {
		case !chosen[name]:
			list = append(list, about.note("no policy chooses it")...)
		case len(docs) == 0:
			list = append(list, about.note("no documents of its own in "+c.Persona(name))...)
		default:
			list = append(list, about.ok(fmt.Sprintf("documents of its own: %d", len(docs)))...)
		}
	}
	return append(list, examineSkills(c, skills)...)
}

// examineSkills reports patterns that match no skill. patterns has the skills of each table.
func examineSkills(c Case, patterns map[string][]string) (list []Finding) {
	about := subject{"skills", "Skills"}
	var known []string
	for table, wanted := range config.Sorted(patterns) {
		for _, pattern := range wanted {
			// The skills are read only if a pattern needs them.
			var err error
			if known == nil {
				known, err = c.SkillNames()
			}
			if err != nil {
				return about.bad(err.Error(), "Correct the rights of the folders.")
			}
			if !slices.ContainsFunc(known, func(s string) bool { return persona.Match(pattern, s) }) {
				list = append(list, about.bad(fmt.Sprintf("[%s] skills: there is no skill %q%s", table, pattern,
					suggest.Hint(pattern, known)), "Correct the name; gateway skills list shows all.")...)
			}
		}
	}
	return list
}
