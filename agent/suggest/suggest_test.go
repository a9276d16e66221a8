package suggest

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestName(t *testing.T) {
	known := []string{"read_file", "write_file", "exec", "glob", "Europe/Berlin"}
	for name, want := range map[string]string{
		"read_file":     "read_file",
		"readfile":      "read_file",
		"READ_FILE":     "read_file",
		"raed_file":     "read_file",
		"write":         "",
		"exce":          "exec",
		"ex":            "",
		"glib":          "glob",
		"europe/berlin": "Europe/Berlin",
		"":              "",
		"something":     "",
	} {
		if got := Name(name, known); got != want {
			t.Errorf("Name(%q) = %q, want %q", name, got, want)
		}
	}
	if got := Name("a", nil); got != "" {
		t.Errorf("Name of nothing known = %q", got)
	}
}

// A name that is much longer than the known ones is not compared, because the comparison would
// take long.
func TestLongName(t *testing.T) {
	long, known := strings.Repeat("x", 1<<20), make([]string, 100)
	for i := range known {
		known[i] = "xxxx"
	}
	if n := testing.AllocsPerRun(1, func() { Name(long, known) }); n > 0 {
		t.Errorf("%v allocations for a long name, want none", n)
	}
}

func TestHint(t *testing.T) {
	if got, want := Hint("exce", []string{"exec"}), `; did you mean "exec"?`; got != want {
		t.Errorf("Hint = %q, want %q", got, want)
	}
	if got := Hint("nothing", []string{"exec"}); got != "" {
		t.Errorf("Hint = %q, want none", got)
	}
}

// The function distance is a metric. It is 0 only for equal texts, it is symmetric, and the
// triangle inequality is satisfied.
func TestDistance(t *testing.T) {
	text := rapid.StringMatching(`[abc]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := text.Draw(t, "a"), text.Draw(t, "b"), text.Draw(t, "c")
		ab := distance(a, b)
		if (ab == 0) != (a == b) {
			t.Errorf("distance(%q, %q) = %d", a, b, ab)
		}
		if ba := distance(b, a); ab != ba {
			t.Errorf("distance(%q, %q) = %d, and back %d", a, b, ab, ba)
		}
		if round := distance(a, c) + distance(c, b); ab > round {
			t.Errorf("distance(%q, %q) = %d, over %q %d", a, b, ab, c, round)
		}
	})
	if got := distance("kitten", "sitting"); got != 3 {
		t.Errorf("distance = %d, want 3", got)
	}
}
