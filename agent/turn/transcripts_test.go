package turn

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/bus/bustest"
	"gateway/session"
	"gateway/store"
)

// A scribe writes random turns into a session.
type scribe struct {
	w    *world
	r    *rand.Rand
	chat string
	big  int // the largest size of a message

	first newMessages // set if the session's first turn has just begun: the messages that it wrote
}

// act makes one random change to a transcript.
func (s *scribe) act() {
	key := session.KeyOf(at(s.chat))
	s.w.tx(func(tx *store.Tx) error {
		switch s.r.IntN(8) {
		case 0: // /new
			return session.Reset(tx, key, time.Now())
		case 1: // a compaction, which never moves the start back
			n := 0
			err := tx.QueryRow("SELECT COALESCE(max(id), 0) FROM messages WHERE session = $1",
				key.String()).Scan(&n)
			if err != nil {
				return err
			}
			before, err := session.ReadSummary(tx, key)
			if err != nil {
				return err
			}
			to := max(before.Start, int64(s.r.IntN(n+1)))
			_, err = session.Compact(tx, key, before, to, "", 0)
			return err
		}
		turn, err := session.RunningTurn(tx, key)
		if err != nil {
			return err
		}
		if turn == nil {
			turn = &session.Turn{Session: key, Address: at(s.chat)}
			now := time.Now()
			written, err := session.BeginTurn(tx, turn, "", store.Lease{}, now, s.message())
			if s.first.read = nil; turn.First {
				s.first.read = &session.Transcript{Entries: written}
			}
			return err
		}
		if s.r.IntN(2) == 0 { // a step
			return session.Append(tx, turn, time.Now(), s.message(), s.message())
		}
		states := []session.State{session.Done, session.Failed, session.Stopped}
		return session.EndTurn(tx, turn, states[s.r.IntN(3)], time.Now(), s.message())
	})
}

func (s *scribe) message() llm.Message {
	roles := []llm.Role{llm.User, llm.Assistant, llm.ToolRole}
	return llm.Message{Role: roles[s.r.IntN(3)], Text: strings.Repeat("x", s.r.IntN(s.big))}
}

// The cached transcript is equal to a new read of the database after any changes, and for any
// limit of its size.
func TestMemoryEqualsFreshRead(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t)
			r := rand.New(rand.NewPCG(seed, 2))
			s := &scribe{w: w, r: r, chat: "a", big: 400}
			limits := []int{100, 1000, 5000, 1 << 20}
			limit := limits[seed%4]
			var memory Transcripts
			for step := range 80 {
				s.act()
				memory.begin(session.KeyOf(at("a")), s.first)
				s.first = newMessages{}
				if r.IntN(3) > 0 {
					continue // a turn does not read after each step
				}
				var n newMessages
				if r.IntN(2) > 0 {
					w.tx(func(tx *store.Tx) (err error) {
						n, err = memory.readNews(tx, session.KeyOf(at("a")))
						return err
					})
				}
				compareRead(t, &memory, w.read(), "a", limit, n)
				if t.Failed() {
					t.Fatalf("after %d steps, with a limit of %d", step, limit)
				}
			}
		})
	}
}

func compareRead(
	t *testing.T, h *Transcripts, q store.Queryer, chat string, limit int, n newMessages,
) {
	t.Helper()
	key := session.KeyOf(at(chat))
	got, err := h.read(q, key, limit, n)
	if err != nil {
		t.Fatal(err)
	}
	want, err := session.ReadTranscript(q, key, limit)
	if err != nil {
		t.Fatal(err)
	}
	ids := func(entries []session.Entry) (list []string) {
		for _, e := range entries {
			list = append(list, fmt.Sprint(e.ID, e.Turn, e.Size, e.Message.Role, len(e.Message.Text)))
		}
		return list
	}
	wantLines(t, "history", ids(got.Entries), ids(want.Entries))
	if got.Truncated != want.Truncated || got.Start != want.Start {
		t.Errorf("truncated %v from %d on, want %v from %d on",
			got.Truncated, got.Start, want.Truncated, want.Start)
	}
}

// A meanwhile is a Queryer that calls a function before its first query.
type meanwhile struct {
	store.Queryer
	do func()
}

func (q *meanwhile) Query(query string, args ...any) (*sql.Rows, error) {
	if do := q.do; do != nil {
		q.do = nil
		do()
	}
	return q.Queryer.Query(query, args...)
}

// A command may read a transcript while a turn of the same session reads it. Neither writes into
// the memory of the other one.
func TestReadAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, turn := session.KeyOf(at("a")), &session.Turn{Session: session.KeyOf(at("a"))}
	say := llm.Message{Role: llm.User, Text: "hello"}
	var memory Transcripts
	read := func(q store.Queryer) *session.Transcript {
		found, err := memory.read(q, key, 1<<20, newMessages{})
		w.must(err)
		return found
	}
	w.tx(func(tx *store.Tx) error {
		_, err := session.BeginTurn(tx, turn, "", store.Lease{}, time.Now(), say, say, say, say, say)
		return err
	})
	read(w.read())
	w.tx(func(tx *store.Tx) error { return session.Append(tx, turn, time.Now(), say) })
	var inner *session.Transcript
	outer := read(&meanwhile{w.read(), func() { inner = read(w.read()) }})
	if len(inner.Entries) != 6 || len(outer.Entries) != 6 || &inner.Entries[5] == &outer.Entries[5] {
		t.Errorf("%d and %d entries are read, and the last one is in the same place",
			len(inner.Entries), len(outer.Entries))
	}
}

// The size of the cache is bounded. The session that was not used for the longest time is removed
// first.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var memory Transcripts
	entries := []session.Entry{{ID: 1, Size: maxMemory / 4}}
	for _, chat := range []string{"a", "b", "c", "d", "b", "e"} {
		memory.remember(bustest.Session("x/"+chat), entries)
		if memory.size > maxMemory || len(memory.known) != memory.used.Len() {
			t.Fatalf("%d bytes of %d sessions are remembered, %d in order of use",
				memory.size, len(memory.known), memory.used.Len())
		}
	}
	for chat, want := range map[string]bool{"a": false, "c": false, "d": true, "b": true, "e": true} {
		if got := known(&memory, chat); got != want {
			t.Errorf("%s is remembered: %v, want %v", chat, got, want)
		}
	}
	memory.remember(bustest.Session("x/huge"), []session.Entry{{ID: 1, Size: 2 * maxMemory}})
	memory.remember(bustest.Session("x/d"), nil)
	if known(&memory, "d") || known(&memory, "b") {
		t.Error("what is empty, or older than one that takes all, is remembered")
	}
}

// The bound also holds for many short conversations, of which each takes more memory than its text.
func TestMemoryOfShortTranscripts(t *testing.T) {
	inUse := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := inUse()
	memory := new(Transcripts)
	for i := range 60_000 {
		text := strconv.Itoa(i) + " is a short message"
		memory.remember(bustest.Session("telegram/"+strconv.Itoa(1_000_000+i)), []session.Entry{
			{ID: int64(i), Size: 100, Message: llm.Message{Role: llm.User, Text: text}}})
	}
	if got := inUse() - before; got > maxMemory*5/4 || got < maxMemory/2 {
		t.Errorf("the transcripts take %d MB of memory, want about %d", got>>20, maxMemory>>20)
	}
	runtime.KeepAlive(memory)
}

func known(h *Transcripts, chat string) bool {
	entries := h.recall(bustest.Session("x/" + chat))
	return entries != nil
}
