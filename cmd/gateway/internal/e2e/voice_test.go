//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/store"
)

// TestVoiceKill checks that an answer is spoken once on each platform, although the gateway is
// killed before and during the speech synthesis.
func TestVoiceKill(t *testing.T) {
	t.Parallel()
	w, platforms := joinPlatforms(t, "", repeat)
	held := newHold()
	defer held.release()
	p := w.start("GATEWAY_FAULT=chored:1")
	p.ready()
	w.onAll(platforms, func(s *scene) { s.ask("/voice always", "with a voice message, too") })
	platforms["telegram"].say("hello") // only here: the others could still send while it ends
	until(t, "the end of the gateway", p.done)
	platforms["discord"].say("hello")
	platforms["whatsapp"].say("hello")
	w.model.HoldSpeech(func(openaitest.Speech) { held.wait() })
	p = w.start()
	until(t, "a text to be spoken", held.reached)
	p.kill()
	held.release()
	p = w.start()
	p.ready()
	w.onAll(platforms, func(s *scene) {
		s.hear("you said hello")
		s.until("the voice", func() bool { return s.voices() > 0 })
		s.rows(0, "outbox WHERE state IN ('waiting', 'sending')")
		if n := s.voices(); n != 1 {
			s.t.Errorf("%s: Ann has got %d voice notes, want one: %q", s.name, n, s.direct())
		}
		texts := 0
		for _, m := range s.direct() {
			texts += strings.Count(m, "you said hello")
		}
		// On Telegram, a text whose sending a kill interrupts may come twice. No voice note is being
		// sent at the time of the kills.
		if texts != 1 && s.name != "telegram" {
			s.t.Errorf("%s: Ann reads %q, want the text once", s.name, s.direct())
		}
	})
}

// TestVoiceFails checks that an answer is sent once without a voice note if the API fails, the
// text has nothing to speak, or the budget is spent. Only the first sentences of a long answer
// are spoken.
func TestVoiceFails(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"code": "```\nls\n```", "long": "One. " + strings.Repeat("a", 90) + ". Three.",
		"link": "See **[the page](https://example.com)**.",
	}
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		for word, answer := range answers {
			if strings.Contains(lastWords(r), word) {
				return openaitest.Reply{Text: []string{answer}}
			}
		}
		return openaitest.Reply{Text: []string{"fine"}}
	}})
	w.config = fmt.Sprintf("[media.speech]\nmodel = \"tts-1\"\nbase_url = %q\nanswers = \"always\"\n"+
		"max_text = 50\nprice_million = 1e5\n[budget]\nday_dollars = 2.4\n", w.model.URL) + w.config
	w.configure(quiet)
	w.model.Keep(openaitest.DefaultKeep)
	w.model.InjectSpeech(1, openaitest.Fault{Status: 500})
	w.run()
	want := 0
	for _, text := range []string{"fails", "code", "long", "link", "spent"} {
		want++
		before := len(w.texts(annID))
		w.telegram.Say(annID, annID, text)
		w.await("an answer to "+text, func() bool { return len(w.texts(annID)) > before })
		w.eventually("its voice to be made or not", func(db *store.DB) bool {
			return w.count(db, "chores") == 0 &&
				w.count(db, "outbox WHERE state <> 'sent'") == 0
		})
	}
	var spoken []string
	for _, s := range w.model.Speeches() {
		spoken = append(spoken, s.Input)
	}
	if want := []string{"fine", "One.", "See the page."}; !slices.Equal(spoken, want) {
		t.Errorf("spoken %q, want %q", spoken, want)
	}
	texts, voices := 0, 0
	for _, m := range w.telegram.History(annID) {
		if m.File == nil {
			texts++
		} else if voices++; m.File.Kind != "voice" {
			t.Errorf("sent %+v, want a voice note", m.File)
		}
	}
	if texts != want || voices != 2 {
		t.Errorf("%d texts and %d voice notes, want %d and 2", texts, voices, want)
	}
}

// TestVoiceChoice checks that in a group only admins can choose whether answers are spoken, and
// that nobody can choose it if no speech is configured.
func TestVoiceChoice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	w.config = fmt.Sprintf("[media.speech]\nmodel = \"tts-1\"\nbase_url = %q\nanswers = \"auto\"\n",
		w.model.URL) + w.config
	channel := quiet + fmt.Sprintf("\nowners = [%d]\ngroups = [%d]", annID, groupID)
	w.configure(channel)
	w.telegram.AddGroup(groupID, "Garden")
	stop := w.run()
	w.wantReply(annID, "/voice", "I answer voice messages here with a voice message, too")
	w.wantReply(annID, "/voice loud", "That is not a way to answer.")
	w.wantReply(annID, "/voice off", "I only write my answers here.")
	w.wantReply(annID, "/voice default", "When I speak here is up to the configuration again.")
	for user, want := range map[int64]string{bobID: "Only", annID: "I answer here with a voice"} {
		before := len(w.texts(groupID))
		w.telegram.Say(groupID, user, "/voice@gateway_bot always")
		w.await("an answer", func() bool { return len(w.texts(groupID)) > before })
		if got := w.texts(groupID)[before]; !strings.HasPrefix(got, want) {
			t.Errorf("user %d was told %q, want %q", user, got, want)
		}
	}
	stop()
	w.set("model = \"tts-1\"", "")
	w.configure(channel)
	w.run()
	w.wantReply(annID, "/voice", "I can't speak here")
}

// TestVoicePolicy checks on each platform that the policy of an account decides whether answers
// are spoken there, and that a choice in a chat overrides the policy, also after a kill.
func TestVoicePolicy(t *testing.T) {
	t.Parallel()
	w, platforms := joinPlatforms(t, "[policies.spoken]\naccounts = [\"telegram\"]\n"+
		"voice = \"always\"\nactivity = \"full\"\n", repeat)
	p := w.start()
	p.ready()
	w.onAll(platforms, func(s *scene) {
		s.ask("hello", "you said hello")
		if s.name == "telegram" {
			s.until("the voice", func() bool { return s.voices() == 1 })
			s.ask("/activity", "Everybody in this chat sees them.")
			s.ask("/voice never", "I only write my answers here.")
		} else {
			s.ask("/activity", "I show in one line what I am doing.")
		}
		s.ask("/activity off", "I only show my answers here.")
		s.rows(0, "outbox WHERE state IN ('waiting', 'sending')")
	})
	p.kill()
	p = w.start()
	p.ready()
	w.onAll(platforms, func(s *scene) {
		s.say("/activity")
		s.until("the setting", func() bool {
			return slices.ContainsFunc(s.direct(), func(m string) bool {
				return strings.Contains(m, "I only show my answers here.") &&
					strings.Contains(m, "changes it")
			})
		})
		voices := s.voices()
		s.ask("once more", "you said once more")
		s.w.eventually("no voice to be made", func(db *store.DB) bool {
			return s.w.count(db, "chores WHERE kind = 'speak'") == 0
		})
		s.rows(0, "outbox WHERE state IN ('waiting', 'sending')")
		if n := s.voices(); n != voices {
			s.t.Errorf("%s: Ann has got %d voice notes, want %d", s.name, n, voices)
		}
	})
}

// TestVoiceTellsNoSecret checks that an answer withheld because of a secret is not spoken and not
// sent to the speech API, even if Markdown escapes split the secret.
func TestVoiceTellsNoSecret(t *testing.T) {
	t.Parallel()
	escaped := strings.ReplaceAll(secretKey, "-", `\-`)
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		switch text := lastWords(r); {
		case strings.Contains(text, "plain"):
			return say("The key is " + secretKey + ".")
		case strings.Contains(text, "escaped"):
			return say("The key is " + escaped + ".")
		}
		return say("fine")
	}})
	w.set("[models.fake]", fmt.Sprintf("[models.fake]\nkey = %q", secretKey))
	w.config = fmt.Sprintf("[media.speech]\nmodel = \"tts-1\"\nbase_url = %q\n"+
		"answers = \"always\"\n", w.model.URL) + w.config
	w.configure(quiet)
	w.model.Keep(openaitest.DefaultKeep)
	w.run()
	for _, text := range []string{"plain", "escaped", "nothing"} {
		w.reply(annID, text)
		w.eventually("its voice to be made or not", func(db *store.DB) bool {
			return w.count(db, "chores") == 0 && w.count(db, "outbox WHERE state <> 'sent'") == 0
		})
	}
	var spoken []string
	for _, s := range w.model.Speeches() {
		spoken = append(spoken, s.Input)
	}
	if !slices.Equal(spoken, []string{"fine"}) {
		t.Errorf("spoken %q, want what has no secret", spoken)
	}
}
