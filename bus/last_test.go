package bus

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"gateway/store"
)

// LastMessage finds a person's last message, no matter how many messages of jobs and how many
// ambient messages came after it. It skips a message that was set aside.
func TestLast(t *testing.T) {
	f := newInboxFixture(t)
	here := Address{Account: "test", Chat: "1"}
	if _, ok, err := LastMessage(f.read(), here); ok || err != nil {
		t.Errorf("Last of nothing = %v, %v; want false", ok, err)
	}
	const text = `what is {"note":{"kind":"job"}}?`
	f.put(here, "1", "before")
	f.put(here, "2", text)
	f.put(Address{Account: "test", Chat: "1", Thread: "2"}, "3", "elsewhere")
	f.tx(func(tx *store.Tx) error {
		for i := range 100 { // more than newestIn examines at first
			m := InboundMessage{ID: "run:" + strconv.Itoa(i), From: here, Text: "look",
				Origin: Origin{Kind: Job}}
			if _, err := f.Put(tx, m, f.now); err != nil {
				return err
			}
		}
		_, err := f.PutAmbient(tx, InboundMessage{ID: "4", From: here, Text: "not to us"}, f.now)
		return err
	})
	want := func(text string) {
		t.Helper()
		got, ok, err := LastMessage(f.read(), here)
		if err != nil || !ok || got.Message.Text != text {
			t.Errorf("Last = %+v, %v, %v; want %q", got.Message, ok, err, text)
		}
	}
	want(text)
	f.tx(func(tx *store.Tx) error { // the newest one turns out to be unreadable
		if _, err := tx.Exec("UPDATE inbox SET body = '{' WHERE id = 2"); err != nil {
			return err
		}
		return f.SetAside(tx, 2)
	})
	want("before")
}

// A chat belongs to the person who wrote there last. After two people were unlinked, the chat of
// one of them no longer belongs to the other. Groups belong to nobody.
func TestChatsOf(t *testing.T) {
	f := newInboxFixture(t)
	f.tx(func(tx *store.Tx) error {
		for i, m := range []InboundMessage{
			{From: Address{Account: "test", Chat: "1"}, Person: 3},
			{From: Address{Account: "other", Chat: "2"}, Person: 3},
			{From: Address{Account: "other", Chat: "9"}, Person: 3, Group: true},
			{From: Address{Account: "other", Chat: "2"}, Person: 4},
			{From: Address{Account: "other", Chat: "2"}, Origin: Origin{Kind: Job}},
			{From: Address{Account: "test", Chat: "5"}},
		} {
			m.ID, m.Text = strconv.Itoa(i), "hello"
			if _, err := f.Put(tx, m, f.now); err != nil {
				return err
			}
		}
		return nil
	})
	for person, want := range map[int64]string{3: "[test/1]", 4: "[other/2]", 0: "[]"} {
		list, err := ChatsOf(f.read(), person)
		if got := fmt.Sprint(list); err != nil || got != want {
			t.Errorf("the chats of %d are %s, %v; want %s", person, got, err, want)
		}
	}
}

// After two people were unlinked, a chat of one of them does not belong to the other any more, even
// before somebody writes there. This is also true while a turn works on a message. A message that
// waits stays as it is.
func TestMovePerson(t *testing.T) {
	f := newInboxFixture(t)
	at := Address{Account: "test", Chat: "1"}
	f.tx(func(tx *store.Tx) error {
		for i, m := range []InboundMessage{
			{From: at}, {From: at}, {From: at}, {From: Address{Account: "test", Chat: "2"}},
		} {
			m.ID, m.Text, m.Person = strconv.Itoa(i), "hello", 3
			if _, err := f.Put(tx, m, f.now); err != nil {
				return err
			}
		}
		if _, err := f.Answer(tx, 1); err != nil {
			return err
		}
		if _, err := f.Claim(tx, 2, 1); err != nil {
			return err
		}
		return MovePerson(tx, at, 3, 4)
	})
	for id, want := range map[string]int64{"0": 4, "1": 4, "2": 3} {
		if m, ok, err := FindMessage(f.read(), at, id); err != nil || !ok || m.Person != want {
			t.Errorf("message %s is %+v, %v; want person %d", id, m, err, want)
		}
	}
	for person, want := range map[int64]string{3: "[test/1 test/2]", 4: "[test/1]"} {
		list, err := DirectChats(f.read(), person)
		if got := fmt.Sprint(list); err != nil || got != want {
			t.Errorf("the chats of %d are %s, %v; want %s", person, got, err, want)
		}
	}
}

// After two people were unlinked, what one of them wrote in groups does not belong to the other any
// more. Messages of the other one, and those on other accounts, stay as they are.
func TestMoveMember(t *testing.T) {
	f := newInboxFixture(t)
	f.tx(func(tx *store.Tx) error {
		for i, m := range []InboundMessage{
			{From: Address{Account: "test", Chat: "9"}, Sender: Sender{ID: "b"}, Group: true},
			{From: Address{Account: "test", Chat: "9"}, Sender: Sender{ID: "a"}, Group: true},
			{From: Address{Account: "other", Chat: "9"}, Sender: Sender{ID: "b"}, Group: true},
			{From: Address{Account: "test", Chat: "b"}, Sender: Sender{ID: "b"}},
		} {
			m.ID, m.Text, m.Person = strconv.Itoa(i), "hello", 3
			if _, err := f.Put(tx, m, f.now); err != nil {
				return err
			}
			if _, err := f.Answer(tx, int64(i+1)); err != nil {
				return err
			}
		}
		return MoveMember(tx, "test", "b", 3, 4, 0)
	})
	list, err := readInbox(f.read(), "id > 0 ORDER BY id")
	var people []int64
	for _, r := range list {
		people = append(people, r.Message.Person)
	}
	if want := []int64{4, 3, 3, 3}; err != nil || !slices.Equal(people, want) {
		t.Errorf("the messages are of %v, %v; want %v", people, err, want)
	}
}

// Before two people are unlinked, the older finished messages of one of them move, a page at a
// time.
func TestMoveOlder(t *testing.T) {
	f := newInboxFixture(t)
	direct, group := Address{Account: "test", Chat: "1"}, Address{Account: "test", Chat: "9"}
	const messages = 600
	f.tx(func(tx *store.Tx) error {
		for i := range int64(messages) {
			m := InboundMessage{ID: strconv.Itoa(int(i)), From: direct, Person: 3, Text: "hello"}
			if i%2 == 1 {
				m.From, m.Group, m.Sender.ID = group, true, []string{"a", "b"}[i/2%2]
			}
			if _, err := f.Put(tx, m, f.now); err != nil {
				return err
			}
			if i != 8 && i != 11 && i != 551 { // 0 to 7: ids 1 to 8
				if _, err := f.Answer(tx, i+1); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if !f.take(9, 1) || !f.take(552, 2) {
		t.Fatal("the messages can't be claimed")
	}
	move := func(a Address, sender string, upTo int64, want int) {
		t.Helper()
		pages := 0
		for after := int64(0); after < upTo; pages++ {
			f.tx(func(tx *store.Tx) (err error) {
				var before, now int
				if err = tx.QueryRow("SELECT total_changes()").Scan(&before); err != nil {
					return err
				}
				if after, err = MoveOlder(tx, a, sender, 3, 4, after, upTo); err != nil {
					return err
				}
				err = tx.QueryRow("SELECT total_changes()").Scan(&now)
				if now-before > 250 {
					t.Errorf("a page has moved %d messages", now-before)
				}
				return err
			})
		}
		if pages != want {
			t.Errorf("the messages of %s have moved in %d pages, want %d", a, pages, want)
		}
	}
	newest, err := NewestOf(f.read(), 3, direct)
	f.must(err)
	move(direct, "", newest-1, 2)
	finished, err := FinishedUpTo(f.read(), "test", 3)
	f.must(err)
	if finished != 11 {
		t.Errorf("the messages up to %d are finished, want 11", finished)
	}
	f.answer(12)
	finished, err = FinishedUpTo(f.read(), "test", 3)
	f.must(err)
	move(group, "b", finished, 2)
	left := map[Address]int{direct: 2, group: 150 + 13}
	list, err := readInbox(f.read(), "id > 0")
	f.must(err)
	for _, r := range list {
		if m := r.Message; m.Person == 3 {
			left[m.From]--
		} else if m.Sender.ID == "a" || r.Seq == newest || r.Seq == 9 || r.Seq >= 552 && m.Group {
			t.Errorf("message %d has moved", r.Seq)
		}
	}
	if left[direct] != 0 || left[group] != 0 {
		t.Errorf("the messages that have stayed differ: %v", left)
	}
	f.finish(2)
	f.tx(func(tx *store.Tx) error {
		if err := MovePerson(tx, direct, 3, 4); err != nil {
			return err
		}
		return MoveMember(tx, "test", "b", 3, 4, finished)
	})
	var moved int
	f.must(f.read().QueryRow("SELECT count(*) FROM inbox WHERE person = 4").Scan(&moved))
	if moved != 300+150 {
		t.Errorf("%d messages have moved, want 450", moved)
	}
}
