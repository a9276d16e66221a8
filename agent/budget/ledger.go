// Package budget counts the tokens and dollars that language models use, and refuses a call that
// would exceed a limit.
//
// The main type is [Ledger]. Each day has a row for each model, person and session, and one for the
// sum, so that the cost of a check does not grow with the usage. While turns have a limit, a turn
// and its sub-agents share a row. The ledger holds in memory the reservations of calls under way
// and the usage that is not written yet, so that concurrent calls cannot exceed a limit together.
//
// [Ratios] are the learnt numbers of bytes per token of each model.
//
// Tables: usage, usage_turns, usage_ratios.
package budget

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/store"
)

// Migration creates the tables of this package.
var Migration = store.Migration{Package: "usage", Steps: []string{`
CREATE TABLE usage (
	day    TEXT NOT NULL, -- in the gateway's time zone, as 2006-01-02
	kind   TEXT NOT NULL, -- day, model, person or session
	key    TEXT NOT NULL, -- which of that kind
	calls  BIGINT NOT NULL,
	input  BIGINT NOT NULL, -- tokens, as output and cached
	output BIGINT NOT NULL,
	cached BIGINT NOT NULL,
	cost   DOUBLE PRECISION NOT NULL, -- dollars
	told   INTEGER NOT NULL DEFAULT 0, -- 1: the owner knows that the limit is near
	PRIMARY KEY (day, kind, key)
);`, `
CREATE TABLE usage_turns (
	turn   BIGINT PRIMARY KEY,
	day    TEXT NOT NULL, -- on which something was added last
	tokens BIGINT NOT NULL, -- of the turn and its sub-agents, as cost
	cost   DOUBLE PRECISION NOT NULL -- dollars
);
CREATE INDEX usage_turns_day ON usage_turns (day);`, `
CREATE TABLE usage_ratios (
	model TEXT PRIMARY KEY,
	bytes DOUBLE PRECISION NOT NULL -- that a token of it has, as its prompts have shown
);`, `
-- For erasing, which must not read the usage of everybody.
CREATE INDEX usage_key ON usage (key, kind);`}}

// ErrExceeded is wrapped by the errors of [Ledger.Reserve].
var ErrExceeded = errors.New("budget spent")

// A Limit bounds a usage. A zero field means no limit.
type Limit struct {
	Tokens  int // input and output together
	Dollars float64
}

func (l Limit) zero() bool { return l == Limit{} }

// Share returns one nth of l. A limit never becomes 0, because that would mean no limit.
func (l Limit) Share(n int) Limit {
	return Limit{max(l.Tokens/n, min(l.Tokens, 1)), l.Dollars / float64(n)}
}

// Exceeded reports whether an amount exceeds l.
func (l Limit) Exceeded(a Amount) bool {
	return l.Tokens > 0 && a.Tokens > l.Tokens || l.Dollars > 0 && a.Cost > l.Dollars
}

// Used describes how much of l an amount is.
func (l Limit) Used(a Amount) string {
	tokens := strconv.Itoa(a.Tokens)
	if l.Tokens > 0 {
		tokens += " of " + strconv.Itoa(l.Tokens)
	}
	dollars := fmt.Sprintf("$%.4f", a.Cost)
	if l.Dollars > 0 {
		dollars += fmt.Sprintf(" of $%.2f", l.Dollars)
	}
	return tokens + " tokens, " + dollars
}

// isNear reports whether an amount is at least 80 % of l.
func (l Limit) isNear(a Amount) bool {
	return l.Tokens > 0 && a.Tokens*5 >= l.Tokens*4 || l.Dollars > 0 && a.Cost*5 >= l.Dollars*4
}

// An Amount is a usage.
type Amount struct {
	Tokens int
	Cost   float64 // dollars
}

func (a Amount) plus(b Amount) Amount { return Amount{a.Tokens + b.Tokens, a.Cost + b.Cost} }

// Options are the optional settings of a [Ledger]. The zero value counts and bounds nothing.
type Options struct {
	Turn    Limit // of one turn, its sub-agents together
	Session Limit // of a conversation in a day, its sub-agents together
	Person  Limit // of a person in a day, across platforms; of others per sender
	Day     Limit // of the gateway in a day

	// Price returns the price of a usage of a model in dollars; default 0.
	Price func(model string, u llm.Usage) float64

	Location *time.Location   // time zone whose midnight begins a day; default UTC
	Now      func() time.Time // default time.Now
}

// A Ledger counts usage. It is safe for concurrent use.
type Ledger struct {
	opts atomic.Pointer[Options]

	mu       sync.Mutex
	held     map[key]map[*Reservation]struct{} // by undated key; reserved, or used but not written
	released int                               // number of released holds
	readers  int                               // calls that are reading usage
	freed    []freed                           // holds released during such a read
}

// New returns a Ledger. A nil opts means the defaults.
func New(opts *Options) *Ledger {
	l := &Ledger{held: make(map[key]map[*Reservation]struct{})}
	l.Configure(opts)
	return l
}

// Configure replaces the options. Reservations and counts stay.
func (l *Ledger) Configure(opts *Options) {
	o := *cmp.Or(opts, new(Options))
	o.Location = cmp.Or(o.Location, time.UTC)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Price == nil {
		o.Price = func(string, llm.Usage) float64 { return 0 }
	}
	l.opts.Store(&o)
}

// Price returns the price of a usage of a model in dollars.
func (l *Ledger) Price(model string, u llm.Usage) float64 { return l.opts.Load().Price(model, u) }

// TurnLimit returns the limit of one turn and its sub-agents.
func (l *Ledger) TurnLimit() Limit { return l.opts.Load().Turn }

// A Spender is the owner of a usage.
type Spender struct {
	Session bus.Session // without its sub-agents; zero: none
	Person  int64       // 0: unknown
	Sender  string      // account and platform's id of a sender without a Person; "": nobody
	Turn    int64       // the turn that did it, or for which a sub-agent did; 0: none
}

// person returns the key of the spender's account, or "" if there is none. For a sender
// who is not a known person it is a hash. The hash identifies nobody, and survives
// /forget, which would otherwise reset the sender's budget.
func (s Spender) person() string {
	switch {
	case s.Person != 0:
		return strconv.FormatInt(s.Person, 10)
	case s.Sender == "":
		return ""
	}
	sum := sha256.Sum256([]byte(s.Sender))
	return "sender-" + hex.EncodeToString(sum[:8])
}

// key identifies an account to which usage is written.
type key struct {
	day, kind, key string
	turn           int64 // for a turn, instead of day and key: midnight does not reset it
}

// undated returns k without the day. The usage of a call counts for the day on which it is written,
// so until then its reservation counts for any day.
func (k key) undated() key {
	k.day = ""
	return k
}

// Kinds of accounts.
const (
	kindDay     = "day"
	kindModel   = "model"
	kindPerson  = "person"
	kindSession = "session"
	kindTurn    = "turn"
)

func (l *Ledger) day() string {
	o := l.opts.Load()
	return o.Now().In(o.Location).Format(time.DateOnly)
}

// bounded returns the accounts of who that have a limit.
func (l *Ledger) bounded(day string, who Spender) map[key]Limit {
	limits := make(map[key]Limit, 4)
	add := func(kind, k string, limit Limit) {
		if !limit.zero() {
			limits[key{day: day, kind: kind, key: k}] = limit
		}
	}
	o := l.opts.Load()
	add(kindDay, "", o.Day)
	if !who.Session.IsZero() {
		add(kindSession, who.Session.String(), o.Session)
	}
	if person := who.person(); person != "" {
		add(kindPerson, person, o.Person)
	}
	if who.Turn != 0 && !o.Turn.zero() {
		limits[key{kind: kindTurn, turn: who.Turn}] = o.Turn
	}
	return limits
}

// A Reservation is an amount that is reserved, or used but not written yet. It is not safe for
// concurrent use.
type Reservation struct {
	ledger *Ledger
	keys   []key  // undated
	amount Amount // protected by ledger.mu
}

// freed is a released reservation with its number.
type freed struct {
	nth    int
	keys   []key
	amount Amount
}

// Reserve reserves an amount for a call that is about to be made. It returns an error that
// wraps [ErrExceeded] if a limit does not allow it.
func (l *Ledger) Reserve(q store.Queryer, who Spender, amount Amount) (*Reservation, error) {
	limits := l.bounded(l.day(), who)
	l.mu.Lock()
	released := l.released
	l.readers++
	l.mu.Unlock()
	used, err := readAll(q, limits)
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.readDone()
	if err == nil {
		// A row that was written during this read may or may not be in its result. Counting it
		// twice errs on the safe side, by a few calls.
		for _, f := range l.freed {
			for k := range used {
				if f.nth > released && slices.Contains(f.keys, k.undated()) {
					used[k] = used[k].plus(f.amount)
				}
			}
		}
		return l.hold(limits, used, amount)
	}
	return nil, err
}

// readDone discards released holds when no read is in progress. The caller holds l.mu.
func (l *Ledger) readDone() {
	if l.readers--; l.readers == 0 {
		l.freed = nil
	}
}

func readAll(q store.Queryer, limits map[key]Limit) (map[key]Amount, error) {
	used := make(map[key]Amount, len(limits))
	for k := range limits {
		a, err := read(q, k)
		if err != nil {
			return nil, err
		}
		used[k] = a
	}
	return used, nil
}

// hold reserves an amount, if the limits allow it in addition to the used and reserved amounts. The
// caller holds l.mu.
func (l *Ledger) hold(
	limits map[key]Limit, used map[key]Amount, amount Amount,
) (*Reservation, error) {
	for k, limit := range limits {
		sum := used[k].plus(amount)
		for other := range l.held[k.undated()] {
			sum = sum.plus(other.amount)
		}
		if limit.Exceeded(sum) {
			return nil, fmt.Errorf("%w: the limit of the %s", ErrExceeded, k.kind)
		}
	}
	h := &Reservation{ledger: l, amount: amount}
	for k := range limits {
		k = k.undated()
		h.keys = append(h.keys, k)
		if l.held[k] == nil {
			l.held[k] = make(map[*Reservation]struct{})
		}
		l.held[k][h] = struct{}{}
	}
	return h, nil
}

// Set changes the amount to the actual usage.
func (h *Reservation) Set(amount Amount) {
	h.ledger.mu.Lock()
	defer h.ledger.mu.Unlock()
	h.amount = amount
}

// Release ends the reservation: the amount is unused, or was written to the table.
func (h *Reservation) Release() {
	h.ledger.mu.Lock()
	defer h.ledger.mu.Unlock()
	for _, k := range h.keys {
		delete(h.ledger.held[k], h)
		if len(h.ledger.held[k]) == 0 {
			delete(h.ledger.held, k)
		}
	}
	h.ledger.released++
	if h.ledger.readers > 0 {
		h.ledger.freed = append(h.ledger.freed, freed{h.ledger.released, h.keys, h.amount})
	}
	h.keys = nil
}
