package session

import (
	"maps"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/store"
)

func TestInfo(t *testing.T) {
	f := newFixture(t)
	none, err := ReadInfo(f.read(), named("test/none"))
	if err != nil || none != (Info{Key: named("test/none")}) {
		t.Errorf("Info of no session = %+v, %v", none, err)
	}
	created := f.now
	turn := f.begin(chat, "one")
	f.must(f.end(turn, Done, "two"))
	bills := []Bill{
		{Usage: llm.Usage{Input: 10, Output: 2, Cached: 5}, Cost: 0.25, Context: 10},
		{Usage: llm.Usage{Input: 20, Output: 3}, Cost: 0.5}, // the size of its context is unknown
	}
	for _, b := range bills {
		f.must(f.tx(func(tx *store.Tx) error { return Spend(tx, KeyOf(chat), b) }))
	}
	f.now = f.now.Add(time.Hour)
	f.begin(chat, "three")
	got, err := ReadInfo(f.read(), KeyOf(chat))
	f.must(err)
	want := Info{Key: named("test/a"), Title: "Title",
		Usage: llm.Usage{Input: 30, Output: 5, Cached: 5},
		Cost:  0.75, Context: 10, Messages: 3, Created: created, Updated: f.now}
	if got != want {
		t.Errorf("Info = %+v, want %+v", got, want)
	}
}

func TestList(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"a", "b", "c", "a"} {
		f.begin(bus.Address{Account: "test", Chat: name}, "hello")
		f.now = f.now.Add(time.Minute)
	}
	for limit, want := range map[int]string{0: "", 2: "test/a test/c ", 9: "test/a test/c test/b "} {
		list, err := List(f.read(), limit)
		f.must(err)
		got := ""
		for _, i := range list {
			got += i.Key.String() + " "
		}
		if got != want {
			t.Errorf("List(%d) = %q, want %q", limit, got, want)
		}
	}
}

// valuesOf returns the value of one choice for each session that has it.
func valuesOf(chosen map[Key]Choices, what Choice) map[Key]string {
	values := make(map[Key]string)
	for key, own := range chosen {
		if value, ok := own[what]; ok {
			values[key] = value
		}
	}
	return values
}

func TestQueueModes(t *testing.T) {
	f := newFixture(t)
	other := bus.Address{Account: "test", Chat: "b"}
	set := func(a bus.Address, mode string) {
		f.must(f.tx(func(tx *store.Tx) error { return SetChoice(tx, KeyOf(a), QueueMode, mode, f.now) }))
	}
	f.begin(chat, "hello")
	set(chat, "followup")
	set(other, "steer") // before its first turn
	set(other, "collect")
	if !f.begin(other, "hello").First {
		t.Error("a session that has only a mode has had a turn")
	}
	chosen, err := Chosen(f.read())
	f.must(err)
	if want := map[Key]string{named("test/a"): "followup", named("test/b"): "collect"}; !maps.Equal(
		valuesOf(chosen, QueueMode), want) {
		t.Errorf("modes %v, want %v", valuesOf(chosen, QueueMode), want)
	}
	set(chat, "")
	chosen, err = Chosen(f.read())
	f.must(err)
	want := map[Key]string{named("test/b"): "collect"}
	if !maps.Equal(valuesOf(chosen, QueueMode), want) {
		t.Errorf("modes %v, want %v", valuesOf(chosen, QueueMode), want)
	}
	if info, err := ReadInfo(f.read(), named("test/b")); err != nil || info.QueueMode != "collect" {
		t.Errorf("Info = %+v, %v, want the queue mode in it", info, err)
	}
}

// If a group moves to another chat, its choices move, too. A choice that the other chat already
// has is kept.
func TestMoveChoices(t *testing.T) {
	f := newFixture(t)
	fresh, used := bus.Address{Account: "test", Chat: "b"}, bus.Address{Account: "test", Chat: "c"}
	for range 2 { // the second time, there is nothing to move
		f.must(f.tx(func(tx *store.Tx) error {
			if err := MoveChoices(tx, KeyOf(chat), KeyOf(fresh), f.now); err != nil {
				return err
			}
			if err := SetChoice(tx, KeyOf(chat), QueueMode, "steer", f.now); err != nil {
				return err
			}
			if err := SetChoice(tx, KeyOf(chat), Model, "big", f.now); err != nil {
				return err
			}
			if err := SetChoice(tx, KeyOf(chat), Effort, "high", f.now); err != nil {
				return err
			}
			if err := SetChoice(tx, KeyOf(chat), Voice, "auto", f.now); err != nil {
				return err
			}
			if err := SetChoice(tx, KeyOf(chat), Activity, "full", f.now); err != nil {
				return err
			}
			return SetChoice(tx, KeyOf(used), Model, "small", f.now)
		}))
		f.must(f.tx(func(tx *store.Tx) error {
			return MoveChoices(tx, KeyOf(chat), KeyOf(used), f.now)
		}))
		chosen, err := Chosen(f.read())
		f.must(err)
		for what, value := range map[Choice]string{QueueMode: "steer", Model: "small",
			Effort: "high", Voice: "auto", Activity: "full"} {
			want := map[Key]string{named("test/c"): value}
			if got := valuesOf(chosen, what); !maps.Equal(got, want) {
				t.Errorf("%s %v, want %v", what, got, want)
			}
		}
	}
	if !f.begin(used, "hello").First {
		t.Error("a session that has only what was chosen has had a turn")
	}
}

func TestModels(t *testing.T) {
	f := newFixture(t)
	other := bus.Address{Account: "test", Chat: "b"}
	set := func(a bus.Address, model string) {
		f.must(f.tx(func(tx *store.Tx) error { return SetChoice(tx, KeyOf(a), Model, model, f.now) }))
	}
	f.begin(chat, "hello")
	set(chat, "small")
	set(other, "large") // before its first turn
	f.begin(other, "hello")
	chosen, err := Chosen(f.read())
	f.must(err)
	want := map[Key]string{named("test/a"): "small", named("test/b"): "large"}
	if !maps.Equal(valuesOf(chosen, Model), want) {
		t.Errorf("models %v, want %v", valuesOf(chosen, Model), want)
	}
	set(chat, "")
	chosen, err = Chosen(f.read())
	f.must(err)
	if want := map[Key]string{named("test/b"): "large"}; !maps.Equal(valuesOf(chosen, Model), want) {
		t.Errorf("models %v, want %v", valuesOf(chosen, Model), want)
	}
}

func TestSearch(t *testing.T) {
	f := newFixture(t)
	other := bus.Address{Account: "test", Chat: "b"}
	f.must(f.end(f.begin(chat, "where is the Red spade?"), Done, "the red spade is in the shed"))
	f.begin(other, "a red rose & a <b>")
	for _, test := range []struct {
		query string
		key   string
		limit int
		want  string
	}{
		{"red spade", "", 9, "the red spade is in the shed|where is the Red spade?|"},
		{"RED", "", 2, "a red rose & a <b>|the red spade is in the shed|"},
		{"red", KeyOf(other).String(), 9, "a red rose & a <b>|"},
		{"& <b>", "", 9, "a red rose & a <b>|"},
		{"rose &", "", 9, "a red rose & a <b>|"},
		{"user", "", 9, ""}, // the name of a role is not text of a message
		{"%", "", 9, ""},
		{" ", "", 9, ""},
	} {
		list, err := Search(f.read(), test.query, test.key, test.limit)
		f.must(err)
		got := ""
		for _, found := range list {
			got += found.Message.Text + "|"
		}
		if got != test.want {
			t.Errorf("Search(%q, %q, %d) = %q, want %q", test.query, test.key, test.limit, got, test.want)
		}
	}
}

// A search finds the oldest message, no matter how many messages came after it.
func TestSearchFindsTheOldest(t *testing.T) {
	f := newFixture(t)
	f.begin(chat, "the red spade")
	f.tx(func(tx *store.Tx) error {
		_, err := tx.Exec(`INSERT INTO messages (session, turn, body, created_ms)
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
			SELECT 'test/z', 1, '{"role":"user","text":"a rose"}', 1 FROM n`)
		return err
	})
	for _, query := range []string{"spade", "red spade", "THE"} {
		list, err := Search(f.read(), query, "", 9)
		f.must(err)
		if len(list) != 1 || list[0].Message.Text != "the red spade" {
			t.Errorf("Search(%q) = %v", query, list)
		}
	}
}
