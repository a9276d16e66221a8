package discord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/discordgo"

	"gateway/bus"
	"gateway/channels"
)

const (
	maxBatch = 100 // events that are stored at once
	pageSize = 100 // the most that Discord lists at once
	maxPages = 10  // of a channel, after a gap
)

var (
	errFull   = errors.New("too many events wait to be stored")
	errUnread = errors.New("messages not read")
)

// A feed stores what the shards of one run receive: in order for each channel, and what a gap has
// swallowed before what came after it. All but put is for the goroutine of run.
type feed struct {
	c      *Channel
	in     channels.Intake
	me     user
	queue  chan event
	full   chan struct{} // closed when an event was lost; what follows is lost, too
	isFull atomic.Bool
	acks   sync.WaitGroup

	cursors map[string]uint64    // last message stored, by channel
	assumed map[string]uint64    // message that was missed, by channel, if its cursor is not stored
	stale   []string             // channels that may have a gap, the one to be read next at the end
	gaps    map[string]bool      // the same as a set
	later   map[string]time.Time // when those are tried again that could not be read
	places  *cache[place]
	guilds  *cache[guild]
	said    *cache[uint64] // hashes of texts, by message
}

// An event is what the gateway sent, undecoded.
type event struct {
	kind string
	data json.RawMessage
}

// An item is an event that belongs to a channel.
type item struct {
	message *message     // or nil
	press   *interaction // or nil
	edit    bool         // message is a new wording
}

func newFeed(c *Channel, in channels.Intake, me user, cursors map[string]string) *feed {
	f := &feed{
		c: c, in: in, me: me,
		queue:   make(chan event, c.opts.Queue),
		full:    make(chan struct{}),
		cursors: make(map[string]uint64, len(cursors)),
		assumed: make(map[string]uint64),
		gaps:    make(map[string]bool),
		later:   make(map[string]time.Time),
		places:  newCache[place](2000),
		guilds:  newCache[guild](500),
		said:    newCache[uint64](5000),
	}
	for place, cursor := range cursors {
		if n := number(cursor); n > 0 && place != "" {
			f.cursors[place] = n
		}
	}
	for place, id := range c.missed.take() {
		if f.cursors[place] == 0 {
			f.cursors[place], f.assumed[place] = id-1, id
		}
	}
	return f
}

// put queues an event. It never blocks, since nobody would read heartbeats meanwhile.
func (f *feed) put(kind string, data json.RawMessage) {
	switch kind {
	case "READY", "RESUMED", "MESSAGE_CREATE", "MESSAGE_UPDATE", "INTERACTION_CREATE":
	default:
		return
	}
	e := event{kind, data}
	if f.isFull.Load() {
		f.c.missed.add(e)
		return
	}
	select {
	case f.queue <- e:
	default:
		f.c.missed.add(e)
		if f.isFull.CompareAndSwap(false, true) {
			close(f.full)
		}
	}
}

// end notes what was not stored. No shard is left then.
func (f *feed) end() {
	f.acks.Wait()
	for {
		select {
		case e := <-f.queue:
			f.c.missed.add(e)
		default:
			for place, id := range f.assumed {
				f.c.missed.put(place, id)
			}
			return
		}
	}
}

// run stores events until ctx ends, an event was lost or one can't be stored.
func (f *feed) run(ctx context.Context) error {
	for {
		events, err := f.take(ctx)
		switch {
		case err != nil:
		case len(events) > 0:
			err = f.store(ctx, events)
		default:
			if place, _ := f.next(); place != "" {
				err = f.fill(ctx, place)
			}
		}
		if err != nil {
			for _, e := range events {
				f.c.missed.add(e)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// next returns the channel with a gap that is to be read now, or how long there is none, if there
// will be one.
func (f *feed) next() (place string, wait time.Duration) {
	for _, p := range slices.Backward(f.stale) {
		left := time.Until(f.later[p])
		if left <= 0 {
			return p, 0
		}
		if wait == 0 || left < wait {
			wait = left
		}
	}
	return "", wait
}

// take returns what is queued. If that is nothing it waits, or returns nothing when there is a gap
// to be filled.
func (f *feed) take(ctx context.Context) ([]event, error) {
	var events []event
	select {
	case <-f.full:
		return nil, errFull
	default:
	}
	if place, wait := f.next(); place == "" {
		var due <-chan time.Time // never, without a gap
		if wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			due = timer.C
		}
		select {
		case e := <-f.queue:
			events = append(events, e)
		case <-due:
		case <-f.full:
			return nil, errFull
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	for len(events) < maxBatch {
		select {
		case e := <-f.queue:
			events = append(events, e)
		default:
			return events, nil
		}
	}
	return events, nil
}

// store stores events: those of one channel at once, in their order.
func (f *feed) store(ctx context.Context, events []event) error {
	var order []string
	items := make(map[string][]item)
	flush := func() error {
		for _, place := range order {
			if err := f.storeLive(ctx, place, items[place]); err != nil {
				return err
			}
		}
		order = nil
		clear(items)
		return nil
	}
	for _, e := range events {
		if e.kind == "READY" || e.kind == "RESUMED" {
			if err := flush(); err != nil {
				return err
			}
			f.connected(ctx, e.kind == "READY")
			continue
		}
		place, it, err := decode(e)
		if err != nil {
			// Error would show a value of the event, which may be a person's text.
			f.c.log.WarnContext(ctx, "event skipped: not understood",
				"account", f.c.name, "event", e.kind)
			continue
		}
		if items[place] == nil {
			order = append(order, place)
		}
		items[place] = append(items[place], it)
	}
	return flush()
}

func decode(e event) (place string, it item, err error) {
	if e.kind == "INTERACTION_CREATE" {
		it.press = new(interaction)
		err = json.Unmarshal(e.data, it.press)
		return it.press.Channel, it, err
	}
	it.message, it.edit = new(message), e.kind == "MESSAGE_UPDATE"
	err = json.Unmarshal(e.data, it.message)
	it.message.live = true
	return it.message.Channel, it, err
}

// connected notes that a session has begun, with a gap before it, or was resumed without one.
func (f *feed) connected(ctx context.Context, gap bool) {
	f.in.Report("connected as " + f.me.name())
	f.c.log.InfoContext(ctx, "discord connected", "account", f.c.name,
		"username", f.me.Username, "resumed", !gap)
	if !gap {
		return
	}
	f.stale = slices.SortedFunc(maps.Keys(f.cursors), func(a, b string) int {
		return cmp.Compare(f.cursors[a], f.cursors[b]) // where people wrote last comes first
	})
	clear(f.gaps)
	clear(f.later)
	for _, place := range f.stale {
		f.gaps[place] = true
	}
}

// storeLive stores what came by the gateway, after what is missing before it.
func (f *feed) storeLive(ctx context.Context, place string, items []item) error {
	if f.gaps[place] {
		if time.Until(f.later[place]) <= 0 {
			if err := f.fill(ctx, place); err != nil {
				return err
			}
		}
		if f.gaps[place] {
			return nil // they are read with what is missing before them
		}
	}
	b, err := f.batch(ctx, place, items)
	if err != nil || len(b.Messages) == 0 {
		return err
	}
	if err := f.publish(ctx, b); err != nil {
		return err
	}
	for _, it := range items {
		if it.press != nil {
			f.acks.Go(func() { f.c.acknowledge(ctx, it.press) })
		}
	}
	return nil
}

// fill reads what a channel has after its cursor.
func (f *feed) fill(ctx context.Context, place string) error {
	for range maxPages {
		n, err := f.page(ctx, place)
		if errors.Is(err, channels.ErrRefused) {
			f.c.log.WarnContext(ctx, "channel can't be read after a gap",
				"account", f.c.name, "chat", place, "err", err)
		} else if err != nil {
			return f.postpone(ctx, place, err)
		}
		if n < pageSize {
			f.filled(place)
			return nil
		}
	}
	f.c.log.WarnContext(ctx, "too many messages after a gap; the rest is not read",
		"account", f.c.name, "chat", place, "read", maxPages*pageSize)
	f.filled(place)
	return nil
}

// postpone leaves a channel that can't be read for later, so that it keeps no other from being
// heard. It returns err if that has nothing to do with the channel.
func (f *feed) postpone(ctx context.Context, place string, err error) error {
	_, refused := errors.AsType[*channels.AccountError](err)
	if refused || ctx.Err() != nil || !errors.Is(err, errUnread) {
		return fmt.Errorf("read %s after a gap: %w", place, err)
	}
	f.c.log.WarnContext(ctx, "channel can't be read after a gap now; it is tried again",
		"account", f.c.name, "chat", place, "after", f.c.opts.Postpone, "err", err)
	f.later[place] = time.Now().Add(f.c.opts.Postpone)
	return nil
}

func (f *feed) filled(place string) {
	delete(f.later, place)
	delete(f.gaps, place)
	delete(f.assumed, place)
	f.stale = slices.DeleteFunc(f.stale, func(p string) bool { return p == place })
}

// page stores the next messages of a channel and returns how many there were.
func (f *feed) page(ctx context.Context, place string) (int, error) {
	query := url.Values{
		"limit": {strconv.Itoa(pageSize)},
		"after": {strconv.FormatUint(f.cursors[place], 10)},
	}
	var list []json.RawMessage // one that is not understood must not spoil the others
	err := f.patient(ctx, func() error {
		address := discordgo.EndpointChannelMessages(url.PathEscape(place)) + "?" + query.Encode()
		return f.c.ask(ctx, http.MethodGet, address, nil, &list)
	})
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errUnread, err)
	}
	var items []item
	last := f.cursors[place]
	for _, raw := range list {
		m := new(message)
		err := json.Unmarshal(raw, m)
		last = max(last, number(m.ID))
		if err != nil {
			f.c.log.WarnContext(ctx, "message skipped: not understood",
				"account", f.c.name, "chat", place, "id", m.ID)
			continue
		}
		items = append(items, item{message: m})
	}
	if last == f.cursors[place] {
		return 0, nil
	}
	slices.SortFunc(items, func(a, b item) int { // Discord lists the newest first
		return cmp.Compare(number(a.message.ID), number(b.message.ID))
	})
	b, err := f.batch(ctx, place, items)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errUnread, err)
	}
	b.Cursor = strconv.FormatUint(last, 10)
	return len(list), f.publish(ctx, b)
}

// patience is how often a call is made again that fails in a way that may pass: one hiccup must not
// end the connection, and with it the reading of all other channels.
const patience = 4

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
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// batch translates what happened in one channel.
func (f *feed) batch(ctx context.Context, place string, items []item) (channels.Batch, error) {
	b := channels.Batch{Place: place}
	last := uint64(0)
	for _, it := range items {
		var m bus.InboundMessage
		ok, err := false, error(nil)
		if it.press != nil {
			m, ok, err = f.pressed(ctx, it.press)
		} else {
			if !it.edit {
				last = max(last, number(it.message.ID))
			}
			m, ok, err = f.inbound(ctx, it.message, it.edit)
		}
		if err != nil {
			return b, err
		}
		if ok {
			b.Messages = append(b.Messages, m)
		}
	}
	if last > f.cursors[place] { // else it was read after a gap, too
		b.Cursor = strconv.FormatUint(last, 10)
	}
	return b, nil
}

func (f *feed) publish(ctx context.Context, b channels.Batch) error {
	if err := f.in.Publish(ctx, b); err != nil {
		return fmt.Errorf("store %d messages: %w", len(b.Messages), err)
	}
	if n := number(b.Cursor); n > 0 {
		f.cursors[b.Place] = n
	}
	return nil
}

// isNews reports whether an edited message says something else than before, as far as we
// remember, and remembers what it says.
func (f *feed) isNews(m *message) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(m.Content)) // it never fails
	before, known := f.said.get(m.ID)
	f.said.put(m.ID, h.Sum64())
	return !known || before != h.Sum64()
}

// number returns an id as a number, or 0. Later ids are larger.
func number(id string) uint64 {
	n, _ := strconv.ParseUint(id, 10, 64) // no number: no id
	return n
}

// A cache keeps the values that were put last.
type cache[V any] struct {
	max    int
	values map[string]V
	order  []string // keys, oldest first
}

func newCache[V any](size int) *cache[V] {
	return &cache[V]{max: size, values: make(map[string]V)}
}

func (c *cache[V]) get(key string) (V, bool) {
	v, ok := c.values[key]
	return v, ok
}

func (c *cache[V]) put(key string, v V) {
	if _, ok := c.values[key]; !ok {
		if len(c.order) >= c.max {
			delete(c.values, c.order[0])
			c.order = c.order[1:]
		}
		c.order = append(c.order, key)
	}
	c.values[key] = v
}
