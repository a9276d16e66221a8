//go:build unix

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
)

// withPictures configures a model that generates pictures.
func (w *world) withPictures(more string) {
	w.t.Helper()
	w.config = fmt.Sprintf("[media.images]\nmodel = \"gpt-image-1\"\nbase_url = %q\nprice = 0.2\n%s",
		w.model.URL, more) + w.config
	w.model.Keep(openaitest.DefaultKeep)
}

// files returns the number of files that Ann has received.
func (s *scene) files() (n int) {
	for _, m := range s.direct() {
		n += strings.Count(m, "{")
	}
	return n
}

var mediaFile = regexp.MustCompile(`media/[a-z0-9]+\.[a-z]+`)

// drawn returns the request for a picture with this prompt. There must be exactly one.
func (s *scene) drawn(prompt string) openaitest.Drawing {
	s.t.Helper()
	found := slices.DeleteFunc(s.w.model.Drawings(), func(d openaitest.Drawing) bool {
		return d.Prompt != prompt
	})
	if len(found) != 1 {
		s.t.Fatalf("%s: %d pictures of %q were to be made, want one", s.name, len(found), prompt)
	}
	return found[0]
}

// TestPictures checks that pictures are generated, edited and sent on each platform. A picture
// that a kill interrupts is neither generated again nor sent, and the model is told.
func TestPictures(t *testing.T) {
	t.Parallel()
	w, platforms := joinPlatforms(t, "", answerConversations)
	w.withPictures("")
	w.configure("")
	p := w.start()
	p.ready()
	w.onAll(platforms, func(s *scene) {
		s.ask(`DO generate_image {"prompt":"roses `+s.name+`","size":"1024x1024","caption":"Here."}`,
			"the tools said The picture is media/")
		s.until("the picture", func() bool { return s.files() == 1 })
		made := mediaFile.FindString(strings.Join(s.direct(), "\n"))
		s.photos("my garden", pixels(300))
		s.hear("you said my garden")
		sent := ""
		for _, r := range w.model.Requests() {
			if text := lastUser(r); platformOf(r) == s.name && strings.Contains(text, "my garden") {
				sent = mediaFile.FindString(text)
			}
		}
		s.say(fmt.Sprintf(`DO edit_image {"prompt":"both %s","images":[%q,%q]}`, s.name, made, sent))
		s.until("the new picture", func() bool { return s.files() == 2 })
		if got := s.drawn("roses " + s.name); got.Size != "1024x1024" {
			s.t.Errorf("%s: %q was to be made, want 1024x1024", s.name, got.Size)
		}
		if got := s.drawn("both " + s.name).Edits; len(got) != 2 ||
			string(got[0]) != string(openaitest.Painted()) {
			s.t.Errorf("%s: %d pictures were edited, want the one that was made and Ann's", s.name,
				len(got))
		}
		s.rows(0, "outbox WHERE state IN ('waiting', 'sending')")
	})
	held := newHold()
	defer held.release()
	w.model.HoldDrawings(func(openaitest.Drawing) { held.wait() })
	w.onAll(platforms, func(s *scene) {
		s.say(`DO generate_image {"prompt":"tulips ` + s.name + `"}`)
	})
	w.repeat("all to be asked for", func() bool { return len(w.model.Drawings()) == 9 })
	p.kill()
	held.release()
	p = w.start()
	p.ready()
	w.onAll(platforms, func(s *scene) {
		s.hear("the tools said The gateway was restarted while this call ran")
		s.drawn("tulips " + s.name)
		s.rows(0, "outbox WHERE state IN ('waiting', 'sending')")
		if n := s.files(); n != 2 {
			s.t.Errorf("%s: Ann has %d pictures, want 2: %q", s.name, n, s.direct())
		}
	})
}

// TestPictureLimits checks that pictures count towards the budget, can need an approval, and are
// loaded only from the provider's host. Without a model for pictures, no such tool is offered.
func TestPictureLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: answerConversations})
	w.withPictures("[tools.edit_image]\nuser = \"ask\"\n[budget]\nday_dollars = 0.7\n")
	w.set("[models.fake]", "[models.fake]\nfree = true")
	w.configure(quiet)
	stop := w.run()
	draw := func(args, want string) {
		t.Helper()
		w.telegram.Say(annID, annID, "DO "+args)
		w.await(want, func() bool {
			return slices.ContainsFunc(w.texts(annID), func(m string) bool {
				return strings.Contains(m, want)
			})
		})
	}
	draw(`edit_image {"prompt":"a","images":["media/x.png"]}`, "Shall I?")
	w.reply(annID, "/stop")
	draw(`generate_image {"prompt":" "}`, "the prompt is empty")
	w.model.InjectDrawing(1, openaitest.Fault{Status: 400,
		Body: `{"error":{"message":"Your request was rejected by the safety system"}}`})
	draw(`generate_image {"prompt":"a"}`, "rejected by the safety system")
	w.model.AnswerDrawings("http://127.0.0.1:1/elsewhere.png")
	draw(`generate_image {"prompt":"b"}`, "no picture was made: ")
	w.model.AnswerDrawings(w.model.URL + "/painted.png")
	draw(`generate_image {"prompt":"c"}`, "The picture is media/")
	w.model.AnswerDrawings("")
	draw(`generate_image {"prompt":"d"}`, "budget spent")
	var prompts []string
	for _, d := range w.model.Drawings() {
		prompts = append(prompts, d.Prompt)
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(prompts, want) {
		t.Errorf("pictures of %q were to be made, want %q", prompts, want)
	}
	offered := func() string { return string(w.lastTools()) }
	if !strings.Contains(offered(), "generate_image") {
		t.Error("the tool is not offered")
	}
	stop()
	w.set(`model = "gpt-image-1"`, "")
	w.set("day_dollars = 0.7", "")
	w.configure(quiet)
	w.run()
	w.reply(annID, "hello")
	if strings.Contains(offered(), "_image") {
		t.Error("a tool is offered without a model")
	}
}

// lastTools returns the tools in the newest request to the model.
func (w *world) lastTools() []byte {
	w.t.Helper()
	fields, _ := w.lastRequest()
	return fields["tools"]
}
