package files

import (
	"errors"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// maxCompared is the number of lines of files that are compared with a patch. A long line counts
// once more for each lineBytes bytes, and each section of the patch counts every line of its file
// splitLine times, because it splits the file. All together takes some seconds at most.
const (
	maxCompared = 100_000_000
	lineBytes   = 64
	splitLine   = 8
)

var errTooLong = errors.New("takes too long to find: the file is long, and the patch has many " +
	"sections or hunks, or lines that are long or occur often. Use several patches with fewer lines")

// A finder finds the places of hunks in a file.
type finder struct {
	lines []string // of the file, without line breaks
	bare  []string // the same after withoutEnds; nil until they are needed
	work  *int     // what may still be compared: see maxCompared
}

func newFinder(lines []string, work *int) *finder {
	f := &finder{lines: make([]string, len(lines)), work: work}
	for i, l := range lines {
		f.lines[i] = withoutBreak(l)
	}
	return f
}

// withoutBreak returns a line of a file without its line break, which the last line may lack.
func withoutBreak(line string) string {
	if text, ok := strings.CutSuffix(line, "\n"); ok {
		return strings.TrimSuffix(text, "\r")
	}
	return line
}

// find returns the indexes, from from on, of the lines where want begins. White space at the ends
// of lines and the Unicode normal form do not count if trimmed is set.
func (f *finder) find(want []string, from int, trimmed bool) (found []int, err error) {
	lines := f.lines
	if trimmed {
		if f.bare == nil {
			f.bare = withoutEnds(lines)
		}
		lines, want = f.bare, withoutEnds(want)
	}
	for at := from; at+len(want) <= len(lines); at++ {
		n := 0
		for n < len(want) && len(lines[at+n]) == len(want[n]) {
			*f.work -= len(want[n]) / lineBytes
			if lines[at+n] != want[n] {
				break
			}
			n++
		}
		if n == len(want) {
			found = append(found, at)
		}
		if *f.work -= n + 1; *f.work < 0 {
			return nil, errTooLong
		}
	}
	return found, nil
}

// withoutEnds returns lines without white space at their ends, in one normal form.
func withoutEnds(lines []string) []string {
	bare := make([]string, len(lines))
	for i, l := range lines {
		bare[i] = norm.NFC.String(strings.TrimRight(l, " \t\r"))
	}
	return bare
}
