//go:build unix

package e2e

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// A vt is a terminal in memory: rows of cells. The last rows are on the screen.
type vt struct {
	width, height int
	method        ansi.Method
	rows          [][]string
	first         int // index of the first row that is on the screen
	x, y          int // x is width after a character in the last column; y counts from rows[0]
	state         byte
	parser        *ansi.Parser
	rest          []byte // an incomplete sequence
	colours       bool   // whether something had a colour
	raw           strings.Builder
	strange       string // the first unknown sequence
}

func newVT(width, height int, method ansi.Method) *vt {
	return &vt{width: width, height: height, method: method, rows: [][]string{nil},
		parser: ansi.NewParser()}
}

// write processes the output of a program and returns the terminal's response.
func (v *vt) write(p []byte) (answer string) {
	v.raw.Write(p)
	v.rest = append(v.rest, p...)
	for len(v.rest) > 0 {
		seq, width, n, state := v.method.DecodeSequence(v.rest, v.state, v.parser)
		if state != ansi.NormalState || n == len(v.rest) && n < 32 && seq[0] >= 0x80 {
			if state == ansi.NormalState && v.whole(seq) {
				v.put(string(seq), width)
				v.rest = nil
				continue
			}
			return answer // the rest has not arrived yet
		}
		v.rest = v.rest[n:]
		switch {
		case width > 0:
			v.put(string(seq), width)
		case seq[0] == '\x1b' && len(seq) > 1 && seq[1] == '[':
			answer += v.control(string(seq))
		case string(seq) == "\x1bM":
			v.y = max(v.y-1, v.first)
		case seq[0] == '\x1b':
			v.strange = string(seq)
		default:
			v.move(seq[0])
		}
	}
	return answer
}

// whole reports whether seq is a complete character that can be shown.
func (v *vt) whole(seq []byte) bool {
	return !strings.ContainsRune(string(seq), '\ufffd') && v.method.StringWidth(string(seq)) > 0
}

func (v *vt) down() {
	if v.y++; v.y == len(v.rows) {
		v.rows = append(v.rows, nil)
	}
	v.first = max(v.first, v.y+1-v.height)
}

func (v *vt) move(c byte) {
	switch c {
	case '\r':
		v.x = 0
	case '\n':
		v.down()
	case '\b':
		v.x = max(min(v.x, v.width-1)-1, 0)
	case '\t':
		v.tab(1)
	}
}

// tab moves the cursor by n tab stops, to the left if n is negative.
func (v *vt) tab(n int) {
	const interval = 8
	at := min(v.x, v.width-1)
	if n < 0 {
		at += interval - 1 // a cursor between two stops moves to the one on its left first
	}
	v.x = min(max((at/interval+n)*interval, 0), v.width-1)
}

func (v *vt) put(cluster string, width int) {
	if v.x+width > v.width {
		v.x = 0
		v.down()
	}
	row := v.row(v.x + width)
	row[v.x] = cluster
	for i := 1; i < width; i++ {
		row[v.x+i] = ""
	}
	v.x += width
}

// row returns the row of the cursor, extended to at least width cells.
func (v *vt) row(width int) []string {
	for len(v.rows[v.y]) < width {
		v.rows[v.y] = append(v.rows[v.y], " ")
	}
	return v.rows[v.y]
}

// control executes a control sequence.
func (v *vt) control(seq string) (answer string) {
	cmd := ansi.Cmd(v.parser.Command())
	n, _ := v.parser.Param(0, 1)
	n = max(n, 1)
	erase, _ := v.parser.Param(0, 0)
	at := min(v.x, v.width-1)
	switch final := cmd.Final(); {
	case cmd.Prefix() == '?' && final == 'p' && erase == 2027 && v.method == ansi.GraphemeWidth:
		return "\x1b[?2027;2$y"
	case cmd.Prefix() != 0, cmd.Intermediate() != 0: // modes and queries are ignored
	case final == 'A':
		v.y = max(v.y-n, v.first)
	case final == 'B':
		v.y = min(v.y+n, v.first+v.height-1)
		for v.y >= len(v.rows) {
			v.rows = append(v.rows, nil)
		}
	case final == 'C':
		v.x = min(at+n, v.width-1)
	case final == 'D':
		v.x = max(at-n, 0)
	case final == 'G':
		v.x = min(n, v.width) - 1
	case final == 'I':
		v.tab(n)
	case final == 'Z':
		v.tab(-n)
	case final == 'K' && erase == 0:
		v.rows[v.y] = v.row(at)[:at]
	case final == 'K' && erase == 1:
		blank(v.row(at + 1)[:at+1])
	case final == 'J' && erase == 0:
		v.rows[v.y] = v.row(at)[:at]
		v.rows = v.rows[:v.y+1]
	case final == 'X':
		blank(v.row(at + n)[at : at+n])
	case final == 'P':
		row := v.row(at + n)
		v.rows[v.y] = append(row[:at:at], row[at+n:]...)
	case final == '@':
		row := v.row(at)
		blanks := make([]string, n)
		blank(blanks)
		v.rows[v.y] = append(append(row[:at:at], blanks...), row[at:]...)
	case final == 'b':
		last := v.row(at)[v.x-1]
		for range n {
			v.put(last, v.method.StringWidth(last))
		}
	case final == 'L':
		v.insertRows(n)
	case final == 'M':
		end := min(v.y+n, len(v.rows))
		v.rows = append(v.rows[:v.y:v.y], v.rows[end:]...)
		if v.y == len(v.rows) {
			v.rows = append(v.rows, nil)
		}
	case final == 'm':
		v.colours = v.colours || strings.Contains(seq, "3") && seq != "\x1b[39m"
	case strings.ContainsRune("hlWquc", rune(final)):
	default:
		if v.strange == "" {
			v.strange = seq
		}
	}
	return ""
}

// insertRows inserts n rows. Rows below the screen are lost.
func (v *vt) insertRows(n int) {
	rows := append(append(v.rows[:v.y:v.y], make([][]string, n)...), v.rows[v.y:]...)
	v.rows = rows[:min(len(rows), v.first+v.height)]
}

func blank(cells []string) {
	for i := range cells {
		cells[i] = " "
	}
}

// text returns all rows, including those that have scrolled away.
func (v *vt) text() string {
	var b strings.Builder
	for _, row := range v.rows {
		b.WriteString(strings.TrimRight(strings.Join(row, ""), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// TestTabs checks the movements between tab stops, which a program uses where they need the
// fewest bytes.
func TestTabs(t *testing.T) {
	for output, want := range map[string]int{
		"\t": 8, "abc\t": 8, "abcdefgh\t": 16, "\t\t\t\t": 31, "abc\x1b[2I": 16, "\x1b[9I": 31,
		"\x1b[Z": 0, "abc\x1b[Z": 0, "abcdefgh\x1b[Z": 0, "abcdefghi\x1b[Z": 8,
		"\t\t\t\x1b[2Z": 8, "\t\t\tx\x1b[2Z": 16, "\t\t\t\x1b[5Z": 0,
		"\x1b[32Gx\x1b[Z": 24, // the cursor is after the last column
	} {
		screen := newVT(32, 4, ansi.WcWidth)
		screen.write([]byte(output))
		if screen.x != want || screen.strange != "" {
			t.Errorf("after %q the cursor is in column %d, want %d (unknown: %q)",
				output, screen.x, want, screen.strange)
		}
	}
}
