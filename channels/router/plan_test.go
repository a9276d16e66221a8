package router_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
	"gateway/channels/media"
	"gateway/channels/router"
)

// A poster is a platform that accepts files and buttons.
type poster struct {
	*platform
	limits channels.Limits
}

func (p *poster) Limits(bus.Address) channels.Limits { return p.limits }

// posts returns the sent messages, each as text, content of the file and buttons.
func (p *poster) posts(t *testing.T) (list []string) {
	t.Helper()
	for _, s := range p.Sent() {
		if s.Deleted {
			continue
		}
		line := s.Part.Text
		if f := s.Part.File; f != nil {
			line += fmt.Sprintf(" {%s %s}", f.Kind, content(t, f))
		}
		for _, b := range s.Part.Buttons {
			line += " [" + b.Label + "]"
		}
		list = append(list, line)
	}
	return list
}

// content reads a file twice, as a retry does.
func content(t *testing.T, f *bus.File) string {
	t.Helper()
	var got [2]string
	for i := range got {
		r, err := f.Open()
		if err != nil {
			return err.Error()
		}
		all, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		got[i] = string(all)
	}
	if got[0] != got[1] {
		t.Errorf("read %q and then %q", got[0], got[1])
	}
	return got[0]
}

// openMedia returns a store of media in a new folder.
func openMedia(
	t *testing.T, sources map[string]channels.Channel, opts *media.Options,
) *media.Store {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return media.New(root, sources, opts)
}

// posting allows text, captions, files and buttons.
var posting = channels.Limits{Text: 20, Measure: utf8.RuneCountInString, Caption: 10,
	File: 1000, Buttons: 2}

func TestFilesAndButtons(t *testing.T) {
	png := "\x89PNG\r\n\x1a\n one"
	yes := []bus.Button{{Label: "Yes", Text: "/yes"}, {Label: "No *way*", Text: "/no"}}
	for _, tt := range []struct {
		name   string
		text   string
		files  []string
		button []bus.Button
		limits channels.Limits
		want   []string
	}{
		{"caption", "look", []string{png}, nil, posting, []string{"look {photo " + png + "}"}},
		{"no text", "", []string{"data"}, nil, posting, []string{" {document data}"}},
		{"long text", "longer than a caption", []string{png}, nil, posting,
			[]string{"longer than a", "caption", " {photo " + png + "}"}},
		{"two files", "both", []string{png, "b"}, nil, posting,
			[]string{"both {photo " + png + "}", " {document b}"}},
		{"no captions", "both", []string{"a", "b"}, nil,
			channels.Limits{File: 10}, []string{"both", " {document a}", " {document b}"}},
		{"too large", "look", []string{strings.Repeat("x", 1001)}, nil, posting,
			[]string{"look", `[document name\.bin: 0.0 MB are more than the 0 MB that can be sent here]`}},
		{"no files", "look", []string{"a"}, nil, channels.Limits{},
			[]string{"look", `[document name\.bin: files can't be sent here]`}},
		{"buttons", "well?", nil, yes, posting, []string{"well? [Yes] [No *way*]"}},
		{"buttons below the last part", "this is a long question", nil, yes, posting,
			[]string{"this is a long", "question [Yes] [No *way*]"}},
		{"buttons with a file", "look", []string{"a"}, yes, posting,
			[]string{"look {document a} [Yes] [No *way*]"}},
		{"no buttons", "well?", nil, yes, channels.Limits{},
			[]string{"well?\n\n- Yes: send `/yes`\n- No \\*way\\*: send `/no`"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.media = openMedia(w.t, nil, nil)
				m := bus.OutboundMessage{To: chatA, Text: tt.text, Buttons: tt.button}
				for _, f := range tt.files {
					a, err := w.media.Put(chatA, "name.bin", strings.NewReader(f))
					if err != nil {
						t.Fatal(err)
					}
					m.Attachments = append(m.Attachments, a)
				}
				p := &poster{w.platform, tt.limits}
				w.startWith(router.Account{Name: "full", Channel: p})
				id := w.store(m)
				w.sleep(time.Minute)
				if got := p.posts(w.t); !slices.Equal(got, tt.want) {
					t.Errorf("people see %q, want %q", got, tt.want)
				}
				w.wantState(id, bus.Sent)
				keys := make(map[string]bool)
				for _, s := range p.Sent() {
					keys[s.Part.Key] = true
				}
				if len(keys) != len(tt.want) {
					t.Errorf("%d parts have %d keys", len(tt.want), len(keys))
				}
			})
		})
	}
}

// The beginning of a very long text is sent as messages, and the whole text as a file, also
// across a restart.
func TestTextWithoutEnd(t *testing.T) {
	const note = "This text is too long to be sent as messages. "
	text := strings.TrimSpace(strings.Repeat("one two three four\n\n", 30))
	whole := " {document " + text + "}"
	wide, narrow, none := posting, posting, posting
	wide.Caption, narrow.File, none.File = 100, 50, 0
	for name, tt := range map[string]struct {
		limits channels.Limits
		last   []string
	}{
		"caption":   {wide, []string{note + "The whole text is in this file." + whole}},
		"message":   {posting, []string{note + "The whole text is in this file.", whole}},
		"too large": {narrow, []string{note + "The rest is left out."}},
		"no files":  {none, []string{note + "The rest is left out."}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				p := &poster{w.platform, tt.limits}
				stop := w.startWith(router.Account{Name: "full", Channel: p})
				w.Fail(2, errors.New("no connection"))
				id := w.store(bus.OutboundMessage{To: chatA, Text: text})
				w.sleep(time.Millisecond)
				stop()
				w.startWith(router.Account{Name: "full", Channel: p})
				w.sleep(time.Hour)
				want := append(slices.Repeat([]string{"one two three four"}, 20), tt.last...)
				if got := p.posts(w.t); !slices.Equal(got, want) {
					t.Errorf("people see %q, want %q", got, want)
				}
				w.wantState(id, bus.Sent)
			})
		})
	}
}

// A short text with a table needs several messages if its columns are wide.
func TestShortTextWithWideTable(t *testing.T) {
	inWorld(t, func(w *world) {
		limits := channels.Limits{Text: 2000, Measure: markup.DiscordLen}
		w.startWith(router.Account{Name: "full", Channel: &poster{w.platform, limits}})
		w.put(chatA, "|Number in the decimal system|Square|\n|-|-|"+strings.Repeat("\n|1|1|", 70))
		pieces := w.read(chatA)
		for _, piece := range pieces {
			if n := markup.DiscordLen(piece); n > limits.Text {
				t.Errorf("a message has %d characters, want at most %d", n, limits.Text)
			}
		}
		if len(pieces) != 2 {
			t.Errorf("people got %d messages, want 2", len(pieces))
		}
	})
}

// A file that failed is sent again alone. The parts before it are not sent again, also after a
// restart.
func TestFileRetried(t *testing.T) {
	inWorld(t, func(w *world) {
		w.media = openMedia(w.t, nil, nil)
		m := bus.OutboundMessage{To: chatA, Text: "these are for you"}
		for _, f := range []string{"one", "two"} {
			a, err := w.media.Put(chatA, f, strings.NewReader(f))
			if err != nil {
				t.Fatal(err)
			}
			m.Attachments = append(m.Attachments, a)
		}
		p := &poster{w.platform, posting}
		stop := w.startWith(router.Account{Name: "full", Channel: p})
		w.store(m)
		release := w.Block()
		w.sleep(time.Second)
		release()
		w.sleep(time.Second)
		stop()
		w.startWith(router.Account{Name: "full", Channel: p})
		w.sleep(time.Minute)
		want := []string{"these are for you", " {document one}", " {document two}"}
		if got := p.posts(w.t); !slices.Equal(got, want) {
			t.Errorf("people see %q, want %q", got, want)
		}
		w.Fail(2, errors.New("no connection"))
		m.Text = "again"
		id := w.store(m)
		w.sleep(time.Minute)
		want = append(want, "again {document one}", " {document two}")
		if got := p.posts(w.t); !slices.Equal(got, want) {
			t.Errorf("people see %q, want %q", got, want)
		}
		w.wantState(id, bus.Sent)
	})
}

// A message whose file no longer exists becomes a dead letter, whose error says so.
func TestFileGone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.media = openMedia(w.t, nil, nil)
		p := &poster{w.platform, posting}
		w.startWith(router.Account{Name: "full", Channel: opener{p}})
		id := w.store(bus.OutboundMessage{To: chatA, Attachments: []bus.Attachment{
			{Kind: bus.Document, Path: "full/a/gone.bin", Size: 3}}})
		w.sleep(time.Second)
		w.wantState(id, bus.Dead)
		if d := w.delivery(id); !strings.Contains(d.Error, "gone.bin no longer exists") {
			t.Errorf("the error is %q", d.Error)
		}
	})
}

// If the platform refuses a file, people get the rest of the message, and learn why the file is
// missing. If the platform refuses everything, the message is given up.
func TestFileRefused(t *testing.T) {
	all := posting
	all.Text, all.Caption = 100, 100
	const why = "could not be sent: no rights to send files]"
	for _, tt := range []struct {
		name, text string
		files      int
		limits     channels.Limits
		want       []string // nil: the platform refuses everything
	}{
		{"caption", "look", 1, all, []string{`look

[document 0\.txt ` + why}},
		{"message", "a longer text", 2, posting, []string{"a longer text", `[document 0\.txt ` + why,
			`[document 1\.txt ` + why}},
		{"no text", "", 2, all, []string{`[document 0\.txt ` + why, `[document 1\.txt ` + why}},
		{"no room", strings.Repeat("long ", 19), 1, all, []string{strings.Repeat("long ", 19)}},
		{"everything", "look", 2, all, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.media = openMedia(w.t, nil, nil)
				p := &poster{w.platform, tt.limits}
				w.startWith(router.Account{Name: "full", Channel: refuser{p, tt.want == nil}})
				m := bus.OutboundMessage{To: chatA, Text: tt.text}
				for i := range tt.files {
					a, err := w.media.Put(chatA, fmt.Sprint(i, ".txt"), strings.NewReader("data"))
					if err != nil {
						t.Fatal(err)
					}
					m.Attachments = append(m.Attachments, a)
				}
				id := w.store(m)
				w.sleep(time.Minute)
				if got := p.posts(w.t); !slices.Equal(got, tt.want) {
					t.Errorf("people see %q, want %q", got, tt.want)
				}
				state := bus.Sent
				if tt.want == nil {
					state = bus.Dead
				}
				w.wantState(id, state)
			})
		})
	}
}

// A refuser is a platform that refuses files, or everything.
type refuser struct {
	*poster
	all bool
}

func (r refuser) Send(ctx context.Context, part bus.Part) (string, error) {
	if part.File != nil || r.all {
		return "", fmt.Errorf("%w: no rights to send files", channels.ErrRefused)
	}
	return r.poster.Send(ctx, part)
}

// An opener reads the file before it sends, like a real channel.
type opener struct{ *poster }

func (o opener) Send(ctx context.Context, part bus.Part) (string, error) {
	f, err := part.File.Open()
	if err != nil {
		return "", err
	}
	defer f.Close()
	return o.poster.Send(ctx, part)
}

// A message with buttons does not edit a preview, because an edit could not show the buttons.
func TestButtonsAfterPreview(t *testing.T) {
	inWorld(t, func(w *world) {
		p := &poster{w.platform, posting}
		w.startWith(router.Account{Name: "full", Channel: p, Streaming: true})
		w.show(chatA, "s", "well")
		w.sleep(2 * time.Second)
		w.store(bus.OutboundMessage{To: chatA, Text: "well?", Stream: "s",
			Buttons: []bus.Button{{Label: "Yes", Text: "yes"}}})
		w.sleep(time.Second)
		if got := p.posts(w.t); !slices.Equal(got, []string{"well? [Yes]"}) {
			t.Errorf("people see %q", got)
		}
	})
}

// The content of a file decides its type, and the chat decides its folder.
func TestPutFile(t *testing.T) {
	m := openMedia(t, nil, &media.Options{MaxFile: 100})
	for _, tt := range []struct {
		name, content string
		kind          bus.Kind
		typ, ext      string
	}{
		{"a.PNG", "\x89PNG\r\n\x1a\n", bus.Photo, "image/png", ".png"},
		{"a.txt", "\xff\xd8\xff\xe0", bus.Photo, "image/jpeg", ".txt"},
		{"../../etc/pass wd", "hello", bus.Document, "text/plain", ".txt"},
		{"x.gif", "GIF89a", bus.Animation, "image/gif", ".gif"},
		{"", "\x00\x01", bus.Document, "application/octet-stream", ""},
	} {
		a, err := m.Put(bus.Address{Account: "..", Chat: "-100/../7", Thread: "x"}, tt.name,
			strings.NewReader(tt.content))
		if err != nil || a.Kind != tt.kind || a.Type != tt.typ || a.Size != int64(len(tt.content)) ||
			!strings.HasSuffix(a.Path, tt.ext) || strings.Contains(a.Path, "..") {
			t.Errorf("Put(%q) = %+v, %v", tt.name, a, err)
			continue
		}
		f, err := m.Open(a.Path)
		if err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil || string(all) != tt.content {
			t.Errorf("read %q, %v", all, err)
		}
	}
	_, err := m.Put(chatA, "big", bytes.NewReader(make([]byte, 101)))
	if err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("Put of a large file = %v", err)
	}
}
