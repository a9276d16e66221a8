package whatsapp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/types"
	"go.mau.fi/whatsmeow/types/events"

	"gateway/bus"
	"gateway/channels"
)

// How long titles of groups are cached, when a failed request is repeated, and how long a message
// waits for the answer.
const (
	titleLife  = time.Hour
	titleRetry = time.Minute
	titleWait  = 2 * time.Second
)

// maxTitles is the maximum number of groups whose titles are cached.
const maxTitles = 2000

// A title is what is known about the title of a group. Its text is "" if no request has succeeded.
type title struct {
	text  string
	until time.Time // when to request it again, with the timer of the group
}

// Leave implements [channels.Leaver].
func (c *Channel) Leave(ctx context.Context, id string) error {
	to := bus.Address{Account: c.name, Chat: id}
	return c.withSession(ctx, "leave", to, func(s *session, group types.JID) error {
		if group.Server != types.GroupServer {
			return fmt.Errorf("%w: it is not a group", channels.ErrRefused)
		}
		return s.working.do(ctx, func() error { return leave(ctx, s.client, group) })
	})
}

// leave leaves a group. WhatsApp documents no answers, so a refusal only counts if the account is
// still a member.
func leave(ctx context.Context, client *whatsmeow.Client, group types.JID) error {
	err := client.LeaveGroup(ctx, group)
	refused, ok := errors.AsType[*whatsmeow.IQError](err)
	// WhatsApp accepted it, or the error is temporary.
	if !ok || refused.Code < 400 || refused.Code >= 500 || refused.Code == 429 {
		return classify(err)
	}
	_, err = client.GetGroupInfo(ctx, group)
	switch {
	case errors.Is(err, whatsmeow.ErrNotInGroup), errors.Is(err, whatsmeow.ErrGroupNotFound):
		return nil
	case err != nil:
		return classify(err)
	}
	return fmt.Errorf("%w: WhatsApp does not let this account leave the group (%d)",
		channels.ErrRefused, refused.Code)
}

// title returns the title of a group as far as it is known.
func (t *translator) title(ctx context.Context, group types.JID) string {
	known, _ := t.titles.Get(group)
	if time.Now().Before(known.until) {
		return known.text
	}
	// The message waits for the title, and all later ones wait for the message.
	ctx, cancel := context.WithTimeout(ctx, titleWait)
	defer cancel()
	info, err := t.client.GetGroupInfo(ctx, group)
	if err != nil {
		t.log.InfoContext(ctx, "title of a group could not be read", "err", err)
		t.titles.Put(group, title{known.text, time.Now().Add(titleRetry)})
		return known.text
	}
	return t.noteGroup(ctx, info)
}

// noteGroup remembers what WhatsApp tells about a group, and returns the title: also the timer,
// which no message may have told yet.
func (t *translator) noteGroup(ctx context.Context, info *types.GroupInfo) string {
	t.timers.set(ctx, info.JID, timer{seconds: info.DisappearingTimer}, time.Now())
	text := channels.Clean(info.Name, channels.MaxName)
	t.titles.Put(info.JID, title{text, time.Now().Add(titleLife)})
	return text
}

// joined translates that somebody has added the account to a group. It returns false for groups
// that the account itself has made or joined on the phone.
func (t *translator) joined(
	ctx context.Context, e *events.JoinedGroup,
) (bus.InboundMessage, bool) {
	title := t.noteGroup(ctx, &e.GroupInfo)
	if e.Sender == nil || t.people.me.is(*e.Sender) {
		return bus.InboundMessage{}, false
	}
	phone := types.JID{}
	if e.SenderPN != nil {
		phone = *e.SenderPN
	}
	from := t.people.person(ctx, *e.Sender, phone)
	m := bus.InboundMessage{
		From: bus.Address{Account: t.account, Chat: e.JID.String()},
		Sender: bus.Sender{ID: from.id.String(),
			Name: t.people.nameOf(ctx, &types.MessageInfo{PushName: e.Notify}, from)},
		Time: time.Now().UTC(), Group: true, Addressed: true, ChatTitle: title,
	}
	if from.phone != "" {
		m.Sender.Username = "+" + from.phone
	}
	return m, true
}
