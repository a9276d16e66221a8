package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
)

// defaultWord is the argument that removes a choice, so that the configured value applies again.
const defaultWord = "default"

// think answers /think [off|low|high|default].
func (c conversation) think(ctx context.Context, r *Request) (Reply, error) {
	m := c.Sessions.Models(r.Session, r.Message)
	word := strings.ToLower(r.Args)
	effort := llm.Effort(word)
	switch {
	case word == "":
		return m.thinking(r), nil
	case !r.Message.Role.AtLeast(bus.Admin):
		return Reply{Text: "Only admins and owners can choose how long the model thinks. `/think` " +
			"shows the current setting."}, nil
	case word == defaultWord:
		return c.choose(ctx, r, session.Effort, "", "How long the model of this conversation thinks "+
			"is up to its configuration and its provider again.")
	case !slices.Contains(llm.AllEfforts, effort):
		return Reply{Text: "I don't know that setting. Use `/think off`, `/think low`, `/think high` " +
			"or `/think default`."}, nil
	case !slices.Contains(m.Efforts, effort):
		// The effort exists, but the model here does not support it: say which it supports.
		return m.thinking(r), nil
	}
	return c.choose(ctx, r, session.Effort, word, effortSet[effort]+" `/think default` undoes that.")
}

// effortSet maps each effort to the reply when it is chosen.
var effortSet = map[llm.Effort]string{
	llm.EffortOff:  "The model answers without thinking first, from its next answer on.",
	llm.EffortLow:  "The model thinks a little before it answers, from its next answer on.",
	llm.EffortHigh: "The model thinks longer before it answers, from its next answer on.",
}

// thinking describes the effort of a conversation and the efforts that its model supports.
func (m *Models) thinking(r *Request) Reply {
	present := m.Default
	if found := m.find(m.Chosen); found != nil {
		present = *found
	}
	if len(m.Efforts) == 0 {
		text := fmt.Sprintf("You can't set how long the model %s thinks: its provider has no such "+
			"setting, or none that works together with tools.", present.shown())
		if m.Effort != llm.EffortDefault {
			text += fmt.Sprintf(" What was chosen here, `%s`, has no effect.", m.Effort)
		}
		return Reply{Text: text}
	}
	text := fmt.Sprintf("How long the model %s thinks is up to its configuration and its provider.",
		present.shown())
	switch {
	case m.Effort == llm.EffortDefault:
	case !slices.Contains(m.Efforts, m.Effort):
		text = fmt.Sprintf("The model %s does not support `%s`, which was chosen for this "+
			"conversation: how long it thinks is up to its provider.", present.shown(), m.Effort)
	default:
		text = fmt.Sprintf("The effort of the model %s was set for this conversation: `%s`.",
			present.shown(), m.Effort)
	}
	words := []string{}
	for _, e := range m.Efforts {
		words = append(words, string(e))
	}
	words = append(words, defaultWord)
	reply := Reply{Text: fmt.Sprintf("%s Admins can change it with `/think %s`.", text,
		strings.Join(words, "|"))}
	for _, word := range words {
		if r.Message.Role.AtLeast(bus.Admin) && word != string(m.Effort) &&
			(word != defaultWord || m.Effort != llm.EffortDefault) {
			reply.Buttons = append(reply.Buttons, bus.Button{Label: word, Text: "/think " + word})
		}
	}
	return reply
}
