package screen

import "strings"

// A completion holds the possible completions of the word before the cursor.
type completion struct {
	prefix  string // the word; "" if there is nothing to complete
	choices []choice
	at      int // index of the choice that Tab uses next

	asked  bool // the choices were requested from the gateway
	tabbed bool // Tab was pressed since the request
}

// A choice is a possible completion.
type choice struct{ text, help string }

// ownCommands are the commands that the screen handles itself.
var ownCommands = []Command{{"exit", "leave this chat"}, {"clear", "clear the screen"}}

// suggest finds completions of the word before the cursor: commands at the beginning of the text,
// files after an "@".
func (in *input) suggest() {
	e := &in.editor
	from := e.wordStart()
	// The cursor is behind a blank: nothing is begun that could be completed.
	if e.at > 0 && e.text[e.at-1].isSpace() {
		from = e.at
	}
	word := join(e.text[from:e.at])
	old := in.complete
	in.complete = completion{}
	switch {
	case from == 0 && strings.HasPrefix(word, "/") && !e.literal():
		in.complete = completion{prefix: word, choices: in.commands(word[1:])}
	case strings.HasPrefix(word, "@"):
		// The answer for this word is here or on its way.
		if old.prefix == word {
			in.complete = old
			return
		}
		in.complete = completion{prefix: word, asked: true}
		in.gateway.AskFiles(word[1:])
	}
}

// commands returns the commands that begin with prefix.
func (in *input) commands(prefix string) (choices []choice) {
	for _, c := range in.known {
		if strings.HasPrefix(c.Name, strings.ToLower(prefix)) {
			choices = append(choices, choice{"/" + c.Name, c.Help})
		}
	}
	return choices
}

// files uses the requested files unless something else was typed since.
func (in *input) files(f Files) {
	if in.complete.prefix != "@"+f.Prefix {
		return
	}
	tabbed := in.complete.tabbed
	in.complete = completion{prefix: in.complete.prefix}
	for _, name := range f.Names {
		in.complete.choices = append(in.complete.choices, choice{text: "@" + name})
	}
	if tabbed {
		in.tab(false)
	}
}

// tab completes the word before the cursor: fully if there is one choice, otherwise up to the
// common beginning of all choices. Pressed again, it steps through the choices. It also turns a
// pasted "/" into a command.
func (in *input) tab(back bool) {
	if in.editor.literal() && strings.HasPrefix(strings.TrimSpace(in.editor.value()), "/") {
		in.editor.typed()
		in.suggest()
		return
	}
	c := in.complete
	in.complete.tabbed = c.asked
	if len(c.choices) == 0 {
		return
	}
	word := c.choices[c.at].text
	if len(c.choices) == 1 {
		in.replaceWord(c.prefix, word)
		// A folder is not the end: a name in it may follow.
		if !strings.HasSuffix(word, "/") {
			in.editor.insert(" ", false)
		}
		in.suggest()
		return
	}
	if same := sharedStart(c.choices); len(same) > len(c.prefix) {
		in.replaceWord(c.prefix, same)
		in.suggest()
		return
	}
	step := 1
	if back {
		step = len(c.choices) - 1
	}
	in.complete.at = (c.at + step) % len(c.choices)
	in.replaceWord(in.word(), word)
}

// word returns the word before the cursor.
func (in *input) word() string { return join(in.editor.text[in.editor.wordStart():in.editor.at]) }

// replaceWord replaces old, which stands before the cursor, by word.
func (in *input) replaceWord(old, word string) {
	n := len(split(old, false))
	in.editor.remove(in.editor.at-n, in.editor.at)
	in.editor.insert(word, false)
}

// sharedStart returns the common beginning of all choices.
func sharedStart(choices []choice) string {
	same := choices[0].text
	for _, c := range choices[1:] {
		for !strings.HasPrefix(c.text, same) {
			same = strings.TrimSuffix(same, lastCluster(same))
		}
	}
	return same
}
