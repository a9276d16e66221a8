package openai

import "strings"

// The tags with which some models mark their reasoning within the content.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// A thinkSplitter parts streamed content into what people may see and what the
// model thought. A tag may be spread over any number of pieces.
type thinkSplitter struct {
	held   string // end of the content so far that may be the beginning of a tag
	inside bool   // between the tags
	seen   bool   // there was a tag
	shown  bool   // there was visible text
}

// A split is what a piece of content turned out to be.
type split struct {
	text    string // visible
	thought string

	// retract says that all text before this piece was thought too: its opening tag
	// stood in the prompt, as some chat templates have it.
	retract bool
}

// push takes the next piece of content.
func (t *thinkSplitter) push(piece string) split {
	plain := t.held == "" && !t.inside && (t.shown || !t.seen)
	if plain && strings.IndexByte(piece, '<') < 0 {
		t.shown = t.shown || piece != ""
		return split{text: piece}
	}
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
		if tag == thinkClose && !t.inside {
			s = split{thought: s.text, retract: true}
			t.shown = false
		}
		t.inside = tag == thinkOpen
		t.seen = true
	}
	return s
}

// flush returns what was held back, at the end of the content.
func (t *thinkSplitter) flush() split {
	var s split
	t.emit(&s, t.held)
	t.held = ""
	return s
}

// emit adds text to the part of s where it belongs. Blank space between
// the reasoning and the beginning of the answer belongs to neither.
func (t *thinkSplitter) emit(s *split, text string) {
	if t.inside {
		s.thought += text
		return
	}
	if t.seen && !t.shown {
		text = strings.TrimLeft(text, " \t\r\n")
	}
	t.shown = t.shown || text != ""
	s.text += text
}

// tags returns the tags that mean something in the present state: a closing
// tag without an opening one does only as long as there was none at all.
func (t *thinkSplitter) tags() []string {
	switch {
	case t.inside:
		return []string{thinkClose}
	case t.seen:
		return []string{thinkOpen}
	}
	return []string{thinkOpen, thinkClose}
}

// nextTag returns the first tag in s and its place; the tag is empty if there is none.
func (t *thinkSplitter) nextTag(s string) (at int, tag string) {
	for _, candidate := range t.tags() {
		if i := strings.Index(s, candidate); i >= 0 && (tag == "" || i < at) {
			at, tag = i, candidate
		}
	}
	return at, tag
}

// heldBack returns the length of the longest end of s with which a tag may begin.
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
