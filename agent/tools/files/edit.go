package files

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gateway/agent/tool"
)

const editDescription = "Replaces text in a file that you have read. old_text is exact, with " +
	"white space but without line numbers, and unique unless replace_all. edits: several, " +
	"all or none."

// maxEdits is the greatest number of edits in one call.
const maxEdits = 200

type editArgs struct {
	Path    string  `json:"path"`
	OldText string  `json:"old_text,omitempty"`
	NewText *string `json:"new_text,omitempty"`
	All     bool    `json:"replace_all,omitempty"`
	Edits   []edit  `json:"edits,omitempty"`
}

type edit struct {
	OldText string `json:"old_text"`
	NewText string `json:"new_text"`
	All     bool   `json:"replace_all,omitempty"`
}

// list returns the edits in the arguments.
func (a editArgs) list() ([]edit, error) {
	switch {
	case len(a.Edits) == 0 && a.NewText == nil:
		return nil, errors.New(`want old_text and new_text, which may be "", or edits`)
	case len(a.Edits) == 0:
		return []edit{{a.OldText, *a.NewText, a.All}}, nil
	case a.OldText != "" || a.NewText != nil:
		return nil, errors.New("want either old_text and new_text or edits, not both")
	case len(a.Edits) > maxEdits:
		return nil, fmt.Errorf("%d edits at once are too many; at most %d", len(a.Edits), maxEdits)
	}
	return a.Edits, nil
}

func (e *editor) editFile(ctx context.Context, c tool.Call, a editArgs) (tool.Result, error) {
	edits, err := a.list()
	if err != nil {
		return tool.Result{}, err
	}
	return e.rewrite(ctx, c, a.Path, "; write_file makes new files",
		func(old string) (text, report string, err error) {
			text, lines, err := applyEdits(ctx, old, edits)
			return text, fmt.Sprintf(" was changed in %s, and has %d lines now",
				lineList(lines), countLines(text)), err
		})
}

// applyEdits returns text after the edits and the lines that they changed, numbered as
// they were at that moment. The error names the first edit that doesn't apply.
func applyEdits(ctx context.Context, text string, edits []edit) (string, []int, error) {
	var lines []int
	for i, e := range edits {
		if err := ctx.Err(); err != nil {
			return "", nil, err
		}
		which := ""
		if len(edits) > 1 {
			which = fmt.Sprintf("edit %d of %d: ", i+1, len(edits))
		}
		after, at, err := applyEdit(text, e)
		if err != nil {
			return "", nil, fmt.Errorf("%s%w", which, err)
		}
		text = after
		if len(text) > maxEdit {
			return "", nil, fmt.Errorf("%sthe file would have more than %d bytes", which, maxEdit)
		}
		lines = append(lines, at...)
	}
	return text, lines, nil
}

// applyEdit returns text after an edit, and the changed lines.
func applyEdit(text string, e edit) (string, []int, error) {
	switch {
	case e.OldText == "":
		return "", nil, errors.New("old_text is empty; to write a whole file use write_file")
	case e.OldText == e.NewText:
		return "", nil, errors.New("old_text and new_text are the same")
	}
	_, crlf, _ := lineEnds(strings.NewReader(text)) // a string can always be read
	if crlf && !strings.Contains(e.OldText+e.NewText, "\r") {
		// The model doesn't see CRLF line ends.
		e.OldText = strings.ReplaceAll(e.OldText, "\n", "\r\n")
		e.NewText = strings.ReplaceAll(e.NewText, "\n", "\r\n")
	}
	at := occurrences(text, e.OldText, e.All)
	switch {
	case len(at) == 0:
		return "", nil, errors.New("old_text is not in the file" + closest(text, e.OldText))
	case len(at) > 1 && !e.All:
		return "", nil, fmt.Errorf("old_text is in the file more than once, in %s; "+
			"give more of the text around it, or set replace_all", lineList(linesAt(text, at)))
	}
	lines := linesAt(text, at)
	if e.All {
		return strings.ReplaceAll(text, e.OldText, e.NewText), lines, nil
	}
	return text[:at[0]] + e.NewText + text[at[0]+len(e.OldText):], lines, nil
}

// maxListed is the number of places that are listed.
const maxListed = 20

// occurrences returns up to a few offsets of part in text. It includes overlapping ones,
// because each could be meant, unless all are to be replaced.
func occurrences(text, part string, all bool) []int {
	var at []int
	for from := 0; len(at) <= maxListed; {
		i := strings.Index(text[from:], part)
		if i < 0 {
			break
		}
		at = append(at, from+i)
		from += i + 1
		if all {
			from += len(part) - 1
		}
	}
	return at
}

// linesAt returns the line numbers, from 1, of byte offsets in text, without duplicates.
func linesAt(text string, at []int) []int {
	lines := make([]int, len(at))
	line, from := 1, 0
	for i, p := range at {
		line += strings.Count(text[from:p], "\n")
		from = p
		lines[i] = line
	}
	return slices.Compact(lines)
}

// lineList describes line numbers in words.
func lineList(lines []int) string {
	lines = slices.Compact(slices.Sorted(slices.Values(lines)))
	what, more := "line ", ""
	if len(lines) > 1 {
		what = "lines "
	}
	if len(lines) > maxListed {
		lines, more = lines[:maxListed], " and more"
	}
	return what + strings.ReplaceAll(strings.Trim(fmt.Sprint(lines), "[]"), " ", ", ") + more
}
