package files

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"

	"gateway/agent/tool"
	"gateway/store/plaintext"
)

const editDescription = "Replaces text in a file that you have read. old_text is exact, with " +
	"white space but without line numbers, and unique unless replace_all. edits: several, " +
	"all or none."

// maxEdits is the greatest number of edits in one call.
const maxEdits = 200

// editArgs are the arguments of edit_file: either one edit or a list of them. NewText is a pointer,
// because "" removes the old text.
type editArgs struct {
	Path    string  `json:"path"`
	OldText string  `json:"old_text,omitempty"`
	NewText *string `json:"new_text,omitempty"`
	All     bool    `json:"replace_all,omitempty"`
	Edits   []edit  `json:"edits,omitempty"`
}

// An edit replaces OldText by NewText: its only occurrence, or all of them.
type edit struct {
	OldText string `json:"old_text"`
	NewText string `json:"new_text"`
	All     bool   `json:"replace_all,omitempty"`
}

// list returns the edits in the arguments.
func (a editArgs) list() ([]edit, error) {
	switch {
	case len(a.Edits) == 0 && a.NewText == nil:
		return nil, errors.New(`want old_text and new_text, which may be "", or edits`)
	case len(a.Edits) == 0:
		return []edit{{a.OldText, *a.NewText, a.All}}, nil
	case a.OldText != "" || a.NewText != nil:
		return nil, errors.New("want either old_text and new_text or edits, not both")
	case len(a.Edits) > maxEdits:
		return nil, fmt.Errorf("%d edits at once are too many; at most %d", len(a.Edits), maxEdits)
	}
	return a.Edits, nil
}

// editFile implements edit_file. All edits apply in memory before the file is written.
func (e *editor) editFile(ctx context.Context, c tool.Call, a editArgs) (tool.Result, error) {
	edits, err := a.list()
	if err != nil {
		return tool.Result{}, err
	}
	return e.rewrite(ctx, c, a.Path, "; write_file makes new files",
		func(old string) (text, report string, err error) {
			text, lines, err := applyEdits(ctx, old, edits)
			return text, fmt.Sprintf(" was changed in %s, and has %d lines now",
				lineList(lines), countLines(text)), err
		})
}

// applyEdits returns text after the edits and the lines that they changed, numbered as they were at
// that moment. The error names the first edit that doesn't apply. Each edit applies to the result
// of those before it.
func applyEdits(ctx context.Context, text string, edits []edit) (string, []int, error) {
	var lines []int
	for i, e := range edits {
		if err := ctx.Err(); err != nil {
			return "", nil, err
		}
		which := ""
		if len(edits) > 1 {
			which = fmt.Sprintf("edit %d of %d: ", i+1, len(edits))
		}
		after, at, err := applyEdit(text, e)
		if err != nil {
			return "", nil, fmt.Errorf("%s%w", which, err)
		}
		text = after
		lines = append(lines, at...)
	}
	return text, lines, nil
}

// applyEdit returns text after an edit, and the changed lines.
func applyEdit(text string, e edit) (string, []int, error) {
	switch {
	case e.OldText == "":
		return "", nil, errors.New("old_text is empty; to write a whole file use write_file")
	case e.OldText == e.NewText:
		return "", nil, errors.New("old_text and new_text are the same")
	}
	if hasCRLF(text) && !strings.Contains(e.OldText+e.NewText, "\r") {
		// The model doesn't see CRLF line ends.
		e.OldText = strings.ReplaceAll(e.OldText, "\n", "\r\n")
		e.NewText = strings.ReplaceAll(e.NewText, "\n", "\r\n")
	}
	e = e.normalized(text)
	at := occurrences(text, e.OldText, e.All)
	switch {
	case len(at) == 0:
		return "", nil, errors.New("old_text is not in the file" + closest(text, e.OldText))
	case len(at) > 1 && !e.All:
		return "", nil, fmt.Errorf("old_text is in the file more than once, in %s; "+
			"give more of the text around it, or set replace_all", lineList(linesAt(text, at)))
	}
	// This comes before the replacement: a few bytes for each byte of the file could take all memory.
	times := 1
	if e.All {
		times = strings.Count(text, e.OldText)
	}
	if len(text)+times*(len(e.NewText)-len(e.OldText)) > maxEdit {
		return "", nil, fmt.Errorf("the file would have more than %d bytes", maxEdit)
	}
	lines := linesAt(text, at)
	if e.All {
		return strings.ReplaceAll(text, e.OldText, e.NewText), lines, nil
	}
	return text[:at[0]] + e.NewText + text[at[0]+len(e.OldText):], lines, nil
}

// normalized returns e in the Unicode normal form of text, if only that makes its old text occur.
// The model can't see whether accents are characters of their own.
func (e edit) normalized(text string) edit {
	if isASCII(e.OldText) || strings.Contains(text, e.OldText) {
		return e
	}
	for _, form := range []norm.Form{norm.NFC, norm.NFD} {
		if old := form.String(e.OldText); strings.Contains(text, old) {
			return edit{old, form.String(e.NewText), e.All}
		}
	}
	return e
}

// maxListed is the number of places that are listed.
const maxListed = 20

// occurrences returns up to a few offsets of part in text. It includes overlapping ones, because
// each could be meant, unless all are to be replaced. It stops after one more than are listed.
func occurrences(text, part string, all bool) []int {
	var at []int
	for from := 0; len(at) <= maxListed; {
		i := strings.Index(text[from:], part)
		if i < 0 {
			break
		}
		at = append(at, from+i)
		from += i + 1
		if all {
			from += len(part) - 1
		}
	}
	return at
}

// linesAt returns the line numbers, from 1, of byte offsets in text, without duplicates.
func linesAt(text string, at []int) []int {
	lines := make([]int, len(at))
	line, from := 1, 0
	for i, p := range at {
		line += strings.Count(text[from:p], "\n")
		from = p
		lines[i] = line
	}
	return slices.Compact(lines)
}

// lineList describes line numbers in words.
func lineList(lines []int) string {
	lines = slices.Compact(slices.Sorted(slices.Values(lines)))
	what, more := "line ", ""
	if len(lines) > 1 {
		what = "lines "
	}
	if len(lines) > maxListed {
		lines, more = lines[:maxListed], " and more"
	}
	return what + strings.ReplaceAll(strings.Trim(fmt.Sprint(lines), "[]"), " ", ", ") + more
}

// Limits of the search for similar text.
const (
	maxClosestLines = 100_000 // of the file
	maxClosestOld   = 40      // lines of the missing text
	maxClosestWidth = 200     // bytes of a line that are compared
	maxClosestShown = 3       // lines that are shown
)

// numbered matches the line numbers that read_file adds.
var numbered = plaintext.Pattern(`^ *[0-9]+\t`)

// closest describes the part of text that is most similar to old, which text does not
// contain, and the differences. It quotes the lines of the file, so that their white space
// is visible and they read as data.
func closest(text, old string) string {
	lines := splitLines(text, maxClosestLines)
	want := splitLines(old, maxClosestOld)
	if numbered().MatchString(old) && !numbered().MatchString(text) {
		return "; it seems to have the line numbers of read_file, which are not part of the file"
	}
	if blank(want) || len(lines) == 0 {
		return ""
	}
	at, score := closestBlock(lines, want)
	if score < 0.5 {
		return "; no part of the file is similar. Read the file again"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "; the most similar text begins in line %d", at+1)
	if d := difference(lines[at:min(at+len(want), len(lines))], want); d != "" {
		fmt.Fprintf(&b, ", and differs only in %s", d)
	}
	shown := 0
	for i := range want {
		if at+i >= len(lines) || shown == maxClosestShown {
			break
		}
		if lines[at+i] != want[i] {
			fmt.Fprintf(&b, "\nline %d of the file: %s\nold_text there:    %s",
				at+i+1, quoted(lines[at+i]), quoted(want[i]))
			shown++
		}
	}
	return b.String()
}

// quoted returns a line quoted, so that people and models can compare it.
func quoted(line string) string {
	const most = 160
	if len(line) > most {
		return strconv.Quote(strings.ToValidUTF8(line[:most], "")) + "…"
	}
	return strconv.Quote(line)
}

// splitLines returns at most n lines of text without "\n", but with "\r". A line break at the end
// of text does not begin another line.
func splitLines(text string, n int) []string {
	lines := strings.SplitN(text, "\n", n+1)
	if len(lines) > n || len(lines) > 1 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func blank(lines []string) bool { return strings.TrimSpace(strings.Join(lines, "")) == "" }

// closestBlock returns the index of the first line of the block most similar to want, and the
// similarity, from 0 to 1. It compares every block of lines with want until it has used up its
// work.
func closestBlock(lines, want []string) (best int, score float64) {
	plainWant, plainLines := plainOf(want), plainOf(lines)
	work := 20_000_000 // approximate number of bytes to compare
	for i := range lines {
		sum := 0.0
		for j := range want {
			if i+j >= len(lines) || work < 0 {
				break
			}
			if j > 0 && sum == 0 && len(want) > 2 && j > len(want)/2 {
				break // can no longer become the best
			}
			work -= len(plainLines[i+j])
			sum += similarity(plainWant[j], plainLines[i+j])
		}
		if sum /= float64(len(want)); sum > score {
			best, score = i, sum
		}
	}
	return best, score
}

// plainOf returns lines without differences that are easily overlooked: the width of white space,
// kinds of quotes and dashes, and letter case.
func plainOf(lines []string) []string {
	plain := make([]string, len(lines))
	for i, l := range lines {
		l = strings.ToLower(plaintext.Cut(l, maxClosestWidth))
		plain[i] = strings.Join(strings.Fields(plainSigns.Replace(l)), " ")
	}
	return plain
}

var plainSigns = strings.NewReplacer("“", `"`, "”", `"`, "„", `"`, "‘", "'", "’", "'", "‚", "'",
	"–", "-", "—", "-", "−", "-", "\u00a0", " ", "…", "...", "`", "'", `"`, "'")

// similarity returns the share of two texts that is in their common prefix and suffix, from 0
// to 1.
func similarity(a, b string) float64 {
	if a == b {
		return 1
	}
	least, begin, end := min(len(a), len(b)), 0, 0
	for begin < least && a[begin] == b[begin] {
		begin++
	}
	for end < least-begin && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	return float64(begin+end) / float64(max(len(a), len(b)))
}

// difference names the only difference of two blocks, or returns "". It tries small differences
// before large ones.
func difference(got, want []string) string {
	if len(got) != len(want) {
		return ""
	}
	a, b := strings.Join(got, "\n"), strings.Join(want, "\n")
	for _, d := range []struct {
		name  string
		plain func(string) string
	}{
		{"line ends (CRLF)", func(s string) string { return strings.ReplaceAll(s, "\r", "") }},
		{"white space at the end of lines", func(s string) string {
			return trailing().ReplaceAllString(s, "")
		}},
		{"tabs and spaces at the beginning of lines", func(s string) string {
			return leading().ReplaceAllString(trailing().ReplaceAllString(s, ""), "")
		}},
		{"white space", func(s string) string { return strings.Join(strings.Fields(s), "") }},
		{"kinds of quotes or dashes", plainSigns.Replace},
		{"upper and lower case", strings.ToLower},
		{"white space, quotes or letter case", func(s string) string {
			return strings.Join(strings.Fields(plainSigns.Replace(strings.ToLower(s))), "")
		}},
	} {
		if d.plain(a) == d.plain(b) {
			return d.name
		}
	}
	return ""
}

// White space at the ends and at the beginnings of lines.
var (
	trailing = plaintext.Pattern(`(?m)[ \t\r]+$`)
	leading  = plaintext.Pattern(`(?m)^[ \t]+`)
)
