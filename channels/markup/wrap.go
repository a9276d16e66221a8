package markup

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// sequence matches the beginning or the end of a style in the ANSI dialect.
var sequence = regexp.MustCompile("\x1b\\[[0-9]+m")

// closing maps the beginning of each style to its end.
var closing = map[string]string{
	"\x1b[1m": "\x1b[22m", "\x1b[3m": "\x1b[23m", "\x1b[4m": "\x1b[24m", "\x1b[9m": "\x1b[29m",
	ansiCode: ansiCodeEnd,
}

// wrap breaks s, which may contain escape sequences, into lines of at most the given widths in
// columns: first for the first line, others for the other lines; 0: no limit. It breaks where
// Unicode allows it or, if necessary or if everywhere is true, between any two characters. A style
// that continues over the end of a line is closed there and reopened on the next line.
func wrap(s string, first, others int, everywhere bool) []string {
	w := wrapper{room: first, others: others, everywhere: everywhere}
	rest, state := s, -1 // state of uniseg; -1: the beginning of a text
	for rest != "" {
		if at := sequence.FindStringIndex(rest); at != nil && at[0] == 0 {
			w.mark(rest[:at[1]])
			rest = rest[at[1]:]
			continue
		}
		plain := rest
		if i := strings.IndexByte(rest, '\x1b'); i > 0 {
			plain = rest[:i]
		}
		cluster, _, boundaries, next := uniseg.StepString(plain, state)
		last := len(cluster) == len(plain)
		rest, state = rest[len(cluster):], next
		if last {
			state = -1
		}
		// Within ASCII, break only at blanks: addresses and command options stay whole.
		apart := cluster == " " || cluster[0] >= utf8.RuneSelf || !last && rest[0] >= utf8.RuneSelf
		w.add(cluster, boundaries>>uniseg.ShiftWidth,
			apart && !last && boundaries&uniseg.MaskLine == uniseg.LineCanBreak)
	}
	w.flush("")
	return w.lines
}

// A wrapper builds lines.
type wrapper struct {
	room, others int // columns of this line and of the following ones; 0: no limit
	everywhere   bool

	lines  []string
	line   strings.Builder // up to the last possible break
	column int             // width of line
	active []string        // styles at the end of line

	word       strings.Builder // text after line
	wordWidth  int             // in columns
	wordActive []string        // styles at the end of word
}

// mark adds the beginning or the end of a style.
func (w *wrapper) mark(sequence string) {
	w.word.WriteString(sequence)
	if closing[sequence] != "" {
		// The copy leaves active as it is, which may share the array.
		w.wordActive = append(w.wordActive[:len(w.wordActive):len(w.wordActive)], sequence)
		return
	}
	for i := len(w.wordActive) - 1; i >= 0; i-- {
		if closing[w.wordActive[i]] == sequence {
			w.wordActive = append(w.wordActive[:i:i], w.wordActive[i+1:]...)
			return
		}
	}
}

// add adds a character. canBreak says whether the line may be broken after it.
func (w *wrapper) add(cluster string, width int, canBreak bool) {
	if cluster == "\n" || cluster == "\r\n" {
		w.commit()
		w.flush("")
		return
	}
	blank := cluster == " " && !w.everywhere
	// A blank may exceed the room: flush removes blanks at the end of a line.
	if w.room > 0 && !blank && w.column+w.wordWidth+width > w.room {
		if w.column > 0 && !w.everywhere {
			w.flush(w.word.String())
		}
		// The word is too long for a line of its own, or may be broken anywhere.
		if w.wordWidth > 0 && w.wordWidth+width > w.room || w.everywhere && w.wordWidth > 0 {
			w.commit()
			w.flush("")
		}
	}
	w.word.WriteString(cluster)
	w.wordWidth += width
	if canBreak && !w.everywhere || blank {
		w.commit()
	}
}

// commit moves the word to the line.
func (w *wrapper) commit() {
	w.line.WriteString(w.word.String())
	w.column += w.wordWidth
	w.active = w.wordActive
	w.word.Reset()
	w.wordWidth = 0
}

// flush ends the line and begins the next one with rest, the word that did not fit.
func (w *wrapper) flush(rest string) {
	if rest == "" {
		w.commit()
	}
	line := w.line.String()
	if !w.everywhere {
		line = strings.TrimRight(line, " ")
	}
	for i := len(w.active) - 1; i >= 0; i-- {
		line += closing[w.active[i]]
	}
	w.lines = append(w.lines, line)
	w.line.Reset()
	w.line.WriteString(strings.Join(w.active, ""))
	w.column, w.room = 0, w.others
}
