package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// Limits of a regular expression. Each byte of a text may take time for all of its states.
const (
	maxRegexp = 2_000 // bytes
	maxStates = 2 * maxRegexp
)

// A query finds the matches of an expression in a text.
type query struct {
	re    *regexp.Regexp
	later *regexp.Regexp // re for the text behind a match, where \A does not match

	multi bool     // a match may span several lines
	oneOf []string // every match contains one of these texts, if there are any
	fold  bool     // oneOf is lower case; compare it with the text in lower case

	literal bool // every line that contains the only text of oneOf matches
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
	// With m, ^ and $ match at the ends of every line.
	flags := "(?m)"
	if ignoreCase {
		flags = "(?mi)"
	}
	// Package regexp does not give away the syntax tree. It parses with the same flags.
	tree, err := syntax.Parse(flags+pattern, syntax.Perl)
	if err != nil {
		return nil, notRegexp(err)
	}
	if states(tree) > maxStates {
		return nil, errors.New("the pattern takes too long: it repeats too much; use smaller numbers " +
			"in braces, or * or +")
	}
	re, err := regexp.Compile(flags + pattern)
	if err != nil {
		return nil, notRegexp(err)
	}
	q := &query{re: re, later: re, multi: multi}
	q.oneOf, q.fold = required(tree)
	q.literal = len(q.oneOf) == 1 && tree.Op == syntax.OpLiteral && !q.fold
	if len(q.oneOf) == 1 && strings.Contains(q.oneOf[0], "\n") && !multi {
		return nil, errors.New("the pattern has a line break in it; set multiline")
	}
	if multi && notAtStart(tree) {
		if q.later, err = regexp.Compile(tree.String()); err != nil {
			return nil, notRegexp(err)
		}
	}
	return q, nil
}

// states estimates the number of states of the machine for re. The machine has a copy of a part of
// re for each of its repetitions.
func states(re *syntax.Regexp) int {
	if re.Op == syntax.OpLiteral {
		return len(re.Rune)
	}
	n := 0
	for _, sub := range re.Sub {
		n += states(sub)
	}
	if re.Op == syntax.OpRepeat { // an optional copy has a state of its own
		return n*max(re.Min, re.Max, 1) + max(re.Max-re.Min, 0)
	}
	return n + 1
}

func notRegexp(err error) error {
	text := err.Error()
	if bad, ok := errors.AsType[*syntax.Error](err); ok {
		text = fmt.Sprintf("%s in %q", bad.Code, truncate(bad.Expr))
	}
	return fmt.Errorf("the pattern is not a regular expression that can be used: %s; "+
		"the syntax is RE2 (no look-around, no back references); for plain text set fixed", text)
}

// required returns texts of which every match of re contains at least one, or nil. fold reports
// that they are lower case and that the match ignores case.
func required(re *syntax.Regexp) (texts []string, fold bool) {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return []string{string(re.Rune)}, false
		}
		if text := longestPlain(strings.ToLower(string(re.Rune))); text != "" {
			return []string{text}, true
		}
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat: // the part with the longest texts excludes most lines
		longest := 0
		for _, sub := range re.Sub {
			t, f := required(sub)
			if len(t) == 0 {
				continue
			}
			if shortest := len(slices.MinFunc(t, byLen)); shortest > longest {
				texts, fold, longest = t, f, shortest
			}
		}
	case syntax.OpAlternate:
		// All alternatives must have such texts, and treat upper and lower case alike.
		for i, sub := range re.Sub {
			t, f := required(sub)
			if len(t) == 0 || i > 0 && f != fold {
				return nil, false
			}
			texts, fold = append(texts, t...), f
		}
	}
	return texts, fold
}

func byLen(a, b string) int { return len(a) - len(b) }

// mayMatch reports whether the given part of a text can contain a match. This is much faster than
// the expression.
func (q *query) mayMatch(in []byte) bool {
	return len(q.oneOf) == 0 || slices.ContainsFunc(q.oneOf, func(text string) bool {
		return bytes.Contains(in, []byte(text))
	})
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

// A hit is a range of whole lines that contain a match, without the last line break.
type hit struct{ from, to int }

// A scanner searches texts, one after the other.
type scanner struct {
	query *query
	lower []byte // the text in lower case, if the query needs it
}

// hits calls yield for each hit in text until yield returns false or ctx ends. Lines must end in
// "\n".
func (s *scanner) hits(ctx context.Context, text []byte, yield func(hit) bool) {
	in := text
	if s.query.fold {
		s.lower = lowerASCII(s.lower[:0], text)
		in = s.lower
	}
	if !s.query.mayMatch(in) {
		return
	}
	if s.query.multi {
		s.manyLines(ctx, text, yield)
		return
	}
	for from := 0; from < len(text) && ctx.Err() == nil; {
		if len(s.query.oneOf) == 1 {
			i := bytes.Index(in[from:], []byte(s.query.oneOf[0]))
			if i < 0 {
				return
			}
			from += i // lines without the text are skipped at once
		}
		h := lineAround(text, from, from)
		matches := s.query.literal ||
			s.query.mayMatch(in[h.from:h.to]) && s.query.re.Match(text[h.from:h.to])
		if matches && !yield(h) {
			return
		}
		from = h.to + 1
	}
}

// maxHits is the number of hits of one file if a match may span several lines.
const maxHits = 100_000

// manyLines matches the text as a whole. It finds one match at a time, so that yield and ctx can
// end it: for some expressions each match takes time for the whole text. The next match begins
// behind the lines of the one before.
func (s *scanner) manyLines(ctx context.Context, text []byte, yield func(hit) bool) {
	from, re := 0, s.query.re
	for range maxHits {
		if from >= len(text) || ctx.Err() != nil {
			return
		}
		at := re.FindIndex(text[from:])
		if at == nil {
			return
		}
		// An empty match may be behind the last byte.
		first := min(from+at[0], len(text)-1)
		h := lineAround(text, first, max(first, from+at[1]-1))
		if !yield(h) {
			return
		}
		from, re = h.to+1, s.query.later
	}
}

// notAtStart replaces each \A in re by an expression that matches nothing. It reports whether there
// is one.
func notAtStart(re *syntax.Regexp) (found bool) {
	if re.Op == syntax.OpBeginText {
		*re = syntax.Regexp{Op: syntax.OpNoMatch}
		return true
	}
	for _, sub := range re.Sub {
		found = notAtStart(sub) || found
	}
	return found
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
