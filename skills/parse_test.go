package skills

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// aliasBomb returns a front matter that would be huge if its aliases were expanded.
func aliasBomb() string {
	var b strings.Builder
	b.WriteString("---\nname: bomb\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		line := strings.Repeat(fmt.Sprintf("*a%d, ", i), 10)
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(line, ", "))
	}
	return b.String() + "description: boom\n---\nbody\n"
}

// oddCorpus has skills as they are found in the wild, and worse. A remark and a problem are each
// given by a part of their text. "" means that there is none.
var oddCorpus = []struct {
	label, text string
	want        document // its remarks and problem are not compared
	remark      string
	problem     string
}{
	{"as it should be",
		"---\nname: pdf\ndescription: Read PDFs.\nlicense: MIT\ncompatibility: Python 3\n" +
			"allowed-tools: Bash(git:*) Read\n---\n# PDF\n\nDo it.\n",
		document{Skill{Name: "pdf", Description: "Read PDFs.", License: "MIT", Compatibility: "Python 3",
			AllowedTools: "Bash(git:*) Read"}, "# PDF\n\nDo it."}, "", ""},
	{"byte order mark", "\uFEFF---\nname: a\ndescription: d\n---\nb",
		document{Skill{Name: "a", Description: "d"}, "b"}, "", ""},
	{"CRLF", "---\r\nname: a\r\ndescription: d\r\n---\r\n\r\nb\r\nc\r\n",
		document{Skill{Name: "a", Description: "d"}, "b\nc"}, "", ""},
	{"old Mac", "---\rname: a\rdescription: d\r---\rb\r",
		document{Skill{Name: "a", Description: "d"}, "b"}, "", ""},
	{"spaces behind the lines", "\n\n--- \nname: a\ndescription: d\n---\t\nb",
		document{Skill{Name: "a", Description: "d"}, "b"}, "", ""},
	{"ended by dots", "---\nname: a\ndescription: d\n...\nb",
		document{Skill{Name: "a", Description: "d"}, "b"}, "", ""},
	{"a line in the text", "---\nname: a\ndescription: d\n---\nb\n\n---\n\nc",
		document{Skill{Name: "a", Description: "d"}, "b\n\n---\n\nc"}, "", ""},
	{"no front matter", "# Title\n\nMakes coffee,\nand tea.\n\nMore.",
		document{Skill{Description: "Makes coffee, and tea."},
			"# Title\n\nMakes coffee,\nand tea.\n\nMore."},
		"no front matter", ""},
	{"a heading only", "# Title", document{Skill{Description: "Title"}, "# Title"},
		"no front matter", ""},
	{"empty front matter", "---\n---\nDoes it.", document{Skill{Description: "Does it."}, "Does it."},
		"no description", ""},
	{"comments only", "---\n# nothing\n---\nDoes it.",
		document{Skill{Description: "Does it."}, "Does it."}, "no description", ""},
	{"unclosed", "---\nname: a\ndescription: d\n\nb", document{}, "", "never ended"},
	{"half written", "---\nname: a\ndescr", document{}, "", "never ended"},
	{"empty", "", document{}, "", "empty"},
	{"blank", " \r\n\t\n", document{}, "", "empty"},
	{"not text", "---\nname: a\ndescription: d\n---\n",
		document{Skill{Name: "a", Description: "d"}, ""},
		"no text besides", ""},
	{"one-line JSON", `---
name: a
description: d
metadata: {"nanobot":{"emoji":"x","requires":{"bins":["gh"],"env":["T"]},"always":true}}
---
b`, document{Skill{Name: "a", Description: "d", Always: true,
		Requires: Requires{Bins: []string{"gh"}, Env: []string{"T"}}}, "b"}, "", ""},
	{"JSON on several lines, with tabs and a comma too many",
		"---\nname: a\ndescription: d\nmetadata:\n\t{\n\t\t\"openclaw\": {\n\t\t\t\"os\": [\"darwin\", " +
			"\"win32\"],\n\t\t\t\"requires\": {\"anyBins\": [\"x\", \"y\",]},\n\t\t},\n\t}\n---\nb",
		document{Skill{Name: "a", Description: "d",
			Requires: Requires{AnyBins: []string{"x", "y"}, OS: []string{"darwin", "windows"}}}, "b"},
		"read as it is meant", ""},
	{"JSON that isn't indented",
		"---\nname: a\ndescription: d\nmetadata:\n{\n\"nanobot\": {\"always\": true}\n}\n---\nb",
		document{}, "", "can't be read"},
	{"quoted JSON", "---\nname: a\ndescription: d\n" +
		`metadata: '{"clawdbot":{"requires":{"bins":["jq"]}}}'` + "\n---\nb",
		document{Skill{Name: "a", Description: "d", Requires: Requires{Bins: []string{"jq"}}}, "b"},
		"", ""},
	{"twice quoted JSON", "---\nname: a\ndescription: d\n" +
		`metadata: "{\"gateway\": \"{\\\"always\\\": true}\"}"` + "\n---\nb",
		document{Skill{Name: "a", Description: "d", Always: true}, "b"}, "", ""},
	{"metadata that is broken JSON",
		"---\nname: a\ndescription: d\nmetadata: '{\"nanobot\": {'\n---\nb",
		document{Skill{Name: "a", Description: "d"}, "b"}, "metadata can't be read", ""},
	{"nested YAML", `---
name: a
description: d
metadata:
  version: "1.0"
  nanobot:
    requires:
      bins: jq
      any_bins: a, b
      env: TOKEN
      os: macOS
      config:
        - channels.slack
    alwaysLoad: yes
---
b`, document{Skill{Name: "a", Description: "d", Always: true, Requires: Requires{
		Bins: []string{"jq"}, AnyBins: []string{"a", "b"}, Env: []string{"TOKEN"},
		OS: []string{"darwin"}, Config: []string{"channels.slack"}}}, "b"}, "", ""},
	{"the gateway's own key counts most",
		"---\nname: a\ndescription: d\nmetadata:\n  clawdbot: {always: true, requires: {bins: [x]}}\n" +
			"  gateway: {always: false, requires: {bins: []}}\n---\nb",
		document{Skill{Name: "a", Description: "d"}, "b"}, "", ""},
	{"always of OpenClaw", "---\nname: a\ndescription: d\nrequires: {env: [A]}\n" +
		"metadata: {openclaw: {always: true, os: [linux], requires: {bins: [x], config: [c]}}}\n---\nb",
		document{Skill{Name: "a", Description: "d", Requires: Requires{OS: []string{"linux"}}}, "b"},
		"", ""},
	{"always of OpenClaw, and what is required here",
		"---\nname: a\ndescription: d\nmetadata: {clawdis: {always: true, requires: {bins: [x]}}, " +
			"nanobot: {always: true, requires: {bins: [y]}}}\n---\nb",
		document{Skill{Name: "a", Description: "d", Always: true,
			Requires: Requires{Bins: []string{"y"}}}, "b"}, "", ""},
	{"OpenClaw's former name",
		"---\nname: a\ndescription: d\nmetadata: {moltbot: {requires: {bins: [x]}}}\n---\nb",
		document{Skill{Name: "a", Description: "d", Requires: Requires{Bins: []string{"x"}}}, "b"},
		"", ""},
	{"OpenClaw's first name",
		"---\nname: a\ndescription: d\nmetadata: {clawdis: {requires: {env: [X]}}}\n---\nb",
		document{Skill{Name: "a", Description: "d", Requires: Requires{Env: []string{"X"}}}, "b"},
		"", ""},
	{"always at the top", "---\nname: a\ndescription: d\nalways_load: true\n" +
		"disable-model-invocation: true\n---\nb",
		document{Skill{Name: "a", Description: "d", Always: true, Manual: true}, "b"}, "", ""},
	{"requires is a list", "---\nname: a\ndescription: d\nmetadata: {nanobot: {requires: []}}\n---\nb",
		document{Skill{Name: "a", Description: "d"}, "b"}, "", ""},
	{"requires is a full list", "---\nname: a\ndescription: d\nrequires: [gh]\n---\nb",
		document{Skill{Name: "a", Description: "d"}, "b"}, "requires has no keys", ""},
	{"requires is null", "---\nname: a\ndescription: d\nrequires:\nmetadata: ~\n---\nb",
		document{Skill{Name: "a", Description: "d"}, "b"}, "", ""},
	{"bins is a mapping", "---\nname: a\ndescription: d\nrequires: {bins: {gh: true}}\n---\nb",
		document{Skill{Name: "a", Description: "d"}, "b"}, "neither a list nor a text", ""},
	{"entries that are no text",
		"---\nname: a\ndescription: d\nrequires: {bins: [gh, [x], 7]}\n---\nb",
		document{Skill{Name: "a", Description: "d",
			Requires: Requires{Bins: []string{"gh", "7"}}}, "b"}, "not text", ""},
	{"a colon", "---\nname: a\ndescription: Use when: always, see http://x # no comment\n---\nb",
		document{Skill{Name: "a", Description: "Use when: always, see http://x # no comment"}, "b"},
		"read as it is meant", ""},
	{"a colon, on two lines",
		"---\nname: a\ndescription: Use when: it rains\n  or: snows\nlicense: x\n---\nb",
		document{}, "", "can't be read"},
	{"a bracket", "---\nname: a\ndescription: [强制触发] 当用户需要执行审计时\n---\nb",
		document{Skill{Name: "a", Description: "[强制触发] 当用户需要执行审计时"}, "b"},
		"read as it is meant", ""},
	{"stars and at signs", "---\nname: a\ndescription: '*x*'\nlicense: @me\nversion: *x\n---\nb",
		document{Skill{Name: "a", Description: "*x*", License: "@me"}, "b"}, "read as it is meant", ""},
	{"quotes in quotes", "---\nname: a\ndescription: \"If somebody says \"hi\" or 'hello'\"\n---\nb",
		document{Skill{Name: "a", Description: `If somebody says "hi" or 'hello'`}, "b"},
		"read as it is meant", ""},
	{"quotes at the beginning", "---\nname: a\ndescription: 'Hi' and 'hello' # or so\n---\nb",
		document{Skill{Name: "a", Description: "'Hi' and 'hello' # or so"}, "b"},
		"read as it is meant", ""},
	{"a backslash in quotes", "---\nname: a\ndescription: \"Finds \\d\"\n---\nb",
		document{Skill{Name: "a", Description: `Finds \d`}, "b"}, "read as it is meant", ""},
	{"a long quote beside",
		"---\nname: a\ndescription: \"One\n  two\"\nlicense: a: b\n---\nb",
		document{Skill{Name: "a", Description: "One two", License: "a: b"}, "b"},
		"read as it is meant", ""},
	{"a broken block beside",
		"---\nname: a\ndescription: |\n  One: two\n  three\nlicense: a: b\n---\nb",
		document{Skill{Name: "a", Description: "One: two three", License: "a: b"}, "b"},
		"read as it is meant", ""},
	{"folded block", "---\nname: a\ndescription: >-\n  one\n  two\n\n  three\n---\nb",
		document{Skill{Name: "a", Description: "one two three"}, "b"}, "", ""},
	{"literal block", "---\nname: a\ndescription: |\n  one\n  two\n---\nb",
		document{Skill{Name: "a", Description: "one two"}, "b"}, "", ""},
	{"tabs", "---\nname: a\ndescription: d\nmetadata:\n\tnanobot:\n\t\talways: true\n---\nb",
		document{Skill{Name: "a", Description: "d", Always: true}, "b"}, "read as it is meant", ""},
	{"duplicate keys", "---\nname: a\ndescription: one\nname: b\ndescription: two\n---\nb",
		document{Skill{Name: "b", Description: "two"}, "b"}, "twice", ""},
	{"description is a list", "---\nname: a\ndescription: [one, two]\n---\nb",
		document{Skill{Name: "a", Description: "one, two"}, "b"}, "", ""},
	{"description is a mapping", "---\nname: a\ndescription: {one: two}\n---\nText.",
		document{Skill{Name: "a", Description: "Text."}, "Text."}, "description is not text", ""},
	{"name is a number", "---\nname: 007\ndescription: d\n---\nb",
		document{Skill{Name: "007", Description: "d"}, "b"}, "", ""},
	{"anchors", "---\nname: &n a\ndescription: *n\n---\nb",
		document{Skill{Name: "a", Description: "a"}, "b"}, "", ""},
	{"alias bomb", aliasBomb(), document{}, "", "aliases"},
	{"an alias of itself", "---\nname: a\nmetadata: &m\n  nanobot: *m\n---\nb",
		document{Skill{Name: "a", Description: "b"}, "b"}, "no description", ""},
	{"nested deeply", "---\na: " + strings.Repeat("[", 60) + strings.Repeat("]", 60) + "\n---\nb",
		document{}, "", "nested too deeply"},
	{"nested much too deeply", "---\na: " + strings.Repeat("[", 30000) + "\n---\nb",
		document{Skill{Description: "b"}, "b"}, "read as it is meant", ""},
	{"many keys", "---\n" + strings.Repeat("a: b\n", 6000) + "---\nb", document{}, "", "values"},
	{"huge front matter", "---\nname: " + strings.Repeat("x", 70<<10) + "\n---\nb", document{},
		"", "larger than"},
	{"a list", "---\n- a\n- b\n---\nb", document{}, "", "no keys"},
	{"a text", "---\nhello\n---\nb", document{}, "", "no keys"},
	{"no YAML at all", "---\n}{ : ]\n\x01\n---\nb", document{}, "", "can't be read"},
	{"UTF-16", "\xFF\xFE-\x00-\x00-\x00", document{}, "", "UTF-16"},
	{"NUL", "---\nname: a\x00\n---\n", document{}, "", "not text"},
	{"Latin-1", "---\nname: a\ndescription: caf\xe9\n---\nb",
		document{Skill{Name: "a", Description: "caf\uFFFD"}, "b"}, "not all UTF-8", ""},
	{"what doesn't show", "---\nname: a\ndescription: \"one\\u202Etwo\\u200Bthree\\tfour\\e[31m\\n" +
		"<skills>\"\n---\nb",
		document{Skill{Name: "a", Description: "onetwothree four[31m <skills>"}, "b"}, "", ""},
	{"a long description", "---\nname: a\ndescription: " + strings.Repeat("ü", 2000) + "\n---\nb",
		document{Skill{Name: "a", Description: strings.Repeat("ü", 1023) + "…"}, "b"}, "1024", ""},
	{"a long text", "---\nname: a\ndescription: d\n---\n" + strings.Repeat("x", 128<<10),
		document{Skill{Name: "a", Description: "d"}, strings.Repeat("x", 128<<10)}, "", ""},
	{"Unicode", "---\nname: 名前\ndescription: 说明 😀\n---\nb",
		document{Skill{Name: "名前", Description: "说明 😀"}, "b"}, "", ""},
}

func TestParse(t *testing.T) {
	for _, tt := range oddCorpus {
		t.Run(tt.label, func(t *testing.T) {
			got := parse([]byte(tt.text))
			if (tt.problem == "") != (got.Problem == "") || !strings.Contains(got.Problem, tt.problem) {
				t.Errorf("problem %q, want %q", got.Problem, tt.problem)
			}
			remarks := strings.Join(got.Remarks, "; ")
			if ((tt.remark == "") != (remarks == "") ||
				!strings.Contains(remarks, tt.remark)) && tt.problem == "" {
				t.Errorf("remarks %q, want %q", remarks, tt.remark)
			}
			got.Problem, got.Remarks = "", nil
			if tt.problem == "" && !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// FuzzParse checks that each text gives either a problem or a description. All texts of the
// result can be shown on one line, and they are bounded.
func FuzzParse(f *testing.F) {
	for _, tt := range oddCorpus {
		if len(tt.text) < 8<<10 {
			f.Add([]byte(tt.text))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := parse(data)
		if d.Problem == "" && d.Description == "" && strings.TrimSpace(d.body) != "" &&
			firstParagraph(d.body) != "" {
			t.Errorf("no description of %q", data)
		}
		for _, s := range append([]string{d.Problem, d.Description, d.Name, d.License, d.AllowedTools,
			d.Compatibility}, d.Remarks...) {
			if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
				return r != ' ' && !unicode.IsPrint(r)
			}) {
				t.Errorf("%q can't be shown, of %q", s, data)
			}
		}
		if n := utf8.RuneCountInString(d.Description); n > maxDescription {
			t.Errorf("a description of %d characters", n)
		}
		if n := len(d.Remarks); n > 20 {
			t.Errorf("%d remarks", n)
		}
		for _, list := range [][]string{d.Requires.Bins, d.Requires.AnyBins, d.Requires.Env,
			d.Requires.OS, d.Requires.Config} {
			if len(list) > maxList || slices.Contains(list, "") {
				t.Errorf("requires %q", list)
			}
		}
		if again := parse(data); !reflect.DeepEqual(again, d) {
			t.Errorf("%+v once, and %+v then", d, again)
		}
	})
}

func TestNames(t *testing.T) {
	tests := []struct {
		name            string
		valid, showable bool
	}{
		{"weather", true, true}, {"a-1", true, true}, {strings.Repeat("a", 64), true, true},
		{strings.Repeat("a", 65), false, false}, {"", false, false}, {"A", false, true},
		{"a--b", false, true}, {"-a", false, false}, {"a-", false, true}, {"audit_cw08", false, true},
		{"名前", false, true}, {"My Skill", false, true}, {"..", false, false}, {".git", false, false},
		{"a/b", false, false}, {`a\b`, false, false}, {"a\nb", false, false}, {"a.", false, false},
		{"a\u202eb", false, false}, {"<b>", false, false}, {"a:b", false, false}, {"$x", false, false},
		{"a\xff", false, false},
	}
	for _, tt := range tests {
		if got := validName(tt.name); got != tt.valid {
			t.Errorf("validName(%q) = %v, want %v", tt.name, got, tt.valid)
		}
		if got := isShowable(tt.name); got != tt.showable {
			t.Errorf("isShowable(%q) = %v, want %v", tt.name, got, tt.showable)
		}
	}
}
