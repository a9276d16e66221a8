package skills

import (
	"bytes"
	"strings"

	"gateway/store/plaintext"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	gmtext "github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
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
		// "$" after a letter, a digit, another "$" or a backslash begins no name.
		if r != '$' || inName(before) || strings.ContainsRune(`$\`, before) {
			continue
		}
		rest := text[i+1:]
		end := strings.IndexFunc(rest, func(r rune) bool { return !inName(r) })
		if end < 0 {
			end = len(rest)
		}
		// A character has at most four bytes.
		if name := strings.TrimRight(rest[:end], ".-_"); name != "" && len(name) <= 4*maxName {
			names = append(names, name)
		}
	}
	return names
}

// indentation matches the spaces at the beginning of lines.
var indentation = plaintext.Pattern(`(?m)^[ \t]+`)

// withoutCode returns a Markdown text in which the content of code blocks and code spans is
// replaced by spaces.
func withoutCode(markdown string) string {
	if !strings.ContainsAny(markdown, "`~") {
		return markdown
	}
	source := []byte(indentation().ReplaceAllString(markdown, "")) // code may be in a list
	result := bytes.Clone(source)
	blank := func(s gmtext.Segment) {
		copy(result[s.Start:s.Stop], bytes.Repeat([]byte{' '}, s.Len()))
	}
	// Only code matters, so the parser knows nothing else.
	p := parser.NewParser(
		parser.WithBlockParsers(util.Prioritized(parser.NewFencedCodeBlockParser(), 1),
			util.Prioritized(parser.NewParagraphParser(), 2)),
		parser.WithInlineParsers(util.Prioritized(parser.NewCodeSpanParser(), 1)))
	_ = ast.Walk(p.Parse(gmtext.NewReader(source)), func(n ast.Node, _ bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.FencedCodeBlock:
			for _, line := range n.Lines().Sliced(0, n.Lines().Len()) {
				blank(line)
			}
		case *ast.Text:
			if n.Parent().Kind() == ast.KindCodeSpan {
				blank(n.Segment)
			}
		}
		return ast.WalkContinue, nil
	})
	return string(result)
}
