package screen

import "strings"

// A completion is what the word before the cursor may become.
type completion struct {
	prefix  string // the word; "" if there is nothing to complete
	choices []choice
	at      int // of choices; the one that Tab takes next

	asked  bool // the gateway is asked for the choices
	tabbed bool // Tab was pressed since
}

// A choice is one of them.
type choice struct{ text, help string }

// ownCommands are the commands that the screen does itself.
var ownCommands = []Command{{"exit", "leave this chat"}, {"clear", "clear the screen"}}

// suggest looks for what the word before the cursor may become: a command at the beginning, a file
// after an "@".
func (in *input) suggest() {
	e := &in.editor
	from := e.wordStart()
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
		if old.prefix == word {
			in.complete = old
			return
		}
		in.complete = completion{prefix: word, asked: true}
		in.gateway.AskFiles(word[1:])
	}
}

// commands returns the commands that begin with a prefix.
func (in *input) commands(prefix string) (choices []choice) {
	for _, c := range in.known {
		if strings.HasPrefix(c.Name, strings.ToLower(prefix)) {
			choices = append(choices, choice{"/" + c.Name, c.Help})
		}
	}
	return choices
}

// files takes the files that were asked for, unless something else was typed since.
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

// tab makes the word before the cursor what it may become: at once if there is one choice, and what
// all have in common if there are several. Pressed again it takes one after the other. A pasted "/"
// becomes a command by it.
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

func (in *input) replaceWord(old, word string) {
	n := len(split(old, false))
	in.editor.remove(in.editor.at-n, in.editor.at)
	in.editor.insert(word, false)
}

// sharedStart returns what all choices begin with.
func sharedStart(choices []choice) string {
	same := choices[0].text
	for _, c := range choices[1:] {
		for !strings.HasPrefix(c.text, same) {
			same = strings.TrimSuffix(same, lastCluster(same))
		}
	}
	return same
}
