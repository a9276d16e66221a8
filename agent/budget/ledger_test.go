package budget

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/bus/bustest"
	"gateway/store"
	"gateway/store/plantest"
)

var named = bustest.Session

// A fixture is a ledger with its own database and a clock.
type fixture struct {
	*testing.T
	*Ledger
	db  *store.DB
	now time.Time
}

func newFixture(t *testing.T, o Options) *fixture {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "u.db"),
		[]store.Migration{Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &fixture{T: t, db: db, now: time.Date(2026, 2, 16, 12, 0, 0, 0, time.UTC)}
	o.Now = func() time.Time { return f.now }
	f.Ledger = New(&o)
	return f
}

func (f *fixture) read() store.Queryer { return f.db.Read(f.Context()) }

// add writes a usage and returns the warnings, each as "kind key passed".
func (f *fixture) add(who Spender, e Entry) (warned []string) {
	f.Helper()
	err := f.db.Tx(f.Context(), func(tx *store.Tx) error {
		list, err := f.Add(tx, who, e)
		warned = nil
		for _, w := range list {
			warned = append(warned, fmt.Sprintf("%s %q %t", w.Kind, w.Key, w.Passed))
		}
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	return warned
}

// reserve sets an amount aside. It returns nil if the amount exceeds a limit.
func (f *fixture) reserve(who Spender, a Amount) *Reservation {
	f.Helper()
	h, err := f.Reserve(f.read(), who, a)
	if err != nil && !errors.Is(err, ErrExceeded) {
		f.Fatal(err)
	}
	return h
}

func tokens(n int) Entry { return Entry{Model: "m", Calls: 1, Usage: llm.Usage{Input: n}} }

func TestReserve(t *testing.T) {
	ada := Spender{Session: named("test/a"), Person: 1}
	bob := Spender{Session: named("test/b"), Person: 2}
	for _, test := range []struct {
		name  string
		opts  Options
		used  Entry // the usage of ada
		who   Spender
		want  Amount
		spent bool
	}{
		{name: "no limit", used: tokens(1e9), who: ada, want: Amount{Tokens: 1e9, Cost: 1e9}},
		{name: "exactly", opts: Options{Day: Limit{Tokens: 100}}, used: tokens(60), who: ada,
			want: Amount{Tokens: 40}},
		{name: "one too much", opts: Options{Day: Limit{Tokens: 100}}, used: tokens(60), who: ada,
			want: Amount{Tokens: 41}, spent: true},
		{name: "dollars", opts: Options{Day: Limit{Dollars: 1}}, used: Entry{Cost: 0.75}, who: ada,
			want: Amount{Tokens: 1e9, Cost: 0.5}, spent: true},
		{name: "the day is everybody's", opts: Options{Day: Limit{Tokens: 100}}, used: tokens(100),
			who: bob, want: Amount{Tokens: 1}, spent: true},
		{name: "a session is its own", opts: Options{Session: Limit{Tokens: 100}}, used: tokens(100),
			who: bob, want: Amount{Tokens: 100}},
		{name: "of a session", opts: Options{Session: Limit{Tokens: 100}}, used: tokens(100),
			who: Spender{Session: named("test/a"), Person: 2}, want: Amount{Tokens: 1}, spent: true},
		{name: "of a person", opts: Options{Person: Limit{Tokens: 100}}, used: tokens(100),
			who: Spender{Session: named("test/b"), Person: 1}, want: Amount{Tokens: 1}, spent: true},
		{name: "of a sender", opts: Options{Person: Limit{Tokens: 100}}, used: tokens(100),
			who:  Spender{Session: named("test/b"), Sender: "test/9"},
			want: Amount{Tokens: 100}},
		{name: "of a sender who is no person", opts: Options{Person: Limit{Tokens: 100}},
			who:  Spender{Session: named("test/b"), Sender: "test/9"},
			want: Amount{Tokens: 101}, spent: true},
		{name: "nobody known is no person", opts: Options{Person: Limit{Tokens: 100}},
			used: tokens(100), who: Spender{Session: named("test/b")}, want: Amount{Tokens: 101}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, test.opts)
			f.add(ada, test.used)
			if h := f.reserve(test.who, test.want); (h == nil) != test.spent {
				t.Errorf("Reserve gave %v, want that it is spent: %t", h, test.spent)
			}
		})
	}
}

// A reserved amount counts until it is released or its usage is written. After that, the ledger
// holds nothing of it.
func TestHolds(t *testing.T) {
	who := Spender{Session: named("test/a"), Person: 1}
	for _, unit := range []Amount{{Tokens: 10}, {Cost: 10}, {Tokens: 10, Cost: 10}} {
		f := newFixture(t, Options{Day: Limit{Tokens: 35, Dollars: 35}, Session: Limit{Tokens: 1000}})
		one, two, three := f.reserve(who, unit), f.reserve(who, unit), f.reserve(who, unit)
		if one == nil || two == nil || three == nil || f.reserve(who, unit) != nil {
			t.Fatalf("%v: want room for three calls of four", unit)
		}
		one.Release()
		if one = f.reserve(who, unit); one == nil || f.reserve(who, unit) != nil {
			t.Errorf("%v: want room for one call after one was given back", unit)
		}
		two.Set(Amount{Tokens: 15, Cost: 15}) // the call used more than was reserved
		three.Release()
		if f.reserve(who, unit) == nil {
			t.Errorf("%v: want room for one call more", unit)
		}
		if f.reserve(who, unit) != nil {
			t.Errorf("%v: want no room for two", unit)
		}
		f = newFixture(t, Options{Day: Limit{Tokens: 1}, Session: Limit{Tokens: 1}})
		if h := f.reserve(who, Amount{Tokens: 1}); h != nil {
			h.Release()
			h.Release() // a second Release does nothing
		}
		if n := len(f.held); n != 0 {
			t.Errorf("%v: %d accounts are held after the last call, want none", unit, n)
		}
	}
}

// afterFirstRead is a Queryer that calls fn once, after the first read.
type afterFirstRead struct {
	store.Queryer
	do *sync.Once
	fn func()
}

func (b afterFirstRead) QueryRow(query string, args ...any) *sql.Row {
	row := b.Queryer.QueryRow(query, args...)
	b.do.Do(b.fn)
	return row
}

// Reserve counts a call whose usage is written and whose reservation is released while Reserve
// reads.
func TestReserveWhileWritten(t *testing.T) {
	f := newFixture(t, Options{Day: Limit{Tokens: 100}})
	who := Spender{Session: named("test/a"), Person: 1}
	h := f.reserve(who, Amount{Tokens: 90})
	q := afterFirstRead{f.read(), new(sync.Once), func() {
		f.add(who, tokens(90))
		h.Release()
	}}
	if _, err := f.Reserve(q, who, Amount{Tokens: 90}); !errors.Is(err, ErrExceeded) {
		t.Errorf("Reserve = %v, want %v", err, ErrExceeded)
	}
}

// The usage of a call that is running at midnight will be written on the new day. Until then, its
// reservation counts for the new day.
func TestReserveAtMidnight(t *testing.T) {
	who := Spender{Session: named("test/a"), Person: 1}
	limit := Limit{Tokens: 100}
	for _, o := range []Options{{Day: limit}, {Session: limit}, {Person: limit}} {
		f := newFixture(t, o)
		f.now = time.Date(2026, 2, 16, 23, 59, 59, 0, time.UTC)
		h := f.reserve(who, Amount{Tokens: 90})
		f.now = f.now.Add(time.Minute)
		if h == nil || f.reserve(who, Amount{Tokens: 20}) != nil {
			t.Errorf("%+v: two calls may go over the limit of the new day together", o)
		}
		f.add(who, tokens(90))
		h.Release()
		if f.reserve(who, Amount{Tokens: 20}) != nil || f.reserve(who, Amount{Tokens: 10}) == nil {
			t.Errorf("%+v: the new day does not count what was written on it", o)
		}
	}
}

// Calls that run in parallel never exceed the limit together.
func TestReserveSideBySide(t *testing.T) {
	f := newFixture(t, Options{Day: Limit{Tokens: 100}})
	var wg sync.WaitGroup
	for i := range 8 {
		who := Spender{Session: named(fmt.Sprint("test/", i)), Person: int64(i)}
		wg.Go(func() {
			for range 20 {
				h, err := f.Reserve(f.read(), who, Amount{Tokens: 3})
				if err != nil {
					continue
				}
				f.add(who, tokens(3))
				h.Release()
			}
		})
	}
	wg.Wait()
	a, err := read(f.read(), key{day: f.day(), kind: kindDay})
	if err != nil || a.Tokens != 99 {
		t.Errorf("%d tokens were used, %v, want 99", a.Tokens, err)
	}
}

func TestShare(t *testing.T) {
	for _, test := range []struct{ limit, want Limit }{
		{Limit{}, Limit{}},
		{Limit{Tokens: 100, Dollars: 2}, Limit{25, 0.5}},
		{Limit{Tokens: 3}, Limit{Tokens: 1}}, // a share of a limit is never 0, which means no limit
	} {
		if got := test.limit.Share(4); got != test.want {
			t.Errorf("a fourth of %v is %v, want %v", test.limit, got, test.want)
		}
	}
}

// A limit causes one warning a day, when 80 % are used.
func TestWarnings(t *testing.T) {
	f := newFixture(t, Options{Day: Limit{Dollars: 10}, Person: Limit{Tokens: 100},
		Location: time.FixedZone("east", 2*3600)})
	who := Spender{Session: named("test/a"), Person: 7}
	want := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: warned of %q, want %q", what, got, want)
		}
	}
	want("below", f.add(who, tokens(79)))
	want("near", f.add(who, tokens(1)), `person "7" false`)
	want("told", f.add(who, tokens(19)))
	want("at once", f.add(Spender{Session: named("test/b"), Person: 8}, Entry{Cost: 11}),
		`day "" true`)
	f.now = f.now.Add(9*time.Hour + 59*time.Minute) // 23:59 in that time zone
	want("the same day", f.add(who, tokens(50)))
	f.now = f.now.Add(time.Minute)
	want("the next day", f.add(who, tokens(50)))
	want("the next day, near", f.add(who, tokens(30)), `person "7" false`)
	raised := *f.opts.Load()
	raised.Person.Tokens = 200
	f.Configure(&raised)
	want("after the limit was raised", f.add(who, tokens(10)))
	want("near once more", f.add(who, tokens(70)), `person "7" false`)
	want("told once more", f.add(who, tokens(50)))
}

func TestLines(t *testing.T) {
	f := newFixture(t, Options{Session: Limit{Tokens: 1}, Turn: Limit{Dollars: 1}})
	ada := Spender{Session: named("test/a"), Person: 1}
	f.add(ada, Entry{Model: "big", Calls: 1, Cost: 2,
		Usage: llm.Usage{Input: 100, Output: 10, Cached: 50}})
	f.add(ada, Entry{Model: "big", Calls: 2, Cost: 1, Usage: llm.Usage{Input: 1, Output: 2}})
	f.now = f.now.AddDate(0, 0, 1)
	f.add(Spender{Session: named("test/b")},
		Entry{Model: "small", Calls: 1, Usage: llm.Usage{Input: 5}})
	f.add(ada, Entry{Model: "big", Calls: 1, Usage: llm.Usage{Input: 7}})
	show := func(list []Line, err error) (out []string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list {
			out = append(out, fmt.Sprintf("%s %s %q %d: %d %d %d $%g", n.Day, n.Kind, n.Key, n.Calls,
				n.Usage.Input, n.Usage.Output, n.Usage.Cached, n.Cost))
		}
		return out
	}
	for _, test := range []struct {
		what      string
		got, want []string
	}{
		{"models", show(Lines(f.read(), "model", "2026-02-16", 9)), []string{
			`2026-02-17 model "big" 1: 7 0 0 $0`, `2026-02-17 model "small" 1: 5 0 0 $0`,
			`2026-02-16 model "big" 3: 101 12 50 $3`}},
		{"since", show(Lines(f.read(), "day", "2026-02-17", 9)),
			[]string{`2026-02-17 day "" 2: 12 0 0 $0`}},
		{"limit", show(Lines(f.read(), "day", "2026-02-16", 1)),
			[]string{`2026-02-17 day "" 2: 12 0 0 $0`}},
		{"people", show(Lines(f.read(), "person", "2026-02-17", 9)),
			[]string{`2026-02-17 person "1" 1: 7 0 0 $0`}},
		{"today", show(f.Today(f.read(), ada)), []string{`2026-02-17 session "test/a" 1: 7 0 0 $0`,
			`2026-02-17 person "1" 1: 7 0 0 $0`, `2026-02-17 day "" 2: 12 0 0 $0`}},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s: got %q, want %q", test.what, test.got, test.want)
		}
	}
	if got := f.Limits(); len(got) != 2 || got["session"].Tokens != 1 || got["turn"].Dollars != 1 {
		t.Errorf("the limits are %v, want those of a session and a turn", got)
	}
}

// Work without a conversation, such as Dream, counts for no session. Otherwise unrelated people
// would share a limit.
func TestNoSession(t *testing.T) {
	f := newFixture(t, Options{Session: Limit{Tokens: 10}, Person: Limit{Tokens: 10}})
	if warned := f.add(Spender{Person: 1}, tokens(7)); len(warned) != 0 {
		t.Errorf("warned of %q", warned)
	}
	if f.reserve(Spender{Person: 2}, Amount{Tokens: 7}) == nil {
		t.Error("there is no room for somebody else")
	}
	if f.reserve(Spender{Person: 1}, Amount{Tokens: 7}) != nil {
		t.Error("there is room beyond the limit of the person")
	}
}

// beforeEachRead is a Queryer that calls meanwhile before each query of a row.
type beforeEachRead struct {
	store.Queryer
	meanwhile func()
}

func (q beforeEachRead) QueryRow(query string, args ...any) *sql.Row {
	q.meanwhile()
	return q.Queryer.QueryRow(query, args...)
}

// Reserve reads only once, even if other calls release their reservations meanwhile. A
// reservation that is released during the read still counts, because the read may have missed its
// usage.
func TestReserveBesideOthers(t *testing.T) {
	f := newFixture(t, Options{Day: Limit{Tokens: 100}})
	reads := 0
	reserve := func(tokens int, meanwhile func()) (*Reservation, error) {
		return f.Reserve(beforeEachRead{f.read(), func() { reads++; meanwhile() }}, Spender{},
			Amount{Tokens: tokens})
	}
	other := func() {
		h, err := f.Reserve(f.read(), Spender{}, Amount{Tokens: 30})
		if err != nil {
			t.Fatal(err)
		}
		h.Release()
	}
	h, err := reserve(20, other)
	if err != nil || reads != 1 {
		t.Fatalf("Reserve = %v after %d reads, want nil after one", err, reads)
	}
	h.Release()
	written, err := f.Reserve(f.read(), Spender{}, Amount{Tokens: 90})
	if err != nil {
		t.Fatal(err)
	}
	// The other call releases its reservation while Reserve reads.
	if _, err := reserve(20, written.Release); !errors.Is(err, ErrExceeded) {
		t.Errorf("Reserve = %v beside 90 of 100, want %v", err, ErrExceeded)
	}
}

// Erasing the usage of one person does not read the usage of everybody.
func TestEraseByIndex(t *testing.T) {
	f := newFixture(t, Options{})
	p := &plantest.Plans{Queryer: f.read(), T: t}
	p.Explain(eraseQuery, kindSession, "x/a", kindPerson, "1")
	p.WantNoScan()
}
