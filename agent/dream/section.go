package dream

import (
	"errors"
	"slices"
	"strings"
)

// appended appends more to text. If more begins with a heading that text has, the rest is
// appended to that section. Lines that text already has are dropped.
func appended(text, more string) (string, error) {
	list := trimBlank(strings.Split(more, "\n"))
	if len(list) == 0 {
		return "", errors.New(`"old" and "new" are both empty: nothing to do`)
	}
	var doc []string
	if strings.TrimSpace(text) != "" {
		doc = strings.Split(strings.TrimRight(text, "\n"), "\n")
	}
	at := len(doc)
	if i := headingAt(doc, list[0]); i >= 0 {
		list, at = trimBlank(list[1:]), sectionEnd(doc, i)
	}
	if slices.ContainsFunc(list, func(line string) bool { return headingAt(doc, line) >= 0 }) {
		return "", errors.New("add to one section at a time, beginning with its heading")
	}
	list = newLines(doc, list)
	if !slices.ContainsFunc(list, func(line string) bool { return !isHeading(line) }) {
		return "", errors.New("all of that stands in the document already")
	}
	if at > 0 && (isHeading(list[0]) || !sameBlock(doc[at-1], list[0])) {
		list = append([]string{""}, list...)
	}
	if at < len(doc) && isHeading(doc[at]) {
		list = append(list, "")
	}
	doc = slices.Insert(doc, at, list...)
	return strings.Join(doc, "\n") + "\n", nil
}

// trimBlank returns list without leading and trailing blank lines.
func trimBlank(list []string) []string {
	blank := func(s string) bool { return strings.TrimSpace(s) == "" }
	for len(list) > 0 && blank(list[0]) {
		list = list[1:]
	}
	for len(list) > 0 && blank(list[len(list)-1]) {
		list = list[:len(list)-1]
	}
	return slices.Clone(list)
}

// isHeading reports whether a line is a Markdown heading.
func isHeading(line string) bool {
	rest := strings.TrimLeft(line, "#")
	n := len(line) - len(rest)
	return n > 0 && n <= 6 && strings.HasPrefix(rest, " ")
}

// headingAt returns the index of a heading in doc, or -1.
func headingAt(doc []string, heading string) int {
	if !isHeading(heading) {
		return -1
	}
	return slices.IndexFunc(doc, func(line string) bool {
		return isHeading(line) && strings.EqualFold(strings.TrimSpace(line), strings.TrimSpace(heading))
	})
}

// sectionEnd returns where to add lines to the section whose heading is line i of doc:
// after its last non-blank line, before the next heading.
func sectionEnd(doc []string, i int) int {
	end, fenced := i+1, false
	for ; end < len(doc); end++ {
		if isFence(doc[end]) {
			fenced = !fenced
		}
		if !fenced && isHeading(doc[end]) {
			break
		}
	}
	for end > i+1 && strings.TrimSpace(doc[end-1]) == "" {
		end--
	}
	return end
}

func isFence(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "```") }

// newLines returns list without the lines that doc already has. It leaves code blocks
// unchanged.
func newLines(doc, list []string) []string {
	if slices.ContainsFunc(list, isFence) {
		return list
	}
	known := make(map[string]bool, len(doc))
	for _, line := range doc {
		known[strings.TrimSpace(line)] = true
	}
	delete(known, "")
	return trimBlank(slices.DeleteFunc(list, func(line string) bool {
		return known[strings.TrimSpace(line)]
	}))
}

// sameBlock reports whether a line can follow another without a blank line, such as a list
// item after a list item.
func sameBlock(above, line string) bool {
	return strings.TrimSpace(above) == "" || isHeading(above) || isItem(above) && isItem(line)
}

func isItem(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "* ") ||
		strings.HasPrefix(line, "+ ")
}
