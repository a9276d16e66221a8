package screen

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
)

// fullState returns a state in which all fields are set.
func fullState() *State {
	return &State{
		Name: "gateway", Version: "1.2.3", Home: "/home/ann/.gateway", Model: "openai (gpt-5.4-mini)",
		Context: 23456, MaxContext: 118000, Cost: 0.0123, Queue: "steer", Waiting: 2,
		Accounts: []Account{
			{Name: "telegram", Up: true, Text: "connected as @lab_bot"},
			{Name: "whatsapp", Text: "not linked; gateway pair whatsapp links it"},
		},
		Strangers: []Stranger{{Name: "小明 42", Account: "telegram", Code: "ABCD2345"}},
		Commands: []Command{{"status", "model, usage, queue and channels"},
			{"stop", "end the running answer"}, {"help", "what I can do"}},
	}
}

// TestScreens compares screens with golden files, at two widths, with Chinese text and emoji.
func TestScreens(t *testing.T) {
	for _, width := range []int{40, 200} {
		for name, play := range map[string]func(d *screenFixture){
			"demo": func(d *screenFixture) {
				d.gets(&State{Name: "gateway", Version: "1.2.3", Home: "/data", Model: "demo",
					Demo: true, MaxContext: 118000, Queue: "steer"})
			},
			"start": func(d *screenFixture) {
				d.gets(fullState())
				d.types("你好，世界！ 👨\u200d👩\u200d👧 hello")
			},
			"answer":   playAnswer,
			"lines":    playLines,
			"approval": playApproval,
			"commands": func(d *screenFixture) {
				d.gets(fullState())
				d.types("/st")
			},
			"leave": func(d *screenFixture) {
				d.gets(fullState())
				d.presses("ctrl+d")
			},
			"away": func(d *screenFixture) {
				d.gets(fullState())
				d.enters("hello")
				d.gets(Lost{Reason: "The gateway has stopped. I connect again when it is back."})
			},
		} {
			name := fmt.Sprintf("%s-%d", name, width)
			t.Run(name, func(t *testing.T) {
				d := sit(t, width, 24, Options{Owned: true})
				play(d)
				d.golden(name)
			})
		}
	}
}

// playAnswer shows an answer that grows below a complete one.
func playAnswer(d *screenFixture) {
	d.gets(fullState())
	d.enters("用中文回答")
	d.answers("a", "**好的**。下面是一个很长的句子，它在窄的终端里要换行，因为每个汉字占两列。\n\n"+
		"- 一 👩\u200d💻\n- `代码`\n\n```\nls -la\n```\n")
	d.now = d.now.Add(time.Hour)
	d.enters("and now?")
	d.now = d.now.Add(4500 * time.Millisecond)
	d.gets(Message{ID: "b", Text: "I look at the files 📂 of this folder.\n\n_reads notes.txt_"})
}

// playLines shows an editor that scrolls because its text has many lines.
func playLines(d *screenFixture) {
	d.gets(fullState())
	d.gets(tea.PasteMsg{Content: strings.Repeat("/a line that was pasted, 一行\n", 12) + "last"})
}

// playApproval shows a question with buttons.
func playApproval(d *screenFixture) {
	d.gets(fullState())
	d.enters("delete it")
	d.gets(Message{ID: "a",
		Text: "exec wants to run with:\n```\nrm -rf 旧\n```\nShall I? (code AB23CD)",
		Buttons: []Button{{Label: "Approve", Text: "/approve AB23CD"},
			{Label: "Deny", Text: "/deny AB23CD"}}}, Message{ID: "a", Done: true})
	s := fullState()
	s.Asks = true
	d.gets(s)
	d.types("1")
}
