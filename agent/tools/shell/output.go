package shell

import (
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxChars = 10_000 // of the output that the model gets
	sniffLen = 512    // bytes from which package http detects the type of binary output
)

// A cleaner removes or replaces everything in output that could deceive its reader: control
// characters other than line feed and tab, terminal sequences, marks that reorder text, and invalid
// UTF-8. It accepts pieces of any size. The zero value is ready to use.
type cleaner struct {
	part   []byte // beginning of an incomplete rune
	escape escapeState
	cr     bool // the last rune was a carriage return; its line feed may follow

	bytes, bad int64 // bytes seen, and bytes that do not occur in text
	start      []byte
}

// An escapeState is the position of a cleaner within a terminal sequence.
type escapeState int

const (
	outside    escapeState = iota
	begun                  // after ESC
	control                // after ESC [, up to a letter
	text                   // after ESC ] and the like, up to BEL or ESC \
	textEnding             // after ESC within text
)

// clean calls emit with each visible rune of the next piece.
func (c *cleaner) clean(piece []byte, emit func(rune)) {
	c.bytes += int64(len(piece))
	if n := sniffLen - len(c.start); n > 0 {
		c.start = append(c.start, piece[:min(n, len(piece))]...)
	}
	if len(c.part) > 0 {
		piece = append(c.part, piece...)
		c.part = nil
	}
	for len(piece) > 0 {
		if !utf8.FullRune(piece) {
			c.part = append([]byte(nil), piece...)
			return
		}
		r, size := utf8.DecodeRune(piece)
		if r == utf8.RuneError && size == 1 || r == 0 {
			c.bad++
		}
		piece = piece[size:]
		c.next(r, emit)
	}
}

func (c *cleaner) next(r rune, emit func(rune)) {
	if c.cr {
		c.cr = false
		if r == '\n' {
			return // the carriage return was emitted as a line feed
		}
	}
	if c.escape != outside {
		c.sequence(r, emit)
		return
	}
	switch {
	case r == '\x1b':
		c.escape = begun
	case r == '\r':
		c.cr = true
		emit('\n')
	case r == '\n', r == '\t':
		emit(r)
	case r < ' ': // shown as its Unicode control picture
		emit('\u2400' + r)
	case r == 0x7f:
		emit('\u2421')
	case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
		emit(utf8.RuneError)
	default:
		emit(r)
	}
}

// sequence consumes one rune of a terminal sequence and emits nothing for it.
func (c *cleaner) sequence(r rune, emit func(rune)) {
	switch c.escape {
	case begun:
		switch {
		case r == '[':
			c.escape = control
		case strings.ContainsRune("]PX^_", r):
			c.escape = text
		case r >= ' ' && r <= '/': // the sequence continues
		default:
			c.escape = outside
		}
	case control:
		if r >= '@' && r <= '~' {
			c.escape = outside
		} else if r < ' ' || r > '~' { // not a sequence
			c.escape = outside
			c.next(r, emit)
		}
	case text:
		switch r {
		case '\a', '\n': // a title has one line; output continues after it
			c.escape = outside
		case '\x1b':
			c.escape = textEnding
		}
	case textEnding:
		c.escape = outside
		if r != '\\' {
			c.next('\x1b', emit)
			c.next(r, emit)
		}
	}
}

// binary reports whether the output is not text: more than a tenth of its bytes are bad.
func (c *cleaner) binary() bool { return c.bad > 0 && c.bad*10 > c.bytes }

func (c *cleaner) describe() string {
	return fmt.Sprintf("[binary output, %d bytes, it looks like %s; write it to a file instead, and "+
		"look at it with a program that understands it]", c.bytes, http.DetectContentType(c.start))
}

// An excerpt keeps the beginning and the end of an output in constant memory. It is an io.Writer.
type excerpt struct {
	cleaner
	head, tail []rune
	n          int64 // total number of characters
}

// Write appends the next piece of the output. It never fails.
func (e *excerpt) Write(piece []byte) (int, error) {
	e.clean(piece, e.add)
	return len(piece), nil
}

func (e *excerpt) add(r rune) {
	const half = maxChars / 2
	switch {
	case len(e.head) < half:
		e.head = append(e.head, r)
	case len(e.tail) < half:
		e.tail = append(e.tail, r)
	default:
		e.tail[(e.n-half)%half] = r
	}
	e.n++
}

// String returns the output, at most 10,000 characters of it, with a line that counts the
// characters that are left out.
func (e *excerpt) String() string {
	if e.binary() {
		return e.describe()
	}
	const half = maxChars / 2
	if e.n <= maxChars {
		return string(e.head) + string(e.tail)
	}
	first := (e.n - half) % half // oldest character of the ring buffer
	return fmt.Sprintf("%s\n[… %d characters are left out here …]\n%s%s", string(e.head),
		e.n-maxChars, string(e.tail[first:]), string(e.tail[:first]))
}

// shorten returns s in one line of at most n characters.
func shorten(s string, n int) string {
	var c cleaner
	var b strings.Builder
	c.clean([]byte(s), func(r rune) {
		if r == '\n' || r == '\t' {
			r = ' '
		}
		if n--; n >= 0 {
			b.WriteRune(r)
		} else if n == -1 {
			b.WriteRune('…')
		}
	})
	return b.String()
}
