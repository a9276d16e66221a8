package discord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bwmarrin/discordgo"

	"gateway/bus"
	"gateway/channels"
)

const (
	pageSize = 100 // maximum of Discord's list
	maxPages = 10  // maximum per channel after a gap
)

// errUnread reports that messages could not be read or translated. Any other error of page is that
// of storing them.
var errUnread = errors.New("messages not read")

// A job is the work of a worker for a channel.
type job struct {
	place   string // id of the channel
	cursor  uint64 // see lane; do moves it
	assumed uint64 // likewise
	since   uint64 // where to read a new listed channel from; 0: don't look whether it is one
	items   []item
	reader  bool // it counts as a reader
	keeper  bool // it only stores a provisional cursor
	session int  // of the feed at the start of the job

	provisional uint64 // see lane; do moves it

	gap  bool          // read the channel before storing the items
	read bool          // result: the channel was read
	wait time.Duration // result: time until reading is retried; 0: no retry
	left []item        // result: the last items, which can't be stored before hold
	hold time.Time     // result: see lane
	err  error
}

// A storer does jobs: it stores events of a channel, and reads and stores before them what the bot
// missed during a gap. It may do jobs for several channels at the same time.
type storer struct {
	c      *Channel
	in     channels.Intake
	places *directory
	events *translator
	acks   sync.WaitGroup // answers to presses
}

// do does j: it stores what the gateway sent, after the missed messages. If it returns an error,
// some of j.items may not be stored.
func (s *storer) do(ctx context.Context, j *job) error {
	if ok, err := s.checkNew(ctx, j); !ok {
		return err
	}
	if j.gap && j.cursor > 0 && j.wait == 0 {
		if err := s.fill(ctx, j); err != nil {
			return err
		}
	}
	if err := s.store(ctx, j); err != nil {
		return err
	}
	return s.settle(ctx, j)
}

// store stores what the gateway sent.
func (s *storer) store(ctx context.Context, j *job) error {
	items := j.items
	if j.wait > 0 { // messages will be read together with the missed ones; presses will not
		items = slices.DeleteFunc(slices.Clone(items), func(it item) bool { return it.press == nil })
	}
	items = s.refuseElsewhere(ctx, items)
	b, n, err := s.batch(ctx, j, items)
	if err != nil {
		if err := s.leave(ctx, j, items[n:], err); err != nil {
			return err
		}
		items = items[:n]
	}
	// A cursor alone is not worth a transaction. The next message of the channel stores a later
	// one.
	if len(b.Messages) == 0 {
		return nil
	}
	// Publish has filled the map when it returns.
	unanswered := make(map[string]string)
	b.Unanswered = func(id, say string) { unanswered[id] = say }
	if err := s.publish(ctx, j, b); err != nil {
		return err
	}
	// The answers are sent in the background, so that the channel's next events need not wait.
	for _, it := range items {
		if it.press != nil {
			say := unanswered[pressID(it.press)]
			s.acks.Go(func() { s.c.acknowledge(ctx, it.press, say) })
		}
	}
	return nil
}

// refuseElsewhere answers the interactions that the bot can't answer by a message, and returns the
// other items.
func (s *storer) refuseElsewhere(ctx context.Context, items []item) []item {
	return slices.DeleteFunc(slices.Clone(items), func(it item) bool {
		elsewhere := it.press != nil && it.press.isElsewhere()
		if elsewhere {
			s.acks.Go(func() { s.c.acknowledge(ctx, it.press, textElsewhere) })
		}
		return elsewhere
	})
}

// leave leaves items for later if a rate limit, err, prevents storing them, so that no other
// channel waits for its end. It returns any other err.
func (s *storer) leave(ctx context.Context, j *job, items []item, err error) error {
	limit, ok := errors.AsType[*channels.RateError](err)
	if !ok {
		return err
	}
	s.c.log.WarnContext(ctx, "channel can't be looked up now; its messages wait",
		"account", s.c.name, "chat", j.place, "after", limit.After, "err", err)
	j.left, j.hold = items, time.Now().Add(limit.After)
	return nil
}

// batch translates the events of one channel. If an event can't be translated, it returns the batch
// of the n events before it, and an error.
func (s *storer) batch(
	ctx context.Context, j *job, items []item,
) (b channels.Batch, n int, err error) {
	b = channels.Batch{CursorKey: j.place}
	last := uint64(0)
	for _, it := range items {
		var m bus.InboundMessage
		ok := false
		tried := s.in.Recover(ctx, func() {
			if it.press != nil {
				m, ok, err = s.events.pressed(ctx, it.press)
			} else {
				m, ok, err = s.events.inbound(ctx, it.message, it.edit)
			}
		})
		if tried && err != nil {
			break
		}
		if tried && ok {
			b.Messages = append(b.Messages, m)
		}
		if it.message != nil && !it.edit {
			last = max(last, idNumber(it.message.ID))
		}
		n++
	}
	if last > j.cursor { // otherwise it was also read after a gap
		b.Cursor = strconv.FormatUint(last, 10)
	}
	return b, n, err
}

// publish stores b, and then moves the job's cursor.
func (s *storer) publish(ctx context.Context, j *job, b channels.Batch) error {
	if err := s.in.Publish(ctx, b); err != nil {
		return fmt.Errorf("store %d messages: %w", len(b.Messages), err)
	}
	if n := idNumber(b.Cursor); n > 0 {
		j.cursor = n
	}
	return nil
}

// checkNew determines whether a channel without a stored message is listed, or a thread of a listed
// channel. Such a channel is read from the newest position of the others. If checkNew returns
// false, the job is over.
func (s *storer) checkNew(ctx context.Context, j *job) (ok bool, err error) {
	known := j.cursor > 0 && (j.assumed == 0 || j.provisional <= j.since)
	if known || j.since == 0 || len(*s.c.groups.Load()) == 0 {
		return true, nil
	}
	guild := ""
	for _, it := range j.items {
		if it.message != nil {
			guild = it.message.Guild
			break
		}
	}
	if j.cursor == 0 && guild == "" {
		return true, nil
	}
	p, err := s.places.placeWithin(ctx, j.place, guild, longestLimit)
	switch {
	case err != nil && j.cursor > 0:
		err = s.postpone(ctx, j, fmt.Errorf("%w: %w", errUnread, err))
		return err == nil, err
	case err != nil:
		return false, s.leave(ctx, j, j.items, err)
	case isListed(&p, *s.c.groups.Load()):
		j.gap, j.cursor, j.assumed = true, j.since, j.since+1
		err = s.keep(ctx, j, j.since)
	}
	return err == nil, err
}

// fill reads the messages of a channel after its cursor.
func (s *storer) fill(ctx context.Context, j *job) error {
	for range maxPages {
		n, err := s.page(ctx, j)
		if errors.Is(err, channels.ErrRefused) {
			s.c.log.WarnContext(ctx, "channel can't be read after a gap",
				"account", s.c.name, "chat", j.place, "err", err)
			if s.isGone(j.place, err) {
				return s.forget(ctx, j)
			}
		} else if err != nil {
			return s.postpone(ctx, j, err)
		}
		if err == nil {
			s.c.denied.Delete(j.place)
		}
		if n < pageSize {
			j.assumed, j.read = 0, true
			return nil
		}
	}
	s.c.log.WarnContext(ctx, "too many messages after a gap; the rest is skipped",
		"account", s.c.name, "chat", j.place, "read", maxPages*pageSize)
	j.assumed, j.read = 0, true
	return nil
}

// forget stops reading a channel after gaps.
func (s *storer) forget(ctx context.Context, j *job) error {
	s.c.log.InfoContext(ctx, "channel is gone or closed to the bot; it is no longer read after a gap",
		"account", s.c.name, "chat", j.place)
	if err := s.publish(ctx, j, channels.Batch{CursorKey: j.place, Forget: true}); err != nil {
		return err
	}
	j.cursor, j.assumed, j.provisional, j.read = 0, 0, 0, true
	return nil
}

// postpone delays reading a channel that can't be read now, so that other channels continue. It
// returns err if the cause is not the channel.
func (s *storer) postpone(ctx context.Context, j *job, err error) error {
	_, refused := errors.AsType[*channels.AccountError](err)
	if refused || ctx.Err() != nil || !errors.Is(err, errUnread) {
		return fmt.Errorf("read %s after a gap: %w", j.place, err)
	}
	after := s.c.opts.Postpone
	if limit, ok := errors.AsType[*channels.RateError](err); ok {
		after = limit.After
	}
	s.c.log.WarnContext(ctx, "channel can't be read after a gap now; will be retried",
		"account", s.c.name, "chat", j.place, "after", after, "err", err)
	j.wait = max(after, time.Millisecond)
	return nil
}

// page stores the next messages of a channel and returns their number.
func (s *storer) page(ctx context.Context, j *job) (int, error) {
	query := url.Values{
		"limit": {strconv.Itoa(pageSize)},
		"after": {strconv.FormatUint(j.cursor, 10)},
	}
	var list []json.RawMessage // so that one undecodable message does not spoil the others
	err := retry(ctx, longestLimit, func() error {
		address := discordgo.EndpointChannelMessages(url.PathEscape(j.place)) + "?" + query.Encode()
		return s.c.get(ctx, address, &list)
	})
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errUnread, err)
	}
	var items []item
	last := j.cursor
	for _, raw := range list {
		m := new(message)
		err := json.Unmarshal(raw, m)
		last = max(last, idNumber(m.ID))
		if err != nil {
			s.c.log.WarnContext(ctx, "message skipped: not understood",
				"account", s.c.name, "chat", j.place, "id", m.ID)
			continue
		}
		items = append(items, item{message: m})
	}
	if last == j.cursor {
		return 0, nil
	}
	slices.SortFunc(items, func(a, b item) int { // Discord lists the newest first
		return cmp.Compare(idNumber(a.message.ID), idNumber(b.message.ID))
	})
	b, _, err := s.batch(ctx, j, items)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errUnread, err)
	}
	b.Cursor = strconv.FormatUint(last, 10)
	return len(list), s.publish(ctx, j, b)
}
