// Package hooks turns posts of other programs to /hooks/NAME into messages to the agent.
//
// The main type is [Handler]. It answers a post with 202 once the message is in the inbox, where it
// is as durable as the messages of people. A repeated post has no effect: one with the same
// idempotency key as long as the inbox has the message, and one with the same HMAC of its body for
// three days if it had a key. The text of a post is foreign. The turn shows it to the model as
// such, and it has the rights that the configuration gives to the hook.
//
// Limits: each hook reads 32 posts at once. Further posts wait for at most 10 seconds, or, where
// the body is the proof, replace the post that has been read for longest. A body must arrive within
// 10 seconds. An idempotency key has at most 200 characters, a message 64 KiB.
//
// Table: hook_signatures.
package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// A Hook is what is to become of what is posted under its name.
type Hook struct {
	Name     string
	To       bus.Address // the conversation that gets the answer
	Secret   string      // "": the hook does not exist
	Auth     Auth        // how who posts shows to know Secret; "": Bearer
	Header   string      // of HMAC: where the signature stands
	Template *Template   // of [ParseTemplate]; nil: the message is what was posted
	Role     bus.Role    // whose rights the message has
	Own      bool        // it is answered in a session of the hook, not in that of To
	Rate     int         // posts in a minute
	MaxBytes int64       // of a post
}

// An Outcome says what has become of a post.
type Outcome string

// The outcomes of a post.
const (
	Accepted     Outcome = "accepted"
	Duplicate    Outcome = "duplicate"    // it was accepted before
	Ignored      Outcome = "ignored"      // its template has made nothing of it
	Unauthorized Outcome = "unauthorized" // the secret or the signature is wrong
	Limited      Outcome = "limited"      // too many posts
	Refused      Outcome = "refused"      // it can't be a message
	Failed       Outcome = "failed"       // it could not be stored
)

// Options are the optional settings of a [Handler].
type Options struct {
	// Done is told what has become of each post to a hook that exists; default nobody is.
	Done func(hook string, o Outcome)

	Patience time.Duration    // with a body, and with a place to read it; default 10 s
	Now      func() time.Time // default time.Now
	Logger   *slog.Logger     // default discards
}

// A Handler serves POST /hooks/{name}.
type Handler struct {
	db    *store.DB
	inbox *bus.Inbox
	opts  Options
	hooks map[string]*entry // by name
}

// An entry is a hook and what is known of its posts.
type entry struct {
	Hook
	places places // a post that is read or stored holds one
	rate   *rate.Limiter

	mu   sync.Mutex
	room room // who reads To, as was known at some time
}

// New returns a Handler. Hooks without a secret don't exist for it.
func New(db *store.DB, inbox *bus.Inbox, list []Hook, opts *Options) *Handler {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.Done == nil {
		o.Done = func(string, Outcome) {}
	}
	if o.Patience == 0 {
		o.Patience = 10 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Handler{db: db, inbox: inbox, opts: o, hooks: make(map[string]*entry)}
	for _, hook := range list {
		if hook.Secret != "" {
			h.hooks[hook.Name] = &entry{Hook: hook, places: newPlaces(),
				rate: rate.NewLimiter(rate.Limit(float64(hook.Rate)/60), hook.Rate)}
		}
	}
	return h
}

// A refusal is why a post is not taken.
type refusal struct {
	code    int // of HTTP
	outcome Outcome
	reason  string        // for who has posted
	after   time.Duration // when it may be tried again; 0: waiting does not help
}

func (r *refusal) Error() string { return r.reason }

// An answer is that to a post that was taken.
type answer struct {
	ID        string `json:"id,omitempty"` // of the message
	Duplicate bool   `json:"duplicate,omitempty"`
	Ignored   bool   `json:"ignored,omitempty"` // there is no message

	outcome Outcome
}

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
	_ = json.NewEncoder(w).Encode(a) // the sender may have gone
}

// refuse answers a post that was not taken.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, e *entry, err error) {
	no, ok := errors.AsType[*refusal](err)
	if !ok && r.Context().Err() != nil {
		no, ok = &refusal{http.StatusServiceUnavailable, Refused, "who has posted is gone", 0}, true
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
	drain(w, r)
	http.Error(w, no.reason, no.code)
}

// How much of a post that was refused is read, and for how long.
const (
	maxDrain  = 1 << 20
	drainTime = time.Second
)

// drain reads what the sender of r still writes: to one who writes to a connection that is closed
// the system may not show the answer that came before.
func drain(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Expect") != "" {
		return // it waits for the answer
	}
	// Writers that know no deadlines are those of tests only.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, r.Body, maxDrain) // a sender of more may miss the answer
}

// serve takes a post.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, e *entry) (answer, error) {
	if e.isBearer() && !e.knows(r.Header.Get("Authorization")) {
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

// read returns the body of r.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, e *entry) ([]byte, error) {
	large := &refusal{http.StatusRequestEntityTooLarge, Refused,
		fmt.Sprintf("want %d bytes at most", e.MaxBytes), 0}
	if r.ContentLength > e.MaxBytes {
		return nil, large
	}
	control := http.NewResponseController(w)
	// Writers that know no deadlines are those of tests only.
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

// pace reports that e was posted to too often.
func (e *entry) pace(now time.Time) error {
	r := e.rate.ReserveN(now, 1)
	if wait := r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return &refusal{http.StatusTooManyRequests, Limited,
			fmt.Sprintf("want %d posts a minute at most", e.Rate), wait}
	}
	return nil
}

// put stores the message of a post.
func (h *Handler) put(ctx context.Context, e *entry, p proof, text string) (answer, error) {
	now := h.opts.Now()
	room, err := h.roomOf(ctx, e, now)
	if err != nil {
		return answer{}, err
	}
	m := e.message(p.key, text, room, now)
	var known string // the ID of the message that this post was before
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

// putNew does so in tx. It returns the ID of the message that the same post has made before, if one
// has.
func (h *Handler) putNew(
	tx *store.Tx, e *entry, p proof, m bus.InboundMessage, now time.Time,
) (string, error) {
	known, err := signedBefore(tx, e.Name, p.signature, now)
	if err != nil || known != "" {
		return known, err
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

// message returns what the agent gets.
func (e *entry) message(key, text string, r room, now time.Time) bus.InboundMessage {
	name := "hook:" + e.Name
	m := bus.InboundMessage{
		ID: name + ":" + key, From: e.To, Sender: bus.Sender{ID: name, Name: e.Name},
		Role: e.Role, Text: text, Time: now, Group: r.group, ChatTitle: r.title, Addressed: true,
		Origin: bus.Origin{Kind: bus.Hook, Label: e.Name},
	}
	if e.Own {
		m.Origin.Session = session.KeyOf(e.To).OfHook(e.Name)
	}
	return m
}

// A room is who reads a conversation: in a group there are more people than one.
type room struct {
	group bool
	title string
	until time.Time // when it is to be looked up again
}

// roomTime is for how long a room is taken to be what it was. Its title may change, and until
// somebody has written there nobody knows whether it is a group.
const roomTime = time.Minute

// roomOf returns who reads the conversation that gets the answer. Platforms say so with what people
// write there, and a post says nothing of it.
func (h *Handler) roomOf(ctx context.Context, e *entry, now time.Time) (room, error) {
	e.mu.Lock()
	known := e.room
	e.mu.Unlock()
	if now.Before(known.until) {
		return known, nil
	}
	group, title, err := h.inbox.Room(h.db.Read(ctx), e.To)
	if err != nil {
		return room{}, err
	}
	known = room{group, title, now.Add(roomTime)}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.room = known
	return known, nil
}
