package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// printed returns the output of a command that prints a table.
func printed(t *testing.T, list table, args ...string) string {
	t.Helper()
	cmd, out := withJSONFlag(&cobra.Command{}), new(bytes.Buffer)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return list.print(cmd) }
	cmd.SetOut(out)
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Columns are aligned even if characters are two columns wide or have no width.
func TestTableWidths(t *testing.T) {
	list := table{columns: []string{"NAME", "N"}, rows: [][]any{
		{"Anna", 1}, {"山田太郎", 22}, {"👩👩👧 e\u0301", 333}, {"", 4}, {"last", ""}}}
	want := "NAME      N\nAnna      1\n山田太郎  22\n👩👩👧 e\u0301  333\n          4\nlast\n"
	if got := printed(t, list); got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
}

// No text in a cell controls the terminal or begins a new line.
func TestTableOnATerminal(t *testing.T) {
	const evil = "a\x1b[2J\u202e\nb\tc"
	list := table{columns: []string{"A", "B"}, rows: [][]any{{evil, excerpt(evil)}}}
	got := printed(t, list)
	if strings.ContainsAny(got, "\x1b\u202e\t") || strings.Count(got, "\n") != 2 {
		t.Errorf("printed %q", got)
	}
}

// The JSON output has the columns of the table. Its values are not cut and keep their types.
func TestTableJSON(t *testing.T) {
	long := strings.Repeat("long ", 20)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	list := table{columns: []string{"SESSION", "TOKENS IN", "USED", "SEEN", "COST"}, empty: "Nothing.",
		rows: [][]any{{excerpt(long), 7, age(at), timestamp{}, dollars(0.5)}}}
	want := `[
  {
    "cost": 0.5,
    "seen": null,
    "session": "` + long + `",
    "tokens_in": 7,
    "used": "2026-03-01T12:00:00Z"
  }
]
`
	if got := printed(t, list, "--json"); got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
	list.rows = nil
	if got := printed(t, list, "--json"); got != "[]\n" {
		t.Errorf("an empty list is %q", got)
	}
	if got := printed(t, list); got != "Nothing.\n" {
		t.Errorf("an empty list is %q", got)
	}
}
