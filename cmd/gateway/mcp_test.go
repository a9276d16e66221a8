package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// A server's program runs in the sandbox: it reaches what lies in the workspace, and the home of
// the gateway beside it not at all.
func TestServerInSandbox(t *testing.T) {
	w := newWorld(t, worldOptions{answer: obey, sandbox: "auto"})
	workspace := filepath.Join(w.home, "workspace")
	inner := filepath.Join(workspace, "inner")
	p := w.start("GATEWAY_HOME="+inner, "TELEGRAM_BOT_TOKEN=", "GATEWAY_EXEC__SANDBOX=off")
	p.ready()
	p.kill()
	program, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	copyProgram(t, program, filepath.Join(workspace, "program"))
	w.configure(quiet + "\nowners = [7]\n" + server("inner", inner) + server("outer", w.home))
	p = w.start()
	p.ready()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = p.wait(ctx, func() bool {
		return p.logged("mcp server connected") > 0 && p.logged("mcp server not connected") > 0
	})
	if err != nil {
		t.Fatalf("waited for the servers: %v\n%s", err, p.newest())
	}
	w.telegram.Say(7, 7, `DO mcp_inner_send {"to":"telegram/7","text":"x"}`)
	w.await("an answer", func() bool { return has(w.texts(7), "the MCP server inner") })
	w.telegram.Say(7, 7, "DO mcp_outer_sessions {}")
	w.await("an answer", func() bool { return has(w.texts(7), `no tool "mcp_outer_sessions"`) })
}

// server returns the configuration of one that serves the data in a home.
func server(name, home string) string {
	return "[mcp." + name + "]\ncommand = [\"./program\", \"mcp\", \"serve\"]\n" +
		"[mcp." + name + ".env]\nGATEWAY_HOME = " + strconv.Quote(home) + "\n"
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700)
	if err == nil {
		_, err = io.Copy(out, in)
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
