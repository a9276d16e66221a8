package whatsapp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // to read the size of pictures
	_ "image/png"
	"io"
	"strings"

	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/proto/waE2E"
	"go.mau.fi/whatsmeow/types"
	"google.golang.org/protobuf/proto"

	"gateway/bus"
	"gateway/channels/markup"
)

// A composer makes the messages that an account sends.
type composer struct {
	client  *whatsmeow.Client
	me      identity
	timers  *timers
	recent  messages  // to quote from
	working *activity // of the session; an upload is part of it
}

// compose returns the message for a part. It uploads the part's file.
func (c *composer) compose(
	ctx context.Context, to types.JID, part bus.Part,
) (*waE2E.Message, error) {
	info, err := c.timers.expiring(ctx, to, c.quoting(to, part.ReplyTo))
	if err != nil {
		return nil, err
	}
	text := markup.WhatsApp(part.Text)
	if part.File != nil {
		return c.composeFile(ctx, part.File, text, info)
	}
	// The plain form has no place for a context.
	if info == nil {
		return &waE2E.Message{Conversation: &text}, nil
	}
	return &waE2E.Message{ExtendedTextMessage: &waE2E.ExtendedTextMessage{
		Text: &text, ContextInfo: info,
	}}, nil
}

// quoting returns the context that makes a message a reply to the one with the given id, or nil for
// "". The reply contains the quoted message, as phones show it.
func (c *composer) quoting(to types.JID, id string) *waE2E.ContextInfo {
	if id == "" {
		return nil
	}
	author, stanza := splitID(to, id)
	known, found := c.recent.find(to.String(), bare(id))
	// In a group our own message has an id without a sender: see splitID.
	if author.IsEmpty() || found && known.ours {
		author = c.me.person().id
	}
	// A message that is not remembered is quoted with an empty text.
	quoted := cmp.Or(known.message, &waE2E.Message{Conversation: &known.text})
	return &waE2E.ContextInfo{
		StanzaID:      &stanza,
		Participant:   proto.String(author.ToNonAD().String()),
		QuotedMessage: quoted,
	}
}

// composeFile uploads a file and returns the message with it: as a picture, video or sound if
// phones can show it as such, otherwise as a document.
func (c *composer) composeFile(
	ctx context.Context, f *bus.File, caption string, info *waE2E.ContextInfo,
) (*waE2E.Message, error) {
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("open the file: %w", err)
	}
	defer func() { _ = r.Close() }() // only read, so errors don't matter
	// This is enough for the beginning of an Ogg stream, which names the codec.
	head := make([]byte, 512)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	shape := mediaKind(f.Attachment, head[:n])
	if caption != "" && (shape == "voice" || shape == "audio" || shape == "sticker") {
		shape = "document" // other shapes have no caption
	}
	var size image.Config
	if shape == "image" {
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			return nil, fmt.Errorf("read the file: %w", err)
		}
		size, _, _ = image.DecodeConfig(r) // without it phones first show a wrong shape
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	// The client must not be ended during the upload.
	if !c.working.enter() {
		return nil, errOffline
	}
	defer c.working.leave()
	up, err := c.client.UploadReader(ctx, r, nil, mediaTypes[cmp.Or(media[shape], shape)])
	if err != nil {
		return nil, fmt.Errorf("upload: %w", classify(err))
	}
	return fileMessage(shape, f.Attachment, caption, size, up, info), nil
}

// media maps shapes to their kind of keys, if its name differs.
var media = map[string]string{"sticker": "image", "voice": "audio"}

// mediaKind returns how a file is shown: image, video, audio, voice, sticker or document. Some
// phones can't play a voice message unless it is Opus in Ogg, or show a picture unless it is JPEG
// or PNG.
func mediaKind(a bus.Attachment, head []byte) string {
	kind, _, _ := strings.Cut(a.Type, ";")
	opus := bytes.HasPrefix(head, []byte("OggS")) && bytes.Contains(head, []byte("OpusHead"))
	picture := kind == "image/jpeg" || kind == "image/png"
	switch {
	case a.Kind == bus.Document:
		return "document"
	case a.Kind == bus.Sticker && kind == "image/webp":
		return "sticker"
	case picture:
		return "image"
	case kind == "video/mp4":
		return "video"
	case a.Kind == bus.Voice && opus:
		return "voice"
	case strings.HasPrefix(kind, "audio/"):
		return "audio"
	}
	return "document"
}

// fileMessage returns the message with an uploaded file. shape is a result of mediaKind. size is
// zero if it is unknown, and info may be nil.
func fileMessage(
	shape string, a bus.Attachment, caption string, size image.Config,
	up whatsmeow.UploadResponse, info *waE2E.ContextInfo,
) *waE2E.Message {
	shown := &caption
	if caption == "" {
		shown = nil
	}
	seconds := proto.Uint32(uint32(max(0, a.Seconds)))
	kind := cmp.Or(a.Type, "application/octet-stream")
	switch shape {
	case "image":
		return &waE2E.Message{ImageMessage: &waE2E.ImageMessage{
			Caption: shown, Mimetype: &kind, ContextInfo: info,
			Width: proto.Uint32(uint32(size.Width)), Height: proto.Uint32(uint32(size.Height)),
			URL: &up.URL, DirectPath: &up.DirectPath, MediaKey: up.MediaKey,
			FileEncSHA256: up.FileEncSHA256, FileSHA256: up.FileSHA256, FileLength: &up.FileLength,
		}}
	case "sticker":
		return &waE2E.Message{StickerMessage: &waE2E.StickerMessage{
			Mimetype: &kind, ContextInfo: info,
			URL: &up.URL, DirectPath: &up.DirectPath, MediaKey: up.MediaKey,
			FileEncSHA256: up.FileEncSHA256, FileSHA256: up.FileSHA256, FileLength: &up.FileLength,
		}}
	case "video":
		return &waE2E.Message{VideoMessage: &waE2E.VideoMessage{
			Caption: shown, Mimetype: &kind, ContextInfo: info, Seconds: seconds,
			GifPlayback: proto.Bool(a.Kind == bus.Animation),
			URL:         &up.URL, DirectPath: &up.DirectPath, MediaKey: up.MediaKey,
			FileEncSHA256: up.FileEncSHA256, FileSHA256: up.FileSHA256, FileLength: &up.FileLength,
		}}
	case "audio", "voice":
		var wave []byte
		if shape == "voice" {
			kind = "audio/ogg; codecs=opus"
			wave, _ = base64.StdEncoding.DecodeString(a.Waveform) // phones draw none without it
		}
		return &waE2E.Message{AudioMessage: &waE2E.AudioMessage{
			Mimetype: &kind, ContextInfo: info, Seconds: seconds, PTT: proto.Bool(shape == "voice"),
			Waveform: wave,
			URL:      &up.URL, DirectPath: &up.DirectPath, MediaKey: up.MediaKey,
			FileEncSHA256: up.FileEncSHA256, FileSHA256: up.FileSHA256, FileLength: &up.FileLength,
		}}
	}
	name := cmp.Or(a.Name, "file")
	return &waE2E.Message{DocumentMessage: &waE2E.DocumentMessage{
		Caption: shown, Mimetype: &kind, ContextInfo: info, FileName: &name, Title: &name,
		URL: &up.URL, DirectPath: &up.DirectPath, MediaKey: up.MediaKey,
		FileEncSHA256: up.FileEncSHA256, FileSHA256: up.FileSHA256, FileLength: &up.FileLength,
	}}
}
