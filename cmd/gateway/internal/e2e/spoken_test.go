//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
)

// record returns a voice message that the fake model transcribes as text.
func (w *world) record(text string) []byte {
	sound := recording + text
	w.model.Hear(sound, text)
	return []byte(sound)
}

// transcribed returns how often a voice message was transcribed.
func (w *world) transcribed(sound []byte) (n int) {
	for _, a := range w.model.Audios() {
		if string(a.Data) == string(sound) {
			n++
		}
	}
	return n
}

// TestSpoken checks on each platform that a voice message in a group is answered if it contains
// the agent's name. Other voice messages there are context, and a spoken command runs. The
// gateway is killed after it has decided about the first voice message, which is not transcribed
// again.
func TestSpoken(t *testing.T) {
	t.Parallel()
	w, platforms := joinPlatforms(t, "", repeat)
	w.set("[transcription]", "[transcription]\ngroups = [\"*\"]\nnames = [\"Ada\"]")
	w.configure("")
	w.model.Keep(openaitest.DefaultKeep)
	roses, shed := w.record("Ada, where are the roses?"), w.record("The shed is open.")
	p := w.start("GATEWAY_FAULT=heard:1")
	p.ready()
	platforms["telegram"].voiceGroup(roses)
	until(t, "the gateway to die", p.done)
	p = w.start()
	p.receives() // Discord may still show the connection of the old one
	w.onAll(platforms, func(s *scene) {
		if s.name != "telegram" {
			s.voiceGroup(roses)
		}
		s.until("an answer", func() bool { return has(s.group(), "where are the roses?") })
		answers := len(s.group())
		s.voiceGroup(shed)
		s.sayGroup("what was that?", true)
		s.until("an answer", func() bool { return has(s.group(), "what was that?") })
		if n := len(s.group()); n != answers+1 {
			s.t.Errorf("%s: Bob reads %q, want one more answer", s.name, s.group())
		}
		s.voice(w.record("Slash new."))
		s.hear("A new conversation begins.")
		s.voice(w.record("Slash forget me"))
		s.hear("I have understood")
	})
	for sound, want := range map[string]int{string(roses): 3, string(shed): 3} {
		if n := w.transcribed([]byte(sound)); n != want {
			t.Errorf("%q was transcribed %d times, want %d", sound, n, want)
		}
	}
	context := 0
	for _, r := range w.model.Requests() {
		question := lastText(r)
		if strings.Contains(question, "what was that?") &&
			strings.Contains(question, "The shed is open.") {
			context++
		}
	}
	if context != 3 {
		t.Errorf("%d questions have the voice message before them as context, want 3", context)
	}
}

// TestForwardedVoice checks that a forwarded voice message is never a command, even if a command
// is spoken in it. It is a message to the agent.
func TestForwardedVoice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	w.set("[models.fake]", fmt.Sprintf("[transcription]\nmodel = \"scribe\"\nbase_url = %q\n"+
		"[models.fake]", w.model.URL))
	w.configure(quiet)
	p := w.start()
	p.ready()
	said := w.record("Slash new.")
	w.telegram.Deliver(telegramtest.Message{Chat: annID, User: annID,
		File: &telegramtest.File{Kind: "voice", Type: "audio/ogg", Data: said, Seconds: 3},
		Extra: map[string]any{"forward_origin": map[string]any{
			"type": "hidden_user", "sender_user_name": "Mallory", "date": 1}}})
	w.await("an answer of the model", func() bool { return has(w.texts(annID), "Slash new.") })
	w.telegram.SayVoice(annID, annID, said, 3)
	w.await("a command", func() bool { return has(w.texts(annID), "A new conversation begins.") })
	if got := w.texts(annID); strings.Contains(got[0], "A new conversation begins.") {
		t.Errorf("the forwarded voice message was a command: %q", got)
	}
	p.kill()
}

// TestNotTranscribed checks that voice messages in a group are transcribed only if the settings
// say so, and voice messages of strangers never.
func TestNotTranscribed(t *testing.T) {
	t.Parallel()
	w, platforms := joinPlatforms(t, "", repeat)
	w.model.Keep(openaitest.DefaultKeep)
	w.run()
	w.onAll(platforms, func(s *scene) {
		s.voiceGroup(w.record("gateway, stop"))
		s.sayGroup("hello", true)
		s.until("an answer", func() bool { return has(s.group(), "hello") })
	})
	w.telegram.SayVoice(bobID, bobID, w.record("slash help"), 3)
	w.await("a pairing code", func() bool { return len(w.texts(bobID)) > 0 })
	if n := len(w.model.Audios()); n != 0 {
		t.Errorf("%d voice messages were transcribed, want none", n)
	}
}
