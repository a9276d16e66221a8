package skills

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMentions is the number of skills that one message can mention.
const maxMentions = 5

// Mentioned returns the skills that a message mentions as $name outside of code, in order
// of appearance: at most 5, each once. It skips skills that are disabled or unusable, but
// includes skills with missing requirements.
func (l *Library) Mentioned(scope, text string) []Skill {
	if !strings.Contains(text, "$") {
		return nil
	}
	names := mentions(text)
	if len(names) == 0 {
		return nil
	}
	known := make(map[string]Skill)
	for _, s := range l.List(scope) {
		if s.Problem == "" && !s.Disabled {
			known[s.Name] = s
		}
	}
	var found []Skill
	for _, name := range names {
		s, ok := known[name]
		if !ok && name != strings.ToUpper(name) { // phones capitalise: accept $Weather, but not $HOME
			s, ok = known[strings.ToLower(name)]
		}
		if ok && len(found) < maxMentions {
			found = append(found, s)
			delete(known, s.Name)
		}
	}
	return found
}

// mentions returns the possible names after each "$" in a text.
func mentions(text string) []string {
	var names []string
	text = withoutCode(text)
	last := ' '
	for i, r := range text {
		before := last
		last = r
		if r != '$' || inName(before) || strings.ContainsRune(`$\`, before) {
			continue
		}
		rest := text[i+1:]
		end := strings.IndexFunc(rest, func(r rune) bool { return !inName(r) })
		if end < 0 {
			end = len(rest)
		}
		if name := strings.TrimRight(rest[:end], ".-_"); name != "" && len(name) <= 4*maxName {
			names = append(names, name)
		}
	}
	return names
}

// withoutCode returns a Markdown text in which each code block and code span is replaced
// by a space.
func withoutCode(text string) string {
	if !strings.ContainsAny(text, "`~") {
		return text
	}
	var b strings.Builder
	fence := ""
	for line := range strings.Lines(text) {
		mark := fenceOf(line)
		switch {
		case fence == "" && mark != "":
			fence = mark
		case fence == "":
			b.WriteString(line)
		case strings.HasPrefix(mark, fence) && strings.TrimSpace(line) == mark:
			fence = ""
			b.WriteString("\n")
		}
	}
	return withoutSpans(b.String())
}

// fenceOf returns the fence that a line begins or ends a code block with, or "".
func fenceOf(line string) string {
	line = strings.TrimLeftFunc(line, unicode.IsSpace)
	for _, mark := range []string{"```", "~~~"} {
		if strings.HasPrefix(line, mark) {
			return line[:len(line)-len(strings.TrimLeft(line, mark[:1]))]
		}
	}
	return ""
}

// withoutSpans replaces the code spans in a text.
func withoutSpans(text string) string {
	var b strings.Builder
	for {
		start := strings.IndexByte(text, '`')
		if start < 0 {
			b.WriteString(text)
			return b.String()
		}
		rest := strings.TrimLeft(text[start:], "`")
		ticks := len(text) - start - len(rest)
		b.WriteString(text[:start])
		end := closing(rest, ticks)
		if end < 0 {
			b.WriteString(text[start : start+ticks])
			text = rest
			continue
		}
		b.WriteByte(' ')
		text = rest[end+ticks:]
	}
}

// closing returns the index of a run of exactly ticks backticks in the same paragraph, or
// -1.
func closing(text string, ticks int) int {
	if end := strings.Index(text, "\n\n"); end >= 0 {
		text = text[:end]
	}
	for i := 0; i < len(text); {
		if text[i] != '`' {
			_, n := utf8.DecodeRuneInString(text[i:])
			i += n
			continue
		}
		run := len(text[i:]) - len(strings.TrimLeft(text[i:], "`"))
		if run == ticks {
			return i
		}
		i += run
	}
	return -1
}
