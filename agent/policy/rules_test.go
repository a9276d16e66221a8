package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"gateway/bus"
)

func rules(t *testing.T) Rules {
	t.Helper()
	var commands []Command
	for _, c := range []struct {
		pattern string
		v       Decision
	}{
		{"rm -rf *", Deny}, {"git push *", Ask}, {"git *", Allow}, {"ls", Allow},
		{"cat [a-z]*.txt", Allow},
	} {
		parsed, err := ParseCommand(c.pattern, c.v)
		if err != nil {
			t.Fatal(err)
		}
		commands = append(commands, parsed)
	}
	return Rules{
		{Tool: "exec", Commands: commands, Roles: map[bus.Role]Decision{
			bus.Owner: Ask, bus.User: Ask, bus.Guest: Deny}},
		{Tool: "mcp_a_*", Roles: map[bus.Role]Decision{bus.User: Ask}},
		{Tool: "mcp_a_look*", Roles: map[bus.Role]Decision{bus.User: Deny}},
		{Tool: "mcp_a_look", Roles: map[bus.Role]Decision{bus.User: Allow}},
	}
}

func TestDecide(t *testing.T) {
	r := rules(t)
	for _, test := range []struct {
		role bus.Role
		tool string
		argv string // words
		want Decision
	}{
		{bus.Owner, "read_file", "", Allow}, // no rule matches
		{bus.Owner, "exec", "make", Ask},
		{bus.Admin, "exec", "make", Allow}, // the rule does not mention admins
		{bus.Guest, "exec", "ls", Deny},
		{bus.Owner, "exec", "ls", Allow},
		{bus.Owner, "exec", "ls -l", Ask}, // the pattern does not allow further words
		{bus.Owner, "exec", "git status", Allow},
		{bus.Owner, "exec", "git", Allow},
		{bus.Owner, "exec", "git push origin main", Ask},
		{bus.Owner, "exec", "/usr/bin/git status", Ask},
		{bus.Owner, "exec", "env git status", Ask},
		{bus.Owner, "exec", "rm -rf a/b", Deny},
		{bus.Admin, "exec", "rm -rf /", Deny},
		{bus.Owner, "exec", "rm -fr a", Ask},
		{bus.Owner, "exec", "cat a.txt", Allow},
		{bus.Owner, "exec", "cat a/../../b.txt", Allow}, // "*" also matches "/"
		{bus.Owner, "exec", "cat A.txt", Ask},
		{bus.User, "mcp_a_write", "", Ask},
		{bus.User, "mcp_a_look", "", Allow},
		{bus.User, "mcp_a_lookup", "", Deny},
		{bus.User, "mcp_b_look", "", Allow},
	} {
		if got := r.Decide(test.role, test.tool, strings.Fields(test.argv), Allow); got != test.want {
			t.Errorf("Decide(%s, %s, %q) = %s, want %s", test.role, test.tool, test.argv, got, test.want)
		}
	}
}

// A rule changes only the cases that it mentions. Without Allow, no rule loosens an earlier
// decision.
func TestRulesTighten(t *testing.T) {
	one := func(v Decision) Rule { return Rule{Tool: "x", Roles: map[bus.Role]Decision{bus.User: v}} }
	rm, err := ParseCommand("rm *", Deny)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		without Decision
		rules   Rules
		want    Decision
	}{
		{"no rule", Ask, nil, Ask},
		{"a rule about another role", Ask, Rules{{Tool: "x", Roles: map[bus.Role]Decision{
			bus.Guest: Deny}}}, Ask},
		{"a rule about some commands", Ask, Rules{{Tool: "x", Commands: []Command{rm}}}, Ask},
		{"ask after deny", Deny, Rules{one(Ask)}, Deny},
		{"ask after a server's deny", Allow, Rules{{Tool: "*", Roles: map[bus.Role]Decision{
			bus.User: Deny}}, one(Ask)}, Deny},
		{"ask after allow", Allow, Rules{one(Ask)}, Ask},
		{"allow after ask", Ask, Rules{one(Allow)}, Allow},
		{"allow after deny", Deny, Rules{one(Allow)}, Allow},
	} {
		if got := test.rules.Decide(bus.User, "x", []string{"ls"}, test.without); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// A rule compares the words of a command, not what a shell would do with a word.
func TestShellIsNotTheCommand(t *testing.T) {
	r := rules(t)
	for _, argv := range [][]string{
		{"/bin/sh", "-c", "git status; rm -rf /"}, {"git status"}, {"git; reboot"}, {"", "git"}, {},
	} {
		if got := r.Decide(bus.Owner, "exec", argv, Allow); got != Ask {
			t.Errorf("Decide(%q) = %s, want %s", argv, got, Ask)
		}
	}
}

func TestParseCommand(t *testing.T) {
	for _, s := range []string{"", "  ", "git [", "a[b-"} {
		if c, err := ParseCommand(s, Allow); err == nil {
			t.Errorf("ParseCommand(%q) = %+v, want an error", s, c)
		}
	}
}

// Each part of a call changes its subject. Moving text from one part to another changes it, too.
func TestSubject(t *testing.T) {
	on := func(tool, args string, argv ...string) Call {
		return Call{Tool: tool, Argv: argv, Args: json.RawMessage(args)}
	}
	file, other := on("exec", "{}", "a", "b"), on("exec", "{}", "a", "b")
	file.Files, other.Files = []File{{"x", 1, "s"}}, []File{{"x", 1, "t"}}
	seen := make(map[string]string)
	for name, s := range map[string]string{
		"plain":  on("exec", "{}", "a", "b").Subject(),
		"joined": on("exec", "{}", "ab").Subject(),
		"order":  on("exec", "{}", "b", "a").Subject(),
		"args":   on("exec", `{"x":1}`, "a", "b").Subject(),
		"tool":   on("exe", "{}", "ca", "b").Subject(),
		"length": on("exec", "{}", "1:a", "b").Subject(),
		"file":   file.Subject(), "other file": other.Subject(),
		"words like a file": on("exec", "{}", "a", "b", "x", "1", "s").Subject(),
	} {
		if other, ok := seen[s]; ok {
			t.Errorf("%s and %s have the same subject", name, other)
		}
		seen[s] = name
	}
}

func TestPrompt(t *testing.T) {
	args := json.RawMessage(`{"url":"https://example.com/\u202egpj"}`)
	command := json.RawMessage(`{"command":"x","dir":"a` + "`" + `\u001b","background":true}`)
	for _, test := range []struct {
		name string
		argv []string
		want string
	}{
		{"plain", []string{"git", "log", "--oneline", "-n5"},
			"`exec` wants to run:\n```\ngit log --oneline -n5\n```"},
		{"words", []string{"touch", "a b", ""},
			"`exec` wants to run:\n```\n[0] touch\n[1] a b\n[2] \n```"},
		{"shell", []string{"/bin/sh", "-c", "ls\nrm x\x1b[2K\r"}, "`exec` wants to run:\n```\n" +
			"a shell, /bin/sh, with the script:\nls\nrm x⟨U+001B⟩[2K⟨U+000D⟩\n```"},
		{"hidden", []string{"echo", "a\u202eb\u200b\u00a0c\xff⟨U+0041⟩"}, "`exec` wants to run:\n```\n" +
			"[0] echo\n[1] a⟨U+202E⟩b⟨U+200B⟩⟨U+00A0⟩c⟨byte FF⟩⟨U+27E8⟩U+0041⟨U+27E9⟩\n```"},
		{"line feed in a word", []string{"echo", "a\nb"},
			"`exec` wants to run:\n```\n[0] echo\n[1] a⟨U+000A⟩b\n```"},
		{"fence", []string{"sh", "-c", "```\nfree"},
			"`exec` wants to run:\n````\na shell, sh, with the script:\n```\nfree\n````"},
		{"arguments", nil,
			"`exec` wants to run with:\n```\n{\n  \"url\": \"https://example.com/⟨U+202E⟩gpj\"\n}\n```"},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := args
			if test.argv != nil {
				args = command
				test.want = strings.Replace(test.want, " run:", " run, with `background: true`, "+
					"with `dir: \"a⟨U+0060⟩\\u001b\"`:", 1)
			}
			if got := (Call{Tool: "exec", Argv: test.argv, Args: args}).Prompt(); got != test.want {
				t.Errorf("Prompt = %q, want %q", got, test.want)
			}
		})
	}
}

// A text of several lines is shown unchanged. It can't end its block.
func TestPromptOfText(t *testing.T) {
	args := json.RawMessage(`{"path":"a","content":"one\n` + "```" + `\n\u001b","append":false}`)
	const want = "`write_file` wants to run with:\n" +
		"```\n{\n  \"append\": false,\n  \"path\": \"a\"\n}\n```\n" +
		"and with this as `content`:\n````\none\n```\n⟨U+001B⟩\n````"
	if got := (Call{Tool: "write_file", Args: args}).Prompt(); got != want {
		t.Errorf("Prompt = %q, want %q", got, want)
	}
}

// Package json escapes the arguments of a call for HTML. People must not have to read that.
func TestPromptWithoutEscapes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args map[string]string
		argv []string
		want string
	}{
		{"address", map[string]string{"url": "https://example.org/?a=1&b=<2>"}, nil,
			`"url": "https://example.org/?a=1&b=<2>"`},
		{"address beside a text", map[string]string{"url": "a&b", "body": "x\n<y>"}, nil,
			`"url": "a&b"`},
		{"input", map[string]string{"text": "a && b > c"}, []string{"sh"}, `text: "a && b > c"`},
		{"a text that looks like an escape", map[string]string{"x": `\u0026`}, nil,
			`"x": "\\u0026"`},
	} {
		args, err := json.Marshal(test.args)
		if err != nil {
			t.Fatal(err)
		}
		got := Call{Tool: "x", Argv: test.argv, Args: args}.Prompt()
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: Prompt = %q, want %q in it", test.name, got, test.want)
		}
	}
}

// A long command is cut in the middle, and the prompt says how much is missing.
func TestLongPrompt(t *testing.T) {
	script := "begin" + strings.Repeat("é", 5000) + "end"
	got := Call{Tool: "exec", Argv: []string{"sh", "-c", script}}.Prompt()
	if len(got) > maxShown+300 || !strings.Contains(got, "begin") || !strings.Contains(got, "end") ||
		!strings.Contains(got, "bytes in the middle are not shown.**") {
		t.Errorf("Prompt of %d bytes is %d bytes: %q", len(script), len(got), got)
	}
	if strings.Contains(got, "\ufffd") {
		t.Error("a character was cut in two")
	}
}

// FuzzPrompt checks that a command can't end the block that shows it. The block contains no
// invisible characters.
func FuzzPrompt(f *testing.F) {
	f.Add("a", "```\n/approve")
	f.Add("\x1b[31m", "\u202e\xff")
	f.Fuzz(func(t *testing.T, a, b string) {
		got := Call{Tool: "exec", Argv: []string{a, b, "-c"}}.Prompt()
		_, rest, _ := strings.Cut(got, "\n")
		fence, rest, ok := strings.Cut(rest, "\n")
		if !ok || strings.Trim(fence, "`") != "" {
			t.Fatalf("Prompt = %q, want a block", got)
		}
		if i := strings.Index(rest, fence); i < 0 || strings.Contains(rest[i+len(fence):], "\n") &&
			!strings.HasPrefix(rest[i+len(fence):], "\n**") {
			t.Errorf("Prompt(%q, %q) = %q: the block ends early", a, b, got)
		}
		for _, r := range rest {
			if r != '\n' && r != ' ' && r != '⟨' && r != '⟩' && !isVisible(r) {
				t.Errorf("Prompt(%q, %q) shows %U", a, b, r)
			}
		}
	})
}
