package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"gateway/agent/tool"
	"gateway/store/storetest"
)

// modeVar is an environment variable that makes the test binary a server.
const modeVar = "GATEWAY_TEST_MCP"

func TestMain(m *testing.M) {
	storetest.InMemory()
	if mode := os.Getenv(modeVar); mode == conformanceMode {
		os.Exit(conform(os.Args[len(os.Args)-1]))
	} else if mode != "" {
		serveMode(mode)
		os.Exit(0)
	}
	// Most of these tests wait, so many can run in parallel. A number given with -parallel is parsed
	// later and takes precedence.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	// No server may see this secret.
	if err := os.Setenv("GATEWAY_SECRET_FOR_TEST", "hunter2"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// A toolbox has the tools that the client has registered with Set, as the agent sees them.
type toolbox struct {
	mu   sync.Mutex
	reg  *tool.Registry
	sets int
}

func newToolbox(t *testing.T) *toolbox {
	t.Helper()
	reg, err := tool.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return &toolbox{reg: reg}
}

func (b *toolbox) set(source string, tools []tool.Tool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sets++
	return b.reg.Set(source, tools)
}

func (b *toolbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sets
}

func (b *toolbox) names() string {
	var names []string
	for _, s := range b.reg.Specs() {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

// call runs a tool as a turn does. The args are pairs of a name and a value.
func (b *toolbox) call(t *testing.T, name string, args ...any) (tool.Result, error) {
	t.Helper()
	return b.callWith(t.Context(), t, name, args...)
}

func (b *toolbox) callWith(
	ctx context.Context, t *testing.T, name string, args ...any,
) (tool.Result, error) {
	t.Helper()
	object := make(map[string]any)
	for i := 0; i < len(args); i += 2 {
		object[args[i].(string)] = args[i+1]
	}
	written, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := b.reg.Arguments(name, string(written))
	if err != nil {
		t.Fatal(err)
	}
	found, err := b.reg.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return found.Run(ctx, tool.Call{Args: checked})
}

// self returns a server that is this test binary in a mode.
func self(t *testing.T, name, mode string) Server {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Server{Name: name, Command: []string{exe}, Env: map[string]string{
		modeVar: mode, "MCP_TEST_DIR": t.TempDir(),
	}}
}

// run starts a client that reconnects quickly. The client ends with the test. Set of opts is called
// before the toolbox gets the tools.
func run(t *testing.T, opts *Options, servers ...Server) (*Client, *toolbox) {
	t.Helper()
	box := newToolbox(t)
	o := *cmp.Or(opts, new(Options))
	before := o.Set
	o.Set = func(source string, tools []tool.Tool) error {
		if before != nil {
			if err := before(source, tools); err != nil {
				return err
			}
		}
		return box.set(source, tools)
	}
	c := New(servers, &o)
	for _, s := range c.servers {
		s.first = 10 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("Run = %v, want %v", err, context.Canceled)
		}
	})
	return c, box
}

// await waits until cond returns true. It fails the test after three minutes.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(3 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s did not come", what)
		}
	}
}

// awaitState waits until the first server of c has a state.
func awaitState(t *testing.T, c *Client, state string) {
	t.Helper()
	await(t, fmt.Sprintf("state %q", state), func() bool { return c.States()[0].State == state })
}

// wantError checks that the text of err contains each of parts.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Error("got no error")
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got error %q, want %q in it", err, part)
		}
	}
}

func text(t string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: t}}}
}

// agreeToNew waits until the new tool is held, and then approves it.
func agreeToNew(t *testing.T, c *Client, box *toolbox) {
	t.Helper()
	await(t, "the new tool", func() bool { return len(c.States()[0].Held) > 0 })
	if _, err := box.reg.Lookup("mcp_s_added"); err == nil {
		t.Error("the agent has a tool that nobody has agreed to")
	}
	if err := c.Approve(t.Context(), "s", c.States()[0].Code); err != nil {
		t.Fatal(err)
	}
	if _, err := box.reg.Lookup("mcp_s_added"); err != nil {
		t.Error(err)
	}
}
