package router_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/router"
)

// A reactingPlatform is a platform with reactions, receipts and drafts.
type reactingPlatform struct {
	*platform
	draft func(to bus.Address) error // nil: drafts are accepted
}

func (s *reactingPlatform) React(ctx context.Context, to bus.Address, id, emoji string) error {
	return s.enter(ctx, call{"react", id, to, emoji, 0})
}

func (s *reactingPlatform) MarkRead(ctx context.Context, to bus.Address, ids []string) error {
	return s.enter(ctx, call{"read", fmt.Sprint(ids), to, "", 0})
}

func (s *reactingPlatform) Draft(ctx context.Context, to bus.Address, stream, text string) error {
	if err := s.enter(ctx, call{"draft", stream, to, text, 0}); err != nil || s.draft == nil {
		return err
	}
	return s.draft(to)
}

// marked returns the marks that were made, each as kind, message and emoji.
func (s *reactingPlatform) marked() (list []string) {
	for _, c := range s.asked("react", "read") {
		list = append(list, c.kind+" "+c.id+" "+c.text)
	}
	return list
}

func socially(t *testing.T, reaction string, test func(w *world, s *reactingPlatform)) {
	t.Helper()
	inWorld(t, func(w *world) {
		s := &reactingPlatform{platform: w.platform}
		w.startWith(router.Account{Name: "full", Channel: s, Reaction: reaction})
		test(w, s)
	})
}

func (w *world) admit(ids ...string) {
	var list []bus.InboundMessage
	for _, id := range ids {
		list = append(list, bus.InboundMessage{ID: id, From: chatA})
	}
	w.router.Admitted(list)
	w.sleep(time.Second) // a faster answer needs no reaction
}

func (w *world) reply(ids ...string) {
	w.store(bus.OutboundMessage{To: chatA, Text: "hello", Answers: ids})
	w.sleep(0)
}

// A message is marked from its admission until its answer.
func TestMarks(t *testing.T) {
	socially(t, "👀", func(w *world, s *reactingPlatform) {
		w.sleep(time.Hour) // reactions of an earlier process are gone by then
		w.admit("1", "2")
		w.reply("1", "7")
		w.reply("2")
		want := []string{"read [1] ", "read [2] ", "react 1 👀", "react 2 👀", "react 1 ", "react 2 "}
		if got := s.marked(); !slices.Equal(got, want) {
			w.t.Errorf("marks are %q, want %q", got, want)
		}
	})
}

// A message that gets no answer loses its reaction, also if an earlier process set it. An edited
// message has no reaction of its own.
func TestMarkWithoutAnswer(t *testing.T) {
	socially(t, "👀", func(w *world, s *reactingPlatform) {
		w.admit("1", "2")
		w.router.Dropped([]bus.InboundMessage{{ID: "1", From: chatA}, {ID: "before", From: chatA},
			{ID: "edit", From: chatA, Edits: "2"}, {ID: "1", From: bus.Address{Account: "unknown"}}})
		w.sleep(0)
		want := []string{"read [1] ", "read [2] ", "react 1 👀", "react 2 👀", "react 1 ", "react before "}
		if got := s.marked(); !slices.Equal(got, want) {
			w.t.Errorf("marks are %q, want %q", got, want)
		}
	})
}

// An answer that is faster than its reaction needs none, and none is left.
func TestMarkOvertaken(t *testing.T) {
	socially(t, "👀", func(w *world, s *reactingPlatform) {
		w.sleep(time.Hour)
		hold := make(chan struct{})
		s.fail = func(_ context.Context, c call) error {
			if c.kind == "read" {
				<-hold
			}
			return nil
		}
		w.admit("1")
		w.reply("1")
		close(hold)
		w.sleep(0)
		if got := s.marked(); !slices.Equal(got, []string{"read [1] "}) {
			w.t.Errorf("marks are %q", got)
		}
		w.wantRead(chatA, "hello") // no message waits for a mark
	})
}

// A message that is answered within half a second gets no reaction. Another message in the chat
// gets one after that time.
func TestMarkIsNotNeeded(t *testing.T) {
	socially(t, "👀", func(w *world, s *reactingPlatform) {
		w.sleep(time.Hour)
		w.router.Admitted([]bus.InboundMessage{{ID: "1", From: chatA}, {ID: "2", From: chatA}})
		w.sleep(499 * time.Millisecond)
		w.reply("1")
		want := []string{"read [1] ", "read [2] "}
		if got := s.marked(); !slices.Equal(got, want) {
			w.t.Errorf("before half a second has passed marks are %q, want %q", got, want)
		}
		w.sleep(time.Millisecond)
		w.reply("2")
		if got, want := s.marked(), append(want, "react 2 👀", "react 2 "); !slices.Equal(got, want) {
			w.t.Errorf("marks are %q, want %q", got, want)
		}
	})
}

// When the process ends, it sets no more reactions and waits for none.
func TestNoMarkAtTheEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		s := &reactingPlatform{platform: w.platform}
		stop := w.startWith(router.Account{Name: "full", Channel: s, Reaction: "👀"})
		w.sleep(time.Hour)
		w.router.Admitted([]bus.InboundMessage{{ID: "1", From: chatA}})
		w.sleep(0)
		stop()
		w.sleep(time.Hour)
		if got := s.marked(); !slices.Equal(got, []string{"read [1] "}) {
			w.t.Errorf("marks are %q", got)
		}
	})
}

// After a restart, the reactions that an earlier process may have set are removed. Without a
// configured reaction, nothing is removed.
func TestMarksAfterRestart(t *testing.T) {
	socially(t, "👀", func(w *world, s *reactingPlatform) {
		w.reply("before")
		if got := s.marked(); !slices.Equal(got, []string{"react before "}) {
			w.t.Errorf("marks are %q", got)
		}
	})
	socially(t, "", func(w *world, s *reactingPlatform) {
		w.admit("1")
		w.reply("1")
		if got := s.marked(); !slices.Equal(got, []string{"read [1] "}) {
			w.t.Errorf("marks without a reaction are %q", got)
		}
	})
}

// If a person drops an answer, the reaction of its message is removed once. Later changes do not
// remove it again, and do not concern answers that were dropped long ago.
func TestMarkOfDropped(t *testing.T) {
	socially(t, "👀", func(w *world, s *reactingPlatform) {
		s.fail = func(_ context.Context, c call) error {
			if c.kind == "send" {
				return errDown
			}
			return nil
		}
		put := func(answers string) int64 {
			return w.store(bus.OutboundMessage{To: chatA, Text: "hello", Answers: []string{answers}})
		}
		old, first, second := put("old"), put("first"), put("second")
		w.exec("UPDATE outbox SET state = 'dropped', updated_ms = $1 WHERE id = $2",
			time.Now().Add(-time.Hour).UnixMilli(), old)
		w.person(w.outbox.Drop, first)
		w.person(w.outbox.Drop, second)
		if got := s.marked(); !slices.Equal(got, []string{"react first ", "react second "}) {
			w.t.Errorf("marks are %q", got)
		}
	})
}

// While a platform asks for a pause, no marks are set. Messages that are never answered are not
// remembered for ever.
func TestMarksAreBounded(t *testing.T) {
	socially(t, "👀", func(w *world, s *reactingPlatform) {
		w.sleep(time.Hour)
		s.fail = func(_ context.Context, c call) error {
			return &channels.RateError{After: time.Minute}
		}
		w.admit("1", "2")
		if got := len(s.marked()); got != 1 {
			w.t.Errorf("%d marks were tried, want 1", got)
		}
		w.sleep(2 * time.Minute)
		s.fail = func(context.Context, call) error { return errors.New("no connection") }
		for i := range 3000 {
			w.router.Admitted([]bus.InboundMessage{{ID: fmt.Sprint("m", i), From: chatA}})
			if i%100 == 0 {
				w.sleep(time.Second)
			}
		}
		w.sleep(20 * time.Minute)
		s.fail = nil
		before := len(s.marked())
		w.admit("last")
		if got := len(s.marked()); got != before+2 {
			w.t.Errorf("%d marks for the last message, want 2", got-before)
		}
	})
}

// If a platform accepts drafts in a chat, an answer grows as a draft. If not, it grows as a
// message that is edited.
func TestDraft(t *testing.T) {
	inWorld(t, func(w *world) {
		s := &reactingPlatform{platform: w.platform, draft: func(to bus.Address) error {
			if to.Chat == "group" {
				return fmt.Errorf("%w: not in groups", channels.ErrRefused)
			}
			return nil
		}}
		w.startWith(router.Account{Name: "full", Channel: s, Streaming: true})
		group := bus.Address{Account: "full", Chat: "group"}
		for _, to := range []bus.Address{chatA, group} {
			w.show(to, "s"+to.Chat, "one")
			w.sleep(2 * time.Second)
			w.show(to, "s"+to.Chat, "one two")
			w.sleep(2 * time.Second)
			w.answer(to, "one two three", "s"+to.Chat)
			w.sleep(time.Second)
		}
		var got []string
		for _, c := range w.asked("send", "edit", "draft") {
			got = append(got, c.kind+" "+c.to.Chat+" "+c.text)
		}
		want := []string{"draft a one", "draft a one two", "send a one two three",
			"draft group one", "send group one", "edit group one two", "edit group one two three"}
		if !slices.Equal(got, want) {
			w.t.Errorf("calls are %q, want %q", got, want)
		}
	})
}

// If a draft fails, drafts are given up. The answer is still sent once.
func TestDraftFails(t *testing.T) {
	inWorld(t, func(w *world) {
		s := &reactingPlatform{platform: w.platform,
			draft: func(bus.Address) error { return errors.New("no connection") }}
		w.startWith(router.Account{Name: "full", Channel: s, Streaming: true})
		w.show(chatA, "s", "one")
		w.sleep(5 * time.Second)
		w.show(chatA, "s", "one two")
		w.sleep(5 * time.Second)
		w.answer(chatA, "one two three", "s")
		w.sleep(time.Second)
		w.wantRead(chatA, "one two three")
		if n := len(w.asked("draft")); n != 1 {
			w.t.Errorf("%d drafts were tried, want 1", n)
		}
	})
}

// A reaction that could not be removed is removed later, and no message waits for that.
func TestMarkIsTakenAwayLater(t *testing.T) {
	socially(t, "👀", func(w *world, s *reactingPlatform) {
		w.sleep(time.Hour)
		w.admit("1", "2")
		failures := []error{&channels.RateError{After: time.Minute, Account: true},
			&channels.RateError{After: 2 * time.Second}, errors.New("no connection")}
		s.fail = func(_ context.Context, c call) (err error) {
			if c.kind == "react" && len(failures) > 0 {
				err, failures = failures[0], failures[1:]
			}
			return err
		}
		w.reply("1")
		w.reply("2")
		w.wantRead(chatA, "hello", "hello")
		w.sleep(59 * time.Second)
		if got := s.marked()[4:]; !slices.Equal(got, []string{"react 1 "}) {
			w.t.Errorf("within the minute that the platform asked for, marks are %q", got)
		}
		w.sleep(time.Minute)
		got := s.marked()[5:]
		for _, id := range []string{"react 1 ", "react 2 "} {
			if n := len(slices.DeleteFunc(slices.Clone(got),
				func(m string) bool { return m != id })); n < 1 {
				w.t.Errorf("%q was not tried again: marks are %q", id, got)
			}
		}
		if len(got) != 4 { // both, plus the limited one and the one that had no connection
			w.t.Errorf("marks are %q", got)
		}
	})
}

// A mark that could not be set is tried again. A reaction that seems never to have been set may
// exist nevertheless, so it is removed.
func TestMarkIsTriedAgain(t *testing.T) {
	for fails, tries := range map[int]int{2: 3, 1000: 6} {
		socially(t, "👀", func(w *world, s *reactingPlatform) {
			w.sleep(time.Hour)
			failed := make(map[string]int)
			s.fail = func(_ context.Context, c call) error {
				if key := c.kind + c.text; c.kind != "send" && failed[key] < fails {
					failed[key]++
					return errors.New("no connection")
				}
				return nil
			}
			w.admit("1")
			w.sleep(2 * time.Minute)
			w.reply("1")
			w.sleep(2 * time.Minute)
			got := make(map[string]int)
			for _, m := range s.marked() {
				got[m]++
			}
			want := map[string]int{"read [1] ": tries, "react 1 👀": tries, "react 1 ": tries}
			if !maps.Equal(got, want) {
				w.t.Errorf("of %d failures marks are %v, want %v", fails, got, want)
			}
		})
	}
}

// A refused reaction does not delay the messages of its chat.
func TestMarkPausesNoMessage(t *testing.T) {
	socially(t, "👀", func(w *world, s *reactingPlatform) {
		s.fail = func(_ context.Context, c call) error {
			if c.kind == "react" {
				return &channels.RateError{After: time.Minute, Account: true}
			}
			return nil
		}
		w.admit("1")
		w.put(chatA, "now")
		w.wantRead(chatA, "now")
	})
}

// If an answer is sent while the process ends, its message loses its reaction, too. The next
// process removes the reactions that the last one had no time to remove.
func TestMarksAtTheEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		s := &reactingPlatform{platform: w.platform}
		account := router.Account{Name: "full", Channel: s, Reaction: "👀"}
		stop := w.startWith(account)
		w.sleep(time.Hour)
		w.admit("1")
		hold := make(chan struct{})
		s.fail = func(_ context.Context, c call) error {
			if c.kind == "send" {
				<-hold
			}
			return nil
		}
		w.reply("1")
		go func() {
			time.Sleep(time.Second)
			close(hold)
		}()
		stop()
		want := []string{"read [1] ", "react 1 👀", "react 1 "}
		if got := s.marked(); !slices.Equal(got, want) {
			w.t.Errorf("after the end marks are %q, want %q", got, want)
		}
		w.startWith(account)
		if got := s.marked(); !slices.Equal(got, append(want, "react 1 ")) {
			w.t.Errorf("after the next start marks are %q", got)
		}
		w.sleep(time.Hour)
		w.startWith(account)
		if got := s.marked(); len(got) != 4 {
			w.t.Errorf("an hour later marks are %q", got)
		}
	})
}
