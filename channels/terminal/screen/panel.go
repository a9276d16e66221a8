package screen

import (
	"fmt"
	"slices"
	"strings"
)

// A panel describes the state of the gateway.
type panel struct {
	*terminal
	state *State
	owned bool // the gateway ends with the chat
}

// start returns the text at the beginning of a chat: what is running, who can reach it, and what to
// do next.
func (p panel) start() string {
	s := p.state
	text := title.Render(s.Name) + " " + s.Version + "\n" + p.wrap("model: "+s.Model) + "\n"
	for _, a := range s.Accounts {
		text += p.wrap(describe(a)) + "\n"
	}
	text += p.wrap("home: "+s.Home) + "\n"
	for _, who := range s.Strangers {
		text += paint(warning, p.wrap("! "+waits(who))) + "\n"
	}
	for _, tip := range p.next() {
		text += paint(notice, p.wrap(tip)) + "\n"
	}
	return text
}

// describe says whether an account is connected, and as whom.
func describe(a Account) string {
	sign := good.Render("✓")
	if !a.Up {
		sign = warning.Render("!")
	}
	return fmt.Sprintf("%s %s: %s", sign, a.Name, a.Text)
}

// waits says that a stranger asks for approval, and how to approve them.
func waits(who Stranger) string {
	return fmt.Sprintf("%s asks to be let in on %s: /pair %s", who.Name, who.Account, who.Code)
}

// next says what the person can do next.
func (p panel) next() (tips []string) {
	s := p.state
	if s.Halted {
		tips = append(tips, "Everything is halted: /resume continues.")
	}
	if s.Demo {
		tips = append(tips, "This is the built-in demo, which knows a few fixed phrases. "+
			"For a real model leave this, and run `gateway setup`.")
	}
	if len(s.Accounts) == 0 {
		tips = append(tips, "Only this terminal is connected. `gateway setup` connects Telegram, "+
			"Discord and WhatsApp.")
	}
	leave := "Ctrl-D leaves, and the gateway keeps running."
	if p.owned {
		leave = "Ctrl-D leaves, and the gateway stops."
		if len(s.Accounts) > 0 {
			leave = "Ctrl-D leaves, and asks whether to keep the gateway running."
		}
	}
	return append(tips, "/ and Tab: commands · @ and Tab: files · Alt-Enter: new line · "+
		"Ctrl-C stops an answer. "+leave)
}

// status returns the status line, which takes two rows on a narrow terminal.
func (p panel) status() []string {
	s := p.state
	if s == nil {
		return []string{paint(notice, "…")}
	}
	parts := []string{s.Model}
	if s.MaxContext > 0 {
		parts = append(parts, fmt.Sprintf("context %d%% of %s", s.Context*100/s.MaxContext,
			thousands(s.MaxContext)))
	}
	queue := "queue " + s.Queue
	if s.Waiting > 0 {
		queue += fmt.Sprintf(", %d waiting", s.Waiting)
	}
	parts = append(parts, queue, fmt.Sprintf("$%.4f", s.Cost))
	if s.Halted {
		parts = slices.Insert(parts, 0, "HALTED")
	}
	for _, a := range s.Accounts {
		if !a.Up {
			parts = append(parts, a.Name+" not connected")
		}
	}
	if n := len(s.Strangers); n > 0 {
		parts = append(parts, fmt.Sprintf("%d to let in: /pair", n))
	}
	// A third row would take room from the conversation, so the second one is cut.
	rows := strings.SplitN(p.wrap(strings.Join(parts, " · ")), "\n", 2)
	for i, r := range rows {
		rows[i] = paint(notice, p.cut(strings.ReplaceAll(r, "\n", " ")))
	}
	return rows
}

// thousands returns n in short form, such as "128k".
func thousands(n int) string {
	if n < 10000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%dk", n/1000)
}

// question asks whether the gateway should continue without the chat.
func (p panel) question() []string {
	var names []string
	for _, a := range p.state.Accounts {
		names = append(names, a.Name)
	}
	text := fmt.Sprintf("Keep the gateway running for %s?", strings.Join(names, ", "))
	rows := strings.Split(paint(warning, p.wrap(text)), "\n")
	for _, key := range []string{"y keeps it running here", "n stops it", "Esc back to the chat"} {
		word, rest, _ := strings.Cut(key, " ")
		rows = append(rows, title.Render(word)+" "+p.cut(rest))
	}
	return rows
}
