package mcp

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// The published reference servers and the conformance suite.
var referenceServers = []string{
	"@modelcontextprotocol/server-everything@2026.8.31",
	"@modelcontextprotocol/server-filesystem@2026.8.31",
	"@modelcontextprotocol/conformance@0.1.16",
}

var install = sync.OnceValues(installServers)

// installServers installs the reference servers once for each user and returns their directory.
func installServers() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	base = filepath.Join(base, "gateway-tests")
	dir := filepath.Join(base, "mcp-2026.8.31-0.1.16")
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(base, "mcp-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	args := append([]string{"install", "--prefix", fresh, "--no-audit", "--no-fund",
		"--ignore-scripts", "--save-exact"}, referenceServers...)
	cmd := exec.CommandContext(ctx, "npm", args...)
	cmd.Dir = fresh
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install: %w\n%s", err, out)
	}
	if err := os.Rename(fresh, dir); err != nil {
		if _, there := os.Stat(dir); there != nil { // another process was faster
			return "", err
		}
	}
	return dir, nil
}

// script returns the file of a reference server. If npm or node is missing, it skips the test,
// but in CI it fails the test.
func script(t *testing.T, name string) string {
	t.Helper()
	for _, program := range []string{"npm", "node"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	dir, err := install()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "node_modules", "@modelcontextprotocol", name, "dist", "index.js")
}

// A recorder records the processes of servers.
type recorder struct {
	mu   sync.Mutex
	cmds []*exec.Cmd
}

func (r *recorder) command(ctx context.Context, s Server) (*exec.Cmd, error) {
	cmd, err := plainCommand(ctx, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cmds = append(r.cmds, cmd)
	return cmd, err
}

// kill ends the newest process.
func (r *recorder) kill(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.cmds[len(r.cmds)-1].Process.Kill(); err != nil {
		t.Error(err)
	}
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.cmds)
}

// callEverything calls the tools of server-everything.
func callEverything(t *testing.T, box *toolbox) {
	t.Helper()
	tests := []struct {
		tool string
		args []any
		want string // a part of the text
	}{
		{"echo", []any{"message", "hello"}, "Echo: hello"},
		{"get-sum", []any{"a", 2, "b", "40"}, "42"},
		{"get-tiny-image", nil, "(picture 1, image/png, "},
		{"get-structured-content", []any{"location", "Chicago"}, "temperature"},
		{"get-resource-links", []any{"count", 2}, "mcp_every_resources may read it"},
		{"get-resource-reference", []any{"resourceType", "Text", "resourceId", 1}, "Resource 1"},
		{"get-annotated-message", []any{"messageType", "error", "includeImage", true}, "picture 1"},
		{"trigger-long-running-operation", []any{"duration", 1, "steps", 4}, "completed"},
		{"resources", nil, "demo://resource/"},
		{"resources", []any{"uri", "demo://resource/dynamic/text/3"}, "Resource 3"},
		{"resources", []any{"uri", "demo://resource/dynamic/blob/3"}, "(resource demo://"},
		{"prompts", nil, "args-prompt"},
		{"prompts", []any{"name", "args-prompt", "arguments", map[string]string{"city": "Oslo"}},
			"Oslo"},
	}
	for _, tt := range tests {
		got, err := box.call(t, "mcp_every_"+tt.tool, tt.args...)
		if err != nil || !strings.Contains(got.Text, tt.want) {
			t.Errorf("%s = %q, %v; want %q in it", tt.tool, got.Text, err, tt.want)
		}
		if tt.tool == "get-tiny-image" && (len(got.Images) != 1 || len(got.Images[0].Data) < 100) {
			t.Errorf("%s has the images %v", tt.tool, got.Images)
		}
	}
	_, err := box.call(t, "mcp_every_prompts", "name", "none")
	wantError(t, err, "the MCP server every refuses the call")
}

func TestReferenceEverything(t *testing.T) {
	t.Parallel() // TestMain gave this process a secret
	file := script(t, "server-everything")
	r := &recorder{}
	said := filepath.Join(t.TempDir(), "said") // the data that the server gets
	c, box := run(t, &Options{Command: r.command}, Server{Name: "every", Command: []string{
		"sh", "-c", `tee -a "$0" | node "$1" stdio`, said, file}, Timeout: time.Minute})
	awaitState(t, c, Connected)
	if refused := c.States()[0].Refused; len(refused) > 0 {
		t.Errorf("refused are %q", refused)
	}
	callEverything(t, box)
	got, err := box.call(t, "mcp_every_get-env")
	if err != nil || !strings.Contains(got.Text, "PATH") || strings.Contains(got.Text, "hunter2") {
		t.Errorf("its environment is %q, %v", got.Text, err)
	}

	failed := make(chan error, 1)
	go func() {
		_, err := box.call(t, "mcp_every_trigger-long-running-operation", "duration", 60, "steps", 60)
		failed <- err
	}()
	await(t, "the call", func() bool {
		text, err := os.ReadFile(said)
		return err == nil && strings.Contains(string(text), `"duration":60`)
	})
	r.kill(t)
	wantError(t, <-failed, "the MCP server every ended during the call", "killed")
	if got, err := box.call(t, "mcp_every_echo", "message", "again"); err != nil ||
		got.Text != "Echo: again" {
		t.Errorf("after the server was killed echo = %q, %v", got.Text, err)
	}
	if n := r.count(); n != 2 {
		t.Errorf("the server was started %d times, want 2", n)
	}
}

// everythingHTTP starts server-everything as an HTTP endpoint. The server has no option for the
// loopback interface, so a hook sets its address.
func everythingHTTP(t *testing.T, file string, at *net.TCPAddr) (stop func()) {
	t.Helper()
	hook := filepath.Join(t.TempDir(), "loopback.cjs")
	const keep = `const net = require("node:net"), listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
	return listen.call(this, { port: Number(port), host: process.env.HOST },
		...rest.filter((x) => typeof x === "function"));
};`
	if err := os.WriteFile(hook, []byte(keep), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", "-r", hook, file, "streamableHttp")
	cmd.Env = append(Environ(nil), fmt.Sprintf("PORT=%d", at.Port), "HOST="+at.IP.String())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()         // it ended by our signal
	})
	t.Cleanup(stop)
	return stop
}

func TestReferenceEverythingHTTP(t *testing.T) {
	t.Parallel()
	file := script(t, "server-everything")
	host := "127.0.0.1"
	if runtime.GOOS == "linux" { // on Linux, each process can use its own address
		pid := os.Getpid()
		host = fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, pid&255)
	}
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	stop := everythingHTTP(t, file, address)
	c, box := run(t, &Options{HTTP: web(t)}, Server{Name: "every",
		URL: "http://" + address.String() + "/mcp", Timeout: 30 * time.Second})
	awaitState(t, c, Connected)
	callEverything(t, box)

	stop()
	_, err = box.call(t, "mcp_every_echo", "message", "x")
	wantError(t, err, "the MCP server every")
	everythingHTTP(t, file, address)
	await(t, "the new session", func() bool {
		got, err := box.call(t, "mcp_every_echo", "message", "again")
		return err == nil && got.Text == "Echo: again"
	})
}

func TestReferenceFilesystem(t *testing.T) {
	t.Parallel()
	file := script(t, "server-filesystem")
	root, outside := t.TempDir(), t.TempDir()
	for dir, content := range map[string]string{root: "inside", outside: "hunter2"} {
		if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, box := run(t, nil, Server{Name: "fs", Command: []string{"node", file, root}})
	awaitState(t, c, Connected)
	if refused := c.States()[0].Refused; len(refused) > 0 {
		t.Errorf("refused are %q", refused)
	}
	got, err := box.call(t, "mcp_fs_read_text_file", "path", filepath.Join(root, "a.txt"))
	if err != nil || got.Text != "inside" || got.Foreign != "the MCP server fs" {
		t.Errorf("a file inside = %q, %v", got.Text, err)
	}
	written := filepath.Join(root, "b.txt")
	if _, err := box.call(t, "mcp_fs_write_file", "path", written, "content", "new"); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(written); err != nil || string(data) != "new" {
		t.Errorf("the written file is %q, %v", data, err)
	}
	_, err = box.call(t, "mcp_fs_read_text_file", "path", filepath.Join(outside, "a.txt"))
	wantError(t, err, "the MCP server fs reports an error", "outside")
	_, err = box.call(t, "mcp_fs_write_file", "path", filepath.Join(outside, "b.txt"), "content", "x")
	wantError(t, err, "the MCP server fs reports an error", "outside")
	if got, err := box.call(t, "mcp_fs_list_directory", "path", root); err != nil ||
		!strings.Contains(got.Text, "b.txt") {
		t.Errorf("the directory = %q, %v", got.Text, err)
	}
}
