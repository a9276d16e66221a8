package turn

import (
	"context"
	"slices"

	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/bus"
	"gateway/session"
)

// A reader converts claimed messages to messages for the model.
type reader struct {
	*turn
	conv     *conversation
	numbered bool // the first messages were collected; number them for the model
}

// userMessages loads the files of batch and returns what the model sees of it, with the ambient
// messages before each message. Collected messages become one message with numbers.
func (t *reader) userMessages(ctx context.Context, batch []bus.Received) []llm.Message {
	ambient := t.ambient(ctx, batch[len(batch)-1])
	if !t.numbered {
		var list []llm.Message
		for len(batch) > 0 {
			var before, part []bus.Received
			before, ambient = upTo(ambient, batch[0].Came())
			part, batch = batch, nil
			if len(ambient) > 0 {
				part, batch = upTo(part, ambient[0].Seq)
			}
			list = append(list, prompt.Ambient(before, t.zone())...)
			list = append(list, t.asQuestions(ctx, part)...)
		}
		return list
	}
	return append(prompt.Ambient(ambient, t.zone()), prompt.Numbered(t.asQuestions(ctx, batch))...)
}

// upTo splits list before the first message after the given Seq.
func upTo(list []bus.Received, seq int64) (before, after []bus.Received) {
	i := slices.IndexFunc(list, func(r bus.Received) bool { return r.Came() > seq })
	if i < 0 {
		return list, nil
	}
	return list[:i], list[i:]
}

// asQuestions returns what the model sees of messages that are for it.
func (t *reader) asQuestions(ctx context.Context, list []bus.Received) (seen []llm.Message) {
	room := t.env.Calls.Estimates.Bytes(t.settings.ModelID, t.settings.ContextBudget()) / 2
	for _, m := range prompt.JoinParts(list) {
		m.Text = t.fitted(m.Text, room)
		room -= len(m.Text)
		if m.Origin.Kind != bus.Person {
			seen = append(seen, t.ownMessage(m))
			continue
		}
		files, quoted := t.env.Attachments.Load(ctx, &m, t.settings.SpeechCost)
		seen = append(seen, prompt.User(m, files, quoted, t.zone()))
	}
	return seen
}

// leastMessage is the part of a message that the model sees in any case, in bytes.
const leastMessage = 1000

// longMessage is the name of the file of a message that is too long for a prompt.
const longMessage = "message.txt"

// fitted returns the text of a message, or its beginning and its end if it is longer than room
// bytes. The whole is then in a file of the conversation.
func (t *reader) fitted(text string, room int) string {
	room = max(room, leastMessage)
	if len(text) <= room {
		return text
	}
	where := "the rest could not be stored"
	if file, err := t.env.Attachments.SaveFile(t.Address, longMessage, []byte(text)); err == nil {
		where = "the whole is in " + file
	} else {
		t.logger().Warn("long message not stored", "err", err)
	}
	return withoutMiddle(text, room*2/3, room/3, where)
}

// ambient returns the messages that people wrote in the group before r but not to the agent.
// Sub-agents get none.
func (t *reader) ambient(ctx context.Context, r bus.Received) []bus.Received {
	if !r.Message.Group || !t.trigger.Origin.Interactive() {
		return nil
	}
	read := t.env.DB.Read(context.WithoutCancel(ctx))
	list, err := t.env.Inbox.Ambient(read, r.Message.From, r.Came(), t.env.Now())
	if err == nil && t.Session.Speaker != "" {
		var upTo int64
		upTo, err = session.AmbientSeen(read, t.Session)
		list = slices.DeleteFunc(list, func(r bus.Received) bool { return r.Seq <= upTo })
	}
	if err != nil {
		t.logger().WarnContext(ctx, "ambient messages could not be read", "err", err)
	}
	return list
}
