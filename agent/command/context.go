package command

import (
	"context"
	"fmt"
	"strings"

	"gateway/bus"
	"gateway/session"
	"gateway/store"
	"gateway/store/plaintext"
)

// context runs /context [SESSION]: it shows how full the context window of the current model is,
// and with what. Admins may name another conversation.
func (c conversation) context(ctx context.Context, r *Request) (Reply, error) {
	key, m, q := r.Session, r.Message, c.DB.Read(ctx)
	if name := r.Args; name != "" {
		if !m.Role.AtLeast(bus.Admin) {
			return Reply{Text: "Only admins and owners can look at other conversations."}, nil
		}
		var ok bool
		var err error
		if key, ok, err = session.Named(q, name); err == nil && ok {
			m, ok, err = c.newest(q, key)
		}
		if err != nil {
			return Reply{}, err
		}
		if !ok {
			return Reply{Text: fmt.Sprintf("There is no conversation `%s` in which somebody has "+
				"written lately. `gateway sessions list` shows all.", plaintext.Cut(name, maxEcho))}, nil
		}
	}
	w, err := c.Sessions.Window(ctx, key, m)
	if err != nil {
		return Reply{}, err
	}
	info, err := session.ReadInfo(q, key)
	if err != nil {
		return Reply{}, err
	}
	return Reply{Text: w.text(info.Context)}, nil
}

// newest returns the newest message of a person in a conversation. It returns false if the inbox no
// longer has one.
func (c conversation) newest(
	q store.Queryer, key session.Key,
) (m bus.InboundMessage, ok bool, err error) {
	chats := []bus.Address{key.Conversation}
	// A conversation of a person is in all of their direct chats.
	if key.Person != 0 {
		if chats, err = bus.DirectChats(q, key.Person); err != nil {
			return m, false, err
		}
	}
	var newest bus.Received
	for _, a := range chats {
		r, found, err := bus.LastMessage(q, a)
		if err != nil {
			return m, false, err
		}
		if found && r.Seq > newest.Seq {
			newest, ok = r, true
		}
	}
	return newest.Message, ok, nil
}

// A Window describes the contents of a conversation's context window. All sizes are in tokens. They
// are estimates, because only the model can count its tokens.
type Window struct {
	Model string
	Size  int // of the whole window
	Room  int // for the prompt; the rest is reserved for the answer
	Parts []PromptPart
}

// A PromptPart is one part of a prompt.
type PromptPart struct {
	Label  string
	Tokens int
}

// text formats w for people. counted is the size of the last prompt in tokens as the model
// reported it, or 0 if unknown.
func (w *Window) text(counted int) string {
	used := 0
	for _, p := range w.Parts {
		used += p.Tokens
	}
	var b strings.Builder
	fmt.Fprintf(&b, "About %d of the %d tokens of %s are used (%s):\n\n", used, w.Size, w.Model,
		percent(used, w.Size))
	line := func(label string, tokens int) {
		fmt.Fprintf(&b, "- %s: %d (%s)\n", label, tokens, percent(tokens, w.Size))
	}
	for _, p := range w.Parts {
		line(p.Label, p.Tokens)
	}
	line("Kept for the answer", w.Size-w.Room)
	line("Free", max(w.Room-used, 0))
	b.WriteString("\n")
	if counted > 0 {
		fmt.Fprintf(&b, "At the last answer the model counted %d. ", counted)
	}
	b.WriteString("`/compact` shortens the conversation, `/new` begins a new one.")
	return b.String()
}

// percent returns the share of n in of. A small share is not shown as 0 %.
func percent(n, of int) string {
	share := 100 * float64(n) / float64(max(of, 1))
	if n > 0 && share < 1 {
		return "under 1 %"
	}
	return fmt.Sprintf("%.0f %%", share)
}
