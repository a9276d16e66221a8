package files

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A textLine is a line of a file and its line break.
type textLine struct {
	text string
	end  string // "\n", "\r\n", or "" if the last line has no line break
}

// linesOf splits a text into lines.
func linesOf(text string) []textLine {
	var lines []textLine
	for l := range strings.Lines(text) {
		body := strings.TrimSuffix(l, "\n")
		if body == l {
			lines = append(lines, textLine{l, ""})
			continue
		}
		bare := strings.TrimSuffix(body, "\r")
		lines = append(lines, textLine{bare, l[len(bare):]})
	}
	return lines
}

// joined is the inverse of linesOf. It adds end to a line without a line break that is no longer
// the last one.
func joined(lines []textLine, end string) string {
	var b strings.Builder
	for i, l := range lines {
		b.WriteString(l.text)
		if l.end == "" && i < len(lines)-1 {
			l.end = end
		}
		b.WriteString(l.end)
	}
	return b.String()
}

// applyHunks returns text with the hunks applied. The error names the first hunk that does not
// apply.
func applyHunks(text string, hunks []hunk) (string, error) {
	bom := ""
	if rest, ok := strings.CutPrefix(text, string(byteOrderMark)); ok {
		bom, text = string(byteOrderMark), rest
	}
	lines := linesOf(text)
	end := "\n"
	if len(lines) > 0 && lines[0].end == "\r\n" {
		end = "\r\n"
	}
	var out []textLine
	done := 0 // number of input lines that are copied to out or replaced
	for i, h := range hunks {
		at, err := h.place(lines, done)
		if err != nil {
			return "", fmt.Errorf("hunk %d of %d %w", i+1, len(hunks), err)
		}
		out = append(out, lines[done:at]...)
		replaced, n := h.replace(lines[at:], end)
		out = append(out, replaced...)
		done = at + n
	}
	out = append(out, lines[done:]...)
	return bom + joined(out, end), nil
}

// replace returns the lines that replace those at the hunk's place, and the number of lines
// replaced. Context lines stay as they are in the file.
func (h *hunk) replace(lines []textLine, end string) ([]textLine, int) {
	var out []textLine
	n := 0
	for _, l := range h.lines {
		switch {
		case l.op == '-':
			n++
		case l.op == ' ':
			out = append(out, lines[n])
			n++
		default:
			out = append(out, textLine{l.text, end})
		}
	}
	// A patch does not say whether the file's last line has a line break.
	if last := len(out) - 1; n == len(lines) && n > 0 && last >= 0 {
		if lines[n-1].end == "" {
			out[last].end = ""
		}
	}
	return out, n
}

// place returns the index of the first line of the hunk in the file, which is at least from.
func (h *hunk) place(lines []textLine, from int) (int, error) {
	old := h.old()
	behind := from
	for _, a := range h.anchors {
		i := slices.IndexFunc(lines[behind:], func(l textLine) bool {
			return strings.TrimSpace(l.text) == strings.TrimSpace(a)
		})
		if i < 0 {
			return 0, fmt.Errorf("does not apply: there is no line %s", quoted(a))
		}
		from, behind = behind+i, behind+i+1 // the anchor may also be the first line of the hunk
	}
	if len(old) == 0 {
		if len(h.anchors) > 0 {
			return behind, nil
		}
		return len(lines), nil
	}
	for _, equal := range []func(a, b string) bool{exact, trimmed} {
		found := matches(lines, old, from, equal)
		if h.end {
			found = slices.DeleteFunc(found, func(at int) bool { return at+len(old) != len(lines) })
		}
		switch {
		case len(found) == 1 || len(found) > 1 && len(h.anchors) > 0:
			return found[0], nil
		case len(found) > 1:
			for i := range found {
				found[i]++
			}
			return 0, fmt.Errorf("matches more than once, in %s; give more lines around it", lineList(found))
		}
	}
	return 0, h.mismatch(lines, from)
}

func exact(a, b string) bool { return a == b }

func trimmed(a, b string) bool {
	return strings.TrimRight(a, " \t\r") == strings.TrimRight(b, " \t\r")
}

// matches returns the indexes, from from on, of the lines where old begins.
func matches(
	lines []textLine, old []patchLine, from int, equal func(a, b string) bool,
) (found []int) {
	same := func(l textLine, p patchLine) bool { return equal(l.text, p.text) }
	for at := from; at+len(old) <= len(lines); at++ {
		if slices.EqualFunc(lines[at:at+len(old)], old, same) {
			found = append(found, at)
		}
	}
	return found
}

// mismatch returns an error with the reason why a hunk does not apply. It shows the most similar
// lines.
func (h *hunk) mismatch(lines []textLine, from int) error {
	text := joined(lines, "\n")
	var want []string
	for _, l := range h.old() {
		want = append(want, l.text)
	}
	if from > 0 && len(matches(lines, h.old(), 0, trimmed)) > 0 {
		return errors.New("belongs before the previous hunk; put the hunks in the order of the file")
	}
	near := strings.ReplaceAll(closest(text, strings.Join(want, "\n")), "old_text", "the patch")
	return fmt.Errorf("does not apply: its lines are not in the file%s", near)
}
