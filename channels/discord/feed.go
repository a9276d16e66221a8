package discord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/recent"
)

const (
	maxBatch   = 100 // messages of a channel in one transaction
	maxWriters = 32  // channels whose live messages are stored concurrently
	maxReaders = 8   // channels that are read concurrently after a gap
)

var errFull = errors.New("too many events wait to be stored")

// A feed stores what the shards of one run receive: in order for each channel, and missed messages
// before later ones. Each channel with something to store or read has a worker, so no channel waits
// for another. Messages that workers store at the same time share a commit. The fields below the
// workers belong to the goroutine of run.
type feed struct {
	c       *Channel
	in      channels.Intake
	me      user
	queue   chan event
	pending atomic.Int64  // events that wait to be stored
	full    chan struct{} // closed when an event was lost; later ones are lost, too
	isFull  atomic.Bool
	acks    sync.WaitGroup

	lookups singleflight.Group // requests for guilds
	places  *recent.Map[string, place]
	guilds  *recent.Map[string, guild]
	hidden  *recent.Map[string, bool]   // channels that the bot can't see, or of other guilds
	texts   *recent.Map[string, uint64] // hashes of texts, by message

	workers sync.WaitGroup
	done    chan *job
	found   chan []place // listed channels and threads with new messages
	writing int
	reading int

	lanes   map[string]*lane // by channel
	live    []*lane          // lanes with something to store, oldest first
	stale   []*lane          // lanes with a gap, last one first
	since   uint64           // start for listed channels without a cursor; 0: don't read them
	session int              // number of sessions that began with a gap
}

// A lane is a channel and its waiting events.
type lane struct {
	place   string
	cursor  uint64 // last stored message
	assumed uint64 // a missed message, if no cursor is stored
	items   []item // those that its worker does not have
	busy    bool   // it has a worker
	queued  bool   // it is in live
	gap     bool   // it is in stale
	later   time.Time
}

// A job is the work of a worker for a channel.
type job struct {
	place   string
	cursor  uint64
	assumed uint64
	since   uint64
	items   []item
	reader  bool // it counts as a reader
	session int

	gap  bool          // read the channel before storing the items
	read bool          // result: the channel was read
	wait time.Duration // result: time until reading is retried; 0: no retry
	err  error
}

// An event is an undecoded event from the gateway.
type event struct {
	kind string
	data json.RawMessage
}

// An item is an event of a channel.
type item struct {
	message *message     // or nil
	press   *interaction // or nil
	edit    bool         // message is an edit
}

func newFeed(c *Channel, in channels.Intake, me user, cursors map[string]string) *feed {
	f := &feed{
		c: c, in: in, me: me,
		queue:  make(chan event, c.opts.Queue),
		full:   make(chan struct{}),
		places: recent.New[string, place](2000),
		guilds: recent.New[string, guild](500),
		hidden: recent.New[string, bool](500),
		texts:  recent.New[string, uint64](5000),
		done:   make(chan *job),
		found:  make(chan []place),
		lanes:  make(map[string]*lane, len(cursors)),
	}
	for place, cursor := range cursors {
		if n := idNumber(cursor); n > 0 && place != "" {
			f.lane(place).cursor = n
		}
	}
	f.since = f.newest()
	for place, id := range c.missed.drain() {
		if l := f.lane(place); l.cursor == 0 {
			l.cursor, l.assumed = id-1, id
		}
	}
	return f
}

func (f *feed) lane(place string) *lane {
	l := f.lanes[place]
	if l == nil {
		l = &lane{place: place}
		f.lanes[place] = l
	}
	return l
}

// put queues an event. It never blocks, because heartbeats would not be read meanwhile.
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
	if f.pending.Add(1) > int64(f.c.opts.Queue) {
		f.c.missed.add(e)
		if f.isFull.CompareAndSwap(false, true) {
			close(f.full)
		}
		return
	}
	f.queue <- e // the queue has room for all pending events
}

// end records the messages that were not stored. It is called after all shards and workers have
// ended.
func (f *feed) end() {
	f.acks.Wait()
	for {
		select {
		case e := <-f.queue:
			f.c.missed.add(e)
			continue
		default:
		}
		break
	}
	for place, l := range f.lanes {
		for _, it := range l.items {
			if it.message != nil && !it.edit && idNumber(it.message.ID) > 0 {
				f.c.missed.put(place, idNumber(it.message.ID))
			}
		}
		if l.assumed > 0 {
			f.c.missed.put(place, l.assumed)
		}
	}
}

// run stores events until ctx is done, an event was lost, or an event can't be stored.
func (f *feed) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	err := f.loop(ctx)
	cancel()
	for f.writing+f.reading > 0 {
		_ = f.finish(<-f.done) // err was first
	}
	f.workers.Wait()
	return err
}

func (f *feed) loop(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(f.begin(ctx))
		select {
		case e := <-f.queue:
			f.assign(ctx, e)
			for range len(f.queue) {
				f.assign(ctx, <-f.queue)
			}
		case j := <-f.done:
			if err := f.finish(j); err != nil {
				return err
			}
		case list := <-f.found:
			f.add(list)
		case <-timer.C:
		case <-f.full:
			return errFull
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin starts workers for waiting lanes. It returns the time until the next check.
func (f *feed) begin(ctx context.Context) time.Duration {
	wait := time.Hour
	for _, l := range slices.Backward(f.stale) {
		if f.reading >= maxReaders {
			break
		}
		if left := time.Until(l.later); left > 0 {
			wait = min(wait, left)
		} else if !l.busy {
			f.start(ctx, l, true)
		}
	}
	for len(f.live) > 0 && f.writing < maxWriters {
		l := f.live[0]
		f.live = f.live[1:]
		l.queued = false
		if !l.busy && len(l.items) > 0 && (!l.gap || time.Until(l.later) > 0) {
			f.start(ctx, l, false)
		}
	}
	return wait
}

func (f *feed) start(ctx context.Context, l *lane, reader bool) {
	n := min(len(l.items), maxBatch)
	j := &job{place: l.place, cursor: l.cursor, assumed: l.assumed, since: f.since,
		items: l.items[:n:n], reader: reader, session: f.session, gap: reader}
	l.items, l.busy = l.items[n:], true
	if l.gap && !reader {
		j.since = 0 // store only presses for now
	}
	if reader {
		f.reading++
	} else {
		f.writing++
	}
	f.workers.Go(func() {
		j.err = f.work(ctx, j)
		f.done <- j
	})
}

// finish records the result of a worker.
func (f *feed) finish(j *job) error {
	l := f.lanes[j.place]
	l.busy, l.cursor, l.assumed = false, j.cursor, j.assumed
	if j.reader {
		f.reading--
	} else {
		f.writing--
	}
	if j.err != nil {
		l.items = slices.Concat(j.items, l.items)
		return j.err
	}
	f.pending.Add(-int64(len(j.items)))
	switch {
	case j.wait > 0:
		l.later = time.Now().Add(j.wait)
		if !l.gap {
			l.gap, f.stale = true, append(f.stale, l)
		}
		f.drop(l)
	case j.reader && j.session == f.session && (j.read || j.cursor == 0):
		l.gap = false
		f.stale = slices.DeleteFunc(f.stale, func(s *lane) bool { return s == l })
	}
	f.enqueue(l)
	return nil
}

// drop removes waiting messages that will be read together with the missed ones. Presses stay.
func (f *feed) drop(l *lane) {
	n := len(l.items)
	l.items = slices.DeleteFunc(l.items, func(it item) bool { return it.press == nil })
	f.pending.Add(-int64(n - len(l.items)))
}

func (f *feed) enqueue(l *lane) {
	if len(l.items) > 0 && !l.queued {
		l.queued, f.live = true, append(f.live, l)
	}
}

// assign gives an event to its lane.
func (f *feed) assign(ctx context.Context, e event) {
	if e.kind == "READY" || e.kind == "RESUMED" {
		f.pending.Add(-1)
		f.connected(ctx, e.kind == "READY")
		return
	}
	place, it, err := decode(e)
	if err != nil {
		f.pending.Add(-1)
		// The text of the error would contain a value of the event, which may be a person's text.
		f.c.log.WarnContext(ctx, "event skipped: not understood",
			"account", f.c.name, "event", e.kind)
		return
	}
	l := f.lane(place)
	l.items = append(l.items, it)
	switch {
	case l.gap && time.Until(l.later) > 0:
		f.drop(l)
	case l.gap && !l.busy && f.stale[len(f.stale)-1] != l: // a person is waiting
		f.stale = append(slices.DeleteFunc(f.stale, func(s *lane) bool { return s == l }), l)
	}
	f.enqueue(l)
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

// connected records that a session has begun after a gap, or was resumed without one.
func (f *feed) connected(ctx context.Context, gap bool) {
	f.in.Report(channels.Connected, "connected as "+f.me.name())
	f.c.log.InfoContext(ctx, "discord connected", "account", f.c.name,
		"username", f.me.Username, "resumed", !gap)
	if !gap {
		return
	}
	f.session++
	f.stale = f.stale[:0]
	for _, l := range f.lanes {
		l.later = time.Time{}
		if l.gap = l.cursor > 0 || l.busy || len(l.items) > 0; l.gap {
			f.stale = append(f.stale, l)
		}
	}
	slices.SortFunc(f.stale, func(a, b *lane) int {
		return cmp.Compare(a.cursor, b.cursor) // channels with the newest messages first
	})
	f.since = cmp.Or(f.since, f.newest())
	if since := f.since; since > 0 && len(f.c.opts.Groups) > 0 {
		f.workers.Go(func() { f.discover(ctx, since) })
	}
}

// work does j: it stores what the gateway sent, after the missed messages.
func (f *feed) work(ctx context.Context, j *job) error {
	if err := f.checkNew(ctx, j); err != nil {
		return err
	}
	if j.gap && j.cursor > 0 {
		if err := f.fill(ctx, j); err != nil {
			return err
		}
	}
	items := j.items
	if j.wait > 0 { // messages will be read together with the missed ones; presses will not
		items = slices.DeleteFunc(slices.Clone(items), func(it item) bool { return it.press == nil })
	}
	b, err := f.batch(ctx, j, items)
	if err != nil || len(b.Messages) == 0 {
		return err
	}
	unanswered := make(map[string]string)
	b.Unanswered = func(id, say string) { unanswered[id] = say }
	if err := f.publish(ctx, j, b); err != nil {
		return err
	}
	for _, it := range items {
		if it.press != nil {
			say := unanswered[pressID(it.press)]
			f.acks.Go(func() { f.c.acknowledge(ctx, it.press, say) })
		}
	}
	return nil
}

// batch translates the events of one channel.
func (f *feed) batch(ctx context.Context, j *job, items []item) (channels.Batch, error) {
	b := channels.Batch{CursorKey: j.place}
	last := uint64(0)
	for _, it := range items {
		var m bus.InboundMessage
		ok, err := false, error(nil)
		if it.message != nil && !it.edit {
			last = max(last, idNumber(it.message.ID))
		}
		tried := f.in.Recover(ctx, func() {
			if it.press != nil {
				m, ok, err = f.pressed(ctx, it.press)
			} else {
				m, ok, err = f.inbound(ctx, it.message, it.edit)
			}
		})
		if !tried {
			continue
		}
		if err != nil {
			return b, err
		}
		if ok {
			b.Messages = append(b.Messages, m)
		}
	}
	if last > j.cursor { // otherwise it was also read after a gap
		b.Cursor = strconv.FormatUint(last, 10)
	}
	return b, nil
}

func (f *feed) publish(ctx context.Context, j *job, b channels.Batch) error {
	if err := f.in.Publish(ctx, b); err != nil {
		return fmt.Errorf("store %d messages: %w", len(b.Messages), err)
	}
	if n := idNumber(b.Cursor); n > 0 {
		j.cursor = n
	}
	return nil
}

// isNews reports whether an edited message has a new text, as far as we remember, and remembers the
// text.
func (f *feed) isNews(m *message) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(m.Content)) // it never fails
	before, known := f.texts.Get(m.ID)
	f.texts.Put(m.ID, h.Sum64())
	return !known || before != h.Sum64()
}

// idNumber returns an id as a number, or 0. Newer ids are larger.
func idNumber(id string) uint64 {
	n, _ := strconv.ParseUint(id, 10, 64) // not a number: 0
	return n
}
