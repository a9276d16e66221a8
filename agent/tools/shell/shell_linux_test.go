//go:build amd64 || arm64

package shell

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gateway/agent/tool"
	"gateway/agent/tools/shell/sandbox"
	"gateway/bus"
	"gateway/bus/bustest"
)

func TestMain(m *testing.M) {
	// Most of these tests wait, so many can run in parallel. A number given with -parallel is parsed
	// later and takes precedence.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// A testShell is a shell with a workspace.
type testShell struct {
	t     *testing.T
	shell *Shell
	ws    string
	tools *tool.Registry

	withheld []string // folders of withheld skills
}

func newTestShell(t *testing.T, change func(*Options)) *testShell {
	t.Helper()
	box, err := sandbox.Find(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ws := filepath.Join(t.TempDir(), "workspace")
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	o := Options{Sandbox: just(box), Workspace: ws}
	if change != nil {
		change(&o)
	}
	d := &testShell{t: t, shell: New(o), ws: ws}
	d.shell.earlyWait = time.Millisecond
	t.Cleanup(d.shell.Close)
	d.tools, err = tool.NewRegistry(d.shell.Tools()...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// just returns a function that always returns this sandbox.
func just(box *sandbox.Sandbox) func() (*sandbox.Sandbox, error) {
	return func() (*sandbox.Sandbox, error) { return box, nil }
}

// use calls a tool in a session and returns its text.
func (d *testShell) use(session, name, args string) (string, error) {
	d.t.Helper()
	checked, err := d.tools.Arguments(name, args)
	found, lost := d.tools.Lookup(name)
	if err := errors.Join(err, lost); err != nil {
		d.t.Fatal(err)
	}
	r, err := found.Run(d.t.Context(), tool.Call{
		Args: checked, Session: bustest.Session(session), Role: bus.User,
		Address: bus.Address{Account: "tg", Chat: "1"},
	})
	if err == nil && name != "exec_list" && r.Foreign != foreign {
		d.t.Errorf("%s: Foreign = %q, want %q", name, r.Foreign, foreign)
	}
	return r.Text, err
}

// run runs a command line in the foreground.
func (d *testShell) run(command string) string {
	d.t.Helper()
	text, err := d.use("s", "exec", object("command", command))
	if err != nil {
		d.t.Fatal(err)
	}
	return text
}

// begin starts a command in the background and returns its ID.
func (d *testShell) begin(session, command string) string {
	d.t.Helper()
	text, err := d.use(session, "exec", object("command", command, "background", true))
	if err != nil {
		d.t.Fatal(err)
	}
	id := regexp.MustCompile(`the id (p\d+);`).FindStringSubmatch(text)
	if id == nil {
		d.t.Fatalf("there is no id in %q", text)
	}
	return id[1]
}

func object(pairs ...any) string {
	m := make(map[string]any)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestExec(t *testing.T) {
	t.Parallel()
	d := newTestShell(t, nil)
	script := filepath.Join(d.ws, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$1\""), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(d.ws, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ args, want string }{
		{object("command", "echo hello"), "hello\n[exit code 0]"},
		{object("command", "printf x; exit 3"), "x\n[exit code 3]"},
		{object("argv", []string{"/bin/echo", "a  b", "$HOME", ""}), "a  b $HOME \n[exit code 0]"},
		{object("command", "cat script | head -c 2"), "#!\n[exit code 0]"},
		{object("command", "./script word"), "word\n[exit code 0]"},
		{object("command", "true"), "[no output; exit code 0]"},
		{object("command", "pwd", "dir", "sub"), d.ws + "/sub\n[exit code 0]"},
		{object("command", "pwd", "dir", d.ws+"/sub"), d.ws + "/sub\n[exit code 0]"},
		{object("command", "echo 1; echo 2 >&2; echo 3"), "1\n2\n3\n[exit code 0]"},
		{object("command", "cat"), "[no output; exit code 0]"},
		{object("command", "sh -c 'kill -SEGV $$'"),
			"Segmentation fault\n[exit code 139, which may mean signal 11, segmentation fault]"},
		{object("command", `printf 'a\033[31mred\033[0m \033]0;title\007b\b\r\nc\rd\0'`),
			"ared b␈\nc\nd␀\n[exit code 0]"},
	}
	for _, tt := range tests {
		if got, err := d.use("s", "exec", tt.args); err != nil || got != tt.want {
			t.Errorf("exec %s = %q, %v\nwant %q", tt.args, got, err, tt.want)
		}
	}
}

func TestExecRefuses(t *testing.T) {
	t.Parallel()
	d := newTestShell(t, nil)
	d.shell.earlyWait = time.Minute
	if err := os.Symlink("/etc", filepath.Join(d.ws, "link")); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ args, want string }{
		{`{}`, "give a command, such as ls -l, or argv"},
		{`{"command":"  "}`, "give a command, such as ls -l, or argv"},
		{`{"command":"a","argv":["b"]}`, "give either command or argv, not both"},
		{`{"argv":[""]}`, "the first of argv must be a program"},
		{`{"command":"a\u0000b"}`, "zero byte"},
		{`{"command":"ls","timeout":-1}`, "negative"},
		{`{"command":"ls","dir":"nothing"}`, `no folder "nothing"`},
		{`{"command":"ls","dir":"link"}`, `no folder "link"`},
		{`{"command":"ls","dir":".."}`, "outside the workspace"},
		{`{"command":"ls","dir":"/etc"}`, "outside the workspace"},
		{`{"command":"nonexistent-x -y"}`, "nonexistent-x: there is no such program"},
		{`{"command":"nonexistent-x -y","background":true}`, "no such program"},
	}
	for _, tt := range tests {
		got, err := d.use("s", "exec", tt.args)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("exec %s = %q, %v; want an error with %q", tt.args, got, err, tt.want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("GATEWAY_TEST_SHOWN", "yes")
	t.Setenv("GATEWAY_TEST_HIDDEN", "yes")
	media := t.TempDir()
	if err := os.WriteFile(filepath.Join(media, "photo"), []byte("picture"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := newTestShell(t, func(o *Options) {
		o.Env = []string{"GATEWAY_TEST_SHOWN", "GATEWAY_TEST_NONE"}
		o.Media = func(a bus.Address) string {
			if a != (bus.Address{Account: "tg", Chat: "1"}) {
				t.Errorf("media of %s was asked for", a)
			}
			return media
		}
	})
	got := d.run(`echo $GATEWAY_TEST_SHOWN $GATEWAY_TEST_HIDDEN $HOME; cat $MEDIA/photo; ` +
		`echo x > $MEDIA/new; ls $MEDIA`)
	if want := "yes " + d.ws + "\npicture"; !strings.HasPrefix(got, want) ||
		strings.Contains(got, "\nnew") {
		t.Errorf("got %q, want %q, and no new file", got, want)
	}
	if _, err := os.Stat(filepath.Join(media, "new")); err == nil {
		t.Error("the files that people sent can be changed")
	}
	none := newTestShell(t, func(o *Options) {
		o.Media = func(bus.Address) string { return "/nonexistent" }
	})
	if got := none.run(`echo "<$MEDIA>"`); got != "<>\n[exit code 0]" {
		t.Errorf("without files there is the folder %q", got)
	}
}

func TestTools(t *testing.T) {
	t.Parallel()
	effects := map[string]tool.Effect{
		"exec": tool.Once, "exec_input": tool.Once, "exec_list": tool.Pure,
	}
	for _, tool := range newTestShell(t, nil).shell.Tools() {
		if want, ok := effects[tool.Name]; !ok || tool.Effect != want || tool.MinRole != bus.User {
			t.Errorf("%s is %s for %s", tool.Name, tool.Effect, tool.MinRole)
		}
		if (tool.Argv != nil) != (tool.Name != "exec_list") {
			t.Errorf("%s: Argv is %v", tool.Name, tool.Argv != nil)
		}
	}
}

func TestBackground(t *testing.T) {
	t.Parallel()
	d := newTestShell(t, nil)
	id := d.begin("s", `while read l; do echo "got $l"; done; echo bye`)
	steps := []struct{ args, want string }{
		{object("id", id, "text", "one\n"), "got one\n[ID still runs, for "},
		{object("id", id), "[no output; ID still runs, for "},
		{object("id", id, "text", "two\nthree\n"), "got two\ngot three\n[ID still runs, for "},
		{object("id", id, "eof", true, "wait", 60), "bye\n[ID "},
		{object("id", id, "wait", 10), "[no output; ID has ended after "},
		{object("id", id, "text", "more"), "[no output; ID has ended after "},
		{object("id", id, "end", true), "[no output; ID has ended after "},
	}
	for _, step := range steps {
		want := strings.ReplaceAll(step.want, "ID", id)
		got, err := d.use("s", "exec_input", step.args)
		for err == nil && !strings.HasPrefix(got, want) && unfinished(got, want) {
			var more string // a busy machine may need more time
			more, err = d.use("s", "exec_input", object("id", id, "wait", 10))
			got = output(got) + more
		}
		if err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("exec_input %s = %q, %v; want %q…", step.args, got, err, want)
		}
	}
	list, err := d.use("s", "exec_list", `{}`)
	if err != nil || !strings.Contains(list, id+" has ended") ||
		!strings.Contains(list, ": while read") {
		t.Errorf("exec_list = %q, %v", list, err)
	}
}

// output returns the output of a command without the tool's own note at the end.
func output(text string) string { return text[:strings.LastIndex(text, "[")] }

// unfinished reports whether got has only the beginning of the wanted output.
func unfinished(got, want string) bool {
	return len(output(got)) < len(output(want)) && strings.HasPrefix(want, output(got))
}

// Only the person who started a background command, or an admin, can send input to it or end it.
// Their role must not be lower than that of the command. Other people can only read its output.
func TestOwners(t *testing.T) {
	t.Parallel()
	d := newTestShell(t, nil)
	call := func(sender string, person int64, role bus.Role, args string) tool.Call {
		return tool.Call{Args: json.RawMessage(args), Sender: bus.Sender{ID: sender}, Person: person,
			Role: role, Address: bus.Address{Account: "tg", Chat: "1"}}
	}
	use := func(name string, c tool.Call) (string, error) {
		found, err := d.tools.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := found.Run(t.Context(), c)
		return r.Text, err
	}
	text, err := use("exec", call("7", 1, bus.User, object("command", "cat", "background", true)))
	if err != nil || !strings.Contains(text, "the id p1;") {
		t.Fatalf("exec = %q, %v", text, err)
	}
	input, err := d.tools.Lookup("exec_input")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		sender string
		person int64
		role   bus.Role
		may    bool
	}{
		{"the same", "7", 0, bus.User, true},
		{"the same on another platform", "70", 1, bus.User, true},
		{"the same with a guest", "7", 1, bus.Guest, false},
		{"another user", "8", 2, bus.User, false},
		{"an admin", "9", 3, bus.Admin, true},
	} {
		for _, args := range []string{object("id", "p1", "text", "x\n")} {
			c2 := call(c.sender, c.person, c.role, args)
			if _, err := use("exec_input", c2); (err == nil) != c.may {
				t.Errorf("%s: exec_input %s: %v", c.name, args, err)
			}
			if got := input.Argv(c2); !slices.Equal(got, []string{"cat"}) {
				t.Errorf("it is judged like %q, want cat", got)
			}
		}
		look := call(c.sender, c.person, c.role, object("id", "p1"))
		if _, err := use("exec_input", look); err != nil || input.Argv(look) != nil {
			t.Errorf("%s can't look: %v; judged like %q", c.name, err, input.Argv(look))
		}
	}
	message := func(sender string, r bus.Role) *bus.InboundMessage {
		return &bus.InboundMessage{From: bus.Address{Account: "tg", Chat: "1"},
			Sender: bus.Sender{ID: sender}, Role: r}
	}
	if n := d.shell.Stop(bus.Session{}, message("8", bus.User)); n != 0 {
		t.Error("another user ended the command")
	}
	end := call("8", 2, bus.User, object("id", "p1", "end", true))
	if _, err := use("exec_input", end); err == nil {
		t.Error("another user ended the command by exec_input")
	}
	if n := d.shell.Stop(bus.Session{}, message("7", bus.User)); n != 1 {
		t.Errorf("who has started the command ended %d, want 1", n)
	}
}

func TestEarlyEnd(t *testing.T) {
	t.Parallel()
	d := newTestShell(t, nil)
	d.shell.earlyWait = time.Minute
	got, err := d.use("s", "exec", `{"command":"echo no; exit 4","background":true}`)
	if want := "no\n[it has already ended: exit code 4]"; err != nil || got != want {
		t.Errorf("exec = %q, %v; want %q", got, err, want)
	}
	list, err := d.use("s", "exec_list", `{}`)
	if err != nil || !strings.HasPrefix(list, "No commands") {
		t.Errorf("exec_list = %q, %v", list, err)
	}
}

// TestSessions checks that a session can't use the commands of other sessions, and that Stop ends
// the commands of a session and its sub-agents.
func TestSessions(t *testing.T) {
	t.Parallel()
	d := newTestShell(t, nil)
	ids := make(map[string]string)
	for _, session := range []string{"tg/1", "tg/1#sub", "tg/12"} {
		ids[session] = d.begin(session, "echo x; sleep 600")
	}
	for session, id := range ids {
		for _, other := range []string{"tg/1", "tg/1#sub", "tg/12", "tg/3"} {
			_, err := d.use(other, "exec_input", object("id", id))
			list, listErr := d.use(other, "exec_list", `{}`)
			own := other == session
			if (err == nil) != own || listErr != nil || strings.Contains(list, id+" ") != own {
				t.Errorf("%s of %s in %s: %v, list %q", id, session, other, err, list)
			}
		}
	}
	if n := d.shell.Stop(bustest.Session("tg/1"), nil); n != 2 {
		t.Errorf("Stop ended %d, want 2", n)
	}
	for session, want := range map[string]bool{"tg/1": false, "tg/1#sub": false, "tg/12": true} {
		list, err := d.use(session, "exec_list", `{}`)
		if err != nil || strings.Contains(list, "still runs") != want {
			t.Errorf("after Stop, %s has %q, %v", session, list, err)
		}
	}
	if n := d.shell.Stop(bustest.Session("tg/1"), nil); n != 0 {
		t.Errorf("Stop ended %d again", n)
	}
	d.shell.Close()
	if _, err := d.use("tg/1", "exec", `{"command":"sleep 9","background":true}`); err == nil {
		t.Error("a closed shell starts commands")
	}
}

func TestBackgroundLimit(t *testing.T) {
	t.Parallel()
	d := newTestShell(t, nil)
	done := make(chan string, maxRunning)
	for range maxRunning {
		go func() { done <- d.begin("s", "sleep 600") }()
	}
	var ids []string
	for range maxRunning {
		ids = append(ids, <-done)
	}
	if _, err := d.use("s", "exec", `{"command":"sleep 9","background":true}`); err == nil ||
		!strings.Contains(err.Error(), "8 commands run in the background already") {
		t.Errorf("the ninth command: %v", err)
	}
	if _, err := d.use("s", "exec_input", object("id", ids[0], "end", true)); err != nil {
		t.Fatal(err)
	}
	d.begin("s", "sleep 600")
	if slices.Sort(ids); len(slices.Compact(ids)) != maxRunning {
		t.Errorf("the ids are %q", ids)
	}
}

// TestBuffer checks that the output of a process that nobody reads takes a bounded amount of
// memory.
func TestBuffer(t *testing.T) {
	t.Parallel()
	p := &process{done: make(chan struct{}), changed: make(chan struct{})}
	for range 1000 {
		if n, err := p.Write([]byte(strings.Repeat("ä", 1000))); n != 2000 || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	if len(p.buffer) > bufferSize || cap(p.buffer) > 4*bufferSize {
		t.Errorf("the buffer holds %d bytes of %d", len(p.buffer), cap(p.buffer))
	}
	lost := 1_000_000 - bufferSize/2
	want := fmt.Sprintf("[… %d earlier characters are lost …]\nä", lost)
	if got := p.newOutput(); !strings.HasPrefix(got, want) {
		t.Errorf("the news begin with %.100q, want %q", got, want)
	}
	if got := p.newOutput(); got != "" {
		t.Errorf("the news are told again: %.100q", got)
	}
}

// BenchmarkExec uses the whole gateway as the supervisor, because the start of that program takes
// most of the time.
func BenchmarkExec(b *testing.B) {
	ws, self := b.TempDir(), filepath.Join(b.TempDir(), "gateway")
	build := exec.Command("go", "build", "-o", self, "gateway/cmd/gateway")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	bench := func(name string, run func(b *testing.B)) { b.Run(name, run) }
	bench("plain", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, mode := range []string{sandbox.None, sandbox.Bubblewrap, sandbox.Landlock} {
		bench(mode, func(b *testing.B) {
			box, err := sandbox.Find(b.Context(), sandbox.Options{Mode: mode, Self: self})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				c, err := box.Command(b.Context(), sandbox.Spec{
					Argv: []string{"/bin/true"}, ReadWrite: []string{ws},
				})
				if err != nil {
					b.Fatal(err)
				}
				runErr := c.Run()
				if o, err := c.Outcome(); runErr != nil || err != nil || o.Err != "" {
					b.Fatal(runErr, err, o)
				}
			}
		})
	}
}

// Without a working sandbox, commands are refused. A command that the sandbox could not start
// causes a new check of the sandbox. A command that fails by itself does not.
func TestDoubt(t *testing.T) {
	t.Parallel()
	var none error
	doubts := 0
	d := newTestShell(t, func(o *Options) {
		find := o.Sandbox
		o.Sandbox = func() (*sandbox.Sandbox, error) {
			box, _ := find() // the sandbox itself exists
			return box, none
		}
		o.Doubt = func(context.Context) error {
			doubts++
			return none
		}
	})
	d.shell.earlyWait = time.Minute
	use := func(command string, background bool, wantDoubts int, want string) {
		t.Helper()
		before := doubts
		text, err := d.use("s", "exec",
			fmt.Sprintf(`{"command":%q,"background":%t}`, command, background))
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, want) || doubts-before != wantDoubts {
			t.Errorf("%q: %q with %d doubts, want %q with %d", command, text, doubts-before, want,
				wantDoubts)
		}
	}
	for _, background := range []bool{false, true} {
		use("echo well", background, 0, "well")
		use("echo no; exit 1", background, 0, "exit code 1")
		use("echo 'bwrap: no namespaces'; exit 1", background, 1, "exit code 1")
	}
	none = errors.New("it is broken")
	use("echo well", false, 0, "it is broken")
	use("echo well", true, 0, "it is broken")
}

// If the commands would have too many processes together, a command waits for others to end. If
// it waits too long, it is refused.
func TestRoom(t *testing.T) {
	t.Parallel()
	d := newTestShell(t, func(o *Options) { o.Limits.Processes, o.Processes = 16, 40 })
	for range 2 {
		if _, err := d.use("s", "exec", `{"command":"cat","background":true}`); err != nil {
			t.Fatal(err)
		}
	}
	const free = `{"command":"echo there is room"}`
	d.shell.wait = time.Millisecond
	for _, args := range []string{free, `{"command":"cat","background":true}`} {
		_, err := d.use("other", "exec", args)
		if err == nil || !strings.Contains(err.Error(), "as many processes as they may have together") {
			t.Errorf("a third command: %v", err)
		}
	}
	d.shell.wait = 3 * time.Minute
	answered := make(chan string)
	go func() {
		text, err := d.use("other", "exec", free)
		answered <- fmt.Sprint(text, err)
	}()
	if _, err := d.use("s", "exec_input", `{"id":"p1","eof":true,"wait":60}`); err != nil {
		t.Fatal(err)
	}
	if got := <-answered; !strings.HasPrefix(got, "there is room") {
		t.Errorf("a command that has waited said %q", got)
	}
	for range 3 { // an ended command returns its whole share
		if text, err := d.use("other", "exec", free); err != nil ||
			!strings.HasPrefix(text, "there is room") {
			t.Errorf("a later command said %q, %v", text, err)
		}
	}
}
