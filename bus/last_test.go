package bus

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"gateway/store"
)

// LastMessage finds a person's last message, no matter how many messages of jobs and how many
// ambient messages came after it.
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
	if got, ok, err := LastMessage(f.read(), here); err != nil || !ok || got.Message.Text != text {
		t.Errorf("Last = %+v, %v, %v; want %q", got.Message, ok, err, text)
	}
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
		return MoveMember(tx, "test", "b", 3, 4)
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
