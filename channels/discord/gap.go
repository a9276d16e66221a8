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
	"time"

	"github.com/bwmarrin/discordgo"

	"gateway/channels"
)

const (
	pageSize = 100 // maximum of Discord's list
	maxPages = 10  // maximum per channel after a gap
)

var errUnread = errors.New("messages not read")

// overlap is how far before the newest cursor to start reading a listed channel without a cursor.
// Channels are stored concurrently, so one may have lagged behind when the gateway stopped.
const overlap = 10 * time.Second

// newest returns where to start reading listed channels without a cursor: shortly before the newest
// stored message, or 0 if there is none because the account is new.
func (f *feed) newest() uint64 {
	var last uint64
	for _, l := range f.lanes {
		if l.assumed == 0 {
			last = max(last, l.cursor)
		}
	}
	if before := uint64(overlap.Milliseconds()) << 22; last > before {
		return last - before
	}
	return last
}

// checkNew determines whether a channel that sends its first event is listed, or a thread of a
// listed channel. Such a channel is read from the newest position of the others.
func (f *feed) checkNew(ctx context.Context, j *job) error {
	if j.cursor > 0 || j.since == 0 || len(f.c.opts.Groups) == 0 {
		return nil
	}
	i := slices.IndexFunc(j.items, func(it item) bool { return it.message != nil })
	if i < 0 || j.items[i].message.Guild == "" {
		return nil
	}
	p, err := f.placeOf(ctx, j.place, j.items[i].message.Guild, true)
	if err != nil {
		return err
	}
	if f.listed(&p) {
		j.gap, j.cursor, j.assumed = true, j.since, j.since+1
	}
	return nil
}

// listed reports whether the configuration lists p or its parent channel.
func (f *feed) listed(p *place) bool {
	in := p.message("")
	return slices.Contains(f.c.opts.Groups, in.From.Chat)
}

// add records the listed channels and threads to read although they have no cursor.
func (f *feed) add(list []place) {
	for i := range list {
		l := f.lane(list[i].ID)
		if l.cursor > 0 || l.busy || len(l.items) > 0 {
			continue // it is known or will be: see checkNew
		}
		l.cursor, l.assumed, l.gap = f.since, f.since+1, true
		f.stale = append(f.stale, l)
	}
}

// discover finds the listed channels and their threads with messages that were written during the
// gap. It ends when all are looked up or ctx is done. It does not find threads that are archived
// again.
func (f *feed) discover(ctx context.Context, since uint64) {
	guilds := make(map[string]bool)
	for _, id := range f.c.opts.Groups {
		var p place
		ok := f.retryForever(ctx, id, func() (err error) {
			p, err = f.lookUp(ctx, id)
			return err
		})
		if !ok {
			continue
		}
		p.at = time.Now()
		f.places.Put(id, p)
		f.report(ctx, since, []place{p})
		if p.Guild == "" || guilds[p.Guild] {
			continue
		}
		guilds[p.Guild] = true
		var answer struct {
			Threads []place `json:"threads"`
		}
		address := discordgo.EndpointGuildActiveThreads(url.PathEscape(p.Guild))
		if f.retryForever(ctx, id, func() error {
			return f.retry(ctx, func() error {
				return f.c.get(ctx, address, &answer)
			})
		}) {
			f.report(ctx, since, answer.Threads)
		}
	}
}

// retryForever calls call until it succeeds, is refused, or ctx is done. It reports whether call
// succeeded.
func (f *feed) retryForever(ctx context.Context, id string, call func() error) bool {
	for {
		err := call()
		if err == nil {
			return true
		}
		_, refused := errors.AsType[*channels.AccountError](err)
		if refused = refused || errors.Is(err, channels.ErrRefused); ctx.Err() == nil {
			f.c.log.WarnContext(ctx, "listed channel can't be looked up; messages in it, "+
				"or in its new threads, from the time of the gap may be lost",
				"account", f.c.name, "chat", id, "final", refused, "err", err)
		}
		if refused || !channels.Sleep(ctx, f.c.opts.Postpone) {
			return false
		}
	}
}

// forumTypes are the types of channels that have threads but no messages.
var forumTypes = []int{int(discordgo.ChannelTypeGuildForum), int(discordgo.ChannelTypeGuildMedia),
	int(discordgo.ChannelTypeGuildCategory)}

// report passes those channels of list to the loop that are listed and have new messages.
func (f *feed) report(ctx context.Context, since uint64, list []place) {
	list = slices.DeleteFunc(list, func(p place) bool {
		return idNumber(p.Last) <= since || !f.listed(&p) || slices.Contains(forumTypes, p.Type)
	})
	if len(list) == 0 {
		return
	}
	select {
	case f.found <- list:
	case <-ctx.Done():
	}
}

// fill reads the messages of a channel after its cursor.
func (f *feed) fill(ctx context.Context, j *job) error {
	for range maxPages {
		n, err := f.page(ctx, j)
		if errors.Is(err, channels.ErrRefused) {
			f.c.log.WarnContext(ctx, "channel can't be read after a gap",
				"account", f.c.name, "chat", j.place, "err", err)
			if f.c.denied.isGone(j.place, err) {
				return f.forget(ctx, j)
			}
		} else if err != nil {
			return f.postpone(ctx, j, err)
		}
		if err == nil {
			f.c.denied.forget(j.place)
		}
		if n < pageSize {
			j.assumed, j.read = 0, true
			return nil
		}
	}
	f.c.log.WarnContext(ctx, "too many messages after a gap; the rest is skipped",
		"account", f.c.name, "chat", j.place, "read", maxPages*pageSize)
	j.assumed, j.read = 0, true
	return nil
}

// forget stops reading a channel after gaps.
func (f *feed) forget(ctx context.Context, j *job) error {
	f.c.log.InfoContext(ctx, "channel is gone or closed to the bot; it is no longer read after a gap",
		"account", f.c.name, "chat", j.place)
	if err := f.publish(ctx, j, channels.Batch{CursorKey: j.place, Forget: true}); err != nil {
		return err
	}
	j.cursor, j.assumed, j.read = 0, 0, true
	return nil
}

// postpone delays reading a channel that can't be read now, so that other channels continue. It
// returns err if the cause is not the channel.
func (f *feed) postpone(ctx context.Context, j *job, err error) error {
	_, refused := errors.AsType[*channels.AccountError](err)
	if refused || ctx.Err() != nil || !errors.Is(err, errUnread) {
		return fmt.Errorf("read %s after a gap: %w", j.place, err)
	}
	after := f.c.opts.Postpone
	if limit, ok := errors.AsType[*channels.RateError](err); ok {
		after = limit.After
	}
	f.c.log.WarnContext(ctx, "channel can't be read after a gap now; will be retried",
		"account", f.c.name, "chat", j.place, "after", after, "err", err)
	j.wait = max(after, time.Millisecond)
	return nil
}

// page stores the next messages of a channel and returns their number.
func (f *feed) page(ctx context.Context, j *job) (int, error) {
	query := url.Values{
		"limit": {strconv.Itoa(pageSize)},
		"after": {strconv.FormatUint(j.cursor, 10)},
	}
	var list []json.RawMessage // so that one undecodable message does not spoil the others
	var limited error
	err := f.retry(ctx, func() error {
		address := discordgo.EndpointChannelMessages(url.PathEscape(j.place)) + "?" + query.Encode()
		err := f.c.get(ctx, address, &list)
		if limit, ok := errors.AsType[*channels.RateError](err); ok && limit.After > longestLimit {
			limited = err
			return nil
		}
		return err
	})
	if err = cmp.Or(limited, err); err != nil {
		return 0, fmt.Errorf("%w: %w", errUnread, err)
	}
	var items []item
	last := j.cursor
	for _, raw := range list {
		m := new(message)
		err := json.Unmarshal(raw, m)
		last = max(last, idNumber(m.ID))
		if err != nil {
			f.c.log.WarnContext(ctx, "message skipped: not understood",
				"account", f.c.name, "chat", j.place, "id", m.ID)
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
	b, err := f.batch(ctx, j, items)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errUnread, err)
	}
	b.Cursor = strconv.FormatUint(last, 10)
	return len(list), f.publish(ctx, j, b)
}

// maxRetries is how often to retry a call after a temporary failure. One such failure must not end
// the connection, and with it the reading of all other channels.
const maxRetries = 4

// longestLimit is the longest rate limit to wait for while reading a channel after a gap. Others
// may be waiting to be read.
const longestLimit = time.Second

// retry makes a call, and retries it after temporary failures and short rate limits.
func (f *feed) retry(ctx context.Context, call func() error) error {
	wait := 250 * time.Millisecond
	for failures := 0; ; {
		err := call()
		if err == nil || errors.Is(err, channels.ErrRefused) {
			return err
		}
		if _, ok := errors.AsType[*channels.AccountError](err); ok {
			return err
		}
		pause := wait
		if limit, ok := errors.AsType[*channels.RateError](err); ok {
			pause = limit.After
		} else if failures++; failures > maxRetries {
			return err
		} else {
			wait *= 2
		}
		if !channels.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}
