package router_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/router"
	"gateway/store"
)

// A refusingGroup is a world with a group that refuses all messages. Olga, the owner, and Ann, a
// user, have direct chats.
type refusingGroup struct {
	*world
	s *reactingPlatform
}

var (
	group     = bus.Address{Account: "full", Chat: "group"}
	olgas     = bus.Address{Account: "full", Chat: "chat of olga"}
	anns      = bus.Address{Account: "full", Chat: "chat of ann"}
	errBroken = fmt.Errorf("full: send: %w: Missing Permissions (50013)", channels.ErrRefused)
)

func inHotel(t *testing.T, test func(h *refusingGroup)) {
	t.Helper()
	inWorld(t, func(w *world) {
		h := &refusingGroup{world: w, s: &reactingPlatform{platform: w.platform}}
		w.poll = time.Minute
		w.startWith(router.Account{Name: "full", Channel: h.s, Reaction: "👀"})
		h.s.fail = func(_ context.Context, c call) error {
			if c.kind == "send" && c.to == group {
				return errBroken
			}
			return nil
		}
		for i, sender := range []string{"olga", "ann"} {
			h.exec("INSERT INTO people (name, role, created_ms) VALUES ($1, $2, 0)", sender,
				[]string{"owner", "user"}[i])
			h.exec("INSERT INTO identities (account, sender, person, chat) "+
				"VALUES ('full', $1, $2, $3)",
				sender, i+1, []string{"chat of olga", ""}[i])
		}
		test(h)
	})
}

// receive puts a message into the inbox.
func (h *refusingGroup) receive(id, sender string, person int64, from bus.Address) {
	h.t.Helper()
	m := bus.InboundMessage{
		ID: id, From: from, Group: from == group, Person: person, Addressed: true,
		Sender: bus.Sender{ID: sender, Name: "Name of " + sender, Username: "boss"},
		Text:   "hello", Time: time.Now(),
	}
	if m.Group {
		m.ChatTitle = "Garden_1"
	}
	err := h.db.Tx(h.t.Context(), func(tx *store.Tx) error {
		_, err := bus.NewInbox().Put(tx, m, time.Now())
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.router.Admitted([]bus.InboundMessage{m})
	h.sleep(time.Second) // a faster answer needs no reaction
}

func (h *refusingGroup) answerTo(to bus.Address, ids ...string) (id int64) {
	id = h.store(bus.OutboundMessage{To: to, Text: "the answer", Answers: ids})
	h.sleep(time.Minute)
	return id
}

// If an answer is given up, the owner and the person are told, once a day for each chat, and the
// reaction is removed.
func TestGivenUp(t *testing.T) {
	inHotel(t, func(h *refusingGroup) {
		h.receive("d1", "ann", 2, anns)
		h.receive("g1", "ann", 2, group)
		id := h.answerTo(group, "g1")
		h.wantState(id, bus.Dead)
		told := h.read(olgas)
		if len(told) != 1 || !strings.Contains(told[0], `an answer to Name of ann in Garden\_1`) ||
			!strings.Contains(told[0], `Missing Permissions`) ||
			!strings.Contains(told[0], fmt.Sprintf("`gateway outbox retry %d`", id)) {
			t.Errorf("the owner was told %q", told)
		}
		want := []string{`I could not deliver my answer to your message in Garden\_1. ` +
			"The owner of this gateway has been told why."}
		if got := h.read(anns); !slices.Equal(got, want) {
			t.Errorf("the person was told %q, want %q", got, want)
		}
		if got := h.s.marked(); got[len(got)-1] != "react g1 " {
			t.Errorf("marks are %q, want the last one to be taken away", got)
		}
		h.receive("g2", "ann", 2, group)
		h.answerTo(group, "g2")
		if n := len(h.read(olgas)) + len(h.read(anns)); n != 2 {
			t.Errorf("on the same day %d messages were sent about the chat, want 2", n)
		}
		h.sleep(24 * time.Hour)
		h.receive("g3", "ann", 2, group)
		h.answerTo(group, "g3")
		if n := len(h.read(olgas)) + len(h.read(anns)); n != 4 {
			t.Errorf("on the next day there are %d messages about the chat, want 4", n)
		}
	})
}

// A notice of a time that is still to come, because the clock was set back, prevents no other.
func TestGivenUpAfterClockChange(t *testing.T) {
	inHotel(t, func(h *refusingGroup) {
		h.exec("INSERT INTO notices (account, chat, told_ms) VALUES ('full', 'group', $1)",
			time.Now().Add(48*time.Hour).UnixMilli())
		h.answerTo(group)
		h.answerTo(group)
		if told := h.read(olgas); len(told) != 1 {
			t.Errorf("the owner was told %q, want one notice", told)
		}
	})
}

// An owner whose chat refuses messages is told in another chat, if possible. Nobody is told
// again and again.
func TestGivenUpToTheOwner(t *testing.T) {
	inHotel(t, func(h *refusingGroup) {
		h.s.fail = func(_ context.Context, c call) error {
			if c.kind == "send" && c.to == olgas {
				return errBroken
			}
			return nil
		}
		h.receive("o1", "olga", 1, olgas)
		h.answerTo(olgas, "o1")
		h.answerTo(olgas)
		if n := len(h.asked("send")); n != 3 { // both answers, and one notice
			t.Errorf("%d messages were tried, want 3", n)
		}
		dead, err := bus.DeadByAccount(h.db.Read(h.t.Context()))
		if err != nil || dead["full"] != 2 {
			t.Errorf("given up are %v, %v", dead, err)
		}
		h.sleep(24 * time.Hour)
		h.exec("INSERT INTO identities (account, sender, person, chat) " +
			"VALUES ('full', '2', 1, 'two')")
		h.answerTo(olgas)
		if got := h.read(bus.Address{Account: "full", Chat: "two"}); len(got) != 1 ||
			!strings.Contains(got[0], "a message in full/chat of olga") {
			t.Errorf("the owner was told %q in the other chat", got)
		}
	})
}

// An owner is told at an account that is still configured, not at one that was removed.
func TestGivenUpWithRemovedAccount(t *testing.T) {
	inHotel(t, func(h *refusingGroup) {
		h.exec("INSERT INTO identities (account, sender, person, chat) " +
			"VALUES ('away', 'olga', 1, 'chat at the removed account')")
		h.answerTo(group)
		if told := h.read(olgas); len(told) != 1 || !strings.Contains(told[0], "full/group") {
			t.Errorf("the owner was told %q", told)
		}
	})
}

// A chat that belongs to somebody else now, for example after two people were unlinked, gets no
// notice.
func TestGivenUpAfterUnlink(t *testing.T) {
	for _, direct := range []bool{false, true} { // whether Ann has a direct chat as well
		inHotel(t, func(h *refusingGroup) {
			bobs := bus.Address{Account: "full", Chat: "chat of bob"}
			if direct {
				h.receive("d1", "ann", 2, anns)
			}
			h.receive("b1", "bob", 2, bobs) // while Bob was linked with Ann
			h.receive("b2", "bob", 3, bobs)
			h.receive("g1", "ann", 2, group)
			h.answerTo(group, "g1")
			if got := h.read(bobs); len(got) > 0 {
				t.Errorf("Bob was told %q about Ann's message", got)
			}
			if got := h.read(anns); len(got) > 0 != direct {
				t.Errorf("Ann was told %q", got)
			}
		})
	}
}
