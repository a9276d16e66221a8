package discord_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/discord/discordtest"
)

// nopCloser is a file in memory.
type nopCloser struct{ *strings.Reader }

func (nopCloser) Close() error { return nil }

func fileOf(name, kind, content string) *bus.File {
	return &bus.File{
		Attachment: bus.Attachment{Kind: bus.Document, Name: name, Type: kind,
			Size: int64(len(content))},
		Open: func() (io.ReadSeekCloser, error) { return nopCloser{strings.NewReader(content)}, nil },
	}
}

func TestUpload(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	big := strings.Repeat("0123456789", 300_000)
	for _, tt := range []struct{ name, kind, content, wantName, wantKind string }{
		{"a.txt", "text/plain", "content", "a.txt", "text/plain"},
		{"größe \u202e\n.pdf", "application/pdf", big, "größe .pdf", "application/pdf"},
		{`../a"b\c/d.png`, "image/png", "x", ".._a_b_c_d.png", "image/png"},
		{"", "no type at all", "", "file", "application/octet-stream"},
		{strings.Repeat("n", 300) + ".ogg", "audio/ogg; codecs=opus", "x",
			strings.Repeat("n", 96) + ".ogg", "audio/ogg; codecs=opus"},
	} {
		part := bus.Part{To: ada, Text: "see", File: fileOf(tt.name, tt.kind, tt.content),
			Buttons: []bus.Button{{Label: "b", Text: "b"}}}
		id, err := w.c.Send(t.Context(), part)
		if err != nil {
			t.Errorf("Send of %q = %v", tt.name, err)
			continue
		}
		h := w.History(direct)
		sent := h[len(h)-1]
		if len(sent.Files) != 1 || sent.ID != id || sent.Text != "see" || len(sent.Buttons) != 1 {
			t.Fatalf("sent %+v, want one file", sent)
		}
		f := sent.Files[0]
		if f.Name != tt.wantName || f.Type != tt.wantKind || string(f.Content) != tt.content {
			t.Errorf("sent %q of type %q with %d bytes, want %q, %q, %d", f.Name, f.Type,
				len(f.Content), tt.wantName, tt.wantKind, len(tt.content))
		}
	}
	part := bus.Part{To: ada, File: &bus.File{Open: func() (io.ReadSeekCloser, error) {
		return nil, errors.New("no such file")
	}}}
	if _, err := w.c.Send(t.Context(), part); err == nil {
		t.Error("Send of a file that can't be opened = nil")
	}
}

// A voice message is sent as a voice message of Discord if its length and waveform are known. It
// is sent as a file if Discord refuses the voice message, or if it has a text.
func TestVoiceMessage(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	const isVoice = 1 << 13
	send := func(change func(p *bus.Part)) discordtest.Sent {
		t.Helper()
		f := fileOf("voice.ogg", "audio/ogg", "OggS")
		f.Kind, f.Seconds = bus.Voice, 2
		f.Waveform = base64.StdEncoding.EncodeToString([]byte{0, 50, 100})
		part := bus.Part{To: ada, File: f}
		change(&part)
		if _, err := w.c.Send(t.Context(), part); err != nil {
			t.Fatal(err)
		}
		h := w.History(direct)
		return h[len(h)-1]
	}
	wave := base64.StdEncoding.EncodeToString([]byte{0, 127, 255})
	sent := send(func(*bus.Part) {})
	if f := sent.Files[0]; sent.Flags != isVoice || f.Seconds != 2 || f.Waveform != wave {
		t.Errorf("sent %+v, want a voice message", sent)
	}
	for name, change := range map[string]func(p *bus.Part){
		"text":         func(p *bus.Part) { p.Text = "listen" },
		"button":       func(p *bus.Part) { p.Buttons = []bus.Button{{Label: "b", Text: "b"}} },
		"no length":    func(p *bus.Part) { p.File.Seconds = 0 },
		"no waveform":  func(p *bus.Part) { p.File.Waveform = "" },
		"bad waveform": func(p *bus.Part) { p.File.Waveform = "%" },
		"audio":        func(p *bus.Part) { p.File.Kind = bus.Audio },
		"not permitted": func(*bus.Part) {
			w.Allow(direct, discordtest.SendVoiceMessages, false)
		},
	} {
		if sent := send(change); sent.Flags&isVoice != 0 || len(sent.Files) != 1 {
			t.Errorf("%s: sent %+v, want a file", name, sent)
		}
		w.Allow(direct, discordtest.SendVoiceMessages, true)
	}
}

func TestAttachments(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	w.run(t)
	picture := discordtest.File{Name: "a/b\u202e.png", Type: "image/png", Content: []byte("PNG")}
	files := []discordtest.File{
		picture,
		{Name: "x.gif", Type: "image/gif", Content: []byte("GIF")},
		{Name: "x.mp4", Type: "video/mp4", Content: []byte("MP4")},
		{Name: "x.mp3", Type: "audio/mpeg", Content: []byte("MP3")},
		{Name: "x.txt", Type: "text/plain; charset=utf-8", Content: []byte("text")},
	}
	first := w.SayFile(direct, person, "look", files...)
	w.Deliver(discordtest.Message{Channel: direct, User: person, Extra: fields{"flags": 1 << 13},
		Files: []discordtest.File{{Name: "voice.ogg", Type: "audio/ogg", Content: []byte("OGG")}}})
	w.Reply(direct, person, "what is it?", first)
	got := w.received(t, 3)
	var kinds []string
	for i, a := range got[0].Attachments {
		kinds = append(kinds, string(a.Kind))
		if a.Size != int64(len(files[i].Content)) || a.Ref == "" ||
			!strings.HasPrefix(files[i].Type, a.Type) {
			t.Errorf("attachment %d is %+v", i, a)
		}
	}
	if s := strings.Join(kinds, " "); s != "photo animation video audio document" {
		t.Errorf("the kinds are %s", s)
	}
	if a := got[0].Attachments[0]; a.Name != "a/b.png" || got[0].Text != "look" {
		t.Errorf("received %+v", got[0])
	}
	if a := got[1].Attachments; len(a) != 1 || a[0].Kind != bus.Voice || got[1].Text != "" {
		t.Errorf("received %+v, want a voice message", got[1])
	}
	if q := got[2].ReplyTo; q == nil || len(q.Attachments) != len(files) {
		t.Errorf("received %+v, want a quote with files", got[2])
	}
	ref := got[2].ReplyTo.Attachments[0].Ref
	for _, expired := range []bool{false, true} {
		if expired {
			w.ExpireLinks()
		}
		var b bytes.Buffer
		if err := w.c.Fetch(t.Context(), ref, &b); err != nil || b.String() != "PNG" {
			t.Errorf("Fetch = %v, %q", err, b.String())
		}
	}
	w.ExpireLinks()
	w.Delete(direct, first)
	if err := w.c.Fetch(t.Context(), ref, io.Discard); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("Fetch of a file that is gone = %v, want %v", err, channels.ErrRefused)
	}
}

// TestFetchElsewhere checks that Fetch sends requests only to Discord.
func TestFetchElsewhere(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	w.Say(direct, person, "hi")
	for _, link := range []string{
		"http://169.254.169.254/latest", "https://example.com/a", "file:///etc/passwd",
		"http://cdn.discordapp.com/a", "https://cdn.discordapp.com@example.com/", "://", "",
	} {
		raw, _ := json.Marshal(map[string]string{"c": direct, "m": "1", "a": "2", "u": link})
		err := w.c.Fetch(t.Context(), string(raw), io.Discard)
		if !errors.Is(err, channels.ErrRefused) {
			t.Errorf("Fetch of %s = %v, want %v", link, err, channels.ErrRefused)
		}
	}
	if err := w.c.Fetch(t.Context(), "nonsense", io.Discard); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("Fetch of nonsense = %v", err)
	}
}

func TestFetchFails(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	w.run(t)
	w.SayFile(direct, person, "", discordtest.File{Name: "a", Type: "image/png",
		Content: []byte("PNG")})
	ref := w.received(t, 1)[0].Attachments[0].Ref
	for _, f := range []discordtest.Fault{
		{Method: "file", Times: 1, Effect: discordtest.Page},
		{Method: "file", Times: 1, Effect: discordtest.Drop},
		{Method: "file", Times: 1, RetryAfter: 1e9},
		{Method: "file", Times: 1, Effect: discordtest.Page, Status: 302},
	} {
		w.Inject(f)
		err := w.c.Fetch(t.Context(), ref, io.Discard)
		if err == nil || errors.Is(err, channels.ErrRefused) {
			t.Errorf("Fetch = %v, want an error that may pass", err)
		}
	}
	w.Hang()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.c.Fetch(ctx, ref, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("Fetch = %v, want context.Canceled", err)
	}
}

// Discord replaces characters in the name of a file, and sends the sender's name as its title. See
// https://github.com/discord/discord-api-docs/pull/6945.
func TestFileTitle(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	w.run(t)
	w.Deliver(discordtest.Message{Channel: direct, User: person, Extra: fields{"attachments": []fields{
		{"id": "1", "filename": "__.pdf", "title": "отчёт", "size": 1, "url": "https://x/1"},
		{"id": "2", "filename": "a_b.PDF", "title": "a [b].pdf", "size": 1, "url": "https://x/2"},
		{"id": "3", "filename": "v1_2.tar", "title": "v1.2 ü", "size": 1, "url": "https://x/3"},
		{"id": "4", "filename": "plain.txt", "size": 1, "url": "https://x/4"},
		{"id": "5", "filename": "x.txt", "title": "\u202e\n", "size": 1, "url": "https://x/5"}}}})
	var got []string
	for _, a := range w.received(t, 1)[0].Attachments {
		got = append(got, a.Name)
	}
	want := []string{"отчёт.pdf", "a [b].pdf", "v1.2 ü.tar", "plain.txt", "x.txt"}
	if !slices.Equal(got, want) {
		t.Errorf("the files are called %q, want %q", got, want)
	}
}

func TestForwardedFile(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	w.run(t)
	w.SayFile(direct, person, "mine", discordtest.File{Name: "a.png", Type: "image/png",
		Content: []byte("PNG")})
	ref := w.received(t, 1)[0].Attachments[0].Ref
	var r struct{ U, A string }
	if err := json.Unmarshal([]byte(ref), &r); err != nil {
		t.Fatal(err)
	}
	w.Deliver(discordtest.Message{Channel: direct, User: person, Extra: fields{
		"message_reference": fields{"type": 1, "message_id": "5"},
		"message_snapshots": []fields{{"message": fields{"content": "", "attachments": []fields{
			{"id": r.A, "filename": "a.png", "content_type": "image/png", "size": 3, "url": r.U}}}}}}})
	got := w.received(t, 2)[1]
	if got.Forwarded != "somebody" || len(got.Attachments) != 1 {
		t.Fatalf("received %+v, want a forwarded file", got)
	}
	var b bytes.Buffer
	if err := w.c.Fetch(t.Context(), got.Attachments[0].Ref, &b); err != nil || b.Len() != 3 {
		t.Errorf("Fetch = %v, %d bytes", err, b.Len())
	}
}
