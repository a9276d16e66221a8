package version

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// around is how many unchanged lines a diff shows before and after a change.
const around = 3

// diff returns what leads from one state to another as a unified diff, "" if they are the same.
func diff(before, after snapshot) string {
	names := make(snapshot)
	maps.Copy(names, before)
	maps.Copy(names, after)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, was := before[name]
		text, is := after[name]
		if was == is && old == text {
			continue
		}
		fmt.Fprintf(&b, "--- %s\n+++ %s\n", diffName("a/", name, was), diffName("b/", name, is))
		writeHunks(&b, splitAfter(old), splitAfter(text))
	}
	return b.String()
}

func diffName(side, name string, there bool) string {
	if !there {
		return "/dev/null"
	}
	if q := strconv.Quote(side + name); q != `"`+side+name+`"` {
		return q
	}
	return side + name
}

// splitAfter returns the lines of a text with their ends.
func splitAfter(text string) []string { return slices.Collect(strings.Lines(text)) }

// A step is a line of a diff: a is the line before, b the one after, -1 for none.
type step struct{ a, b int }

// steps returns all lines of a diff.
func steps(a, b []string) []step {
	var list []step
	j := 0
	for i, to := range matches(a, b) {
		if to >= 0 {
			for ; j < to; j++ {
				list = append(list, step{-1, j})
			}
			j++
		}
		list = append(list, step{i, to})
	}
	for ; j < len(b); j++ {
		list = append(list, step{-1, j})
	}
	return list
}

// writeHunks writes the changes from a to b with the lines around them.
func writeHunks(w *strings.Builder, a, b []string) {
	list := steps(a, b)
	for from := 0; from < len(list); {
		first := from
		for first < len(list) && !list[first].changed() {
			first++
		}
		if first == len(list) {
			return
		}
		last := first // the last change of the hunk
		for i := first; i < len(list) && i-last <= 2*around; i++ {
			if list[i].changed() {
				last = i
			}
		}
		begin, end := max(from, first-around), min(len(list), last+around+1)
		writeHunk(w, a, b, list[:begin], list[begin:end])
		from = end
	}
}

func (s step) changed() bool { return s.a < 0 || s.b < 0 }

func writeHunk(w *strings.Builder, a, b []string, before, hunk []step) {
	count := func(list []step) (na, nb int) {
		for _, s := range list {
			na, nb = na+min(s.a+1, 1), nb+min(s.b+1, 1)
		}
		return na, nb
	}
	fromA, fromB := count(before)
	na, nb := count(hunk)
	fmt.Fprintf(w, "@@ -%d,%d +%d,%d @@\n", fromA+min(na, 1), na, fromB+min(nb, 1), nb)
	for _, s := range hunk {
		sign, line := " ", ""
		switch {
		case s.b < 0:
			sign, line = "-", a[s.a]
		case s.a < 0:
			sign, line = "+", b[s.b]
		default:
			line = b[s.b]
		}
		w.WriteString(sign + line)
		if !strings.HasSuffix(line, "\n") {
			w.WriteString("\n\\ No newline at end of file\n")
		}
	}
}
