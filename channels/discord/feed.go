package discord

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"time"

	"gateway/channels"
)

const (
	maxBatch   = 100 // messages of a channel in one transaction
	maxWriters = 32  // channels whose live messages are stored concurrently
	maxReaders = 8   // channels that are read concurrently after a gap
)

// A feed stores what the shards of one run receive: in order for each channel, and missed messages
// before later ones. Each channel with something to store or read has a worker, so no channel waits
// for another. Messages that workers store at the same time share a commit. The fields below the
// workers belong to the goroutine of run.
type feed struct {
	c       *Channel
	in      channels.Intake
	me      user
	backlog *backlog
	storer  *storer
	search  *search

	workers sync.WaitGroup
	done    chan *job // jobs that are done; run takes each of them
	writing int       // workers that store live messages
	reading int       // workers that read after a gap
	keeping int       // workers that store a provisional cursor

	lanes   map[string]*lane // by channel
	live    []*lane          // lanes with something to store, oldest first
	stale   []*lane          // lanes with a gap, last one first
	unkept  []*lane          // lanes that need a provisional cursor, oldest first
	since   uint64           // start for listed channels without a cursor; 0: don't read them
	session int              // number of sessions that began with a gap
}

// A lane is a channel and its waiting events.
type lane struct {
	place   string
	cursor  uint64    // last stored message
	assumed uint64    // a missed message, if no cursor is stored
	items   []item    // those that its worker does not have
	busy    bool      // it has a worker
	queued  bool      // it is in live
	gap     bool      // it is in stale
	unkept  bool      // it is in unkept, and gets no worker yet
	later   time.Time // when to read it, if a try has failed; zero: at once
	hold    time.Time // when to store its events, if a look-up was limited; zero: at once

	provisional uint64 // stored provisional cursor, or 0
}

// An item is an event of a channel.
type item struct {
	message *message     // or nil
	press   *interaction // or nil
	edit    bool         // message is an edit
}

func newFeed(c *Channel, in channels.Intake, me user, cursors map[string]string) *feed {
	places := newDirectory(c, me.ID)
	f := &feed{
		c: c, in: in, me: me,
		backlog: newBacklog(c.opts.Queue, &c.missed),
		storer:  &storer{c: c, in: in, places: places, events: newTranslator(c.name, me, places)},
		search:  &search{c: c, places: places, found: make(chan []place)},
		done:    make(chan *job),
		lanes:   make(map[string]*lane, len(cursors)),
	}
	for place, cursor := range cursors {
		// Every cursor of this channel belongs to a place. The key "" is not one.
		n, provisional := parseCursor(cursor)
		if n == 0 || place == "" {
			continue
		}
		l := f.lane(place)
		if l.cursor = n; provisional {
			l.assumed, l.provisional = n+1, n
		}
	}
	f.since = f.newest()
	for place, id := range c.missed.drain() {
		// Reading begins after the cursor, so this reads the missed message.
		if l := f.lane(place); l.cursor == 0 {
			l.cursor, l.assumed = id-1, id
		}
	}
	return f
}

// lane returns the lane of a channel, which it creates if necessary.
func (f *feed) lane(place string) *lane {
	l := f.lanes[place]
	if l == nil {
		l = &lane{place: place}
		f.lanes[place] = l
	}
	return l
}

// end records the messages that were not stored. It is called after all shards and workers have
// ended.
func (f *feed) end() {
	f.storer.acks.Wait()
	f.backlog.lose()
	for place, l := range f.lanes {
		for _, it := range l.items {
			if it.message != nil && !it.edit && idNumber(it.message.ID) > 0 {
				f.c.missed.put(place, idNumber(it.message.ID))
			}
		}
		// The lane was to be read from a message that is not stored. The next run must read it,
		// too.
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
	for f.writing+f.reading+f.keeping > 0 {
		// Each worker waits until its job is taken. finish gives unfinished items back to their
		// lane, for end.
		_ = f.finish(<-f.done) // err was first
	}
	f.workers.Wait()
	return err
}

// loop does the work of run, except waiting for the workers at the end.
func (f *feed) loop(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(f.begin(ctx))
		select {
		case e := <-f.backlog.events:
			f.assign(ctx, e)
			// Events that wait already go into the same batches.
			for range len(f.backlog.events) {
				f.assign(ctx, <-f.backlog.events)
			}
		case j := <-f.done:
			if err := f.finish(j); err != nil {
				return err
			}
		case list := <-f.search.found:
			f.add(list)
		case <-timer.C:
		case <-f.backlog.full:
			return errFull
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin starts workers for waiting lanes. It returns the time until the next check.
func (f *feed) begin(ctx context.Context) time.Duration {
	wait := time.Hour
	for len(f.unkept) > 0 && f.keeping < maxWriters {
		l := f.unkept[0]
		f.unkept = f.unkept[1:]
		f.keep(ctx, l)
	}
	// A reader also stores the waiting events of its lane, after the missed ones.
	for _, l := range slices.Backward(f.stale) {
		if f.reading >= maxReaders {
			break
		}
		if left := time.Until(l.later); left > 0 {
			wait = min(wait, left)
		} else if !l.busy && !l.unkept {
			f.start(ctx, l, true)
		}
	}
	var held []*lane // they stay in live
	for len(f.live) > 0 && f.writing < maxWriters {
		l := f.live[0]
		f.live = f.live[1:]
		if left := time.Until(l.hold); left > 0 {
			wait, held = min(wait, left), append(held, l)
			continue
		}
		l.queued = false
		// A lane with a gap waits for its reader. If the reader must wait itself, only presses are
		// left in the lane: see drop.
		if !l.busy && !l.unkept && len(l.items) > 0 && (!l.gap || time.Until(l.later) > 0) {
			f.start(ctx, l, false)
		}
	}
	f.live = append(f.live, held...)
	return wait
}

// start starts a worker for the oldest items of a lane. A reader also reads the missed messages.
func (f *feed) start(ctx context.Context, l *lane, reader bool) {
	n := min(len(l.items), maxBatch)
	// The worker's slice ends with its part, so an append can't overwrite the rest of the lane.
	j := &job{place: l.place, cursor: l.cursor, assumed: l.assumed, since: f.since,
		items: l.items[:n:n], reader: reader, session: f.session, gap: reader,
		provisional: l.provisional}
	l.items, l.busy = l.items[n:], true
	if reader && l.cursor == 0 && l.provisional > 0 {
		j.cursor, j.assumed = l.provisional, l.provisional+1
	}
	if l.gap && !reader {
		j.since = 0 // store only presses for now
	}
	if reader {
		f.reading++
	} else {
		f.writing++
	}
	f.workers.Go(func() {
		j.err = f.storer.do(ctx, j)
		f.done <- j
	})
}

// finish records the result of a worker.
func (f *feed) finish(j *job) error {
	if j.keeper {
		return f.kept(j)
	}
	l := f.lanes[j.place]
	l.busy, l.cursor, l.assumed, l.provisional = false, j.cursor, j.assumed, j.provisional
	if j.reader {
		f.reading--
	} else {
		f.writing--
	}
	if j.err != nil {
		// The run ends with this error. end must see the items.
		l.items = slices.Concat(j.items, l.items)
		return j.err
	}
	f.backlog.remove(len(j.items) - len(j.left))
	l.items, l.hold = slices.Concat(j.left, l.items), j.hold
	switch {
	case j.wait > 0:
		l.later = time.Now().Add(j.wait)
		if !l.gap {
			l.gap, f.stale = true, append(f.stale, l)
		}
		f.drop(l)
	case j.reader && j.session == f.session && (j.read || j.cursor == 0):
		// If another session has begun meanwhile, there is another gap, and the lane stays in
		// stale.
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
	f.backlog.remove(n - len(l.items))
}

// enqueue puts a lane with waiting events at the end of live, unless it is there. If the lane needs
// a provisional cursor, enqueue puts it at the end of unkept instead.
func (f *feed) enqueue(l *lane) {
	if !l.unkept && f.provisional(l) > 0 {
		l.unkept, f.unkept = true, append(f.unkept, l)
	}
	if len(l.items) > 0 && !l.queued && !l.unkept {
		l.queued, f.live = true, append(f.live, l)
	}
}

// assign gives an event to its lane.
func (f *feed) assign(ctx context.Context, e event) {
	if e.kind == "READY" || e.kind == "RESUMED" {
		f.backlog.remove(1)
		f.connected(ctx, e.kind == "READY")
		return
	}
	place, it, err := decode(e)
	if err != nil {
		f.backlog.remove(1)
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

// decode returns the channel of an event and the event as an item.
func decode(e event) (place string, it item, err error) {
	if e.kind == "INTERACTION_CREATE" {
		it.press = new(interaction)
		err = json.Unmarshal(e.data, it.press)
		return it.press.Channel, it, err
	}
	it.message, it.edit = new(message), e.kind == "MESSAGE_UPDATE"
	err = json.Unmarshal(e.data, it.message)
	it.message.live = true // unlike the messages that storer.page reads
	return it.message.Channel, it, err
}

// add records the listed channels and threads to read although they have no cursor.
func (f *feed) add(list []place) {
	for i := range list {
		l := f.lane(list[i].ID)
		if l.cursor > 0 || l.busy || len(l.items) > 0 {
			continue // it is known or will be: see storer.checkNew
		}
		// Nothing is stored, so the position is only assumed until the channel is read.
		l.cursor, l.assumed, l.gap = f.since, f.since+1, true
		f.stale = append(f.stale, l)
		f.enqueue(l)
	}
}

// connected records that a session has begun after a gap, or was resumed without one.
func (f *feed) connected(ctx context.Context, gap bool) {
	f.in.Report(channels.Connected, "connected as "+f.me.name())
	f.c.log.InfoContext(ctx, "discord connected", "account", f.c.name,
		"username", f.me.Username, "resumed", !gap)
	if !gap {
		return
	}
	// Readers that are at work began before this gap, and finish does not count their result.
	f.session++
	f.stale = f.stale[:0]
	for _, l := range f.lanes {
		l.later = time.Time{}
		if l.gap = l.cursor > 0 || l.busy || len(l.items) > 0; l.gap {
			f.stale = append(f.stale, l)
			f.enqueue(l)
		}
	}
	slices.SortFunc(f.stale, func(a, b *lane) int {
		return cmp.Compare(a.cursor, b.cursor) // channels with the newest messages first
	})
	// A new account has no position until its first message is stored.
	f.since = cmp.Or(f.since, f.newest())
	if since := f.since; since > 0 && len(*f.c.groups.Load()) > 0 {
		f.workers.Go(func() { f.search.run(ctx, since) })
	}
}

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
	// The bits of an id above the lowest 22 are its time in milliseconds: see madeAt.
	if before := uint64(overlap.Milliseconds()) << 22; last > before {
		return last - before
	}
	return last
}

// idNumber returns an id as a number, or 0. Newer ids are larger.
func idNumber(id string) uint64 {
	n, _ := strconv.ParseUint(id, 10, 64) // not a number: 0
	return n
}
