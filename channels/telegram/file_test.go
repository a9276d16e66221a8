package telegram_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/jpeg"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/telegram"
	"gateway/channels/telegram/telegramtest"
)

// picture returns the head of a PNG of the given size. Nobody reads the rest of a file.
func picture(width, height uint32) []byte {
	chunk := []byte("IHDR")
	chunk = binary.BigEndian.AppendUint32(chunk, width)
	chunk = binary.BigEndian.AppendUint32(chunk, height)
	chunk = append(chunk, 8, 0, 0, 0, 0)
	b := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d")
	return binary.BigEndian.AppendUint32(append(b, chunk...), crc32.ChecksumIEEE(chunk))
}

// fileOf returns a file to send.
func fileOf(a bus.Attachment, data []byte) *bus.File {
	return &bus.File{Attachment: a, Open: func() (io.ReadSeekCloser, error) {
		return content{bytes.NewReader(data)}, nil
	}}
}

type content struct{ *bytes.Reader }

func (content) Close() error { return nil }

func TestSendFile(t *testing.T) {
	small := picture(40, 30)
	var photo bytes.Buffer
	if err := jpeg.Encode(&photo, image.NewGray(image.Rect(0, 0, 8, 8)), nil); err != nil {
		t.Fatal(err)
	}
	webp := []byte("RIFF\x00\x00\x00\x00WEBPVP8 ")
	for _, tt := range []struct {
		name string
		in   bus.Attachment
		data []byte
		want telegramtest.File // Data is data
	}{
		{"png", bus.Attachment{Kind: bus.Photo, Type: "image/png", Name: "a.png"}, small,
			telegramtest.File{Kind: "photo", Name: "a.png", Type: "image/png"}},
		{"jpeg", bus.Attachment{Kind: bus.Photo, Type: "image/jpeg"}, photo.Bytes(),
			telegramtest.File{Kind: "photo", Name: "photo.jpg", Type: "image/jpeg"}},
		{"webp", bus.Attachment{Kind: bus.Photo, Type: "image/webp", Name: "a.webp"}, webp,
			telegramtest.File{Kind: "photo", Name: "a.webp", Type: "image/webp"}},
		{"picture as a document", bus.Attachment{Kind: bus.Document, Type: "image/png",
			Name: "a.png"}, small,
			telegramtest.File{Kind: "document", Name: "a.png", Type: "image/png"}},
		{"kind unknown", bus.Attachment{Name: "a.png"}, small, telegramtest.File{
			Kind: "photo", Name: "a.png", Type: "application/octet-stream"}},
		{"sticker", bus.Attachment{Kind: bus.Sticker, Type: "image/webp"}, webp,
			telegramtest.File{Kind: "photo", Name: "photo.webp", Type: "image/webp"}},
		{"other picture", bus.Attachment{Kind: bus.Photo, Type: "image/svg+xml", Name: "a.svg"},
			[]byte("<svg/>"),
			telegramtest.File{Kind: "document", Name: "a.svg", Type: "image/svg+xml"}},
		{"panorama", bus.Attachment{Kind: bus.Photo, Type: "image/png", Name: "a.png"},
			picture(2100, 100),
			telegramtest.File{Kind: "document", Name: "a.png", Type: "image/png"}},
		{"huge", bus.Attachment{Kind: bus.Photo, Type: "image/png", Name: "a.png"},
			picture(6000, 4001),
			telegramtest.File{Kind: "document", Name: "a.png", Type: "image/png"}},
		{"heavy", bus.Attachment{Kind: bus.Photo, Type: "image/png", Name: "a.png"},
			append(bytes.Clone(small), make([]byte, 10<<20)...),
			telegramtest.File{Kind: "document", Name: "a.png", Type: "image/png"}},
		{"broken photo", bus.Attachment{Kind: bus.Photo, Type: "image/jpeg", Name: "a.jpg"},
			[]byte("no pixels"),
			telegramtest.File{Kind: "document", Name: "a.jpg", Type: "image/jpeg"}},
		{"gif", bus.Attachment{Kind: bus.Photo, Type: "image/gif", Name: "a.gif"}, []byte("GIF89a"),
			telegramtest.File{Kind: "animation", Name: "a.gif", Type: "image/gif"}},
		{"video", bus.Attachment{Kind: bus.Video, Type: "video/mp4", Name: "v.mp4", Seconds: 7},
			[]byte("v"),
			telegramtest.File{Kind: "video", Name: "v.mp4", Type: "video/mp4", Seconds: 7}},
		{"other video", bus.Attachment{Kind: bus.Video, Type: "video/webm", Seconds: 7}, []byte("v"),
			telegramtest.File{Kind: "document", Name: "document.webm", Type: "video/webm"}},
		{"voice", bus.Attachment{Kind: bus.Voice, Type: "audio/ogg; codecs=opus", Seconds: 3},
			[]byte("OggS"), telegramtest.File{
				Kind: "voice", Name: "voice.ogg", Type: "audio/ogg", Seconds: 3}},
		{"audio", bus.Attachment{Kind: bus.Audio, Type: "audio/mpeg", Name: "a.mp3"}, []byte("a"),
			telegramtest.File{Kind: "audio", Name: "a.mp3", Type: "audio/mpeg"}},
		{"other audio", bus.Attachment{Kind: bus.Audio, Type: "audio/flac", Name: "a.flac"},
			[]byte("a"), telegramtest.File{Kind: "document", Name: "a.flac", Type: "audio/flac"}},
		{"hostile name", bus.Attachment{Kind: bus.Document, Name: "../a\"\r\nX: \u202ey\\b.txt",
			Type: "text/plain\r\nX: y"}, []byte("a"), telegramtest.File{
			Kind: "document", Name: ".._a\" X: y_b.txt", Type: "application/octet-stream"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, c, _ := start(t)
			id, err := c.Send(t.Context(), bus.Part{To: ada, Text: "**a** < b",
				File: fileOf(tt.in, tt.data)})
			if err != nil {
				t.Fatal(err)
			}
			h := api.History(42)
			if len(h) != 1 || itoa(h[0].ID) != id || h[0].File == nil {
				t.Fatalf("Send = %q, arrived %+v", id, h)
			}
			if h[0].Text != "a < b" || h[0].Source != "<b>a</b> &lt; b" {
				t.Errorf("the caption is %q", h[0].Source)
			}
			got := *h[0].File
			if !bytes.Equal(got.Data, tt.data) {
				t.Errorf("%d bytes arrived, want %d", len(got.Data), len(tt.data))
			}
			got.Data = nil
			if got.Kind != tt.want.Kind || got.Name != tt.want.Name || got.Type != tt.want.Type ||
				got.Seconds != tt.want.Seconds {
				t.Errorf("sent %+v, want %+v", got, tt.want)
			}
		})
	}
}

func pdf(data string) *bus.File {
	return fileOf(bus.Attachment{Kind: bus.Document, Name: "a.pdf", Type: "application/pdf"},
		[]byte(data))
}

func TestSendFileAmended(t *testing.T) {
	const group, forum = -5, -1001234567890
	for _, tt := range []struct {
		name  string
		part  bus.Part
		fault *telegramtest.Fault
		chat  int64
		want  telegramtest.Sent
	}{
		{name: "no caption", part: bus.Part{To: ada}, chat: 42},
		{name: "reply in a topic", part: bus.Part{To: at(forum, "7"), ReplyTo: "1"}, chat: forum,
			want: telegramtest.Sent{Thread: 7, ReplyTo: 1}},
		{name: "unknown topic", part: bus.Part{To: at(forum, "8")}, chat: forum},
		{name: "migrated group", part: bus.Part{To: at(group, "")}, chat: -1005},
		{name: "refused HTML", part: bus.Part{To: ada, Text: "**a**"}, chat: 42,
			fault: &telegramtest.Fault{Times: 1, Code: 400,
				Text: "Bad Request: can't parse entities: Unsupported start tag"},
			want: telegramtest.Sent{Text: "a", Source: "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, c, _ := start(t)
			api.AddGroup(group, "old")
			api.Migrate(group, -1005)
			api.AddGroup(forum, "forum", 7)
			api.Say(forum, 42, "question")
			if tt.fault != nil {
				api.Inject(*tt.fault)
			}
			tt.part.File = pdf("data")
			if _, err := c.Send(t.Context(), tt.part); err != nil {
				t.Fatal(err)
			}
			h := api.History(tt.chat)
			if len(h) != 1 || h[0].File == nil || string(h[0].File.Data) != "data" {
				t.Fatalf("sent %+v, want one file", h)
			}
			got := telegramtest.Sent{Text: h[0].Text, Source: h[0].Source,
				Thread: h[0].Thread, ReplyTo: h[0].ReplyTo}
			if got != tt.want {
				t.Errorf("sent %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestVoiceThatIsNotWanted(t *testing.T) {
	api, c, _ := start(t)
	api.Inject(telegramtest.Fault{Method: "sendVoice", Code: 400,
		Text: "Bad Request: VOICE_MESSAGES_FORBIDDEN"})
	voice := fileOf(bus.Attachment{Kind: bus.Voice, Type: "audio/ogg", Seconds: 2}, []byte("OggS"))
	if _, err := c.Send(t.Context(), bus.Part{To: ada, File: voice}); err != nil {
		t.Fatal(err)
	}
	if h := api.History(42); h[0].File.Kind != "document" || h[0].File.Name != "voice.ogg" {
		t.Errorf("sent %+v, want a document", h[0].File)
	}
}

func TestSendFileErrors(t *testing.T) {
	refused := func(err error) bool { return errors.Is(err, channels.ErrRefused) }
	uncertain := func(err error) bool { return errors.Is(err, channels.ErrUncertain) }
	again := func(err error) bool { return err != nil && !refused(err) && !uncertain(err) }
	rate := func(err error) bool {
		e, ok := errors.AsType[*channels.RateError](err)
		return ok && e.After == 7*time.Second
	}
	large := strings.Repeat("x", 4<<20)
	for _, tt := range []struct {
		name  string
		file  *bus.File
		fault telegramtest.Fault
		check func(error) bool
	}{
		{"rate", pdf("x"), telegramtest.Fault{RetryAfter: 7}, rate},
		{"blocked", pdf("x"), telegramtest.Fault{Code: 403,
			Text: "Forbidden: bot was blocked by the user"}, refused},
		{"lost", pdf("x"), telegramtest.Fault{Effect: telegramtest.Lose}, uncertain},
		{"dropped", pdf("x"), telegramtest.Fault{Effect: telegramtest.Drop}, uncertain},
		{"cut", pdf(large), telegramtest.Fault{Effect: telegramtest.Cut}, again},
		{"page 413", pdf("x"), telegramtest.Fault{Effect: telegramtest.Page, Code: 413}, refused},
		{"413", pdf("x"), telegramtest.Fault{Code: 413, Text: "Request Entity Too Large"}, refused},
		{"502", pdf("x"), telegramtest.Fault{Effect: telegramtest.Page}, uncertain},
		{"empty", pdf(""), telegramtest.Fault{Method: "none"}, refused},
		{"unreadable", &bus.File{Open: func() (io.ReadSeekCloser, error) {
			return nil, errors.New("disk on fire")
		}}, telegramtest.Fault{Method: "none"}, again},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, c, _ := start(t)
			api.Inject(tt.fault)
			_, err := c.Send(t.Context(), bus.Part{To: ada, File: tt.file})
			if !tt.check(err) {
				t.Errorf("Send = %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "SECRET") {
				t.Errorf("Send = %v: the token shows", err)
			}
		})
	}
}

func TestUploadStalls(t *testing.T) {
	api, c, _ := start(t)
	api.Inject(telegramtest.Fault{Method: "sendDocument", Effect: telegramtest.Hang})
	c.SetStall(50 * time.Millisecond)
	_, err := c.Send(t.Context(), bus.Part{To: ada, File: pdf("x")})
	for errors.Is(err, channels.ErrStalled) && !errors.Is(err, channels.ErrUncertain) {
		// On a busy machine, the transfer may stall before anything is sent.
		_, err = c.Send(t.Context(), bus.Part{To: ada, File: pdf("x")})
	}
	if !errors.Is(err, channels.ErrUncertain) || !strings.Contains(err.Error(), "no progress") {
		t.Errorf("Send = %v, want %v for standing still", err, channels.ErrUncertain)
	}
}

// A zeros is the content of a file of any size, without the memory for it.
type zeros struct{ at, size int64 }

func (z *zeros) Read(p []byte) (int, error) {
	n := int(min(int64(len(p)), z.size-z.at))
	if n == 0 {
		return 0, io.EOF
	}
	clear(p[:n])
	z.at += int64(n)
	return n, nil
}

func (z *zeros) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		offset += z.size
	}
	z.at = offset
	return offset, nil
}

func (*zeros) Close() error { return nil }

func TestUploadIsStreamed(t *testing.T) {
	_, c, _ := startWith(t, nil, telegram.Options{Transport: answering{`{"message_id":5}`}})
	const size = 1 << 30
	file := &bus.File{Open: func() (io.ReadSeekCloser, error) { return &zeros{size: size}, nil }}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	id, err := c.Send(t.Context(), bus.Part{To: ada, File: file})
	runtime.ReadMemStats(&after)
	if err != nil || id != "5" {
		t.Errorf("Send = %q, %v", id, err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("%d bytes were allocated for a file of %d", n, size)
	}
}

// BenchmarkSendFile measures the cost of sending a file of 1 MB, without a server.
func BenchmarkSendFile(b *testing.B) {
	_, c, _ := startWith(b, nil, telegram.Options{Transport: answering{`{"message_id":5}`}})
	const size = 1 << 20
	file := &bus.File{Open: func() (io.ReadSeekCloser, error) { return &zeros{size: size}, nil }}
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Send(b.Context(), bus.Part{To: ada, File: file}); err != nil {
			b.Fatal(err)
		}
	}
}
