package shell

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestArgv(t *testing.T) {
	t.Parallel()
	sh := func(command string) []string { return []string{"/bin/sh", "-c", command} }
	tests := []struct {
		command string
		want    []string
	}{
		{"ls", []string{"ls"}},
		{" ls\t -l  a/b.txt ", []string{"ls", "-l", "a/b.txt"}},
		{"git log --format=%h -n1", []string{"git", "log", "--format=%h", "-n1"}},
		{"./run a@b:c +x 1,2", []string{"./run", "a@b:c", "+x", "1,2"}},
		{"ls *", sh("ls *")}, {"ls ?", sh("ls ?")}, {"ls [a]", sh("ls [a]")},
		{"ls ~", sh("ls ~")}, {"ls $HOME", sh("ls $HOME")}, {"ls `pwd`", sh("ls `pwd`")},
		{"ls {a,b}", sh("ls {a,b}")}, {"a; b", sh("a; b")}, {"a & b", sh("a & b")},
		{"a|b", sh("a|b")}, {"a>b", sh("a>b")}, {"a<b", sh("a<b")}, {"a #b", sh("a #b")},
		{"a 'b'", sh("a 'b'")}, {`a "b"`, sh(`a "b"`)}, {`a \b`, sh(`a \b`)},
		{"a\nb", sh("a\nb")}, {"a\rb", sh("a\rb")}, {"! a", sh("! a")}, {"a ^b", sh("a ^b")},
		{"(a)", sh("(a)")}, {"A=b", sh("A=b")}, {"A=b c", sh("A=b c")}, {"ls ä", sh("ls ä")},
		{"ls\u00a0b", sh("ls\u00a0b")}, {"ls \xff", sh("ls \xff")},
		{"echo a", sh("echo a")}, {"cd a", sh("cd a")}, {". a", sh(". a")}, {"exec a", sh("exec a")},
		{"if a", sh("if a")}, {"time a", sh("time a")}, {"trap", sh("trap")}, {": a", sh(": a")},
		{"", nil}, {"  ", nil}, {"a\x00", nil},
	}
	for _, tt := range tests {
		a := execArgs{Command: tt.command}
		if got, _ := a.words(); !slices.Equal(got, tt.want) {
			t.Errorf("words of %q = %q, want %q", tt.command, got, tt.want)
		}
	}
	for args, want := range map[string][]string{
		`{"command":"ls -l"}`:               {"ls", "-l"},
		`{"argv":["a b","$c",""]}`:          {"a b", "$c", ""},
		`{"command":"a","argv":["b"]}`:      nil,
		`{"command":"a|b","timeout":5}`:     sh("a|b"),
		`{"argv":["ls"],"background":true}`: {"ls"},
		`{`:                                 nil,
	} {
		if got := argv(json.RawMessage(args)); !slices.Equal(got, want) {
			t.Errorf("Argv(%s) = %q, want %q", args, got, want)
		}
	}
}

// FuzzWords checks that a command that runs without a shell has the words that a shell would make
// of it.
func FuzzWords(f *testing.F) {
	for _, seed := range []string{
		"ls", "ls -l", "  a\tb  c", "a=b", "b a=b", "-x", "a,b %1 +2 @3", "a:b/c.d", "1 2", "{a}", "~",
		"a~", "b a=~", "b :~", "ls #a", "a#b", "é", "a\u2028b", "=a", "%", "a\vb", "a\fb",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, command string) {
		words := plainWords(command)
		if words == nil {
			return
		}
		if i := strings.IndexAny(command, "|&;<>()$`\\\"'*?[]{}#~!^\r\n\v\f\x00"); i >= 0 {
			t.Fatalf("%q is said to be plain", command)
		}
		out, err := exec.Command("/bin/sh", "-c", `printf '%s\0' `+command).Output()
		if err != nil {
			t.Fatalf("sh on %q: %v", command, err)
		}
		want := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if !slices.Equal(words, want) {
			t.Errorf("words of %q = %q, sh says %q", command, words, want)
		}
	})
}
