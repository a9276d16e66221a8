package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gateway/agent/suggest"
	"gateway/bus"
	"gateway/session"
	"gateway/store/plaintext"
)

// find returns the model with the given id, or nil. An exact match takes precedence over one that
// differs in case.
func (m *Models) find(id string) *Model {
	for _, same := range []func(a, b string) bool{
		func(a, b string) bool { return a == b }, strings.EqualFold,
	} {
		i := slices.IndexFunc(m.Choices, func(c Model) bool { return same(c.ID, id) })
		if i >= 0 {
			return &m.Choices[i]
		}
	}
	return nil
}

// defaultWord returns the word for the configured model: "default", unless another model has that
// id.
func (m *Models) defaultWord() string {
	word := "default"
	for c := m.find(word); c != nil && c.ID != m.Default.ID; c = m.find(word) {
		word = "the-" + word
	}
	return word
}

// chooseModel answers /model [NAME].
func (c conversation) chooseModel(ctx context.Context, r *Request) (Reply, error) {
	models := c.Sessions.Models(r.Session, r.Message)
	switch {
	case r.Args == "":
		return models.reply(r), nil
	case !r.Message.Role.AtLeast(bus.Admin):
		return Reply{Text: "Only admins and owners can choose the model. `/model` shows which " +
			"one answers here."}, nil
	case strings.EqualFold(r.Args, models.defaultWord()):
		return c.choose(ctx, r, session.Model, "", fmt.Sprintf("The model of this conversation is "+
			"the default again, which is `%s` now.", models.Default.ID))
	}
	found := models.find(r.Args)
	if found == nil {
		// The list of models helps more than an error alone.
		reply := models.reply(r)
		hint := ""
		if id := suggest.Name(r.Args, models.ids()); id != "" {
			hint = fmt.Sprintf(" Did you mean `%s`?", id)
		}
		reply.Text = fmt.Sprintf("There is no model `%s`.%s\n\n%s", plaintext.Cut(r.Args, maxEcho), hint,
			reply.Text)
		return reply, nil
	}
	return c.choose(ctx, r, session.Model, found.ID, fmt.Sprintf("This conversation uses the "+
		"model %s from its next answer on. `/model %s` undoes that.", found.shown(),
		models.defaultWord()))
}

// reply names the model that answers a conversation, and the other models that can be chosen.
func (m *Models) reply(r *Request) (reply Reply) {
	present, why := m.Default, "the default"
	found := m.find(m.Chosen)
	switch {
	case found != nil:
		present, why = *found, "chosen for this conversation; the default is `"+m.Default.ID+"`"
	case m.Chosen != "":
		why = "the default, because `" + m.Chosen + "`, which was chosen for this conversation, is " +
			"no longer configured"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The model here is %s: %s.", present.shown(), why)
	admin := r.Message.Role.AtLeast(bus.Admin)
	offer := func(id string) {
		// A longer command has to be typed.
		if text := "/model " + id; admin && len(text) <= maxButtonText {
			reply.Buttons = append(reply.Buttons, bus.Button{Label: id, Text: text})
		}
	}
	for i := range m.Choices {
		if i == 0 {
			b.WriteString(" Admins can change it with `/model NAME`:\n")
		}
		fmt.Fprintf(&b, "\n- %s", m.Choices[i].shown())
		if m.Choices[i].ID != present.ID {
			offer(m.Choices[i].ID)
		}
	}
	if m.Chosen != "" {
		offer(m.defaultWord())
	}
	reply.Text = b.String()
	return reply
}

// maxButtonText is the maximum length of the Text of a [bus.Button], in bytes.
const maxButtonText = 64

// shown describes a model for people.
func (m *Model) shown() string {
	if m.Name == m.ID || m.Name == "" {
		return "`" + m.ID + "`"
	}
	// The id is not repeated.
	if rest, ok := strings.CutPrefix(m.Name, m.ID); ok {
		return "`" + m.ID + "`" + rest
	}
	return fmt.Sprintf("`%s` (%s)", m.ID, m.Name)
}

// ids returns the ids of the models that people can choose.
func (m *Models) ids() (ids []string) {
	for i := range m.Choices {
		ids = append(ids, m.Choices[i].ID)
	}
	return ids
}
