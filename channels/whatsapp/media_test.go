package whatsapp_test

import (
	"bytes"
	"errors"
	"image"
	"image/png"
	"io"
	"net/http"
	"slices"
	"testing"

	"go.mau.fi/whatsmeow/proto/waCommon"
	"go.mau.fi/whatsmeow/proto/waE2E"
	"google.golang.org/protobuf/proto"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/whatsapp/whatsapptest"
)

// fetch downloads an attachment.
func (w *world) fetch(a bus.Attachment) ([]byte, error) {
	var b bytes.Buffer
	err := w.ch.Fetch(w.t.Context(), a.Ref, &b)
	return b.Bytes(), err
}

func TestMediaIn(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	for i, tt := range []struct {
		media whatsapptest.Media
		want  bus.Attachment
	}{
		{whatsapptest.Media{Kind: "image", Type: "image/jpeg", Caption: "at the lake"},
			bus.Attachment{Kind: bus.Photo, Type: "image/jpeg"}},
		{whatsapptest.Media{Kind: "video", Type: "video/mp4", Seconds: 7},
			bus.Attachment{Kind: bus.Video, Type: "video/mp4", Seconds: 7}},
		{whatsapptest.Media{Kind: "audio", Type: "audio/mpeg", Seconds: 9},
			bus.Attachment{Kind: bus.Audio, Type: "audio/mpeg", Seconds: 9}},
		{whatsapptest.Media{Kind: "voice", Type: "audio/ogg; codecs=opus", Seconds: 3},
			bus.Attachment{Kind: bus.Voice, Type: "audio/ogg", Seconds: 3}},
		{whatsapptest.Media{Kind: "document", Type: "application/pdf", Name: "a\nb.pdf", Caption: "x"},
			bus.Attachment{Kind: bus.Document, Type: "application/pdf", Name: "a b.pdf"}},
		{whatsapptest.Media{Kind: "sticker", Type: "image/webp"},
			bus.Attachment{Kind: bus.Sticker, Type: "image/webp"}},
	} {
		tt.media.Data = bytes.Repeat([]byte(tt.media.Kind), 10_000+i)
		if _, err := w.ada.SendMedia(t.Context(), "", tt.media); err != nil {
			t.Fatal(err)
		}
		m := w.receive(i + 1)[i]
		if len(m.Attachments) != 1 || m.Text != tt.media.Caption {
			t.Fatalf("received %+v", m)
		}
		got := m.Attachments[0]
		data, err := w.fetch(got)
		if err != nil || !bytes.Equal(data, tt.media.Data) {
			t.Errorf("%s: fetched %d bytes, %v", tt.media.Kind, len(data), err)
		}
		tt.want.Size, tt.want.Ref = int64(len(tt.media.Data)), got.Ref
		if got != tt.want {
			t.Errorf("the attachment is %+v, want %+v", got, tt.want)
		}
	}
}

func TestMediaGone(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	data := []byte("picture")
	if _, err := w.ada.SendMedia(t.Context(), "",
		whatsapptest.Media{Kind: "image", Type: "image/png", Data: data}); err != nil {
		t.Fatal(err)
	}
	a := w.receive(1)[0].Attachments[0]
	for _, status := range []int{
		http.StatusForbidden, http.StatusNotFound, http.StatusGone,
	} {
		w.server.SetMediaStatus(status)
		if _, err := w.fetch(a); !errors.Is(err, channels.ErrRefused) {
			t.Errorf("Fetch with status %d = %v, want %v", status, err, channels.ErrRefused)
		}
	}
	w.server.SetMediaStatus(http.StatusTeapot)
	if _, err := w.fetch(a); err == nil || errors.Is(err, channels.ErrRefused) {
		t.Errorf("Fetch with status 418 = %v, want an error that may pass", err)
	}
	w.server.SetMediaStatus(0)
	w.server.SpoilMedia()
	if got, err := w.fetch(a); !errors.Is(err, channels.ErrDamaged) ||
		!errors.Is(err, channels.ErrRefused) || len(got) != 0 {
		t.Errorf("Fetch of a changed file = %d bytes, %v, want %v", len(got), err, channels.ErrDamaged)
	}
	for _, bad := range []string{"", "{}", "x", `{"media":"image","path":"x"}`} {
		if err := w.ch.Fetch(t.Context(), bad, io.Discard); !errors.Is(err, channels.ErrRefused) {
			t.Errorf("Fetch of %q = %v, want %v", bad, err, channels.ErrRefused)
		}
	}
}

// TestMediaTooLong checks that a file that is longer than its message says is refused.
func TestMediaTooLong(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	m, err := w.ada.Media(t.Context(), whatsapptest.Media{Kind: "image", Type: "image/png",
		Data: make([]byte, 100_000)})
	if err != nil {
		t.Fatal(err)
	}
	m.ImageMessage.FileLength = proto.Uint64(10)
	if _, err := w.ada.Send(t.Context(), "", m); err != nil {
		t.Fatal(err)
	}
	if _, err := w.fetch(w.receive(1)[0].Attachments[0]); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("Fetch = %v, want %v", err, channels.ErrRefused)
	}
}

// TestMediaBreaks checks that a download that breaks off begins again, at the next host or with
// the next call.
func TestMediaBreaks(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	data := bytes.Repeat([]byte("picture"), 10_000)
	if _, err := w.ada.SendMedia(t.Context(), "",
		whatsapptest.Media{Kind: "image", Type: "image/png", Data: data}); err != nil {
		t.Fatal(err)
	}
	a := w.receive(1)[0].Attachments[0]
	w.server.BreakMedia(1)
	if got, err := w.fetch(a); err != nil || !bytes.Equal(got, data) {
		t.Errorf("Fetch with one broken host = %d bytes, %v", len(got), err)
	}
	w.server.BreakMedia(2)
	if _, err := w.fetch(a); err == nil || errors.Is(err, channels.ErrRefused) {
		t.Errorf("Fetch with two broken hosts = %v, want an error that may pass", err)
	}
	if got, err := w.fetch(a); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the next Fetch = %d bytes, %v", len(got), err)
	}
}

func TestAlbum(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	parent, err := w.ada.Send(t.Context(), "", &waE2E.Message{
		AlbumMessage: &waE2E.AlbumMessage{ExpectedImageCount: proto.Uint32(2)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m, err := w.ada.Media(t.Context(), whatsapptest.Media{Kind: "image", Type: "image/png",
			Data: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		m.MessageContextInfo = &waE2E.MessageContextInfo{MessageAssociation: &waE2E.MessageAssociation{
			AssociationType:  waE2E.MessageAssociation_MEDIA_ALBUM.Enum(),
			ParentMessageKey: &waCommon.MessageKey{ID: &parent},
		}}
		if _, err := w.ada.Send(t.Context(), "", m); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range w.receive(2) {
		if m.Album != parent || len(m.Attachments) != 1 {
			t.Errorf("received %+v, want a picture of album %s", m, parent)
		}
	}
}

// WhatsApp sends a picture in HD twice: small, and then in its real size. The channel drops the
// second one if it has the first. See https://github.com/mautrix/whatsapp/pull/818.
func TestPictureInHD(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	picture, err := w.ada.Media(t.Context(), whatsapptest.Media{Kind: "image", Type: "image/png",
		Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	send := func(m *waE2E.Message) string {
		id, err := w.ada.Send(t.Context(), "", m)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	better := func(parent string) *waE2E.Message {
		return &waE2E.Message{
			AssociatedChildMessage: &waE2E.FutureProofMessage{Message: picture},
			MessageContextInfo: &waE2E.MessageContextInfo{MessageAssociation: &waE2E.MessageAssociation{
				AssociationType:  waE2E.MessageAssociation_HD_IMAGE_DUAL_UPLOAD.Enum(),
				ParentMessageKey: &waCommon.MessageKey{ID: &parent},
			}},
		}
	}
	first := send(picture)
	send(better(first))
	alone := send(better("3EB0UNKNOWN"))
	last := send(&waE2E.Message{Conversation: proto.String("next")})
	var got []string
	for _, m := range w.receive(3) {
		got = append(got, m.ID)
	}
	if want := []string{first, alone, last}; !slices.Equal(got, want) {
		t.Errorf("received %q, want %q", got, want)
	}
}

// A fileContent is the content of a file to send.
type fileContent struct{ *bytes.Reader }

func (fileContent) Close() error { return nil }

func TestMediaOut(t *testing.T) {
	t.Parallel()
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 30, 20))); err != nil {
		t.Fatal(err)
	}
	opus := append([]byte("OggS........................\x01\x13OpusHead"), make([]byte, 5000)...)
	w := start(t)
	w.run()
	for i, tt := range []struct {
		name    string
		a       bus.Attachment
		data    []byte
		caption string
		want    whatsapptest.Message
	}{
		{"photo", bus.Attachment{Kind: bus.Photo, Type: "image/png"}, picture.Bytes(), "**look**",
			whatsapptest.Message{Kind: "image", Type: "image/png", Text: "*look*"}},
		{"broken photo", bus.Attachment{Kind: bus.Photo, Type: "image/jpeg"}, []byte("x"), "",
			whatsapptest.Message{Kind: "image", Type: "image/jpeg"}},
		{"webp photo", bus.Attachment{Kind: bus.Photo, Type: "image/webp", Name: "a.webp"},
			[]byte("x"), "", whatsapptest.Message{Kind: "document", Type: "image/webp", Name: "a.webp"}},
		{"video", bus.Attachment{Kind: bus.Video, Type: "video/mp4"}, []byte("x"), "film",
			whatsapptest.Message{Kind: "video", Type: "video/mp4", Text: "film"}},
		{"voice", bus.Attachment{Kind: bus.Voice, Type: "audio/ogg", Seconds: 2, Waveform: "AAEC"}, opus,
			"", whatsapptest.Message{Kind: "voice", Type: "audio/ogg; codecs=opus", Seconds: 2,
				Waveform: []byte{0, 1, 2}}},
		{"voice in mp3", bus.Attachment{Kind: bus.Voice, Type: "audio/mpeg"}, []byte("x"), "",
			whatsapptest.Message{Kind: "audio", Type: "audio/mpeg"}},
		{"voice with caption", bus.Attachment{Kind: bus.Voice, Type: "audio/ogg", Name: "v.ogg"}, opus,
			"listen", whatsapptest.Message{Kind: "document", Type: "audio/ogg", Name: "v.ogg",
				Text: "listen"}},
		{"sticker", bus.Attachment{Kind: bus.Sticker, Type: "image/webp"}, []byte("x"), "",
			whatsapptest.Message{Kind: "sticker", Type: "image/webp"}},
		{"document", bus.Attachment{Kind: bus.Document, Type: "image/png", Name: "a.png"},
			picture.Bytes(), "as a file",
			whatsapptest.Message{Kind: "document", Type: "image/png", Name: "a.png", Text: "as a file"}},
		{"unknown", bus.Attachment{Kind: bus.Document}, nil, "",
			whatsapptest.Message{Kind: "document", Type: "application/octet-stream", Name: "file"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := w.ch.Send(t.Context(), bus.Part{Key: tt.name, To: w.adas(), Text: tt.caption,
				File: &bus.File{Attachment: tt.a, Open: func() (io.ReadSeekCloser, error) {
					return fileContent{bytes.NewReader(tt.data)}, nil
				}}})
			if err != nil {
				t.Fatal(err)
			}
			w.wait("Ada sees it", func() bool { return len(w.ada.Messages("")) == i+1 })
			got := w.ada.Messages("")[i]
			if got.Kind != tt.want.Kind || got.Type != tt.want.Type || got.Name != tt.want.Name ||
				got.Text != tt.want.Text || got.Seconds != tt.want.Seconds ||
				!bytes.Equal(got.Waveform, tt.want.Waveform) {
				t.Errorf("Ada sees %+v, want %+v", got, tt.want)
			}
			data, err := w.ada.Fetch(t.Context(), got)
			if err != nil || !bytes.Equal(data, tt.data) {
				t.Errorf("Ada gets %d bytes, %v, want %d", len(data), err, len(tt.data))
			}
		})
	}
	_, err := w.ch.Send(t.Context(), bus.Part{Key: "x", To: w.adas(), File: &bus.File{
		Open: func() (io.ReadSeekCloser, error) { return nil, errors.New("no such file") },
	}})
	if err == nil || errors.Is(err, channels.ErrRefused) {
		t.Errorf("Send of a file that can't be read = %v", err)
	}
}
