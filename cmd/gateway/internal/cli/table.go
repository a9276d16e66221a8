package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/rivo/uniseg"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/display"
)

// A table is the output of a list command. A cell is a string, a number or one of the types
// below. Cells may contain text of strangers, so cellText removes control characters. JSON has the
// text unchanged.
type table struct {
	columns []string // headings; their lower-case forms are the names in JSON
	rows    [][]any
	empty   string // text for people if there are no rows
}

type (
	excerpt   string    // people see up to 60 runes in one line
	age       time.Time // people see the time since then
	event     time.Time // as age, but in words; zero: never
	timestamp time.Time // people see date and time in the local zone
	dollars   float64
)

// withJSONFlag adds the flag --json to a command.
func withJSONFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// wantsJSON reports whether a command was called with --json.
func wantsJSON(cmd *cobra.Command) bool {
	given, err := cmd.Flags().GetBool("json")
	return err == nil && given // an error says that the command has no such flag
}

// printJSON prints v as indented JSON. Characters such as < stay as they are, because the output is
// not for HTML.
func printJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// listCommand returns a command that prints a table. rows returns its rows.
func listCommand(
	load app.Loader, use, short string, t table, rows func(data) ([][]any, error),
) *cobra.Command {
	return withJSONFlag(dataCommand(load, use, short, cobra.NoArgs,
		func(cmd *cobra.Command, d data, _ []string) (err error) {
			if t.rows, err = rows(d); err != nil {
				return err
			}
			return t.print(cmd)
		}))
}

// print prints the table, or its JSON with --json.
func (t table) print(cmd *cobra.Command) error {
	if wantsJSON(cmd) {
		return printJSON(cmd, t.objects())
	}
	if len(t.rows) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), t.empty)
		return err
	}
	lines := [][]string{t.columns}
	for _, row := range t.rows {
		line := make([]string, len(row))
		for i, cell := range row {
			line[i] = cellText(cell)
		}
		lines = append(lines, line)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), align(lines))
	return err
}

// objects returns the rows for JSON. Without rows the list is empty, never null.
func (t table) objects() []map[string]any {
	list := make([]map[string]any, 0, len(t.rows))
	for _, row := range t.rows {
		object := make(map[string]any, len(row))
		for i, cell := range row {
			// Scripts use these names: a new heading is a new name.
			object[strings.ReplaceAll(strings.ToLower(t.columns[i]), " ", "_")] = cellJSON(cell)
		}
		list = append(list, object)
	}
	return list
}

// cellText returns a cell as people see it.
func cellText(cell any) string {
	switch c := cell.(type) {
	case excerpt:
		return display.OneLine(string(c))
	case age:
		return display.Ago(time.Time(c))
	case event:
		if at := time.Time(c); !at.IsZero() {
			return display.Ago(at) + " ago"
		}
		return "never"
	case timestamp:
		if at := time.Time(c); !at.IsZero() {
			return at.Local().Format(time.DateTime)
		}
		return ""
	case dollars:
		return fmt.Sprintf("$%.4f", float64(c))
	}
	// A line break would end the row.
	return strings.Join(strings.Fields(display.Lines(fmt.Sprint(cell))), " ")
}

// cellJSON returns a cell for JSON: null for a zero time.
func cellJSON(cell any) any {
	var at time.Time
	switch c := cell.(type) {
	case age:
		at = time.Time(c)
	case event:
		at = time.Time(c)
	case timestamp:
		at = time.Time(c)
	default:
		return cell
	}
	if at.IsZero() {
		return nil
	}
	return at.UTC().Format(time.RFC3339)
}

// align pads the cells of lines so that columns align on a terminal. It takes the different
// widths of characters into account. Widths are columns of the terminal: most Chinese characters
// take two of them.
func align(lines [][]string) string {
	const gap = 2
	var widths []int
	for _, line := range lines {
		for i, cell := range line {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], uniseg.StringWidth(cell))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		spaces := 0 // written before the next non-empty cell, so that no line ends in spaces
		for i, cell := range line {
			if cell != "" {
				b.WriteString(strings.Repeat(" ", spaces) + cell)
				spaces = 0
			}
			spaces += widths[i] - uniseg.StringWidth(cell) + gap
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// A count is the value of a flag that is a positive number.
type count int

// countVar defines a flag that is a positive number. With 0 a list would be empty and say that
// there is nothing, and the database takes a negative limit for none.
func countVar(flags *pflag.FlagSet, p *int, name string, value int, usage string) {
	*p = value
	flags.Var((*count)(p), name, usage)
}

// String implements [pflag.Value].
func (c *count) String() string { return strconv.Itoa(int(*c)) }

// Set implements [pflag.Value].
func (c *count) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 1 {
		return errors.New("want a number, 1 or more")
	}
	*c = count(n)
	return nil
}

// Type implements [pflag.Value].
func (*count) Type() string { return "int" }
