package screen

import "strings"

// An input is the editor with its completions and its history.
type input struct {
	editor   editor
	look     *terminal
	gateway  Gateway
	history  *history
	known    []Command
	complete completion
	finding  *finding // nil: no search in the history
}

// edit moves the cursor or changes the text. It reports whether the key does that. Most keys are
// those of Emacs and of shells.
func (in *input) edit(name string) bool {
	e := &in.editor
	switch name {
	case "alt+enter", "shift+enter", "ctrl+j":
		e.insert("\n", false)
	case "left", "ctrl+b":
		e.move(-1)
	case "right", "ctrl+f":
		e.move(1)
	case "home", "ctrl+a":
		e.at = e.lineStart()
	case "end", "ctrl+e":
		e.at = e.lineEnd()
	case "ctrl+home":
		e.at = 0
	case "ctrl+end":
		e.at = len(e.text)
	case "ctrl+left", "alt+left", "alt+b":
		e.at = e.wordStart()
	case "ctrl+right", "alt+right", "alt+f":
		e.at = e.wordEnd()
	case "backspace", "ctrl+h", "shift+backspace":
		e.remove(e.at-1, e.at)
	case "delete", "ctrl+d":
		e.remove(e.at, e.at+1)
	case "ctrl+w", "alt+backspace", "ctrl+backspace":
		e.remove(e.wordStart(), e.at)
	case "alt+d", "ctrl+delete":
		e.remove(e.at, e.wordEnd())
	case "ctrl+u":
		e.remove(e.lineStart(), e.at)
	case "ctrl+k":
		// At the end of a line it joins the next one.
		if end := e.lineEnd(); end > e.at {
			e.remove(e.at, end)
		} else {
			e.remove(e.at, e.at+1)
		}
	case "esc":
		in.complete = completion{}
	default:
		return false
	}
	return true
}

// continued replaces a backslash at the end of the text, before the cursor, by a new line.
func (in *input) continued() bool {
	e := &in.editor
	if e.at != len(e.text) || e.at == 0 || e.text[e.at-1] != (cluster{text: `\`}) {
		return false
	}
	e.remove(e.at-1, e.at)
	e.insert("\n", false)
	return true
}

// up moves the cursor up, or shows earlier messages.
func (in *input) up(n int) {
	if in.editor.up(n, in.look.room(), in.look.method) {
		return
	}
	if entry, ok := in.history.step(-n, in.editor.value()); ok {
		in.editor.set(entry)
		in.complete = completion{}
	}
}

// A finding is a search in the history, started with Ctrl-R.
type finding struct {
	text   string
	before int    // position of the found entry
	kept   editor // text typed before the search
	failed bool
}

// find handles a key during a search. It reports whether the key has a meaning there.
func (in *input) find(name, text string) bool {
	f := in.finding
	// A changed text is searched from the newest entry on, Ctrl-R from the found one.
	from := len(in.history.entries)
	switch {
	case name == "ctrl+r":
		from = f.before
	case name == "backspace" || name == "ctrl+h":
		if f.text == "" {
			return true
		}
		f.text = strings.TrimSuffix(f.text, lastCluster(f.text))
	case name == "esc" || name == "ctrl+c" || name == "ctrl+g":
		in.editor, in.finding = f.kept, nil
		return true
	case text != "":
		f.text += text
	default: // the key has its normal meaning in the editor
		in.finding = nil
		return false
	}
	entry, at := in.history.search(f.text, from)
	f.failed = at < 0
	if at >= 0 && f.text != "" {
		f.before = at
		in.editor.set(entry)
	}
	return true
}

// lastCluster returns the last cluster of text, which must not be empty.
func lastCluster(text string) string {
	clusters := split(text, false)
	return clusters[len(clusters)-1].text
}
