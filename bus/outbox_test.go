package bus

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"gateway/store"
)

type outboxFixture struct {
	*fixture
	*Outbox
}

func newOutboxFixture(t *testing.T) *outboxFixture {
	return &outboxFixture{newFixture(t), NewOutbox()}
}

func (f *outboxFixture) put(texts ...string) {
	f.t.Helper()
	f.tx(func(tx *store.Tx) error {
		for _, text := range texts {
			if err := f.Put(tx, OutboundMessage{To: chat, Text: text}, f.now); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *outboxFixture) save(d *Delivery) (saved bool) {
	f.t.Helper()
	f.tx(func(tx *store.Tx) (err error) {
		saved, err = f.Save(tx, d, f.now)
		return err
	})
	return saved
}

// open returns the deliveries that are still to be made.
func (f *outboxFixture) open(after int64) []Delivery {
	f.t.Helper()
	list, err := f.Open(f.read(), after)
	f.must(err)
	return list
}

// states returns the text of each message with its state.
func (f *outboxFixture) states() (all []string) {
	f.t.Helper()
	for _, s := range []DeliveryState{Waiting, Sending, Sent, Dead, Dropped} {
		list, err := f.List(f.read(), s, 100)
		f.must(err)
		for _, d := range list {
			all = append(all, fmt.Sprint(d.Message.Text, " ", s))
		}
	}
	slices.Sort(all)
	return all
}

// reach puts a delivery of each state into the outbox: 1 waiting, 2 sending, 3 sent,
// 4 and 5 dead, 6 dropped.
func (f *outboxFixture) reach() {
	f.t.Helper()
	f.put("1", "2", "3", "4", "5", "6")
	states := []DeliveryState{Waiting, Sending, Sent, Dead, Dead, Dropped}
	for i, d := range f.open(0) {
		d.State, d.Attempts = states[i], 3
		f.save(&d)
	}
}

func TestOutboxDelivery(t *testing.T) {
	f := newOutboxFixture(t)
	m := OutboundMessage{To: Address{Account: "test", Chat: "a", Thread: "5"}, ReplyTo: "9",
		Text: "a\x00b <&> 🎉", Stream: "1.0"}
	f.tx(func(tx *store.Tx) error { return f.Put(tx, m, f.now) })
	d := f.open(0)[0]
	if d.ID != 1 || !reflect.DeepEqual(d.Message, m) ||
		d.State != Waiting || !d.Created.Equal(f.now) ||
		len(d.Parts)+len(d.IDs)+d.Attempts+d.Uncertain != 0 || d.Error != "" {
		t.Errorf("a new delivery is %+v", d)
	}
	d.State, d.Parts, d.IDs = Sending, []string{"one", "two, \"three\""}, []string{"77"}
	d.Attempts, d.Uncertain, d.Error = 2, 1, "no connection"
	if !f.save(&d) {
		t.Fatal("Save = false")
	}
	if got := f.open(0)[0]; fmt.Sprint(got) != fmt.Sprint(d) {
		t.Errorf("after Save it is %+v, want %+v", got, d)
	}
	d.State, d.IDs = Sent, append(d.IDs, "78")
	if !f.save(&d) || len(f.open(0)) != 0 {
		t.Error("a delivery that was sent is still open")
	}
	if f.save(&d) {
		t.Error("a delivery that was sent could be saved once more")
	}
}

// Each part of a delivery has a key of its own. The key is the same at each attempt and after a
// restart. It differs from the keys in another database, even for the same text, chat and id.
func TestOutboxKeys(t *testing.T) {
	seen := make(map[string]bool)
	for range 2 {
		f := newOutboxFixture(t)
		f.put("yes", "yes")
		for i, d := range f.open(0) {
			d.Attempts, d.Uncertain, d.State = 3, 1, Sending
			f.save(&d)
			again := f.open(0)[i]
			for part := range 1000 {
				key := d.Key(part)
				if seen[key] || len(key) > 25 { // 25 characters are Discord's limit
					t.Errorf("key %q of part %d of %d", key, part, d.ID)
				}
				if got := again.Key(part); got != key {
					t.Errorf("part %d of %d, tried again, has key %q, want %q", part, d.ID, got, key)
				}
				seen[key] = true
			}
		}
	}
}

func TestOutboxOpen(t *testing.T) {
	f := newOutboxFixture(t)
	f.reach()
	for after, wanted := range map[int64][]int64{0: {1, 2}, 1: {2}, 2: nil} {
		var got []int64
		for _, d := range f.open(after) {
			got = append(got, d.ID)
		}
		if !slices.Equal(got, wanted) {
			t.Errorf("Open after %d = %v, want %v", after, got, wanted)
		}
	}
	for id := int64(1); id <= 6; id++ {
		if open, err := f.IsOpen(f.read(), id); err != nil || open != (id <= 2) {
			t.Errorf("IsOpen(%d) = %v, %v", id, open, err)
		}
	}
	if list, err := f.List(f.read(), Dead, 1); err != nil || len(list) != 1 || list[0].ID != 5 {
		t.Errorf("List = %+v, %v, want the newest dead one", list, err)
	}
}

func TestOutboxOpenInPages(t *testing.T) {
	f := newOutboxFixture(t)
	f.put(make([]string, ReadLimit+1)...)
	if n := len(f.open(0)); n != ReadLimit {
		t.Errorf("a page has %d deliveries, want %d", n, ReadLimit)
	}
	if n := len(f.open(ReadLimit)); n != 1 {
		t.Errorf("the next page has %d deliveries, want one", n)
	}
}

func TestFindDelivery(t *testing.T) {
	f := newOutboxFixture(t)
	f.reach() // a message in each state
	d, err := FindDelivery(f.read(), 4)
	f.must(err)
	if d == nil || d.ID != 4 || d.State != Dead {
		t.Errorf("FindDelivery(4) = %+v", d)
	}
	d, err = FindDelivery(f.read(), 99)
	f.must(err)
	if d != nil {
		t.Errorf("FindDelivery(99) = %+v", d)
	}
}

func TestOutboxRetryAndDrop(t *testing.T) {
	retry := func(f *outboxFixture, id int64) (n int64) {
		f.tx(func(tx *store.Tx) (err error) { n, err = f.Retry(tx, id, f.now); return err })
		return n
	}
	drop := func(f *outboxFixture, id int64) (n int64) {
		f.tx(func(tx *store.Tx) (err error) { n, err = f.Drop(tx, id, f.now); return err })
		return n
	}
	before := []string{"1 waiting", "2 sending", "3 sent", "4 dead", "5 dead", "6 dropped"}
	for _, test := range []struct {
		name    string
		do      func(f *outboxFixture, id int64) int64
		id      int64
		changed map[int]string
	}{
		{"retry", retry, 4, map[int]string{3: "4 waiting"}},
		{"retry", retry, 0, map[int]string{3: "4 waiting", 4: "5 waiting"}},
		{"retry", retry, 1, nil}, {"retry", retry, 2, nil}, {"retry", retry, 3, nil},
		{"retry", retry, 6, nil}, {"retry", retry, 99, nil},
		{"drop", drop, 4, map[int]string{3: "4 dropped"}},
		{"drop", drop, 0, map[int]string{3: "4 dropped", 4: "5 dropped"}},
		{"drop", drop, 1, map[int]string{0: "1 dropped"}},
		{"drop", drop, 2, map[int]string{1: "2 dropped"}},
		{"drop", drop, 3, nil}, {"drop", drop, 6, nil}, {"drop", drop, 99, nil},
	} {
		t.Run(fmt.Sprint(test.name, test.id), func(t *testing.T) {
			f := newOutboxFixture(t)
			f.reach()
			if n := test.do(f, test.id); n != int64(len(test.changed)) {
				t.Errorf("%d deliveries were changed, want %d", n, len(test.changed))
			}
			wanted := slices.Clone(before)
			for i, s := range test.changed {
				wanted[i] = s
			}
			want(t, "states", f.states(), wanted...)
		})
	}
}

// A retry resets the time and the number of attempts, but sends no part twice.
func TestOutboxRetryKeepsParts(t *testing.T) {
	f := newOutboxFixture(t)
	f.put("long")
	d := f.open(0)[0]
	d.State, d.Parts, d.IDs, d.Attempts = Dead, []string{"lo", "ng"}, []string{"77"}, 12
	f.save(&d)
	f.now = f.now.Add(24 * time.Hour)
	f.tx(func(tx *store.Tx) error { _, err := f.Retry(tx, d.ID, f.now); return err })
	got := f.open(0)[0]
	if got.Attempts != 0 || !got.Created.Equal(f.now) || !slices.Equal(got.IDs, d.IDs) ||
		!slices.Equal(got.Parts, d.Parts) || got.ID != d.ID {
		t.Errorf("after a retry it is %+v", got)
	}
}

// A delivery that a person has dropped meanwhile stays dropped, even if its sender saves another
// state.
func TestOutboxSaveAfterDrop(t *testing.T) {
	f := newOutboxFixture(t)
	f.put("one")
	d := f.open(0)[0]
	f.tx(func(tx *store.Tx) error { _, err := f.Drop(tx, d.ID, f.now); return err })
	d.State = Sent
	if f.save(&d) {
		t.Error("Save of a dropped delivery = true")
	}
	want(t, "states", f.states(), "one dropped")
}

func TestOutboxPreviews(t *testing.T) {
	f := newOutboxFixture(t)
	check := func(wanted map[string]Preview) {
		t.Helper()
		got, _, err := f.Previews(f.read())
		f.must(err)
		if !reflect.DeepEqual(got, wanted) {
			t.Errorf("Previews = %v, want %v", got, wanted)
		}
	}
	save := func(stream, key string, ids ...string) {
		p := Preview{IDs: ids, Key: key}
		f.tx(func(tx *store.Tx) error { return f.SavePreview(tx, stream, p, f.now) })
	}
	check(map[string]Preview{})
	save("1.0", "k", "7")
	save("1.0", "", "7", "8")
	save("2.0", "", "8")
	save("2.0", "k", "9")
	second := Preview{[]string{"9"}, "k", f.now}
	check(map[string]Preview{"1.0": {[]string{"7", "8"}, "", f.now}, "2.0": second})
	for range 2 {
		f.tx(func(tx *store.Tx) error { return f.ForgetPreview(tx, "1.0") })
	}
	check(map[string]Preview{"2.0": second})
}

// A preview without a message is a valid preview. Reading it does not fail.
func TestOutboxEmptyPreview(t *testing.T) {
	f := newOutboxFixture(t)
	f.tx(func(tx *store.Tx) error { return f.SavePreview(tx, "1.0", Preview{}, f.now) })
	got, _, err := f.Previews(f.read())
	if err != nil || len(got) != 1 || len(got["1.0"].IDs) != 0 {
		t.Errorf("Previews = %v, %v, want one without ids", got, err)
	}
}

// NextConversations returns each conversation that has a waiting delivery, with its oldest
// delivery.
func TestOutboxFirsts(t *testing.T) {
	f := newOutboxFixture(t)
	at := func(chat, thread string) Address { return Address{"a", chat, thread} }
	f.tx(func(tx *store.Tx) error {
		for i, to := range []Address{at("2", ""), at("1", "y"), at("1", "x"), at("2", ""), at("1", "x"),
			{"b", "1", ""}} {
			m := OutboundMessage{To: to, Text: fmt.Sprint(i + 1)}
			if err := f.Put(tx, m, f.now); err != nil {
				return err
			}
		}
		return nil
	})
	list, err := f.NextConversations(f.read(), Address{Account: "a"})
	f.must(err)
	var got []string
	for _, d := range list {
		got = append(got, d.Message.To.String()+" "+d.Message.Text)
	}
	want(t, "firsts", got, "a/1/x 3", "a/1/y 2", "a/2 1")
	for after, rest := range map[Address]int{at("1", "x"): 2, at("1", "y"): 1, at("2", ""): 0} {
		if list, err := f.NextConversations(f.read(), after); err != nil || len(list) != rest {
			t.Errorf("after %s there are %d, %v; want %d", after, len(list), err, rest)
		}
	}
	d, err := f.First(f.read(), at("1", "x"))
	f.must(err)
	d.State = Sent
	f.save(d)
	if d, err = f.First(f.read(), at("1", "x")); err != nil || d == nil || d.ID != 5 {
		t.Errorf("First = %+v, %v, want 5", d, err)
	}
	if d, err = f.First(f.read(), at("1", "")); err != nil || d != nil {
		t.Errorf("First where nothing waits = %+v, %v", d, err)
	}
}

// A row that can't be read is set aside, and the other rows are read.
func TestOutboxBadRow(t *testing.T) {
	f := newOutboxFixture(t)
	f.put("one", "two", "three")
	f.tx(func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE outbox SET body = '{' WHERE id = 2")
		return err
	})
	f.tx(func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE outbox SET attempts = 'many' WHERE id = 1")
		return err
	})
	list, err := f.Open(f.read(), 0)
	if len(list) != 1 || list[0].ID != 3 {
		t.Errorf("Open = %+v, want the third", list)
	}
	bad, ok := store.RowErrors(err)
	if !ok || len(bad) != 2 || bad[0].ID != 1 || bad[1].ID != 2 {
		t.Fatalf("Open = %v, want errors of the first two", err)
	}
	f.tx(func(tx *store.Tx) error { return f.SetAside(tx, bad[0]) })
	f.tx(func(tx *store.Tx) error { return f.SetAside(tx, bad[1]) })
	if n, err := BadRows(f.read()); err != nil || n != 2 {
		t.Errorf("BadRows = %d, %v", n, err)
	}
	if d, err := f.First(f.read(), chat); err != nil || d == nil || d.ID != 3 {
		t.Errorf("First = %+v, %v, want the third", d, err)
	}
}

// The number that Changes returns differs after a person retries or drops a delivery, and only
// then.
func TestOutboxChanges(t *testing.T) {
	f := newOutboxFixture(t)
	f.reach()
	changes := func() int64 {
		n, err := f.Changes(f.read())
		f.must(err)
		return n
	}
	before := changes()
	f.put("more")
	f.tx(func(tx *store.Tx) error { _, err := f.Retry(tx, 99, f.now); return err })
	if n := changes(); n != before {
		t.Errorf("Changes = %d where nobody changed anything, want %d", n, before)
	}
	f.tx(func(tx *store.Tx) error { _, err := f.Retry(tx, 4, f.now); return err })
	second := changes()
	f.tx(func(tx *store.Tx) error { _, err := f.Drop(tx, 4, f.now); return err })
	if third := changes(); second == before || third == second {
		t.Errorf("Changes = %d, %d, %d, want three numbers", before, second, third)
	}
}
