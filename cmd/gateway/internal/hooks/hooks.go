// Package hooks turns posts of other programs to /hooks/NAME into messages to the agent.
//
// The main type is [Handler]. It answers a post with 202 once the message is in the inbox, where
// it is as durable as the messages of people. A repeated post has no effect. A post is a
// repetition if it has the idempotency key of a message that is still in the inbox, or if it has
// the same HMAC of its body as a post with a key of the last three days. The text of a post is
// foreign: the turn shows it to the model as such, and the message has the role that the
// configuration gives to the hook.
//
// Limits: each hook reads 32 posts at once. Further posts wait for at most 10 seconds. If the
// hook authenticates the body, a further post instead replaces the one whose body has been read
// for the longest time. A body must arrive within 10 seconds. An idempotency key has at most 200
// characters, a message at most 64 KiB.
//
// Table: hook_signatures.
package hooks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// A Hook configures what happens with posts to its name.
type Hook struct {
	Name     string
	To       bus.Address // the conversation that gets the answer
	Secret   string      // "": posts get 404, as for an unknown hook
	Auth     Auth        // how a sender proves that it knows Secret; "": Bearer
	Header   string      // of HMAC: the header with the signature
	Template *Template   // from [ParseTemplate]; nil: the message is the body
	Role     bus.Role    // role of the message
	Own      bool        // the message gets a session of the hook, not the one of To
	Rate     int         // posts per minute
	MaxBytes int64       // maximum size of a post
}

// An Outcome is the result of a post.
type Outcome string

// The outcomes of a post.
const (
	Accepted     Outcome = "accepted"
	Duplicate    Outcome = "duplicate"    // the post was accepted before
	Ignored      Outcome = "ignored"      // the template gave an empty text
	Unauthorized Outcome = "unauthorized" // the secret or the signature is wrong
	Limited      Outcome = "limited"      // too many posts
	Refused      Outcome = "refused"      // the post can't become a message
	Failed       Outcome = "failed"       // the message could not be stored
)

// Options are the optional settings of a [Handler].
type Options struct {
	// Done, if not nil, is called with the outcome of each post to an existing hook.
	Done func(hook string, o Outcome)

	// Address, if not nil, returns the present address of a conversation whose group has moved.
	Address func(bus.Address) bus.Address

	Patience time.Duration    // limit for a body, and for the wait before it; default: 10 s
	Now      func() time.Time // default: time.Now
	Logger   *slog.Logger     // default: discards
}

// A Handler serves POST /hooks/{name}.
type Handler struct {
	db    *store.DB
	inbox *bus.Inbox
	opts  Options
	hooks map[string]*entry // by name
}

// An entry is a hook with the state of its posts.
type entry struct {
	Hook
	places places // a post holds one while it is read and stored
	rate   *rate.Limiter

	mu   sync.Mutex
	room room // cached properties of the conversation To
}

// New returns a Handler for the hooks in list. It ignores hooks without a secret.
func New(db *store.DB, inbox *bus.Inbox, list []Hook, opts *Options) *Handler {
	o := *cmp.Or(opts, new(Options))
	if o.Done == nil {
		o.Done = func(string, Outcome) {}
	}
	if o.Address == nil {
		o.Address = func(a bus.Address) bus.Address { return a }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Patience = cmp.Or(o.Patience, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	h := &Handler{db: db, inbox: inbox, opts: o, hooks: make(map[string]*entry)}
	for _, hook := range list {
		if hook.Secret != "" {
			h.hooks[hook.Name] = &entry{Hook: hook, places: places{taken: make(chan struct{}, maxReading)},
				rate: rate.NewLimiter(rate.Limit(float64(hook.Rate)/60), hook.Rate)}
		}
	}
	return h
}

// A refusal is the error for a post that is not accepted.
type refusal struct {
	code    int // HTTP status
	outcome Outcome
	reason  string        // for the sender
	after   time.Duration // for Retry-After; 0: none, retrying does not help
}

func (r *refusal) Error() string { return r.reason }

// An answer is the response to an accepted post.
type answer struct {
	ID        string `json:"id,omitempty"` // id of the message
	Duplicate bool   `json:"duplicate,omitempty"`
	Ignored   bool   `json:"ignored,omitempty"` // the post made no message

	outcome Outcome
}

// ServeHTTP answers with 202 once the message is stored, since its turn runs later.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, ok := h.hooks[r.PathValue("name")]
	if !ok {
		http.Error(w, "there is no such hook", http.StatusNotFound)
		return
	}
	a, err := h.serve(w, r, e)
	if err != nil {
		h.refuse(w, r, e, err)
		return
	}
	h.opts.Done(e.Name, a.outcome)
	h.opts.Logger.InfoContext(r.Context(), "hook posted", "hook", e.Name, "id", a.ID,
		"outcome", string(a.outcome))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_ = json.NewEncoder(w).Encode(a) // the sender may have disconnected
}

// refuse writes the response to a post that is not accepted.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, e *entry, err error) {
	no, ok := errors.AsType[*refusal](err)
	if !ok && r.Context().Err() != nil {
		no, ok = &refusal{http.StatusServiceUnavailable, Refused, "the sender is gone", 0}, true
	}
	if !ok {
		h.opts.Logger.ErrorContext(r.Context(), "hook not stored", "hook", e.Name, "err", err)
		no = &refusal{http.StatusServiceUnavailable, Failed, "the gateway can't store it now",
			h.opts.Patience}
	}
	h.opts.Done(e.Name, no.outcome)
	h.opts.Logger.WarnContext(r.Context(), "hook refused", "hook", e.Name,
		"outcome", string(no.outcome), "reason", no.reason)
	if no.after > 0 {
		seconds := int((no.after + time.Second - 1) / time.Second)
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	if no.outcome == Unauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="hook"`)
	}
	w.Header().Set("Connection", "close") // the rest of the body is not read
	// What the sender is still writing is dropped. If the connection were closed first, the sender's
	// system could drop the response. With Expect, the sender writes no body before the response.
	if r.Header.Get("Expect") == "" {
		// Only the ResponseWriters of tests don't support deadlines.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTime))
		_, _ = io.CopyN(io.Discard, r.Body, maxDrain) // a sender of more may not see the response
	}
	http.Error(w, no.reason, no.code)
}

// Limits for reading the rest of a refused post.
const (
	maxDrain  = 1 << 20
	drainTime = time.Second
)

// serve authenticates a post, reads it and stores its message.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, e *entry) (answer, error) {
	if e.isBearer() && !e.hasSecret(r.Header.Get("Authorization")) {
		return answer{}, unauthorized("want the hook's secret: Authorization: Bearer SECRET")
	}
	p, err := e.identify(r.Header)
	if err != nil {
		return answer{}, err
	}
	if err := h.enter(r.Context(), e); err != nil {
		return answer{}, err
	}
	defer e.places.leave()
	body, err := h.read(w, r, e)
	if err != nil {
		return answer{}, err
	}
	if err := e.verify(&p, r.Header, body, h.opts.Now()); err != nil {
		return answer{}, err
	}
	if err := e.pace(h.opts.Now()); err != nil {
		return answer{}, err
	}
	text, err := e.text(r.Header.Get("Content-Type"), body)
	if err != nil {
		return answer{}, err
	}
	if text == "" {
		return answer{Ignored: true, outcome: Ignored}, nil
	}
	return h.put(r.Context(), e, p, text)
}

func unauthorized(reason string) error {
	return &refusal{http.StatusUnauthorized, Unauthorized, reason, 0}
}

// read reads the body of r, within the limits of size and time.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, e *entry) ([]byte, error) {
	large := &refusal{http.StatusRequestEntityTooLarge, Refused,
		fmt.Sprintf("want at most %d bytes", e.MaxBytes), 0}
	if r.ContentLength > e.MaxBytes {
		return nil, large
	}
	control := http.NewResponseController(w)
	// Only the ResponseWriters of tests don't support deadlines.
	_ = control.SetReadDeadline(time.Now().Add(h.opts.Patience))
	done := e.places.begin(func() { _ = control.SetReadDeadline(time.Unix(1, 0)) })
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, e.MaxBytes))
	if done() {
		return nil, h.crowded()
	}
	if err == nil {
		return body, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, large
	}
	timeout, ok := errors.AsType[net.Error](err)
	if ok && timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &refusal{http.StatusRequestTimeout, Refused, "the body takes too long", 0}
	}
	return nil, &refusal{http.StatusBadRequest, Refused, "the body has no end", 0}
}

// pace returns an error if e got too many posts.
func (e *entry) pace(now time.Time) error {
	r := e.rate.ReserveN(now, 1)
	if wait := r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return &refusal{http.StatusTooManyRequests, Limited,
			fmt.Sprintf("want at most %d posts a minute", e.Rate), wait}
	}
	return nil
}

// put stores the message of a post in a transaction.
func (h *Handler) put(ctx context.Context, e *entry, p proof, text string) (answer, error) {
	now := h.opts.Now()
	room, err := h.roomOf(ctx, e, now)
	if err != nil {
		return answer{}, err
	}
	m := e.message(p.key, text, room, now)
	var known string // the ID of an earlier message for the same post
	err = h.db.Tx(ctx, func(tx *store.Tx) (err error) {
		known, err = h.putNew(tx, e, p, m, now)
		return err
	})
	if err != nil {
		return answer{}, err
	}
	if known != "" {
		return answer{ID: known, Duplicate: true, outcome: Duplicate}, nil
	}
	h.inbox.Wake()
	return answer{ID: m.ID, outcome: Accepted}, nil
}

// putNew stores m in tx. If an earlier post with the same proof made a message, it stores nothing
// and returns the ID of that message.
func (h *Handler) putNew(
	tx *store.Tx, e *entry, p proof, m bus.InboundMessage, now time.Time,
) (string, error) {
	known, err := signedBefore(tx, e.Name, p.signature, now)
	if err != nil || known != "" {
		return known, err
	}
	if m.From != e.To { // the group has moved, maybe since an earlier attempt at the post
		if had, err := bus.Has(tx, e.To, m.ID); err != nil || had {
			return m.ID, err
		}
	}
	fresh, err := h.inbox.Put(tx, m, now)
	switch {
	case err != nil:
		return "", err
	case !fresh:
		return m.ID, nil
	case !p.keyed:
		return "", nil
	}
	return "", rememberSignature(tx, e.Name, p.signature, m.ID, now)
}

// message returns the message to the agent.
func (e *entry) message(key, text string, r room, now time.Time) bus.InboundMessage {
	name := "hook:" + e.Name
	m := bus.InboundMessage{
		ID: name + ":" + key, From: r.at, Sender: bus.Sender{ID: name, Name: e.Name},
		Role: e.Role, Text: text, Time: now, Group: r.group, ChatTitle: r.title, Addressed: true,
		Origin: bus.Origin{Kind: bus.Hook, Label: e.Name},
	}
	if e.Own {
		m.Origin.Session = session.KeyOf(r.at).OfHook(e.Name)
	}
	return m
}

// A room describes a conversation: its address, whether it is a group, and its title.
type room struct {
	at    bus.Address
	group bool
	title string
	until time.Time // end of validity
}

// roomTime is how long a room is cached. The title can change, and the gateway knows whether a
// conversation is a group only after somebody has written there.
const roomTime = time.Minute

// roomOf returns the room of the conversation that gets the answer. It comes from the messages
// that people wrote there, because a post contains nothing about it.
func (h *Handler) roomOf(ctx context.Context, e *entry, now time.Time) (room, error) {
	e.mu.Lock()
	known := e.room
	e.mu.Unlock()
	at := h.opts.Address(e.To)
	if at == known.at && now.Before(known.until) {
		return known, nil
	}
	group, title, err := bus.GroupTitle(h.db.Read(ctx), at)
	if err == nil && !group { // perhaps nobody has written since the group has moved
		group, title, err = bus.GroupTitle(h.db.Read(ctx), e.To)
	}
	if err != nil {
		return room{}, err
	}
	known = room{at, group, title, now.Add(roomTime)}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.room = known
	return known, nil
}

// maxReading is the maximum number of posts of a hook that are read or stored at once.
const maxReading = 32

// A places limits the concurrent posts of a hook. If the hook authenticates the body, anybody can
// begin a post and never finish it. Then a new post evicts the one that has been read for the
// longest time.
type places struct {
	taken chan struct{}

	mu      sync.Mutex
	reading []*reading // oldest first
}

// A reading is a post whose body is being read.
type reading struct {
	stop   func() // interrupts reading the body
	gaveUp bool   // the post was evicted
}

// enter waits for a place. The caller gives it back with [places.leave].
func (h *Handler) enter(ctx context.Context, e *entry) error {
	select {
	case e.places.taken <- struct{}{}:
		return nil
	default:
	}
	if !e.isBearer() {
		e.places.evict()
	}
	select {
	case e.places.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(h.opts.Patience):
		return h.crowded()
	}
}

// crowded returns the refusal of a post that got no place.
func (h *Handler) crowded() error {
	return &refusal{http.StatusServiceUnavailable, Limited, "too many posts are under way",
		h.opts.Patience}
}

func (p *places) leave() { <-p.taken }

// begin registers a post whose body is being read; stop interrupts reading. The caller calls done
// when reading has ended. done reports whether the post was evicted. stop is not called after
// done.
func (p *places) begin(stop func()) (done func() (gaveUp bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &reading{stop: stop}
	p.reading = append(p.reading, r)
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.reading = slices.DeleteFunc(p.reading, func(other *reading) bool { return other == r })
		return r.gaveUp
	}
}

// evict interrupts the post whose body has been read for the longest time, if any.
func (p *places) evict() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.reading) == 0 {
		return
	}
	r := p.reading[0]
	p.reading = p.reading[1:]
	r.gaveUp = true
	r.stop()
}
