package command

import (
	"context"
	"fmt"
	"strings"

	"gateway/agent/speech"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// voices has the reply for each voice setting.
var voices = map[string]string{
	speech.Never:  "I only write my answers here.",
	speech.Always: "I answer here with a voice message, too, with the text beside it.",
	speech.Auto: "I answer voice messages here with a voice message, too, with the text beside it. " +
		"Other messages I answer in writing.",
}

// voice runs /voice [never|always|auto|default].
func (c conversation) voice(ctx context.Context, r *Request) (Reply, error) {
	present := c.Sessions.Voice(r.Session, r.Message.From.Account)
	word := strings.ToLower(r.Args)
	if word == "off" {
		word = speech.Never
	}
	switch _, known := voices[word]; {
	case present == "":
		return Reply{Text: "I can't speak here. Voice answers need a speech model in the " +
			"configuration, and a chat that can play them."}, nil
	case word == "":
		return spoken(voices[present], present), nil
	case !known && word != defaultWord:
		return Reply{Text: "That is not a way to answer. Use `/voice never`, `/voice always`, " +
			"`/voice auto` or `/voice default`."}, nil
	case r.Message.Group && !r.Message.Role.AtLeast(bus.Admin):
		return Reply{Text: "Only admins and owners can choose that in a group. `/voice` shows the " +
			"present setting."}, nil
	case word == defaultWord:
		word = ""
	}
	reply, err := r.Commit(ctx, func(tx *store.Tx) (Reply, error) {
		say := voices[word]
		if word == "" {
			say = "I speak here as it is configured again."
		}
		return Reply{Text: say}, session.SetVoice(tx, r.Session, word, c.Now())
	})
	if err == nil {
		c.Sessions.SetVoice(r.Session, word)
	}
	return reply, err
}

// spoken returns the reply that describes the present setting and offers the other ones.
func spoken(say, present string) Reply {
	reply := Reply{Text: fmt.Sprintf("%s `/voice never|always|auto` changes it.", say)}
	for _, word := range []string{speech.Never, speech.Always, speech.Auto} {
		if word != present {
			reply.Buttons = append(reply.Buttons, bus.Button{Label: word, Text: "/voice " + word})
		}
	}
	return reply
}
