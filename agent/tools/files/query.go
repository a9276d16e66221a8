package files

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// maxRegexp is the greatest length of a regular expression, in bytes.
const maxRegexp = 2_000

// A query finds the matches of an expression in a text.
type query struct {
	re      *regexp.Regexp
	multi   bool     // a match may span several lines
	literal []byte   // part of every match, if not empty
	oneOf   [][]byte // every match contains one of them, if there are any
	fold    bool     // literal and oneOf are lower case; compare them with the text in lower case
	whole   bool     // every line that contains the literal matches
	edges   bool     // the expression refers to the beginning or the end of the text
}

// newQuery returns the query for an expression. An error is for the model.
func newQuery(pattern string, fixed, ignoreCase, multi bool) (*query, error) {
	switch {
	case pattern == "":
		return nil, errors.New("the pattern is empty")
	case len(pattern) > maxRegexp:
		return nil, fmt.Errorf("the pattern is longer than %d bytes", maxRegexp)
	case fixed:
		pattern = regexp.QuoteMeta(pattern)
	}
	flags := "(?m)"
	if ignoreCase {
		flags = "(?mi)"
	}
	re, err := regexp.Compile(flags + pattern)
	if err != nil {
		return nil, notRegexp(err)
	}
	tree, err := syntax.Parse(flags+pattern, syntax.Perl)
	if err != nil {
		return nil, notRegexp(err)
	}
	q := &query{re: re, multi: multi, edges: hasEdges(tree)}
	text, fold := required(tree)
	q.literal, q.fold = []byte(text), fold
	q.whole = tree.Op == syntax.OpLiteral && !fold
	if text == "" {
		q.oneOf, q.fold = alternatives(tree)
	}
	if strings.Contains(text, "\n") && !multi {
		return nil, errors.New("the pattern has a line break in it; set multiline")
	}
	return q, nil
}

func notRegexp(err error) error {
	text := err.Error()
	if bad := (*syntax.Error)(nil); errors.As(err, &bad) {
		text = fmt.Sprintf("%s in %q", bad.Code, short(bad.Expr))
	}
	return fmt.Errorf("the pattern is not a regular expression that can be used: %s; "+
		"the syntax is RE2 (no look-around, no back references); for plain text set fixed", text)
}

// required returns a string that is part of every match of re, or "". fold reports that the string
// is lower case and that the match ignores case.
func required(re *syntax.Regexp) (text string, fold bool) {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return string(re.Rune), false
		}
		return longestPlain(strings.ToLower(string(re.Rune))), true
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if t, f := required(sub); len(t) > len(text) {
				text, fold = t, f
			}
		}
	}
	return text, fold
}

// alternatives returns strings of which every match of re contains at least one, or nil. fold
// reports that they are lower case and that the match ignores case.
func alternatives(re *syntax.Regexp) (texts [][]byte, fold bool) {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	if re.Op != syntax.OpAlternate {
		return nil, false
	}
	for i, sub := range re.Sub {
		text, f := required(sub)
		if text == "" || i > 0 && f != fold {
			return nil, false
		}
		texts, fold = append(texts, []byte(text)), f
	}
	return texts, fold
}

// may reports whether the given part of a text can contain a match.
func (q *query) may(in []byte) bool {
	if len(q.oneOf) == 0 {
		return bytes.Contains(in, q.literal)
	}
	return slices.ContainsFunc(q.oneOf, func(text []byte) bool { return bytes.Contains(in, text) })
}

// longestPlain returns the longest part of s in which each letter has only its two ASCII forms.
func longestPlain(s string) string {
	best := ""
	// In Unicode, k also matches the Kelvin sign, and s the long s.
	other := func(r rune) bool { return r >= 0x80 || r == 'k' || r == 's' }
	for _, part := range strings.FieldsFunc(s, other) {
		if len(part) > len(best) {
			best = part
		}
	}
	return best
}

// hasEdges reports whether an expression refers to the beginning or the end of the text.
func hasEdges(re *syntax.Regexp) bool {
	if re.Op == syntax.OpBeginText || re.Op == syntax.OpEndText {
		return true
	}
	for _, sub := range re.Sub {
		if hasEdges(sub) {
			return true
		}
	}
	return false
}

// A hit is a range of whole lines that contain a match, without the last line break.
type hit struct{ from, to int }

// A scanner searches texts, one after the other.
type scanner struct {
	query *query
	lower []byte // the text in lower case, if the query needs it
}

// hits calls yield for each hit in text until yield returns false. Lines must end in "\n".
func (s *scanner) hits(text []byte, yield func(hit) bool) {
	in := text
	if s.query.fold {
		s.lower = lowerASCII(s.lower[:0], text)
		in = s.lower
	}
	if !s.query.may(in) {
		return
	}
	switch {
	case s.query.multi:
		s.manyLines(text, yield)
	case len(s.query.literal) > 0:
		s.byLiteral(text, in, yield)
	default:
		s.byChunk(text, in, yield)
	}
}

// byLiteral tests only lines that contain the literal.
func (s *scanner) byLiteral(text, in []byte, yield func(hit) bool) {
	for from := 0; from < len(text); {
		i := bytes.Index(in[from:], s.query.literal)
		if i < 0 {
			return
		}
		h := lineAround(text, from+i, from+i)
		if (s.query.whole || s.query.re.Match(text[h.from:h.to])) && !yield(h) {
			return
		}
		from = h.to + 1
	}
}

// chunkSize is the number of bytes that are matched at once if there is no literal. Package regexp
// uses a slower algorithm for longer texts.
const chunkSize = 1 << 10

// byChunk matches some lines at once. Only if they match does it test each line.
func (s *scanner) byChunk(text, in []byte, yield func(hit) bool) {
	for from := 0; from < len(text); {
		to := lineAround(text, from, min(from+chunkSize, len(text)-1)).to
		if !s.query.may(in[from:to]) || !s.query.edges && !s.query.re.Match(text[from:to]) {
			from = to + 1
			continue
		}
		for from <= to && from < len(text) {
			h := lineAround(text, from, from)
			if s.query.re.Match(text[h.from:h.to]) && !yield(h) {
				return
			}
			from = h.to + 1
		}
	}
}

// maxHits is the number of matches of one file if a match may span several lines.
const maxHits = 100_000

// manyLines matches the text as a whole.
func (s *scanner) manyLines(text []byte, yield func(hit) bool) {
	if len(text) == 0 {
		return
	}
	last := hit{to: -1}
	for _, at := range s.query.re.FindAllIndex(text, maxHits) {
		first := min(at[0], len(text)-1)
		h := lineAround(text, first, max(first, at[1]-1))
		if h.from <= last.to {
			continue // these lines belong to the previous hit
		}
		if last = h; !yield(h) {
			return
		}
	}
}

// lineAround returns the range of the lines that contain the bytes at from and to.
func lineAround(text []byte, from, to int) hit {
	h := hit{from: bytes.LastIndexByte(text[:from], '\n') + 1, to: len(text)}
	if i := bytes.IndexByte(text[to:], '\n'); i >= 0 {
		h.to = to + i
	}
	return h
}

// lowerASCII appends text to b with ASCII letters in lower case.
func lowerASCII(b, text []byte) []byte {
	b = append(b, text...)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + ('a' - 'A')
		}
	}
	return b
}
