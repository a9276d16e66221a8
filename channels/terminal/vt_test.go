package terminal

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rivo/uniseg"
)

// A vt is a terminal in memory: what x/term and a Screen write to it becomes rows of cells.
type vt struct {
	t *testing.T

	mu            sync.Mutex
	width, height int
	rows          [][]string // cells; those above the last height rows are out of reach
	x, y          int        // x is width after a character in the last column
}

func newVT(t *testing.T, width, height int) *vt {
	return &vt{t: t, width: width, height: height, rows: [][]string{nil}}
}

func (v *vt) size() (int, int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.width, v.height, nil
}

var escape = regexp.MustCompile(`^\x1b\[([0-9]*)([A-Za-z])`)

func (v *vt) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for s := string(p); s != ""; {
		if m := escape.FindStringSubmatch(s); m != nil {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				n = 0
			}
			v.control(m[2], n)
			s = s[len(m[0]):]
			continue
		}
		cluster, rest, width, _ := uniseg.FirstGraphemeClusterInString(s, -1)
		s = rest
		switch cluster {
		case "\r":
			v.x = 0
		case "\n":
			v.down()
		case "\r\n":
			v.x = 0
			v.down()
		default:
			v.put(cluster, width)
		}
	}
	return len(p), nil
}

func (v *vt) down() {
	if v.y++; v.y == len(v.rows) {
		v.rows = append(v.rows, nil)
	}
}

func (v *vt) put(cluster string, width int) {
	if cluster < " " || cluster == "\x7f" || strings.HasPrefix(cluster, "\x1b") {
		v.t.Errorf("control character %q on the screen", cluster)
		return
	}
	if v.x+width > v.width {
		v.x = 0
		v.down()
	}
	for len(v.rows[v.y]) < v.x+width {
		v.rows[v.y] = append(v.rows[v.y], " ")
	}
	v.rows[v.y][v.x] = cluster
	for i := 1; i < width; i++ {
		v.rows[v.y][v.x+i] = ""
	}
	v.x += width
}

func (v *vt) control(op string, n int) {
	switch count := max(n, 1); {
	case op == "A":
		v.y = max(v.y-count, 0, len(v.rows)-v.height)
	case op == "B":
		v.y = min(v.y+count, len(v.rows)-1)
	case op == "C":
		v.x = min(v.x+count, v.width-1)
	case op == "D":
		v.x = max(min(v.x, v.width-1)-count, 0)
	case op == "K" && n == 0:
		v.rows[v.y] = v.rows[v.y][:min(v.x, len(v.rows[v.y]))]
	case op == "J" && n == 0:
		v.rows[v.y] = v.rows[v.y][:min(v.x, len(v.rows[v.y]))]
		v.rows = v.rows[:v.y+1]
	case op == "m": // a style
	default:
		v.t.Errorf("escape sequence %d%s is not known here", n, op)
	}
}

// text returns the rows, without blanks at their ends and without the last one if it has nothing
// but the prompt.
func (v *vt) text() (rows []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, cells := range v.rows {
		rows = append(rows, strings.TrimRight(strings.Join(cells, ""), " "))
	}
	if last := len(rows) - 1; rows[last] == strings.TrimSpace(promptText) || rows[last] == "" {
		rows = rows[:last]
	}
	return rows
}

func (v *vt) want(rows ...string) {
	v.t.Helper()
	if got := v.text(); !slices.Equal(got, rows) {
		v.t.Errorf("the screen shows\n%s\nwant\n%s", indent(got), indent(rows))
	}
}

func indent(rows []string) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "\t%q\n", r)
	}
	return b.String()
}
