package channels

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gateway/bus"
	"gateway/store"
)

// An Account is a channel and how it is used.
type Account struct {
	Name      string
	Channel   Channel
	Streaming bool // show answers while they grow, if the channel is an Editor

	// EditInterval is the shortest time between two edits of a preview; 0 is the channel's own.
	EditInterval time.Duration
	// Reaction is the emoji that messages have from their admission to their answer, if the channel
	// is a Reactor; "" for none.
	Reaction string
	// Unlimited sends without regard to the documented rates. What the platform asks for when it
	// refuses is honoured in any case.
	Unlimited bool
}

// A Router brings what is in the outbox to the platforms: in order within a conversation,
// conversations side by side. A conversation has a worker while there is something for it, so
// that a rate limit or an outage delays nobody else.
type Router struct {
	db       *store.DB
	outbox   *bus.Outbox
	live     *bus.Live
	media    *Media
	accounts map[string]*account
	now      func() time.Time
	log      *slog.Logger

	secrets atomic.Pointer[Secrets] // must not be sent

	// Delivered is told of each message that people have now. It is set before Run and must not wait
	// for anything.
	Delivered func(bus.OutboundMessage)

	last  int64 // newest delivery that was handed out; used by Run only
	stats Stats
	beat  atomic.Int64 // when Run last went round, in nanoseconds

	mu    sync.Mutex
	chats map[bus.Address]*chat // a key is present while its worker runs
	open  map[int64]handed      // deliveries that were handed out and are not over
	kept  map[string]messages   // of previews that no worker looks after, by stream
	over  recent                // streams whose end or whose message was handed out

	wg sync.WaitGroup // of the workers and of what they start
}

// handed is a delivery that was handed out.
type handed struct {
	d    *bus.Delivery
	chat *chat // nil if its account is not configured
}

// NewRouter returns a Router for accounts. The files that it sends are in media.
func NewRouter(
	db *store.DB, outbox *bus.Outbox, live *bus.Live, media *Media, accounts []Account,
	log *slog.Logger,
) *Router {
	r := &Router{
		db: db, outbox: outbox, live: live, media: media, now: time.Now, log: log,
		accounts: make(map[string]*account),
		chats:    make(map[bus.Address]*chat),
		open:     make(map[int64]handed),
		kept:     make(map[string]messages),
		over:     recent{set: make(map[string]bool)},

		Delivered: func(bus.OutboundMessage) {},
	}
	r.secrets.Store(new(Secrets))
	for _, a := range accounts {
		r.accounts[a.Name] = newAccount(a, r.now())
	}
	return r
}

// Open returns how many messages of an account are on their way.
func (r *Router) Open(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for to, c := range r.chats {
		if to.Account == name {
			n += len(c.queue)
		}
	}
	return n
}

const (
	// rescanInterval is how soon a delivery is found that another process put back into the queue.
	rescanInterval = 2 * time.Second
	// flushTime is how long messages that can go at once may still take at the end.
	flushTime = 10 * time.Second
)

// Run delivers until ctx ends. What can go then without waiting still goes; the rest stays in
// the outbox. When Run returns, no worker is left. It is called once.
func (r *Router) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, a := range r.accounts {
		r.wg.Go(func() { r.mark(ctx, a) })
	}
	err := r.route(ctx, work)
	if err != nil {
		cancel()
	}
	stop() // the workers, also if the store failed
	timer := time.AfterFunc(flushTime, cancel)
	defer timer.Stop()
	r.wg.Wait()
	if err != nil {
		return fmt.Errorf("channels: route: %w", err)
	}
	return nil
}

func (r *Router) route(ctx, work context.Context) error {
	previews, err := r.outbox.Previews(r.db.Read(work))
	if err != nil {
		return err
	}
	for stream, p := range previews {
		r.kept[stream] = noted(p)
	}
	tick := time.NewTicker(rescanInterval)
	defer tick.Stop()
	for {
		r.beat.Store(time.Now().UnixNano())
		if err := r.takeNew(ctx, work); err != nil {
			return err
		}
		r.takeLive(ctx, work)
		select {
		case <-ctx.Done():
			return r.takeNew(ctx, work)
		case <-r.outbox.C():
		case <-r.live.C():
		case <-tick.C:
			if err := r.rescan(ctx, work); err != nil {
				return err
			}
		}
	}
}

// takeNew hands out the deliveries that came since the last call.
func (r *Router) takeNew(ctx, work context.Context) error {
	for {
		list, err := r.outbox.Open(r.db.Read(work), r.last)
		if err != nil {
			return err
		}
		for i := range list {
			r.handOut(ctx, work, &list[i])
			r.last = list[i].ID
		}
		if len(list) < bus.ReadLimit {
			return nil
		}
	}
}

// rescan hands out older deliveries that a person has put back into the queue, and takes back
// those that a person has dropped.
func (r *Router) rescan(ctx, work context.Context) error {
	ids, err := r.outbox.OpenIDs(r.db.Read(work))
	if err != nil {
		return err
	}
	back, streams := r.compare(ids)
	if len(streams) > 0 {
		if err := r.forget(work, streams); err != nil {
			return err
		}
	}
	for len(back) > 0 {
		list, err := r.outbox.Open(r.db.Read(work), back[0]-1)
		if err != nil || len(list) == 0 {
			return err
		}
		for i := range list {
			if _, ok := slices.BinarySearch(back, list[i].ID); ok {
				r.handOut(ctx, work, &list[i])
			}
		}
		back = slices.DeleteFunc(back, func(id int64) bool { return id <= list[len(list)-1].ID })
	}
	return nil
}

// compare tells the workers which of their deliveries are not among the open ones. It returns the
// streams of those, and the ids of older ones that no worker has.
func (r *Router) compare(open []int64) (back []int64, streams []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range open {
		if _, ok := r.open[id]; !ok && id <= r.last {
			back = append(back, id)
		}
	}
	for id, h := range r.open {
		if _, ok := slices.BinarySearch(open, id); ok {
			continue
		}
		if s := h.d.Message.Stream; s != "" {
			streams = append(streams, s)
		}
		delete(r.open, id)
		if h.chat != nil {
			h.chat.dropped = append(h.chat.dropped, h.d)
			h.chat.ring()
		}
	}
	return back, streams
}

// forget removes what is noted of the previews of streams that no message ends.
func (r *Router) forget(ctx context.Context, streams []string) error {
	return r.db.Tx(ctx, func(tx *store.Tx) error {
		for _, s := range streams {
			if err := r.outbox.ForgetPreview(tx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *Router) handOut(ctx, work context.Context, d *bus.Delivery) {
	a, ok := r.accounts[d.Message.To.Account]
	if !ok {
		// Its account is not configured now. It waits: the owner may bring it back, or drop it.
		r.log.WarnContext(ctx, "message for an account that is not configured",
			"to", d.Message.To.String(), "id", d.ID)
	}
	if d.State == bus.Sending { // an earlier process ended during this try
		r.uncertain(ctx, d)
	}
	h := handed{d: d}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over.add(d.Message.Stream)
	if ok {
		h.chat = r.chat(ctx, work, a, d.Message.To)
		h.chat.queue = append(h.chat.queue, d)
		h.chat.ring()
	}
	r.open[d.ID] = h
}

// uncertain counts a try of d whose outcome is not known.
func (r *Router) uncertain(ctx context.Context, d *bus.Delivery) {
	d.Uncertain++
	r.count(d.Message.To.Account, func(s *Stats) { s.Uncertain.Add(1) })
	r.log.WarnContext(ctx, "message may have been delivered; sending it again",
		"to", d.Message.To.String(), "id", d.ID, "part", len(d.IDs))
}

// takeLive hands out the newest progress of each conversation.
func (r *Router) takeLive(ctx, work context.Context) {
	for _, p := range r.live.Take() {
		to := p.To
		a, ok := r.accounts[to.Account]
		if !ok {
			continue
		}
		r.mu.Lock()
		if _, ok := r.chats[to]; !r.over.has(p.Stream) && (ok || !p.Ended) {
			r.chat(ctx, work, a, to).tell(p)
		}
		if p.Ended {
			r.over.add(p.Stream)
		}
		r.mu.Unlock()
	}
}

// chat returns the worker of a conversation, which it starts if there is none. r.mu is held.
func (r *Router) chat(ctx, work context.Context, a *account, to bus.Address) *chat {
	if c, ok := r.chats[to]; ok {
		return c
	}
	c := &chat{r: r, a: a, to: to, wake: make(chan struct{}, 1)}
	r.chats[to] = c
	r.wg.Go(func() { c.run(ctx, work) })
	return c
}
