package agent

import (
	"context"
	"slices"
	"strings"

	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// The bounds of what is remembered for a message.
const (
	maxRecollected     = 5
	maxRecollectedSize = 2000 // characters
)

// A recollection is what a turn remembers for its newest messages: facts that bear on them, and
// skills that they name. It becomes part of the transcript with them, so that the prompt of
// later turns begins in the same way.
type recollection struct {
	text  string
	space *memory.Space
	keys  []string // of the facts
}

// recollect returns what is remembered for batch.
func (t *turn) recollect(ctx context.Context, batch []bus.Received) (r recollection, err error) {
	if t.isTask() || t.Scope == "" {
		return r, nil
	}
	var words strings.Builder
	for _, in := range batch {
		if k := in.Message.Origin.Kind; k == bus.Person || k == bus.Job {
			words.WriteString(in.Message.Text + "\n")
		}
	}
	r.text = t.namedSkills(words.String())
	space, read := t.d.Memory.In(t.Scope), t.d.DB.Read(context.WithoutCancel(ctx))
	r.space = space
	known, err := space.Known(read)
	if err != nil || !known {
		return r, err
	}
	facts, err := space.Relevant(read, words.String(), maxRecollected, maxRecollectedSize)
	if err != nil || len(facts) == 0 {
		return r, err
	}
	said, err := t.d.recent.read(read, t.d.sessions, t.Session, t.readLimit())
	if err != nil {
		return r, err
	}
	near := newest(said.Entries, t.readLimit()/nearPart)
	var fresh []memory.Fact
	for _, f := range facts {
		if line := f.String(); !slices.ContainsFunc(near, func(e session.Entry) bool {
			return strings.Contains(e.Message.Text, line)
		}) {
			fresh = append(fresh, f)
			r.keys = append(r.keys, f.Key)
		}
	}
	if len(fresh) > 0 {
		r.text += "\n\n[what you remember, for this message]\n" +
			strings.TrimSpace(prompt.Escape(memory.Render(fresh))) + "\n[end of what you remember]"
	}
	return r, nil
}

// nearPart is which part of a transcript, one nth of what is read of it, is near enough that a fact
// in it need not be repeated. What is older may become notes before the model is asked.
const nearPart = 16

// newest returns the last entries, of so many bytes at most.
func newest(list []session.Entry, size int) []session.Entry {
	i := len(list)
	for i > 0 && size >= list[i-1].Size {
		i--
		size -= list[i].Size
	}
	return list[i:]
}

// namedSkills returns the text of the skills that a message names by $name.
func (t *turn) namedSkills(text string) string {
	if t.d.Skills == nil || !strings.Contains(text, "$") {
		return ""
	}
	var b strings.Builder
	for _, s := range t.d.Skills.Mentioned(string(t.Scope), text) {
		body, err := t.d.Skills.Body(s)
		if err != nil {
			body = "It can't be read: " + err.Error()
		}
		b.WriteString("\n\n[the skill " + prompt.Name(s.Name, "without a name") +
			", named by the user]\n" +
			prompt.Escape(body) + "\n[end of the skill]")
	}
	return b.String()
}

// perceive returns what the model sees of batch, and what is remembered for it, which is in that.
func (t *turn) perceive(
	ctx context.Context, batch []bus.Received,
) ([]llm.Message, recollection, error) {
	messages := t.userMessages(ctx, batch)
	if len(messages) == 0 {
		return nil, recollection{}, nil
	}
	r, err := t.recollect(ctx, batch)
	messages[len(messages)-1].Text += r.text
	return messages, r, err
}

// touch notes that the facts are used.
func (r *recollection) touch(tx *store.Tx) error {
	if len(r.keys) == 0 {
		return nil
	}
	return r.space.Touch(tx, r.keys...)
}
