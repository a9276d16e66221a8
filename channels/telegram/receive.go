package telegram

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf16"

	"gateway/bus"
	"gateway/channels"
)

// allowedUpdates are the kinds of updates that the gateway reads.
const allowedUpdates = `["message","edited_message","callback_query","my_chat_member",` +
	`"stopped_message_generation"]`

// A receiver is the state of one call of Run.
type receiver struct {
	*Channel
	me      user
	in      channels.Intake
	presses chan string // ids of stored callback queries; further ones are dropped
}

// newReceiver returns the receiver for one run. me is the account of the bot.
func newReceiver(c *Channel, me user, in channels.Intake) *receiver {
	return &receiver{Channel: c, me: me, in: in, presses: make(chan string, 64)}
}

// pollTime is how long Telegram waits for an update before it answers.
const pollTime = 50 * time.Second

// poll requests updates until ctx is done or something fails.
func (r *receiver) poll(ctx context.Context) error {
	cursors, err := r.in.Cursors(ctx)
	if err != nil {
		return fmt.Errorf("read cursor: %w", err)
	}
	// A bot has one queue of updates, so its only cursor has the key "". Without a cursor
	// getUpdates gets no offset and begins with the oldest update that is not acknowledged.
	cursor := cursors[""]
	r.connected(ctx, "")
	for {
		updates, err := r.api.getUpdates(ctx, pollTime, cursor)
		if err != nil {
			return fmt.Errorf("get updates: %w", err)
		}
		if len(updates) == 0 {
			continue // no update arrived during the poll
		}
		batch, presses := r.translate(ctx, updates)
		if batch.Cursor == "" {
			// The next call would return the same updates at once, so the loop would never rest.
			return errors.New("get updates: no update has an id, so none can be acknowledged")
		}
		if err := r.store(ctx, batch, presses); err != nil {
			return err
		}
		cursor = batch.Cursor // the next getUpdates acknowledges the stored updates
	}
}

// connected reports that the channel receives messages. how is appended to the report.
func (r *receiver) connected(ctx context.Context, how string) {
	r.in.Report(channels.Connected, "connected as @"+r.me.Username+how)
	r.log.InfoContext(ctx, "telegram connected", "account", r.name, "username", r.me.Username)
}

// store publishes b, and then confirms the pressed buttons.
func (r *receiver) store(ctx context.Context, b channels.Batch, presses []string) error {
	if err := r.in.Publish(ctx, b); err != nil {
		return fmt.Errorf("store %d messages: %w", len(b.Messages), err)
	}
	for _, id := range presses {
		select {
		case r.presses <- id:
		default: // confirming a press is optional
		}
	}
	return nil
}

// translate returns updates as a batch, and their callback queries. The cursor follows the last
// update even if its id is lower than earlier ones: after a week without messages Telegram may
// start again with lower ids.
func (r *receiver) translate(
	ctx context.Context, updates []json.RawMessage,
) (b channels.Batch, presses []string) {
	b.Messages = make([]bus.InboundMessage, 0, len(updates))
	for _, raw := range updates {
		var u update
		err := json.Unmarshal(raw, &u)
		// A field that can't be decoded does not keep the id from being decoded. The cursor thus
		// passes a bad update, which would otherwise come again forever.
		if u.ID != 0 {
			b.Cursor = strconv.FormatInt(u.ID+1, 10)
		}
		if err != nil {
			// The text of the error would contain a value of the update, which is a person's text.
			r.log.WarnContext(ctx, "update skipped: not understood", "account", r.name, "id", u.ID)
			continue
		}
		if u.Callback != nil {
			// Each press is confirmed, even one that is no message. Otherwise the person would see
			// a progress indicator for a while.
			presses = append(presses, u.Callback.ID)
		}
		var m bus.InboundMessage
		var is bool
		if r.in.Recover(ctx, func() { m, is = r.read(ctx, &u) }) && is {
			b.Messages = append(b.Messages, m)
		}
		if m, is := r.joined(u.Member); is {
			b.Joined = append(b.Joined, m)
		}
		if from, to := u.Message.migration(); from != 0 {
			if b.Migrated == nil {
				b.Migrated = make(map[string]string)
			}
			b.Migrated[strconv.FormatInt(to, 10)] = strconv.FormatInt(from, 10)
		}
	}
	return b, presses
}

// read returns the message in u. It returns false if there is none.
func (r *receiver) read(ctx context.Context, u *update) (bus.InboundMessage, bool) {
	switch {
	case u.Message != nil:
		m, ok := r.inbound(u.Message)
		if ok {
			r.join(&m, u.Message)
		}
		return m, ok
	case u.Edited != nil:
		return r.edited(u.Edited)
	case u.Callback != nil:
		return r.pressed(u.Callback)
	case u.Stopped != nil:
		return r.stopped(u.Stopped)
	case u.Member != nil:
		r.noteMembership(ctx, u.Member)
	}
	return bus.InboundMessage{}, false
}

// migration returns the old and the new id of a group that became a supergroup, or 0 if m does not
// report that. Messages to the old id are redirected when Telegram answers with the new one.
func (m *message) migration() (from, to int64) {
	switch {
	case m == nil:
		return 0, 0
	case m.MigrateTo != 0:
		return m.Chat.ID, m.MigrateTo
	}
	return m.MigrateFrom, m.Chat.ID // any other message has no MigrateFrom
}

// A move is a group that has become a supergroup.
type move struct{ from, to string } // ids

// maxMoves is the maximum number of moves that wait to be stored. The next refusal reports a
// further one again.
const maxMoves = 16

// noteMove makes Run store a move that a refusal has reported: its update may have been lost.
func (c *Channel) noteMove(m move) {
	select {
	case c.moves <- m:
	default:
	}
}

// storeMoves stores the moves that refusals have reported, until ctx is done.
func (r *receiver) storeMoves(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-r.moves:
			b := channels.Batch{Migrated: map[string]string{m.to: m.from}}
			if err := r.in.Publish(ctx, b); err != nil { // the next refusal reports it again
				r.log.WarnContext(ctx, "move of a group not stored", "account", r.name, "err", err)
			}
		}
	}
}

// noteMembership logs that the bot was blocked, added to a group, or removed from it.
func (r *receiver) noteMembership(ctx context.Context, m *member) {
	r.log.InfoContext(ctx, "membership changed", "account", r.name,
		"chat", m.Chat.ID, "status", channels.Clean(m.New.Status, channels.MaxName))
}

// joined returns the message that reports that the bot was added to a group. It returns false if m
// reports something else.
func (r *receiver) joined(m *member) (bus.InboundMessage, bool) {
	// In a private chat the update says that the person has blocked or unblocked the bot. Between
	// two states of inGroup only the rights of the bot have changed.
	if m == nil || m.From == nil || !m.Chat.read() || m.Chat.Type == "private" ||
		inGroup[m.Old.Status] || !inGroup[m.New.Status] {
		return bus.InboundMessage{}, false
	}
	return bus.InboundMessage{
		From:   bus.Address{Account: r.name, Chat: strconv.FormatInt(m.Chat.ID, 10)},
		Sender: m.From.sender(), Group: true, Addressed: true,
		ChatTitle: channels.Clean(m.Chat.Title, channels.MaxName), Time: time.Unix(m.Date, 0),
	}, true
}

// inGroup has the membership states in which the bot receives the group's messages.
var inGroup = map[string]bool{"member": true, "administrator": true, "restricted": true}

// A writer is a person in a chat or topic.
type writer struct {
	in     bus.Address
	sender string
}

// A previous is the newest message of a writer.
type previous struct {
	date int64
	text string // key of the text that may have further parts, or ""
}

const (
	maxWriters = 256         // writers whose newest message is remembered
	leastCut   = maxText / 2 // UTF-16 units of a part that is not the last: apps cut at a blank line
	longestGap = 2           // seconds between two parts
)

// join gives the same Album to the parts of a text that is too long for a message. Telegram
// delivers them one right after another. The first one has an Album although it may be the only
// one, so that the agent waits a moment for others.
func (r *receiver) join(in *bus.InboundMessage, m *message) {
	by := writer{in.From, in.Sender.ID}
	now := previous{date: m.Date}
	if m.Text != "" && in.Forwarded == "" {
		before, _ := r.previous.Get(by) // the zero value is from 1970
		if gap := m.Date - before.date; gap >= 0 && gap <= longestGap &&
			in.ReplyTo == nil && !slices.ContainsFunc(m.TextEntities, entity.beginsCommand) {
			in.Album = before.text
		}
		if len(utf16.Encode([]rune(m.Text))) >= leastCut {
			in.Album = cmp.Or(in.Album, "text "+in.ID)
			now.text = in.Album
		}
	}
	r.previous.Put(by, now)
}
