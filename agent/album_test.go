package agent

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"gateway/agent/llm/llmtest"
	"gateway/bus"
)

// The parts of an album become one message, even if they arrive one after another.
func TestAlbum(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.withFiles()
		w.model.Queue(llmtest.Say("nice"))
		w.start()
		for i, ref := range []string{"a.png", "b.png", "gone"} {
			m := carrying(w.message("a", ""), photo(ref))
			m.Album = "al"
			if i == 0 {
				m.Text = "my holidays"
			}
			w.put(m)
			w.sleep(300 * time.Millisecond)
		}
		w.sleep(100 * time.Millisecond)
		w.say("a", "well?")
		w.sleep(2 * time.Second)
		w.wantAnswers("a", "nice")
		w.wantAsked(1, "user: [photo, image/png, media/a.png] [photo, image/png, media/b.png] "+
			"[photo: the platform no longer has the file] my holidays\n\nwell?")
		w.wantQuiet()
	})
}

// On a machine that is so busy that handing out a message takes longer than the pause in an album,
// the parts that arrived together still become one message.
func TestAlbumOnBusyMachine(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.withFiles()
		w.opts.Logger = slog.New(slowLog("message received"))
		w.model.Queue(llmtest.Say("nice"))
		w.start()
		var album []bus.InboundMessage
		for _, ref := range []string{"a.png", "b.png"} {
			m := carrying(w.message("a", ""), photo(ref))
			m.Album = "al"
			album = append(album, m)
		}
		w.put(album...)
		w.sleep(time.Minute)
		w.wantAnswers("a", "nice")
		w.wantAsked(1, "user: [photo, image/png, media/a.png] [photo, image/png, media/b.png]")
	})
}

// A slowLog needs two seconds to log one kind of message. It writes nothing.
type slowLog string

func (s slowLog) Enabled(context.Context, slog.Level) bool { return true }
func (s slowLog) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s slowLog) WithGroup(string) slog.Handler            { return s }

func (s slowLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == string(s) {
		time.Sleep(2 * time.Second)
	}
	return nil
}
