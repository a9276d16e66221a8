package turn

import (
	"context"
	"slices"
	"strings"

	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// Limits of what is recalled for a message.
const (
	maxRecalled     = 5
	maxRecalledSize = 2000 // characters
)

// A recalled is what a turn recalls for its newest messages: related facts, and skills that they
// name. It is stored in the transcript with the messages, so that later prompts have the same
// beginning.
type recalled struct {
	text  string
	space *memory.ScopedStore
	keys  []string // keys of the facts
}

// recallFor returns what is recalled for batch.
func (t *reader) recallFor(ctx context.Context, batch []bus.Received) (r recalled, err error) {
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
	space, read := t.env.Memory.In(t.Scope), t.env.DB.Read(context.WithoutCancel(ctx))
	r.space = space
	c, err := space.Contents(read)
	if t.loaded != nil {
		t.loaded.blank = err == nil && !c.Any()
	}
	if err != nil || !c.Facts {
		return r, err
	}
	facts, err := space.Relevant(read, words.String(), maxRecalled, maxRecalledSize)
	if err != nil || len(facts) == 0 {
		return r, err
	}
	said, err := t.env.Transcripts.read(read, t.Session, t.conv.readLimit(), newMessages{})
	if err != nil {
		return r, err
	}
	fresh := prompt.Unseen(facts, said.Entries, t.conv.readLimit()/nearPart)
	for _, f := range fresh {
		r.keys = append(r.keys, f.Key)
	}
	if len(fresh) > 0 {
		r.text += prompt.Recalled(fresh)
	}
	return r, nil
}

// A fact within the last nearPart-th of the transcript is not repeated. An older one is, because it
// may become notes before the model is asked.
const nearPart = 16

// namedSkills returns the text of the skills that a message mentions as $name.
func (t *reader) namedSkills(text string) string {
	if t.env.Skills == nil || !strings.Contains(text, "$") {
		return ""
	}
	var b strings.Builder
	hidden := t.settings.Here.HiddenSkills()
	for _, s := range t.env.Skills.Mentioned(string(t.Scope), text) {
		if hidden != nil && hidden(s.Name) {
			continue
		}
		body, err := t.env.Skills.Body(s)
		if err != nil {
			body = "It can't be read: " + err.Error()
		}
		b.WriteString(prompt.NamedSkill(s.Name, body))
	}
	return b.String()
}

// addRecalled returns messages, which are what the model sees of batch, with what is recalled for
// them.
func (t *reader) addRecalled(
	ctx context.Context, batch []bus.Received, messages []llm.Message,
) ([]llm.Message, recalled, error) {
	r, err := t.recallFor(ctx, batch)
	messages = slices.Clone(messages)
	messages[len(messages)-1].Text += r.text
	return messages, r, err
}

// touch records that the facts were used.
func (r *recalled) touch(tx *store.Tx) error {
	if len(r.keys) == 0 {
		return nil
	}
	return r.space.MarkUsed(tx, r.keys...)
}
