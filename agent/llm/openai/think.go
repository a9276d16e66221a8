package openai

import (
	"slices"
	"strings"
)

// The tags around the reasoning that some models send within the content.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// otherThoughts has the other tags of reasoning, each opening tag before its closing tag. They
// count only at the beginning of the content.
var otherThoughts = []string{
	"[THINK]", "[/THINK]", // Magistral
	"<seed:think>", "</seed:think>", // Seed
	"◁think▷", "◁/think▷", // Kimi
	"<thinking>", "</thinking>", // Amazon Nova
	"<thought>", "</thought>", // Gemini, with include_thoughts
}

// A thinkSplitter separates visible text and reasoning in streamed content. A tag may be split over
// any number of pieces.
//
// An answer may also be about these tags. So an opening tag does not count within code.
type thinkSplitter struct {
	held  string // end of the content so far; may be the beginning of a tag
	end   string // the closing tag if it is within tags, else ""
	seen  bool   // a tag has occurred
	shown bool   // visible text has occurred

	// About the visible text:
	line      string // first characters of its last line, without blanks
	last      byte   // its last byte
	fenced    bool   // it ends within a code block
	coded     bool   // its last line ends within inline code
	mentioned bool   // it has an opening tag that does not count
}

// A split is a piece of content, separated into text and reasoning.
type split struct {
	text    string // visible
	thought string

	// retract reports that all text before this piece is reasoning too. Some chat templates put the
	// opening tag into the prompt, so that only the closing tag is in the content.
	retract bool
}

// push processes the next piece of content.
func (t *thinkSplitter) push(piece string) split {
	rest := t.held + piece
	t.held = ""
	var s split
	for rest != "" {
		i, tag := t.nextTag(rest)
		if tag == "" {
			n := len(rest) - heldBack(rest, t.tags())
			t.emit(&s, rest[:n])
			t.held = rest[n:]
			break
		}
		t.emit(&s, rest[:i])
		rest = rest[i+len(tag):]
		if tag == thinkClose && t.end == "" && t.last == '`' && rest == "" {
			t.held = tag // the next character decides whether it counts
			break
		}
		if !t.counts(tag, rest) {
			t.mentioned = t.mentioned || tag == thinkOpen
			t.emit(&s, tag)
			continue
		}
		if tag == thinkClose && t.end == "" {
			s = split{thought: s.text, retract: true}
			t.shown, t.fenced, t.coded, t.last = false, false, false, 0
		}
		t.end = endOf(tag)
		t.seen, t.line = true, ""
	}
	return s
}

// counts reports whether a tag between the text so far and rest separates text and reasoning.
func (t *thinkSplitter) counts(tag, rest string) bool {
	switch {
	case t.end != "":
		return true
	case tag == thinkOpen:
		return !t.fenced && !t.coded
	case tag != thinkClose:
		return !t.shown
	case t.mentioned:
		return t.line == "" && !t.fenced
	}
	// The opening tag may be in the prompt, and not every model writes this one on a line of its own.
	return t.last != '`' || !strings.HasPrefix(rest, "`")
}

// flush returns the content that was held back. Call it at the end of the content.
func (t *thinkSplitter) flush() split {
	var s split
	t.emit(&s, t.held)
	t.held = ""
	return s
}

// emit adds text to the matching field of s. It drops white space between the reasoning and the
// beginning of the answer.
func (t *thinkSplitter) emit(s *split, text string) {
	if t.end != "" {
		s.thought += text
		return
	}
	if t.seen && !t.shown {
		text = strings.TrimLeft(text, " \t\r\n")
	}
	if text == "" {
		return
	}
	t.shown = true
	s.text += text
	for line := range strings.Lines(text) {
		t.follow(line)
	}
}

// follow notes the next part of a line of the visible text.
func (t *thinkSplitter) follow(part string) {
	const fence = 3 // length of the marker of a code block
	if len(t.line) < fence {
		t.line = strings.TrimLeft(t.line+strings.TrimRight(part, "\r\n"), " \t")
		t.line = t.line[:min(len(t.line), fence)]
	}
	for _, b := range []byte(part) {
		if b == '`' && t.last != '`' { // a sequence of backquotes begins or ends inline code
			t.coded = !t.coded
		}
		t.last = b
	}
	if t.last == '\n' {
		t.fenced = t.fenced != (t.line == "```" || t.line == "~~~")
		t.line, t.coded = "", false
	}
}

// tags returns the tags that can occur now. A closing tag without an opening one can occur only as
// the first tag.
func (t *thinkSplitter) tags() []string {
	switch {
	case t.end != "":
		return []string{t.end}
	case t.seen:
		return []string{thinkOpen}
	case t.shown:
		return []string{thinkOpen, thinkClose}
	}
	tags := []string{thinkOpen, thinkClose}
	for i := 0; i < len(otherThoughts); i += 2 {
		tags = append(tags, otherThoughts[i])
	}
	return tags
}

// endOf returns the closing tag for an opening tag, and "" for a closing tag.
func endOf(tag string) string {
	if tag == thinkOpen {
		return thinkClose
	}
	if i := slices.Index(otherThoughts, tag); i >= 0 && i%2 == 0 {
		return otherThoughts[i+1]
	}
	return ""
}

// nextTag returns the first tag in s and its index. The tag is "" if there is none.
func (t *thinkSplitter) nextTag(s string) (at int, tag string) {
	for _, candidate := range t.tags() {
		if i := strings.Index(s, candidate); i >= 0 && (tag == "" || i < at) {
			at, tag = i, candidate
		}
	}
	return at, tag
}

// heldBack returns the length of the longest suffix of s that may be the beginning of a tag.
func heldBack(s string, tags []string) int {
	longest := 0
	for _, tag := range tags {
		for n := min(len(tag)-1, len(s)); n > longest; n-- {
			if strings.HasSuffix(s, tag[:n]) {
				longest = n
			}
		}
	}
	return longest
}
