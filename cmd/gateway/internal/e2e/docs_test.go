//go:build unix

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/discord/discordtest"
	"gateway/channels/telegram/telegramtest"
	"gateway/channels/whatsapp/whatsapptest"
)

// unrunnable lists the reasons for not running a shell block, each with a pattern that such a
// block must match. A comment before the block gives the reason.
var unrunnable = map[string]*regexp.Regexp{
	"needs a container engine": regexp.MustCompile(`docker `),
	"needs Kubernetes":         regexp.MustCompile(`kubectl `),
	"needs systemd":            regexp.MustCompile(`systemctl |journalctl |/etc/gateway`),
	"needs root":               regexp.MustCompile(`sudo |useradd `),
	"needs a download":         regexp.MustCompile(`ollama |sha256sums`),
	"needs a phone":            regexp.MustCompile(`gateway pair whatsapp\n`),
	"needs a key":              regexp.MustCompile(`--key env:`),
	"asks questions":           regexp.MustCompile(`gateway setup\n`),
	"takes minutes":            regexp.MustCompile(`go (install|test|run) |\.ci/run`),
	"needs another program":    regexp.MustCompile(`\bage |mcp (serve|login)|POST /hooks`),
}

// settled lists the pages for people whose gateway is already running: see [docPage.settle]. All
// other pages begin with an empty home.
var settled = []string{"channels.md", "configuration.md", "contributing.md", "docker.md",
	"durability.md", "extending.md", "faq.md", "hooks.md", "memory.md", "moving.md", "operations.md",
	"performance.md", "schedules.md", "security.md", "skills.md", "tools.md", "upgrade.md"}

// TestDocs follows README.md and each page of docs. In a new home it types the shell blocks of
// the page into a shell, one after another, and writes the files that the page shows. A text
// block after a shell block contains the expected output.
//
// The platforms and the model are fakes. Words such as CODE, and the examples in
// [docPage.fillIn], stand for values that a reader must fill in.
//
// A comment <!-- not run: REASON --> before a block says that the test can't run it, and
// <!-- file: PATH --> says that the block is a file.
func TestDocs(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no documents: %v", err)
	}
	for _, file := range append(files, "../../../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		blocks := parseDoc(t, string(text))
		if !slices.ContainsFunc(blocks, docBlock.runs) {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			p := openDocPage(t)
			if slices.Contains(settled, filepath.Base(file)) {
				p.settle()
			}
			for _, b := range blocks {
				p.read(b)
			}
		})
	}
}

// A docBlock is a shell block of a document, or a file that the document shows.
type docBlock struct {
	line  int
	file  string // path of the file that the reader writes; "": a block for the shell
	skip  string // reason why it can't run
	text  string
	shown string // expected output, as the document shows it
}

func (b docBlock) runs() bool { return b.skip == "" && b.file == "" }

var (
	docFence   = regexp.MustCompile("(?ms)(?:^<!-- ([a-z ]+): ([^\n]*) -->\n+)?^```(\\w+)\n(.*?)^```$")
	blankLines = regexp.MustCompile(`^\s*$`)
)

func parseDoc(t *testing.T, text string) (blocks []docBlock) {
	t.Helper()
	end := -1 // where the previous block ends, if it is for the shell; otherwise -1
	for _, at := range docFence.FindAllStringSubmatchIndex(text, -1) {
		part := func(n int) string {
			if at[2*n] < 0 {
				return ""
			}
			return text[at[2*n]:at[2*n+1]]
		}
		b := docBlock{line: 1 + strings.Count(text[:at[6]], "\n"), text: part(4)}
		switch comment, value := part(1), part(2); {
		case comment == "file":
			b.file = value
		case comment == "not run":
			b.skip = value
			if only := unrunnable[value]; only == nil || !only.MatchString(b.text) {
				t.Errorf("line %d: %q is no reason not to run this block", b.line, value)
			}
		case comment != "":
			t.Errorf("line %d: there is no comment %q", b.line, comment)
		}
		for reason, only := range unrunnable {
			if part(3) == "sh" && b.skip == "" && only.MatchString(b.text) {
				t.Errorf("line %d: this block %s, and nothing says so", b.line, reason)
				b.skip = reason
			}
		}
		if part(3) == "text" && end >= 0 && blankLines.MatchString(text[end:at[0]]) {
			blocks[len(blocks)-1].shown = b.text
		} else if part(3) == "sh" || b.file != "" {
			blocks = append(blocks, b)
		}
		end = -1
		if part(3) == "sh" {
			end = at[1]
		}
	}
	return blocks
}

// A docPage is the machine of a reader who follows a document.
type docPage struct {
	t        *testing.T
	path     string // folder of the gateway's program
	home     string // home of the user
	telegram *telegramtest.Server
	discord  *discordtest.Server
	whatsapp *whatsapptest.Server
	model    *openaitest.Server
	urls     map[string]string // URLs of the fakes, by name

	shell    *docShell
	held     *docShell // shell in which a gateway runs in the foreground
	gateway  *exec.Cmd // gateway that runs as a service, or nil
	newcomer int64     // id of the latest stranger

	strangers int
}

func openDocPage(t *testing.T) *docPage {
	program, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	p := &docPage{t: t, path: filepath.Dir(program), home: t.TempDir(), newcomer: 1000,
		telegram: telegramtest.New(testToken, nil),
		discord:  discordtest.New(discordToken, &discordtest.Options{AnswerTime: time.Hour}),
		whatsapp: whatsapptest.New(nil), model: openaitest.Start(followOrders),
		urls: make(map[string]string)}
	t.Cleanup(p.model.Close)
	p.model.SetModels("gpt-5.4-mini", "gpt-5.4", "qwen3:8b")
	p.urls["model"] = p.model.URL
	for name, fake := range map[string]interface {
		Start(context.Context) (string, error)
		Close()
	}{"telegram": p.telegram, "discord": p.discord, "whatsapp": p.whatsapp} {
		if p.urls[name], err = fake.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(fake.Close)
	}
	t.Cleanup(p.end)
	return p
}

// end stops everything that is still running.
func (p *docPage) end() {
	for _, s := range []*docShell{p.shell, p.held} {
		if s != nil {
			s.end()
		}
	}
	p.stop()
}

// environ returns the environment of a new terminal. No variable refers to another machine.
func (p *docPage) environ() []string {
	return append(thrifty(),
		"HOME="+p.home, "PATH="+p.path+":"+os.Getenv("PATH"), "TMPDIR="+p.home,
		"GATEWAY_HTTP__LISTEN=127.0.0.1:0", "GATEWAY_EXEC__SANDBOX=off",
		"HTTPS_PROXY=http://127.0.0.1:1", "TZ=UTC",
		fmt.Sprintf("GATEWAY_WHATSAPP_ROOT=%x", whatsapptest.RootKey))
}

// read follows one block.
func (p *docPage) read(b docBlock) {
	p.t.Helper()
	if b.skip != "" {
		return
	}
	if b.file != "" {
		p.stop()
		path := filepath.Join(p.home, strings.TrimPrefix(b.file, "~/"))
		writeFile(p.t, path, []byte(p.fillIn(b.text)))
		return
	}
	p.prepare(b.text)
	out, failed := p.typed(p.fillIn(b.text))
	deadline := time.Now().Add(patience)
	for len(failed) > 0 && asking.MatchString(b.text) && time.Now().Before(deadline) {
		out, failed = p.typed(b.text) // on a busy machine, the gateway may not be ready for a moment
	}
	for _, command := range failed {
		if !mayFail.MatchString(command) {
			p.t.Errorf("line %d: %s failed:\n%s", b.line, command, out)
		}
	}
	p.t.Logf("line %d:\n%s%s", b.line, b.text, out)
	if missing := notShown(b.shown, out); missing != "" {
		p.t.Errorf("line %d: the document shows %q, and this was printed:\n%s", b.line, missing, out)
	}
}

// asking matches blocks that only ask for the state of the gateway.
var asking = regexp.MustCompile(`\A(gateway health.*\n)+\z`)

// mayFail matches the commands that fail if they find a problem, such as the missing sandbox.
var mayFail = regexp.MustCompile(`^gateway (doctor|security)`)

var (
	docCode     = regexp.MustCompile(`^[A-Z2-7]{8}$`)
	docDuration = regexp.MustCompile(`^(\d+[hms])+$`)
	docNumber   = regexp.MustCompile(`\d+`)
)

// notShown returns the first line of shown that is not in out after the line before it. In shown,
// "…" matches any text. A number matches any number, a time such as 3s any time, and a code any
// code.
func notShown(shown, out string) string {
	lines := strings.Split(out, "\n")
	for line := range strings.Lines(shown) {
		var pattern []string
		for _, word := range strings.Fields(line) {
			switch {
			case docCode.MatchString(word):
				word = `[A-Z2-7]{8}`
			case docDuration.MatchString(word):
				word = `(\d+[hms])+`
			case word == "…":
				word = `.*`
			default:
				word = docNumber.ReplaceAllString(regexp.QuoteMeta(word), `\d+`)
				word = strings.ReplaceAll(word, "…", `.*`)
			}
			pattern = append(pattern, word)
		}
		want := regexp.MustCompile(`^\s*` + strings.Join(pattern, `\s+`) + `\s*$`)
		i := slices.IndexFunc(lines, want.MatchString)
		if i < 0 {
			return strings.TrimSpace(line)
		}
		lines = lines[i+1:]
	}
	return ""
}

// A docShell is a bash process that gets blocks as its input. Its commands share this input, so
// they could read the next typed line, as on a terminal.
type docShell struct {
	cmd    *exec.Cmd
	input  *os.File
	output string // path of the file with all output
	report *os.File
	read   int // bytes of output that belong to earlier blocks
	lines  chan string
}

// docTraps makes bash report the first line of each failing command, and its own end.
const docTraps = `set -o pipefail
trap 'printf "failed %s\n" "${BASH_COMMAND%%$'"'\n'"'*}" >&3' ERR
trap 'echo ended >&3' EXIT
`

func (p *docPage) open() *docShell {
	s := &docShell{output: filepath.Join(p.t.TempDir(), "output"), lines: make(chan string, 100)}
	out, err := os.Create(s.output)
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	reported, reports, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	defer reports.Close()
	typed, input, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	defer typed.Close()
	s.input, s.report = input, reported
	s.cmd = exec.Command("bash", "--norc", "--noprofile", "-s")
	s.cmd.Env, s.cmd.Dir = p.environ(), p.home
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = typed, out, out
	s.cmd.ExtraFiles = []*os.File{reports} // file descriptor 3
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go s.listen()
	s.write(p.t, docTraps)
	return s
}

// listen forwards the reports of the shell until all of its commands have ended.
func (s *docShell) listen() {
	defer close(s.lines)
	var line []byte
	for b := make([]byte, 1); ; {
		if n, err := s.report.Read(b); n == 0 || err != nil {
			return
		}
		if b[0] != '\n' {
			line = append(line, b[0])
			continue
		}
		s.lines <- string(line)
		line = line[:0]
	}
}

func (s *docShell) write(t *testing.T, text string) {
	t.Helper()
	if _, err := s.input.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// printed returns the output since the last call.
func (s *docShell) printed(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(s.output)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.read = len(data) }()
	return string(data[s.read:])
}

// end ends the shell and its processes.
func (s *docShell) end() {
	s.input.Close()
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGTERM) // no process of the shell may be left
	for range s.lines {
	}
	_ = s.cmd.Wait() // the error is the signal, or the result of the last command
	s.report.Close()
}

// starting matches lines that start a gateway. The reader has stopped a gateway in another
// terminal before.
var starting = regexp.MustCompile(`(?m)^(nohup )?gateway( </dev/null.*)?$`)

// occupying matches the last line of a block that keeps the terminal busy. The reader opens
// another one.
var occupying = regexp.MustCompile(`(?m)^gateway( chat)?\n\z`)

// typed types a block. It returns the output and the commands that failed.
func (p *docPage) typed(text string) (out string, failed []string) {
	p.t.Helper()
	if p.shell == nil {
		p.shell = p.open()
	}
	s := p.shell
	before, held := text, occupying.FindString(text)
	if p.held != nil && starting.MatchString(text) {
		p.held.end()
		p.held = nil
	}
	before = strings.TrimSuffix(before, held)
	if strings.Contains(before, "gateway pair whatsapp --phone") {
		linked := make(chan struct{})
		go func() { defer close(linked); p.link(s) }()
		defer func() { until(p.t, "the phone", linked) }()
	}
	s.write(p.t, before+"printf 'done\\n' >&3\n")
	failed = p.await(s, "done")
	if strings.Contains(before, "gateway </dev/null") {
		p.ready()
	}
	switch strings.TrimSpace(held) {
	case "gateway":
		s.write(p.t, held)
		p.shell, p.held = nil, s
		p.ready()
	case "gateway chat":
		s.write(p.t, held+"hello\n")
		s.input.Close() // as with Ctrl-D
		failed = append(failed, p.await(s, "ended")...)
		p.shell = nil
		p.t.Cleanup(s.end)
		if out := s.printed(p.t); !strings.Contains(out, "hello") {
			p.t.Errorf("the chat does not answer: %s", out)
		}
	}
	return s.printed(p.t), failed
}

// await waits until the shell reports a word, and returns the commands that failed before.
func (p *docPage) await(s *docShell, word string) (failed []string) {
	p.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-s.lines:
			if command, found := strings.CutPrefix(line, "failed "); found {
				failed = append(failed, command)
			} else if !ok || line == word {
				return failed
			}
		case <-timer.C:
			p.t.Fatalf("a block does not end; it printed:\n%s", s.printed(p.t))
		}
	}
}

// run runs a gateway command outside of the shell, as in another terminal.
func (p *docPage) run(args ...string) (string, error) {
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(p.path, "gateway"), args...)
	cmd.Env, cmd.Dir = p.environ(), p.home
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return out.String(), errors.Join(err, errors.New(problems.String()))
	}
	return out.String(), nil
}

// must is like run, but ends the test if the command fails.
func (p *docPage) must(args ...string) string {
	p.t.Helper()
	out, err := p.run(args...)
	if err != nil {
		p.t.Fatalf("gateway %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// ready waits until a gateway is running.
func (p *docPage) ready() {
	p.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		_, err := p.run("health")
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the gateway does not start: %v", err)
		}
	}
}

func TestNotShown(t *testing.T) {
	t.Parallel()
	const out = "PERSON  NAME\n1       Ann\n\nasks, code ABCDEFGH\nAnn came 1m15s ago\n"
	for _, test := range []struct{ shown, want string }{
		{"", ""},
		{"PERSON NAME\n7   Ann\n", ""},
		{"PERSON …\n", ""},
		{"asks, code YIGZHGHQ\n", ""},
		{"Ann came 3s ago\n", ""},
		{"1 Bob\n", "1 Bob"},
		{"1 Ann\nPERSON NAME\n", "PERSON NAME"},
		{"1\n", "1"},
	} {
		if got := notShown(test.shown, out); got != test.want {
			t.Errorf("of %q %q is not shown, want %q", test.shown, got, test.want)
		}
	}
}
