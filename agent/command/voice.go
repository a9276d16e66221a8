package command

import (
	"context"
	"fmt"
	"strings"

	"gateway/agent/activity"
	"gateway/agent/speech"
	"gateway/bus"
	"gateway/session"
)

// A setting is a choice of a conversation with a few words as its possible values. In a direct chat
// anybody may choose it, in a group only admins.
type setting struct {
	words   []string
	replies map[string]string // by word; defaultWord takes the choice back
	wrong   string            // reply to another word
	choice  session.Choice
}

// voice runs /voice [never|always|auto|default].
func (c conversation) voice(ctx context.Context, r *Request) (Reply, error) {
	present := c.Sessions.Voice(r.Session, r.Message)
	if present == "" {
		return Reply{Text: "I can't speak here. Voice answers need a speech model in the " +
			"configuration, and a chat that can play them."}, nil
	}
	// /activity and /think have this word, too.
	if strings.EqualFold(r.Args, "off") {
		r.Args = speech.Never
	}
	return c.set(ctx, r, present, setting{
		words: []string{speech.Never, speech.Always, speech.Auto},
		replies: map[string]string{
			speech.Never:  "I only write my answers here.",
			speech.Always: "I answer here with a voice message, too, with the text beside it.",
			speech.Auto: "I answer voice messages here with a voice message, too, with the text " +
				"beside it. I answer other messages in writing.",
			defaultWord: "When I speak here is up to the configuration again.",
		},
		wrong: "That is not a way to answer.", choice: session.Voice,
	})
}

// activity runs /activity [off|compact|full|default].
func (c conversation) activity(ctx context.Context, r *Request) (Reply, error) {
	return c.set(ctx, r, c.Sessions.Activity(r.Session, r.Message), setting{
		words: []string{string(activity.Off), string(activity.Compact), string(activity.Full)},
		replies: map[string]string{
			string(activity.Off):     "I only show my answers here.",
			string(activity.Compact): "While I work, I show in one line what I am doing.",
			string(activity.Full): "While I work, I show which tools I use, with their arguments. " +
				"Everybody in this chat sees them.",
			defaultWord: "How much of my work I show here is up to the configuration again.",
		},
		wrong: "That is not a way to show my work.", choice: session.Activity,
	})
}

// set changes a setting of a conversation. Without a word it shows the present value and offers the
// others.
func (c conversation) set(
	ctx context.Context, r *Request, present string, s setting,
) (Reply, error) {
	word := strings.ToLower(r.Args)
	// replies has defaultWord, too, which words lacks.
	_, known := s.replies[word]
	switch {
	case word == "":
		reply := Reply{Text: fmt.Sprintf("%s `/%s %s` changes it.", s.replies[present], r.Name,
			strings.Join(s.words, "|"))}
		for _, word := range s.words {
			if word != present {
				reply.Buttons = append(reply.Buttons,
					bus.Button{Label: word, Text: "/" + r.Name + " " + word})
			}
		}
		return reply, nil
	case !known:
		return Reply{Text: fmt.Sprintf("%s Use `/%s %s`, or `/%[2]s %[4]s`.", s.wrong, r.Name,
			strings.Join(s.words, fmt.Sprintf("`, `/%s ", r.Name)), defaultWord)}, nil
	case r.Message.Group && !r.Message.Role.AtLeast(bus.Admin):
		return Reply{Text: "Only admins and owners can choose that in a group. `/" + r.Name +
			"` shows the present setting."}, nil
	}
	say := s.replies[word]
	if word == defaultWord {
		word = ""
	}
	return c.choose(ctx, r, s.choice, word, say)
}
