package agent

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/bus"
)

// A fileTranscriber is a transcriber that returns the content of a file. It fails for "noise" and
// panics for "panic". If release is set, files that begin with "slow" wait for it.
type fileTranscriber struct {
	calls   atomic.Int32
	release chan struct{}
}

func (s *fileTranscriber) Transcribe(ctx context.Context, _ string, r io.Reader) (string, error) {
	s.calls.Add(1)
	all, err := io.ReadAll(r)
	text := string(all)
	if s.release != nil && strings.HasPrefix(text, "slow") {
		select {
		case <-s.release:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	switch text {
	case "noise":
		err = errors.New("bad sound")
	case "panic":
		panic("scribe")
	}
	return text, err
}

// withScribe gives the world a transcriber for voice messages.
func (w *world) withScribe() *fileTranscriber {
	s := &fileTranscriber{}
	w.deps.Media = &mediaFolder{dir: w.t.TempDir(), files: map[string]string{}}
	w.deps.Transcriber = s
	return s
}

// spoken returns a voice message in a direct chat.
func (w *world) spoken(chat, said string) bus.InboundMessage {
	m := w.message(chat, "")
	ref := m.ID + ".ogg"
	w.deps.Media.(*mediaFolder).files[ref] = said
	return carrying(m, bus.Attachment{Kind: bus.Voice, Type: "audio/ogg", Seconds: 3, Ref: ref})
}

// overheard returns a voice message in a group that does not address the agent.
func (w *world) overheard(chat, said string) bus.InboundMessage {
	m := w.spoken(chat, said)
	m.Group, m.Addressed, m.VoiceState = true, false, bus.Overheard
	return m
}

// Messages after a voice message wait, in order, until the voice message is transcribed. Other
// conversations do not wait. Each voice message is transcribed once.
func TestVoiceMessages(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		s := w.withScribe()
		s.release = make(chan struct{})
		w.model.Queue(llmtest.Say("hello b"), llmtest.Say("slow, I see"), llmtest.Say("and you"))
		w.opts.QueueMode = "followup"
		w.start()
		w.put(w.spoken("a", "slow"), w.message("a", "how are you?"), w.spoken("a", "Slash status."),
			w.message("b", "hello"), w.message("b", "/queue"))
		w.sleep(2 * recoveryInterval)
		if got := w.texts("a"); len(got) != 0 {
			t.Errorf("a was told %q before its voice message was read", got)
		}
		if got := w.texts("b"); len(got) != 2 {
			t.Errorf("b was told %q, want two answers", got)
		}
		close(s.release)
		w.wantQuiet()
		got := w.texts("a")
		if len(got) != 3 || !strings.Contains(strings.Join(got, "\n"), "- Gateway") {
			t.Errorf("a was told %q, want two answers and the status", got)
		}
		w.wantAsked(2, "user: [voice message, 3 s] slow")
		if n := s.calls.Load(); n != 2 {
			t.Errorf("%d transcriptions, want 2", n)
		}
	})
}

// A spoken command runs while a turn runs, as a typed one does.
func TestSpokenStop(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.withScribe()
		release := make(chan struct{})
		defer close(release)
		w.model.Queue(held(llmtest.Say("never said"), release))
		w.start()
		w.say("a", "think long")
		w.put(w.spoken("a", "Stop!"))
		w.wantQuiet()
		if got := w.texts("a"); len(got) != 1 || !strings.Contains(got[0], "topped") {
			t.Errorf("a was told %q, want that the answer was stopped", got)
		}
	})
}

// A written /stop does not wait for the transcription of a voice message by a slow service. It
// stops the running turn and drops the earlier voice message.
func TestStopOvertakesHearing(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		s := w.withScribe()
		s.release = make(chan struct{})
		defer close(s.release)
		release := make(chan struct{})
		defer close(release)
		w.model.Queue(held(llmtest.Say("never said"), release))
		w.start()
		w.say("a", "think long")
		w.put(w.spoken("a", "slow words"), w.message("a", "/stop"))
		w.settle()
		if got := w.texts("a"); len(got) != 1 || !strings.Contains(got[0], "topped") {
			t.Errorf("a was told %q, want that the answer was stopped", got)
		}
	})
}

// A written /stop does not wait for an overheard voice message. It ends the transcription only if
// its author is the sender of the voice message or an admin. Otherwise the voice message may be
// for the agent, so it is still transcribed and answered.
func TestStopLeavesOverheard(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sender string
		role   bus.Role
		ends   bool
	}{
		"its sender": {"7", bus.User, true}, "an admin": {"8", bus.Admin, true},
		"another member": {"8", bus.User, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				s := w.withScribe()
				s.release = make(chan struct{})
				w.opts.Names = []string{"Robin"}
				if !tt.ends {
					w.model.Queue(llmtest.Say("here I am"))
				}
				w.start()
				note, stop := w.overheard("g", "slow words, Robin"), w.message("g", "/stop")
				stop.Group, stop.Sender.ID, stop.Role = true, tt.sender, tt.role
				w.put(note, stop)
				w.settle()
				if got := w.texts("g"); len(got) != 1 {
					t.Errorf("the group was told %q before the words were read, want an answer to /stop", got)
				}
				close(s.release)
				w.wantQuiet()
				if got := w.texts("g"); slices.Contains(got, "here I am") == tt.ends {
					t.Errorf("the group was told %q; the reading was to end: %v", got, tt.ends)
				}
			})
		})
	}
}

// If a person's own message waits behind an overheard voice message, the person's /stop runs
// after that message.
func TestStopAfterOwnWords(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		s := w.withScribe()
		s.release = make(chan struct{})
		never := make(chan struct{})
		w.model = llmtest.Func("slow", func(llm.Request) llmtest.Step { // /stop may come first
			return held(llmtest.Say("too late"), never)
		})
		w.deps.Model = w.model
		w.start()
		words, stop := w.message("g", "work for long"), w.message("g", "/stop")
		for _, m := range []*bus.InboundMessage{&words, &stop} {
			m.Group, m.Addressed, m.Sender.ID, m.Role = true, true, "8", bus.User
		}
		w.put(w.overheard("g", "slow words"), words, stop)
		w.settle()
		if got := w.texts("g"); len(got) != 0 {
			t.Errorf("the group was told %q before the words of the sender were handed out", got)
		}
		close(s.release)
		w.wantQuiet()
		if got := w.texts("g"); len(got) != 1 || !strings.Contains(got[0], "topped") {
			t.Errorf("the group was told %q, want one answer, to /stop", got)
		}
	})
}

// A command that deletes or grants something does not run if it was spoken. The person must send
// it in writing.
func TestSpokenGrave(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.withScribe()
		w.start()
		w.put(w.spoken("a", "slash forget me"))
		w.wantQuiet()
		list := w.outbox("a")
		if len(list) != 1 || !strings.Contains(list[0].Text, "I have understood `/forget me`") ||
			len(list[0].Buttons) != 1 || list[0].Buttons[0].Text != "/forget me" {
			t.Errorf("a was told %+v, want a question with a button", list)
		}
	})
}

// A forwarded voice message is not a command for the agent, and neither is one with a caption.
func TestForwardedIsNoCommand(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.withScribe()
		w.model.Queue(llmtest.Say("one"), llmtest.Say("two"))
		w.start()
		forwarded, captioned := w.spoken("a", "slash new"), w.spoken("a", "slash new")
		forwarded.Forwarded, captioned.Text = "Bob", "listen to this"
		w.put(forwarded)
		w.put(captioned)
		w.wantQuiet()
		w.wantAnswers("a", "one", "two")
	})
}

// An overheard voice message in a group is answered if it contains a name of the agent. Otherwise
// it becomes context.
func TestOverheard(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.withScribe()
		var marked []string
		w.outside.admitted = func(list []bus.InboundMessage) {
			for _, m := range list {
				marked = append(marked, m.ID)
			}
		}
		w.opts.Names = []string{"Aida", "Ada Two"}
		w.model.Queue(llmtest.Say("yes"))
		w.start()
		w.put(w.overheard("g", "The roses are red."), w.overheard("g", "Stop!"),
			w.overheard("g", "noise"), w.overheard("g", "panic"), w.overheard("g", "Aidas roses"))
		w.wantAnswers("g")
		named := w.overheard("g", "Are they, AIDA?")
		w.put(named)
		w.wantQuiet()
		w.wantAnswers("g", "yes")
		if len(marked) != 1 || marked[0] != named.ID {
			t.Errorf("marked %q, want %q", marked, named.ID)
		}
		asked := strings.Join(lines(w.request(1).Messages[1:]), "\n")
		context, question, _ := strings.Cut(asked, "[End of what was said before.]")
		for _, want := range []string{"The roses are red.", "Stop!", "not looked at", "Aidas roses"} {
			if !strings.Contains(context, want) {
				t.Errorf("the context is %q, want %q in it", context, want)
			}
		}
		if !strings.HasSuffix(question, "[voice message, 3 s] Are they, AIDA?") {
			t.Errorf("the question is %q", question)
		}
		w.put(w.overheard("g", "Ada two, slash queue collect"))
		w.wantQuiet()
		if got := w.texts("g"); len(got) != 2 || !strings.Contains(got[1], "now collect") {
			t.Errorf("the group was told %q, want that the mode is collect", got)
		}
	})
}

// A process that stops leaves a voice message to the next process. The next process does not
// repeat earlier decisions about a voice message.
func TestVoiceMessagesAfterRestart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		s := w.withScribe()
		s.release = make(chan struct{})
		w.opts.Names = []string{"Ada"}
		w.start()
		w.put(w.overheard("g", "slow, Ada"), w.spoken("a", "slow"))
		w.must(w.stop())
		w.wantAnswers("g")
		close(s.release)
		w.model.Queue(llmtest.Say("hello"), llmtest.Say("hello"))
		w.start()
		w.wantQuiet()
		w.wantAnswers("g", "hello")
		w.wantAnswers("a", "hello")
		if n := s.calls.Load(); n != 4 {
			t.Errorf("%d transcriptions, want 4", n)
		}
		w.must(w.stop())
		heard := w.overheard("g", "nothing")
		heard.VoiceState, heard.Addressed = bus.NotCommand, true
		heard.Attachments[0].Transcript = "said before"
		w.model.Queue(llmtest.Say("again"))
		w.put(heard)
		w.start()
		w.wantQuiet()
		w.wantAnswers("g", "hello", "again")
		if n := s.calls.Load(); n != 4 {
			t.Errorf("%d transcriptions after a restart, want 4", n)
		}
	})
}

// Without a transcription service, an overheard voice message becomes context, and other voice
// messages go to the model.
func TestHearingNotConfigured(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.withScribe()
		w.deps.Transcriber = nil
		w.model.Queue(llmtest.Say("what?"))
		w.start()
		w.put(w.overheard("g", "Ada"))
		w.put(w.spoken("a", "slash new"))
		w.wantQuiet()
		w.wantAnswers("g")
		w.wantAnswers("a", "what?")
	})
}

// Long or large voice messages are not transcribed before their turn, so they can't be commands.
func TestLongVoice(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.withScribe()
		w.model.Queue(llmtest.Say("one"), llmtest.Say("two"))
		w.start()
		long, large := w.spoken("a", "slash new"), w.spoken("a", "slash new")
		long.Attachments[0].Seconds, large.Attachments[0].Size = 31, 1<<20
		w.put(long)
		w.sleep(time.Second)
		w.put(large)
		w.wantQuiet()
		w.wantAnswers("a", "one", "two")
	})
}
