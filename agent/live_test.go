package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/agent/turn"
	"gateway/bus"
)

// watch returns a function that returns the progress that was published for a chat so far.
func (w *world) watch(chat string) func() []bus.Progress {
	all := w.watchAll()
	return func() []bus.Progress { return all()[at(chat)] }
}

// watchAll returns a function that returns the progress that was published so far, by chat. A
// goroutine reads it at once, as the router does.
func (w *world) watchAll() func() map[bus.Address][]bus.Progress {
	seen := make(map[bus.Address][]bus.Progress)
	stop := make(chan struct{})
	w.t.Cleanup(func() { close(stop) })
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-w.deps.Live.C():
			}
			for _, p := range w.deps.Live.Drain() {
				seen[p.To] = append(seen[p.To], p)
			}
		}
	}()
	return func() map[bus.Address][]bus.Progress {
		w.settle()
		return seen
	}
}

// slowly returns a step that pauses after each word.
func slowly(text string, pause time.Duration) llmtest.Step {
	s := llmtest.Say(text)
	s.Text = append(s.Text, "")
	s.Between = pause
	return s
}

func wantProgress(t *testing.T, got, want []bus.Progress) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		var g, w bus.Progress
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("progress %d is %+v, want %+v", i, g, w)
		}
	}
}

// A slow answer is announced before it has a text. Its preview then grows with the text.
func TestProgress(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		seen := w.watch("a")
		step := slowly("one two three", time.Second)
		step.Delay = 2 * time.Second
		w.model.Queue(step)
		w.start()
		m := w.message("a", "hello")
		m.Group = true
		w.put(m)
		w.wantQuiet()
		p := bus.Progress{To: at("a"), Stream: "1.0", ReplyTo: m.ID}
		want := []bus.Progress{p, p, p, p, p}
		want[1].Text, want[2].Text = "one ", "one two " // also where the model pauses
		want[3].Text, want[4].Ended = "one two three", true
		wantProgress(t, seen(), want)
		if got := w.outbox("a")[0].Stream; got != p.Stream {
			t.Errorf("the answer ends the preview %q, want %q", got, p.Stream)
		}
	})
}

// An answer that comes at once has no preview and names none.
func TestNoProgressOfQuickAnswer(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		seen := w.watch("a")
		w.model.Queue(llmtest.Say("one two three"))
		w.start()
		w.say("a", "hello")
		w.wantQuiet()
		wantProgress(t, seen(), nil)
		if got := w.outbox("a")[0].Stream; got != "" {
			t.Errorf("the answer ends the preview %q that never was", got)
		}
	})
}

// A preview can become due at the moment when its answer is ready. Then either it is shown and
// the answer ends it, or it is not shown. Otherwise both messages would stay.
func TestProgressAtTheEnd(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const chats = 200
		seen := w.watchAll()
		for range chats {
			w.model.Queue(slowly("one", turn.ShowAfter))
		}
		w.start()
		for i := range chats {
			w.say(fmt.Sprint(i), "hello")
		}
		w.wantQuiet()
		for i := range chats {
			chat := fmt.Sprint(i)
			shown := len(seen()[at(chat)]) > 0
			if ended := w.outbox(chat)[0].Stream != ""; shown != ended {
				t.Errorf("chat %d: shown %t, ended %t", i, shown, ended)
			}
		}
	})
}

// The deltas of a fast model are collected, so that not each word is an update.
func TestProgressIsThrottled(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		seen := w.watch("a")
		w.model.Queue(slowly("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20", 11*time.Millisecond))
		w.start()
		w.say("a", "hello")
		w.wantQuiet()
		var texts []string
		for _, p := range seen() {
			texts = append(texts, p.Text)
		}
		wantLines(t, "progress", texts, []string{
			"1 2 3 4 5 6 7 8 9 10 ", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 ",
			"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 ", ""})
	})
}

// While tools run, the preview shows a status line.
func TestStatusLine(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		seen := w.watch("a")
		set := func(context.Context) (string, error) {
			time.Sleep(time.Millisecond) // the watcher must see the status before the answer
			return "done", nil
		}
		w.tools(act("look", tool.Pure, always("seen")), act("set", tool.Once, set))
		w.model.Queue(uses("look", "set"), llmtest.Say("answer"))
		w.start()
		began := time.Now()
		w.say("a", "hello")
		w.wantQuiet()
		status := bus.Progress{To: at("a"), Stream: "1.0",
			Status: "🔧 using `look`, using `set`", Since: began}
		wantProgress(t, seen(), []bus.Progress{status, {To: at("a"), Stream: "1.0", Ended: true}})
		if got := w.outbox("a")[0].Stream; got != "1.0" {
			t.Errorf("the answer ends the preview %q, want that with the status line", got)
		}
	})
}

// Each answer has a preview of its own.
func TestProgressOfFollowup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		seen := w.watch("a")
		w.model.Queue(slowly("first answer", time.Second), slowly("second answer", time.Second))
		w.start()
		w.say("a", "hello", "and more")
		w.wantQuiet()
		p, q := bus.Progress{To: at("a"), Stream: "1.0"}, bus.Progress{To: at("a"), Stream: "2.0"}
		want := []bus.Progress{p, p, p, q, q, q}
		want[0].Text, want[1].Text, want[2].Ended = "first ", "first answer", true
		want[3].Text, want[4].Text, want[5].Ended = "second ", "second answer", true
		wantProgress(t, seen(), want)
		for i, m := range w.outbox("a") {
			if m.Stream != want[3*i].Stream {
				t.Errorf("answer %d ends the preview %q, want %q", i, m.Stream, want[3*i].Stream)
			}
		}
	})
}

// The preview of a turn that is suspended ends, but the turn has not stopped. When it goes on, its
// preview does, too, and the answer takes the place of that.
func TestProgressWaits(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		seen := w.watch("a")
		w.tools(ask.New())
		w.model.Queue(asksFor("Which?"), slowly("one two three", time.Minute))
		w.start()
		w.say("a", "hello")
		all := seen()
		last := all[len(all)-1]
		if !last.Ended || !last.Void || !last.Waits {
			t.Fatalf("the preview ends with %+v, want it to wait", last)
		}
		w.say("a", "this")
		w.sleep(time.Hour)
		grown := false
		for _, p := range seen()[len(all):] {
			grown = grown || p.Stream == last.Stream && p.Text != ""
		}
		if m := w.outbox("a")[1]; !grown || m.Stream != last.Stream {
			t.Errorf("the preview has grown: %v; the answer replaces %q, want %q", grown, m.Stream,
				last.Stream)
		}
	})
}

// The preview of an answer that will not come is void. If an error message takes the place of the
// answer, the preview is not void.
func TestProgressEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		mode   pool.Mode
		say    string // while the answer grows
		fault  error  // of the model, at the end
		voided bool
	}{
		{name: "stop", mode: pool.Steer, say: "/stop", voided: true},
		{name: "interrupt", mode: pool.Interrupt, say: "new", voided: true},
		{name: "error", mode: pool.Steer, fault: &llm.Error{Kind: llm.Overloaded}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				seen := w.watch("a")
				step := slowly("one two three", time.Minute)
				step.Err = test.fault
				w.model.Queue(step, llmtest.Say("new answer"))
				w.opts.QueueMode = test.mode
				w.start()
				w.say("a", "hello")
				w.sleep(90 * time.Second)
				if test.say != "" {
					w.say("a", test.say)
				}
				w.sleep(time.Hour)
				all := seen()
				var last bus.Progress
				for _, p := range all {
					if p.Stream == "1.0" {
						last = p
					}
				}
				if !last.Ended || last.Void != test.voided {
					t.Errorf("the preview ends with %+v, want it ended and void: %v", last, test.voided)
				}
				answered := false
				for _, m := range w.outbox("a") {
					answered = answered || m.Stream == "1.0"
				}
				if answered == test.voided {
					t.Errorf("a message takes its place: %v, want %v", answered, !test.voided)
				}
			})
		})
	}
}
