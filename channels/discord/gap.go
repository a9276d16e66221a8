package discord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/bwmarrin/discordgo"

	"gateway/channels"
)

const (
	pageSize = 100 // the most that Discord lists at once
	maxPages = 10  // of a channel, after a gap
)

var errUnread = errors.New("messages not read")

// overlap is how far before the newest cursor a listed channel without one is read from: channels
// are stored side by side, and one may have been behind the other when the gateway ended.
const overlap = 10 * time.Second

// newest returns where listed channels without a cursor are read from: just before the last message
// that is stored, or 0 if there is none, as when the account is new.
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

// meet finds out whether a channel of which something is heard for the first time is listed, or a
// thread of one that is. Such a one is read from where the others were last.
func (f *feed) meet(ctx context.Context, j *job) error {
	if j.cursor > 0 || j.since == 0 || len(f.c.opts.Groups) == 0 {
		return nil
	}
	i := slices.IndexFunc(j.items, func(it item) bool { return it.message != nil })
	if i < 0 || j.items[i].message.Guild == "" {
		return nil
	}
	p, err := f.where(ctx, j.place, j.items[i].message.Guild, true)
	if err != nil {
		return err
	}
	if f.listed(&p) {
		j.gap, j.cursor, j.assumed = true, j.since, j.since+1
	}
	return nil
}

// listed reports whether the configuration names p, or the channel that it is a thread of.
func (f *feed) listed(p *place) bool {
	in := p.message("")
	return slices.Contains(f.c.opts.Groups, in.From.Chat)
}

// add notes the listed channels and threads that are to be read although they have no cursor.
func (f *feed) add(list []place) {
	for i := range list {
		l := f.lane(list[i].ID)
		if l.cursor > 0 || l.busy || len(l.items) > 0 {
			continue // it is known, or will be: see meet
		}
		l.cursor, l.assumed, l.gap = f.since, f.since+1, true
		f.stale = append(f.stale, l)
	}
}

// discover looks for the listed channels and their threads in which somebody wrote while nobody
// listened, until each was looked up or ctx ends. Threads that are archived again are not found.
func (f *feed) discover(ctx context.Context, since uint64) {
	guilds := make(map[string]bool)
	for _, id := range f.c.opts.Groups {
		var p place
		ok := f.insist(ctx, id, func() (err error) {
			p, err = f.look(ctx, id)
			return err
		})
		if !ok {
			continue
		}
		p.at = time.Now()
		f.places.put(id, p)
		f.tell(ctx, since, []place{p})
		if p.Guild == "" || guilds[p.Guild] {
			continue
		}
		guilds[p.Guild] = true
		var answer struct {
			Threads []place `json:"threads"`
		}
		address := discordgo.EndpointGuildActiveThreads(url.PathEscape(p.Guild))
		if f.insist(ctx, id, func() error {
			return f.patient(ctx, func() error {
				return f.c.ask(ctx, http.MethodGet, address, nil, &answer)
			})
		}) {
			f.tell(ctx, since, answer.Threads)
		}
	}
}

// insist calls f until it succeeds, which it reports, is refused or ctx ends.
func (f *feed) insist(ctx context.Context, id string, call func() error) bool {
	for {
		err := call()
		if err == nil {
			return true
		}
		_, refused := errors.AsType[*channels.AccountError](err)
		if refused = refused || errors.Is(err, channels.ErrRefused); ctx.Err() == nil {
			f.c.log.WarnContext(ctx, "listed channel can't be looked up; what was written in it, "+
				"or in new threads of it, while the gateway was away may not be read",
				"account", f.c.name, "chat", id, "final", refused, "err", err)
		}
		if refused || !channels.Sleep(ctx, f.c.opts.Postpone) {
			return false
		}
	}
}

// forumTypes are the types of channels that have threads and no messages.
var forumTypes = []int{int(discordgo.ChannelTypeGuildForum), int(discordgo.ChannelTypeGuildMedia),
	int(discordgo.ChannelTypeGuildCategory)}

// tell gives the loop those of list that are listed and have something new.
func (f *feed) tell(ctx context.Context, since uint64, list []place) {
	list = slices.DeleteFunc(list, func(p place) bool {
		return number(p.Last) <= since || !f.listed(&p) || slices.Contains(forumTypes, p.Type)
	})
	if len(list) == 0 {
		return
	}
	select {
	case f.found <- list:
	case <-ctx.Done():
	}
}

// fill reads what a channel has after its cursor.
func (f *feed) fill(ctx context.Context, j *job) error {
	for range maxPages {
		n, err := f.page(ctx, j)
		if errors.Is(err, channels.ErrRefused) {
			f.c.log.WarnContext(ctx, "channel can't be read after a gap",
				"account", f.c.name, "chat", j.place, "err", err)
			if f.c.denied.gone(j.place, err) {
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
	f.c.log.WarnContext(ctx, "too many messages after a gap; the rest is not read",
		"account", f.c.name, "chat", j.place, "read", maxPages*pageSize)
	j.assumed, j.read = 0, true
	return nil
}

// forget makes the gateway ask no more for what a channel has after its cursor.
func (f *feed) forget(ctx context.Context, j *job) error {
	f.c.log.InfoContext(ctx, "channel is gone or closed to the bot; it is read no more after a gap",
		"account", f.c.name, "chat", j.place)
	if err := f.publish(ctx, j, channels.Batch{CursorKey: j.place, Forget: true}); err != nil {
		return err
	}
	j.cursor, j.assumed, j.read = 0, 0, true
	return nil
}

// postpone leaves a channel that can't be read for later, so that it keeps no other from being
// heard. It returns err if that has nothing to do with the channel.
func (f *feed) postpone(ctx context.Context, j *job, err error) error {
	_, refused := errors.AsType[*channels.AccountError](err)
	if refused || ctx.Err() != nil || !errors.Is(err, errUnread) {
		return fmt.Errorf("read %s after a gap: %w", j.place, err)
	}
	after := f.c.opts.Postpone
	if limit, ok := errors.AsType[*channels.RateError](err); ok {
		after = limit.After
	}
	f.c.log.WarnContext(ctx, "channel can't be read after a gap now; it is tried again",
		"account", f.c.name, "chat", j.place, "after", after, "err", err)
	j.wait = max(after, time.Millisecond)
	return nil
}

// page stores the next messages of a channel and returns how many there were.
func (f *feed) page(ctx context.Context, j *job) (int, error) {
	query := url.Values{
		"limit": {strconv.Itoa(pageSize)},
		"after": {strconv.FormatUint(j.cursor, 10)},
	}
	var list []json.RawMessage // one that is not understood must not spoil the others
	var limited error
	err := f.patient(ctx, func() error {
		address := discordgo.EndpointChannelMessages(url.PathEscape(j.place)) + "?" + query.Encode()
		err := f.c.ask(ctx, http.MethodGet, address, nil, &list)
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
		last = max(last, number(m.ID))
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
		return cmp.Compare(number(a.message.ID), number(b.message.ID))
	})
	b, err := f.batch(ctx, j, items)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errUnread, err)
	}
	b.Cursor = strconv.FormatUint(last, 10)
	return len(list), f.publish(ctx, j, b)
}

// patience is how often a call is made again that fails in a way that may pass: one hiccup must not
// end the connection, and with it the reading of all other channels.
const patience = 4

// longestLimit is how long a rate limit is waited for when a channel is read after a gap: another
// one may be waiting for its turn.
const longestLimit = time.Second

// patient makes calls until Discord asks for no more patience, or has needed too much of it.
func (f *feed) patient(ctx context.Context, call func() error) error {
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
		} else if failures++; failures > patience {
			return err
		} else {
			wait *= 2
		}
		if !channels.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}
