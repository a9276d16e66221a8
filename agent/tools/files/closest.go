package files

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Limits of the search for similar text.
const (
	maxClosestLines = 100_000 // of the file
	maxClosestOld   = 40      // lines of the missing text
	maxClosestWidth = 200     // bytes of a line that are compared
	maxClosestShown = 3       // lines that are shown
)

// numbered matches the line numbers that read_file adds.
var numbered = regexp.MustCompile(`^ *[0-9]+\t`)

// closest describes the part of text that is most similar to old, which text does not
// contain, and the differences. It quotes the lines of the file, so that their white space
// is visible and they read as data.
func closest(text, old string) string {
	lines := splitLines(text, maxClosestLines)
	want := splitLines(old, maxClosestOld)
	if numbered.MatchString(old) && !numbered.MatchString(text) {
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

// splitLines returns at most n lines of text without "\n", but with "\r".
func splitLines(text string, n int) []string {
	lines := strings.SplitN(text, "\n", n+1)
	if len(lines) > n || len(lines) > 1 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func blank(lines []string) bool { return strings.TrimSpace(strings.Join(lines, "")) == "" }

// closestBlock returns the index of the first line of the block most similar to want, and
// the similarity, from 0 to 1.
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

func plainOf(lines []string) []string {
	plain := make([]string, len(lines))
	for i, l := range lines {
		plain[i] = plainLine(l)
	}
	return plain
}

// plainLine returns a line without differences that are easily overlooked: the width of
// white space, kinds of quotes and dashes, and letter case.
func plainLine(s string) string {
	if len(s) > maxClosestWidth {
		s = strings.ToValidUTF8(s[:maxClosestWidth], "")
	}
	return strings.Join(strings.Fields(plainSigns.Replace(strings.ToLower(s))), " ")
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

// difference names the only difference of two blocks, or returns "".
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
			return trailing.ReplaceAllString(s, "")
		}},
		{"tabs and spaces at the beginning of lines", func(s string) string {
			return leading.ReplaceAllString(trailing.ReplaceAllString(s, ""), "")
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
	trailing = regexp.MustCompile(`(?m)[ \t\r]+$`)
	leading  = regexp.MustCompile(`(?m)^[ \t]+`)
)
