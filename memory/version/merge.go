package version

import (
	"slices"
	"strings"
)

// A Conflict is a place where two texts differ from their base and from each other.
type Conflict struct {
	Line               int // its first line in ours, from 1
	Base, Ours, Theirs string
}

// Merge3 returns base with the changes of both texts, line by line. If both have changed
// the same lines differently, or inserted different lines at the same place, they
// conflict, and the result has the lines of ours. A change of the line ends, LF or CRLF,
// is merged like a change of a line.
func Merge3(base, ours, theirs string) (string, []Conflict) {
	switch {
	case ours == theirs, theirs == base:
		return ours, nil
	case ours == base:
		return theirs, nil
	}
	crlf := changedOf(isCRLF(base), isCRLF(ours), isCRLF(theirs))
	b, o, t := newLines(base), newLines(ours), newLines(theirs)
	m := merging{base: b.list, ours: edits(b.list, o.list), theirs: edits(b.list, t.list)}
	m.run()
	if len(m.out) == 0 {
		return "", m.conflicts
	}
	text := strings.Join(m.out, "\n")
	blank := m.out[len(m.out)-1] == "" // an empty last line exists only through its line end
	if blank || changedOf(b.ended, o.endedLike(b), t.endedLike(b)) {
		text += "\n"
	}
	if crlf {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text, m.conflicts
}

// changedOf merges a boolean: the changed value wins over base.
func changedOf(base, ours, theirs bool) bool {
	if ours != base {
		return ours
	}
	return theirs
}

// isCRLF reports whether all lines of a text end in CRLF.
func isCRLF(text string) bool {
	n := strings.Count(text, "\r\n")
	return n > 0 && n == strings.Count(text, "\n")
}

// lines is a text split into lines without their ends.
type lines struct {
	list  []string
	ended bool // the last line has a line end
}

// newLines splits a text into lines. An empty text has no lines and counts as ended.
func newLines(text string) lines {
	if text == "" {
		return lines{ended: true}
	}
	if isCRLF(text) {
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}
	rest, ended := strings.CutSuffix(text, "\n")
	return lines{strings.Split(rest, "\n"), ended}
}

// endedLike returns whether the last line has a line end. For a text without lines it
// returns the value of base.
func (l lines) endedLike(base lines) bool {
	if len(l.list) == 0 {
		return base.ended
	}
	return l.ended
}

// edit replaces a range of lines of the base.
type edit struct {
	from, to int
	lines    []string
	at       int // where the new lines begin in their text
}

// edits returns the edits that turn base into text, in order.
func edits(base, text []string) []edit {
	var list []edit
	from, at := 0, 0
	// upTo adds the edit between the last pair of matching lines and the pair b, t.
	upTo := func(b, t int) {
		if from < b || at < t {
			list = append(list, edit{from, b, text[at:t], at})
		}
		from, at = b+1, t+1
	}
	for i, to := range matches(base, text) {
		if to >= 0 {
			upTo(i, to)
		}
	}
	upTo(len(base), len(text))
	return list
}

// overlaps reports whether e changes a line of a range, or inserts lines within it.
func (e edit) overlaps(from, to int) bool {
	switch {
	case e.from == e.to && from == to:
		return e.from == from
	case e.from == e.to:
		return from < e.from && e.from < to
	case from == to:
		return e.from < from && from < e.to
	}
	return max(e.from, from) < min(e.to, to)
}

// merging is the state of a merge. Both lists of edits are in the order of the base.
type merging struct {
	base         []string
	ours, theirs []edit // not applied yet
	done         int    // number of merged lines of the base
	out          []string
	conflicts    []Conflict
}

// run takes the edits from the beginning to the end. Edits that overlap are taken together, because
// only then their results can be compared.
func (m *merging) run() {
	for len(m.ours)+len(m.theirs) > 0 {
		from, to := m.next()
		var ours, theirs []edit
		for more := true; more; {
			more = takeOverlapping(&m.ours, &ours, &from, &to) || takeOverlapping(&m.theirs, &theirs, &from,
				&to)
		}
		m.out = append(m.out, m.base[m.done:from]...)
		m.merge(from, to, ours, theirs)
		m.done = to
	}
	m.out = append(m.out, m.base[m.done:]...)
}

// next returns the range of the first edit. At the same place, insertions come before
// changes.
func (m *merging) next() (from, to int) {
	if len(m.theirs) == 0 {
		return m.ours[0].from, m.ours[0].to
	}
	e := m.theirs[0]
	if len(m.ours) > 0 {
		if o := m.ours[0]; o.from < e.from || o.from == e.from && o.to < e.to {
			e = o
		}
	}
	return e.from, e.to
}

// takeOverlapping moves the next edit from list to taken if it touches the range, and extends the
// range.
func takeOverlapping(list, taken *[]edit, from, to *int) bool {
	if len(*list) == 0 {
		return false
	}
	e := (*list)[0]
	if !e.overlaps(*from, *to) {
		return false
	}
	*from, *to = min(*from, e.from), max(*to, e.to)
	*list, *taken = (*list)[1:], append(*taken, e)
	return true
}

// merge applies the edits of a range.
func (m *merging) merge(from, to int, ours, theirs []edit) {
	o, t := m.edited(from, to, ours), m.edited(from, to, theirs)
	switch {
	case len(theirs) == 0, slices.Equal(o, t):
		m.out = append(m.out, o...)
	case len(ours) == 0:
		m.out = append(m.out, t...)
	default:
		m.out = append(m.out, o...)
		line := ours[0].at - (ours[0].from - from) + 1
		m.conflicts = append(m.conflicts, Conflict{line,
			strings.Join(m.base[from:to], "\n"), strings.Join(o, "\n"), strings.Join(t, "\n")})
	}
}

// edited returns lines of the base with edits applied.
func (m *merging) edited(from, to int, list []edit) []string {
	var out []string
	for _, e := range list {
		out = append(append(out, m.base[from:e.from]...), e.lines...)
		from = e.to
	}
	return append(out, m.base[from:to]...)
}

// maxTable is the greatest size of the table for an exact comparison, in cells. A cell has four
// bytes, so the table has at most 8 MiB.
const maxTable = 1 << 21

// matches returns, for each line of a, the index of the matching line of b, or -1. The
// matches are in increasing order. For long texts with little in common it may miss some.
func matches(a, b []string) []int {
	to := make([]int, len(a))
	for i := range to {
		to[i] = -1
	}
	match(a, b, to, 0)
	return to
}

// match fills in to for the lines a. b begins at line from of the whole text.
func match(a, b []string, to []int, from int) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		to[0] = from
		a, b, to, from = a[1:], b[1:], to[1:], from+1
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		to[len(a)-1] = from + len(b) - 1
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if len(a) == 0 || len(b) == 0 {
		return
	}
	if len(a) <= maxTable/len(b) {
		matchTable(a, b, to, from)
		return
	}
	i, j := 0, 0
	for _, p := range anchors(a, b) {
		// The anchors divide the texts into shorter ones, whose tables may be small enough.
		match(a[i:p.a], b[j:p.b], to[i:p.a], from+j)
		to[p.a] = from + p.b
		i, j = p.a+1, p.b+1
	}
	if i > 0 { // otherwise a second attempt gains nothing
		match(a[i:], b[j:], to[i:], from+j)
	}
}

// matchTable finds a longest common subsequence.
func matchTable(a, b []string, to []int, from int) {
	width := len(b) + 1
	table := make([]int32, (len(a)+1)*width) // of the lengths for a[i:] and b[j:]
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				table[i*width+j] = table[(i+1)*width+j+1] + 1
			} else {
				table[i*width+j] = max(table[(i+1)*width+j], table[i*width+j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			to[i] = from + j
			i, j = i+1, j+1
		case table[(i+1)*width+j] >= table[i*width+j+1]:
			i++
		default:
			j++
		}
	}
}

// pair is the positions of a line in two texts.
type pair struct{ a, b int }

// anchors returns a longest sequence of lines that occur once in each text and have the
// same order in both.
func anchors(a, b []string) []pair {
	type seen struct{ a, b, line int }
	counts := make(map[string]seen, len(a))
	for i, s := range a {
		c := counts[s]
		counts[s] = seen{c.a + 1, 0, i}
	}
	for _, s := range b {
		if c, ok := counts[s]; ok {
			c.b++
			counts[s] = c
		}
	}
	var ends []int // by length, the last pair of a sequence, as small as possible
	var pairs []pair
	var before []int
	for j, s := range b {
		c := counts[s]
		if c.a != 1 || c.b != 1 {
			continue
		}
		n, _ := slices.BinarySearchFunc(ends, c.line, func(p, line int) int { return pairs[p].a - line })
		pairs = append(pairs, pair{c.line, j})
		if before = append(before, -1); n > 0 {
			before[len(before)-1] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, 0)
		}
		ends[n] = len(pairs) - 1
	}
	var list []pair
	if len(ends) > 0 {
		for p := ends[len(ends)-1]; p >= 0; p = before[p] {
			list = append(list, pairs[p])
		}
	}
	slices.Reverse(list)
	return list
}
