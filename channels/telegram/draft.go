package telegram

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"gateway/bus"
	"gateway/channels"
)

// Draft implements [channels.Drafter] for direct chats: Telegram has no drafts elsewhere. A draft
// is visible for half a minute after its last change, or until a message is sent.
func (c *Channel) Draft(ctx context.Context, to bus.Address, stream, text string) error {
	switch {
	case !c.drafts:
		return fmt.Errorf("telegram: draft to %s: %w: drafts are off", to, channels.ErrRefused)
	case isGroup(to):
		return fmt.Errorf("telegram: draft to %s: %w: it is a group", to, channels.ErrRefused)
	case c.noDrafts.Load():
		return fmt.Errorf("telegram: draft to %s: %w: the Bot API server is too old",
			to, channels.ErrRefused)
	}
	o := &outgoing{to: to, method: "sendMessageDraft", field: "text", text: text}
	o.params = map[string]string{"chat_id": to.Chat, "draft_id": draftID(stream), "can_stop": "true"}
	o.setHTML()
	// sendMessageDraft does not have this parameter.
	delete(o.params, "link_preview_options")
	o.params.AddNonEmpty("message_thread_id", to.Thread)
	_, err := c.deliver(ctx, o)
	if err == nil {
		return nil
	}
	if isUnknownMethod(err) {
		c.noDrafts.Store(true)
	}
	return fmt.Errorf("telegram: draft to %s: %w", to, optional(err))
}

// stopped translates the press of the button that stops a draft. It stands for the command that the
// person would otherwise type. It returns false if the draft is not in a private chat.
func (r *receiver) stopped(s *stopped) (bus.InboundMessage, bool) {
	if s.Chat.Type != "private" || s.Draft == 0 {
		return bus.InboundMessage{}, false
	}
	who := user{ID: s.Chat.ID, First: s.Chat.First, Last: s.Chat.Last, Username: s.Chat.Username}
	in := envelope(r.name, &message{Chat: s.Chat, Thread: s.Thread, InTopic: true})
	in.ID = "stop" + strconv.FormatInt(s.Draft, 10)
	in.Sender, in.Text, in.Addressed = who.sender(), "/stop", true
	in.Time = time.Now().UTC() // Telegram doesn't send the time of the press
	return in, true
}

// draftID returns a positive number that depends only on the stream. Telegram replaces the draft
// with the same number. The number fits into 31 bits and is odd, because Telegram refuses 0.
func draftID(stream string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(stream)) // never fails
	return strconv.FormatUint(uint64(h.Sum32()>>1)|1, 10)
}
