package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"gateway/agent/persona"
	"gateway/agent/suggest"
	"gateway/agent/tools/shell/sandbox"
	"gateway/cmd/gateway/internal/ops"
)

// examineSandbox runs the self-test of the sandbox.
func (c Case) examineSandbox(ctx context.Context) []Finding {
	const id, what = "sandbox", "Sandbox"
	box, err := c.Sandbox(ctx)
	switch {
	case err != nil:
		return oneFinding(id, what, Bad, err.Error(), "The agent runs no commands. Install bubblewrap, "+
			`or use a kernel with Landlock; [exec] sandbox = "none" runs them unconfined.`)
	case box == nil:
		return oneFinding(id, what, OK, "commands are switched off", "")
	}
	list := oneFinding(id, what, OK, box.String(), "")
	if c.Config.Exec.Sandbox == "none" {
		list[0].State = Bad
		list[0].Remedy = "Commands can do all that the gateway can; each must be approved unless " +
			"[tools.exec] says otherwise."
	}
	report := box.Report()
	for _, proof := range report.Passed {
		list = append(list, oneFinding("sandbox.proof", what, OK, "proven: "+proof, "")...)
	}
	for _, weak := range report.Weak {
		list = append(list, oneFinding("sandbox.weak", what, Note, "limit of this sandbox: "+weak, "")...)
	}
	if len(report.Weak) > 0 && box.Name() == sandbox.Landlock {
		list = append(list, oneFinding("sandbox.weak", what, Note,
			"bubblewrap has fewer limits: install it, "+
				"as with apt install bubblewrap, and restart the gateway", "")...)
	}
	for _, other := range report.Others {
		list = append(list, oneFinding("sandbox.other", what, Note, "not used: "+other, "")...)
	}
	return list
}

// examineServers checks whether the programs of the MCP servers are installed.
func (c Case) examineServers(context.Context) []Finding {
	var list []Finding
	for _, name := range slices.Sorted(maps.Keys(c.Config.MCP)) {
		s := c.Config.MCP[name]
		if !s.Enabled || len(s.Command) == 0 {
			continue
		}
		id, what := "mcp."+name, "MCP server "+name
		if _, err := c.LookPath(s.Command[0]); err != nil {
			list = append(list, oneFinding(id, what, Bad, err.Error(), fmt.Sprintf(
				"Install %s, or set enabled = false in [mcp.%s].", s.Command[0], name))...)
			continue
		}
		list = append(list, oneFinding(id, what, OK, "its program is installed", "")...)
	}
	return list
}

// examineListener checks whether the address of the HTTP server is free or used by this gateway.
func (c Case) examineListener(ctx context.Context) []Finding {
	const id, what = "http", "HTTP"
	address := c.Config.HTTP.Listen
	if address == "" {
		return oneFinding(id, what, OK, "switched off", "")
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		if err := listener.Close(); err != nil {
			return oneFinding(id, what, Note, err.Error(), "")
		}
		return oneFinding(id, what, OK, "can listen on "+address, "")
	}
	end, known := ops.ReadEndpoint(c.Config.Gateway.Home)
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && known == nil:
		return oneFinding(id, what, OK, "the gateway serves "+end.Address, "")
	case errors.Is(err, syscall.EADDRINUSE):
		return oneFinding(id, what, Bad, address+" is used by another program",
			"Stop that, or set another address: [http] listen.")
	}
	return oneFinding(id, what, Bad, err.Error(), "Set an address of this machine: [http] listen.")
}

// examineReady asks a running gateway whether it is ready.
func (c Case) examineReady(ctx context.Context) []Finding {
	const id, what = "ready", "Readiness"
	end, err := ops.ReadEndpoint(c.Config.Gateway.Home)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return oneFinding(id, what, Bad, err.Error(), "Restart the gateway: it writes the file anew.")
	}
	a, err := c.ask(ctx, "http://"+end.Address+"/readyz", authorization("Bearer "+end.Token), "")
	if err != nil {
		return oneFinding(id, what, Note, fmt.Sprintf("process %d does not answer at %s; it may have "+
			"been killed", end.PID, end.Address), "")
	}
	var report ops.Report
	if json.Unmarshal(a.body, &report) != nil ||
		a.status != http.StatusOK && a.status != http.StatusServiceUnavailable {
		return oneFinding(id, what, Bad, fmt.Sprintf("another program answers at %s", end.Address),
			"Stop that, and restart the gateway.")
	}
	if report.Ready {
		return oneFinding(id, what, OK, fmt.Sprintf("process %d is ready", end.PID), "")
	}
	var list []Finding
	for _, r := range report.Checks {
		if !r.OK {
			list = append(list, oneFinding(id+"."+strings.ReplaceAll(r.Name, " ", "-"), what, Bad,
				r.Name+": "+r.State, "See the log of the gateway, and gateway channels.")...)
		}
	}
	return list
}

// examinePersonas reports personas without effect, and skills in personas and policies that don't
// exist.
func examinePersonas(c Case) (list []Finding) {
	const id = "personas"
	skills := make(map[string][]string) // by table
	chosen := make(map[string]bool)
	for name, p := range c.Config.Policies {
		skills["policies."+name], chosen[p.Persona] = p.Skills, true
	}
	for _, name := range slices.Sorted(maps.Keys(c.Config.Personas)) {
		skills["personas."+name] = c.Config.Personas[name].Skills
		what, state, text := "[personas."+name+"]", Note, "no policy chooses it"
		if chosen[name] {
			docs, _ := filepath.Glob(filepath.Join(c.Persona(name), "*.md")) // a valid pattern
			if text = "no documents of its own in " + c.Persona(name); len(docs) > 0 {
				state, text = OK, fmt.Sprintf("documents of its own: %d", len(docs))
			}
		}
		list = append(list, oneFinding(id, what, state, text, "")...)
	}
	return append(list, examineSkills(c, skills)...)
}

// examineSkills reports patterns that match no skill. patterns has the skills of each table.
func examineSkills(c Case, patterns map[string][]string) (list []Finding) {
	const id, what = "skills", "Skills"
	var known []string
	for _, table := range slices.Sorted(maps.Keys(patterns)) {
		for _, pattern := range patterns[table] {
			var err error
			if known == nil {
				known, err = c.SkillNames()
			}
			if err != nil {
				return oneFinding(id, what, Bad, err.Error(), "Correct the rights of the folders.")
			}
			if !slices.ContainsFunc(known, func(s string) bool { return persona.Match(pattern, s) }) {
				list = append(list, oneFinding(id, what, Bad, fmt.Sprintf("[%s] skills: there is no skill %q%s",
					table, pattern, suggest.Hint(pattern, known)),
					"Correct the name; gateway skills list shows all.")...)
			}
		}
	}
	return list
}
