package version

import (
	"slices"
	"strconv"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// diff returns the difference of two states as a unified diff, "" if they are equal.
func diff(before, after snapshot) (string, error) {
	var b strings.Builder
	for _, name := range changed(before, after) {
		old, was := before[name]
		text, is := after[name]
		from, to := diffName("a/", name, was), diffName("b/", name, is)
		// The library only formats. The edits are found as in Merge3.
		unified, err := udiff.ToUnified(from, to, old, byteEdits(old, text), udiff.DefaultContextLines)
		if err != nil {
			return "", err
		}
		if b.WriteString(unified); unified == "" { // a file without content
			b.WriteString("--- " + from + "\n+++ " + to + "\n")
		}
	}
	return b.String(), nil
}

// byteEdits returns the edits that turn old into text, with byte offsets. Package udiff counts in
// bytes, and this package in lines.
func byteEdits(old, text string) []udiff.Edit {
	lines := slices.Collect(strings.Lines(old))
	starts := make([]int, len(lines)+1)
	for i, line := range lines {
		starts[i+1] = starts[i] + len(line)
	}
	var list []udiff.Edit
	for _, e := range edits(lines, slices.Collect(strings.Lines(text))) {
		list = append(list, udiff.Edit{Start: starts[e.from], End: starts[e.to],
			New: strings.Join(e.lines, "")})
	}
	return list
}

// diffName returns the name of a file in the head of a diff. It is quoted like a Go string if it
// has characters that could be mistaken.
func diffName(side, name string, there bool) string {
	if !there {
		return "/dev/null"
	}
	if q := strconv.Quote(side + name); q != `"`+side+name+`"` {
		return q
	}
	return side + name
}
