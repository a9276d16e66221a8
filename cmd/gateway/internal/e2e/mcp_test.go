package e2e

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"gateway/cmd/gateway/internal/app"
)

// TestServerInSandbox checks that a server's program in the sandbox can access the workspace but
// not the gateway's home.
func TestServerInSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: followOrders, sandbox: "auto"})
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

// TestServerWithoutData checks that a server in a home without data sends its client the reason
// and fails.
func TestServerWithoutData(t *testing.T) {
	t.Parallel()
	program, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, program, "mcp", "serve")
	cmd.Env = []string{"GATEWAY_HOME=" + home}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	_, err = sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).
		Connect(ctx, &sdk.CommandTransport{Command: cmd}, nil)
	want := home + " has no data yet. Start the gateway once"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the client is told %v, want %q", err, want)
	}
	if code := cmd.ProcessState.ExitCode(); code != app.ExitFailure {
		t.Errorf("the server ended with %d, want %d", code, app.ExitFailure)
	}
	if !strings.Contains(errOut.String(), want) {
		t.Errorf("the server wrote %q, want %q", errOut.String(), want)
	}
}

// server returns the configuration of an MCP server that serves the data of a home.
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
