package bus

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/store"
)

// next returns the messages that Next finds after the sequence number after. It also returns the
// sequence number up to which Next has read.
func next(t *testing.T, in *Inbox, db *store.DB, after int64) (list []Received, upTo int64) {
	t.Helper()
	for more := true; more; after = upTo {
		var part []Received
		var err error
		if part, upTo, more, err = in.Next(db.Read(t.Context()), after); err != nil {
			t.Fatal(err)
		}
		list = append(list, part...)
	}
	return list, upTo
}

// seqs returns the sequence numbers that Next finds after another one. It also returns the
// sequence number up to which Next has read.
func seqs(t *testing.T, in *Inbox, db *store.DB, after int64) (list []int64, upTo int64) {
	t.Helper()
	found, upTo := next(t, in, db, after)
	for _, r := range found {
		list = append(list, r.Seq)
	}
	return list, upTo
}

// Messages are handed over in memory, equal to their rows in the table and in the order of their
// ids. If there is a gap, Next reads the table.
func TestHandover(t *testing.T) {
	db, in := newFixture(t).db, NewInbox()
	other := NewInbox() // the inbox of another process
	want := func(after, wantUpTo int64, want ...int64) {
		t.Helper()
		if got, upTo := seqs(t, in, db, after); !slices.Equal(got, want) || upTo != wantUpTo {
			t.Errorf("Next(%d) = %d up to %d, want %d up to %d", after, got, upTo, want, wantUpTo)
		}
	}
	want(0, 0)
	message := InboundMessage{ID: "a", From: Address{Account: "test", Chat: "1"}, Text: "hello",
		Time: time.Now(), Attachments: []Attachment{{Kind: Photo}}}
	put := func(in *Inbox, id string) {
		t.Helper()
		message.ID = id
		err := db.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := in.Put(tx, message, time.Now())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	put(in, "a")
	put(in, "b")
	if len(in.fresh.rows) != 2 {
		t.Errorf("%d rows are handed over, want 2", len(in.fresh.rows))
	}
	list, _ := next(t, in, db, 0)
	table, err := in.Waiting(db.Read(t.Context()), 0)
	if err != nil || len(list) != 2 || !equalReceived(list, table) {
		t.Errorf("Next has %+v; the table %+v, %v", list, table, err)
	}
	put(other, "c")
	put(in, "d")
	want(2, 4, 3, 4)
	put(in, "e")
	want(4, 5, 5)
	err = db.Tx(t.Context(), func(tx *store.Tx) error {
		message.ID = "f"
		_, err := in.PutAmbient(tx, message, time.Now())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	put(in, "g")
	want(5, 7, 7)
	put(in, "h")
	want(3, 8, 4, 5, 7, 8) // from the table: h is not next after 3
	want(8, 8)
	put(in, "h") // h is put again: it isn't new, but the database uses up an id for it
	put(in, "i")
	put(in, "j")
	want(8, 11, 10, 11)
}

// Rows that many goroutines put at the same time are handed over without a query of the table.
func TestHandoverOfMany(t *testing.T) {
	db, in := newFixture(t).db, NewInbox()
	seqs(t, in, db, 0)
	const messages = 100
	var wg sync.WaitGroup
	for i := range messages {
		wg.Go(func() {
			err := db.TxSoon(t.Context(), func(tx *store.Tx) error {
				_, err := in.Put(tx, InboundMessage{ID: strconv.Itoa(i),
					From: Address{Account: "test", Chat: "1"}}, time.Now())
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	finished := make(chan struct{})
	go func() {
		wg.Wait()
		close(finished)
	}()
	upTo, ordered := int64(0), true
	for open := true; open; {
		select {
		case <-finished:
			open = false
		default:
		}
		rows, more := in.fresh.drain(upTo)
		upTo, ordered = upTo+int64(len(rows)), ordered && !more
	}
	if !ordered || upTo != messages {
		t.Errorf("%d rows were handed over, want %d; in order: %t", upTo, messages, ordered)
	}
}

// Messages that nobody reads do not fill the memory. Next finds them in the table later.
func TestHandoverIsBounded(t *testing.T) {
	db, in := newFixture(t).db, NewInbox()
	message := InboundMessage{From: Address{Account: "test", Chat: "1"},
		Text: strings.Repeat("x", maxHandover/8)}
	fill := func(first byte) {
		for i := range byte(10) {
			err := db.Tx(t.Context(), func(tx *store.Tx) error {
				message.ID = string(first + i)
				_, err := in.Put(tx, message, time.Now())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, row := range in.fresh.rows {
				size += len(row.row.body)
			}
			if size > maxHandover {
				t.Fatalf("%d bytes are kept", size)
			}
		}
	}
	fill('a')
	if len(in.fresh.rows) > 0 {
		t.Errorf("%d rows are kept for nobody", len(in.fresh.rows))
	}
	if got, upTo := seqs(t, in, db, 0); len(got) != 10 || upTo != 10 {
		t.Errorf("Next has %d up to %d", got, upTo)
	}
	fill('k')
	if got, upTo := seqs(t, in, db, 10); len(got) != 10 || upTo != 20 {
		t.Errorf("Next has %d up to %d", got, upTo)
	}
}

func equalReceived(a, b []Received) bool {
	return slices.EqualFunc(a, b, func(a, b Received) bool {
		return a.Seq == b.Seq && a.At.Equal(b.At) && a.Crashes == b.Crashes &&
			a.Message.ID == b.Message.ID && a.Message.Text == b.Message.Text &&
			a.Message.Time.Equal(b.Message.Time) &&
			slices.Equal(a.Message.Attachments, b.Message.Attachments)
	})
}

// A delivery that is handed over equals its row in the table.
func TestHandoverOfDeliveries(t *testing.T) {
	db, out := newFixture(t).db, NewOutbox()
	deliveries := func(after int64) []Delivery {
		t.Helper()
		list, _, _, err := out.Next(db.Read(t.Context()), after)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	deliveries(0)
	for range 2 {
		err := db.Tx(t.Context(), func(tx *store.Tx) error {
			return out.Put(tx, OutboundMessage{To: Address{Account: "test", Chat: "1"}, Text: "hello",
				Answers: []string{"1"}}, time.Now())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	list := deliveries(0)
	table, err := out.Open(db.Read(t.Context()), 0)
	if err != nil || len(list) != 2 || len(table) != 2 {
		t.Fatalf("Next has %d, the table %d, %v", len(list), len(table), err)
	}
	for i, d := range list {
		w := table[i]
		if d.ID != w.ID || d.State != w.State || d.Key(0) != w.Key(0) || !d.Created.Equal(w.Created) ||
			d.Message.To != w.Message.To || d.Message.Text != w.Message.Text ||
			!slices.Equal(d.Message.Answers, w.Message.Answers) {
			t.Errorf("Next has %+v, the table %+v", d, w)
		}
	}
	if list := deliveries(2); len(list) != 0 {
		t.Errorf("Next has %d more", len(list))
	}
}
