package markup

import (
	"sort"
	"strings"
)

// A fence is a fenced code block in a text. Its fields up to end are byte offsets.
type fence struct {
	open, body int // start of the opening line, and of the line after it
	close, end int // start of the closing line, and of the line after it; len(text) if there is none

	marker string // such as "```"
	info   string // text after the marker, such as "go"
	quote  string // "> " for each quotation around it
	indent int    // columns before the marker
}

// findFences finds the fenced code blocks of text, including those in lists and quotations. It
// examines single lines. Where a parser sees more (a fence inside raw HTML), a cut may be less
// pretty, but no piece becomes too long, because pieces are measured.
func findFences(text string) []fence {
	var found []fence
	var f *fence
	for pos := 0; pos < len(text); {
		next := len(text)
		if i := strings.IndexByte(text[pos:], '\n'); i >= 0 {
			next = pos + i + 1
		}
		line := strings.TrimRight(text[pos:next], "\r\n")
		switch {
		case f == nil:
			if opened, ok := openFence(line); ok {
				opened.open, opened.body = pos, next
				opened.close, opened.end = len(text), len(text)
				found = append(found, opened)
				f = &found[len(found)-1]
			}
		case f.quote != "" && !strings.HasPrefix(strings.TrimLeft(line, " "), ">"):
			f.close, f.end = pos, pos // the end of the quotation ends the fence
			f = nil
			continue // the line may open another fence
		case f.closedBy(line):
			f.close, f.end = pos, next
			f = nil
		}
		pos = next
	}
	return found
}

// openFence reports whether a line opens a fence.
func openFence(line string) (fence, bool) {
	const longest = 64 // bytes of any part; longer ones would fill the pieces
	var f fence
	rest := line
	for len(f.quote) <= longest {
		rest, f.indent = cutBlanks(rest, f.indent)
		// A quotation counts only if nothing but quotations is before it.
		if after, ok := strings.CutPrefix(rest, ">"); ok && f.indent == len(f.quote) {
			rest = strings.TrimPrefix(after, " ")
			f.quote += "> "
			f.indent += 2
			continue
		}
		n := listMarker(rest)
		if n == 0 {
			break
		}
		f.indent += n
		rest = rest[n:]
	}
	// The marks of quotations stay in the text, so they are not indentation.
	f.indent -= len(f.quote)
	if rest == "" || rest[0] != '`' && rest[0] != '~' {
		return f, false
	}
	f.info = strings.TrimLeft(rest, rest[:1])
	f.marker = rest[:len(rest)-len(f.info)]
	f.info = strings.TrimSpace(f.info)
	if len(f.info) > longest {
		f.info = ""
	}
	n := len(f.marker)
	// The text after backquotes can't contain backquotes: that would be inline code.
	return f, n >= 3 && n <= longest && len(f.quote) <= longest &&
		(rest[0] == '~' || !strings.Contains(rest[n:], "`"))
}

// listMarker returns the length of the list marker and blank that s begins with, or 0. A number has
// at most nine digits, as in CommonMark.
func listMarker(s string) int {
	n := 0
	for n < len(s) && n < 9 && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	switch {
	case n >= len(s)-1 || s[n+1] != ' ':
		return 0
	case n == 0 && strings.IndexByte("-*+", s[0]) >= 0, n > 0 && (s[n] == '.' || s[n] == ')'):
		return n + 2
	}
	return 0
}

// closedBy reports whether line closes f: it has only the marker, in at least the same length.
func (f *fence) closedBy(line string) bool {
	line = strings.Trim(line, " \t>")
	return len(line) >= len(f.marker) && strings.Trim(line, f.marker[:1]) == ""
}

// code writes the part of src[pos:end] that is in f to a piece in which f is not indented.
func (f *fence) code(b *strings.Builder, src string, pos, end int) {
	end = min(f.end, end)
	if src[pos-1] != '\n' { // in the middle of a line
		b.WriteString(f.quote)
		line := end
		if i := strings.IndexByte(src[pos:end], '\n'); i >= 0 {
			line = pos + i + 1
		}
		b.WriteString(src[pos:line])
		pos = line
	}
	if f.indent == 0 || f.quote != "" {
		b.WriteString(src[pos:end])
		return
	}
	for line := range strings.Lines(src[pos:end]) {
		line, _ = dedent(line, f.indent)
		b.WriteString(line)
	}
}

// inside returns the fence whose code a cut at pos would divide, or nil.
func (s *splitter) inside(pos int) *fence {
	if f := s.around(pos); f != nil && pos >= f.body && pos < f.close {
		return f
	}
	return nil
}

// around returns the fence that begins before pos and ends after it, or nil.
func (s *splitter) around(pos int) *fence {
	if f := s.before(pos); f != nil && pos < f.end {
		return f
	}
	return nil
}

// before returns the last fence that begins before pos, or nil.
func (s *splitter) before(pos int) *fence {
	i := sort.Search(len(s.fences), func(i int) bool { return s.fences[i].open >= pos })
	if i == 0 {
		return nil
	}
	return &s.fences[i-1]
}

// quotation returns the marks of the quotation whose line is divided by a cut at pos, or "".
func (s *splitter) quotation(pos int) string {
	line := s.src[strings.LastIndexByte(s.src[:pos], '\n')+1 : pos]
	marks := line[:len(line)-len(strings.TrimLeft(line, "> "))]
	if s.around(pos) != nil || !strings.Contains(marks, ">") || len(marks) > s.limit/4 {
		return ""
	}
	return marks
}
