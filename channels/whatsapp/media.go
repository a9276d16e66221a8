package whatsapp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.mau.fi/whatsmeow"

	"gateway/bus"
	"gateway/channels"
)

// maxFile is the maximum size of a fetched file in bytes: WhatsApp's own limit.
const maxFile = 2 << 30

// A ref is the Ref of an attachment: the address of its file, and how to decrypt and check it.
// Stored messages contain it as JSON, so the keys of the fields must not change.
type ref struct {
	Media  string `json:"media"` // image, video, audio or document; determines the keys
	Path   string `json:"path"`  // on WhatsApp's media servers
	Key    []byte `json:"key"`
	Hash   []byte `json:"hash"`   // SHA-256 of the file
	Sealed []byte `json:"sealed"` // SHA-256 of the encrypted file
	Size   uint64 `json:"size"`   // bytes, as the sender claims
}

// mediaTypes maps the names in a ref to kinds of keys.
var mediaTypes = map[string]whatsmeow.MediaType{
	"image":    whatsmeow.MediaImage, // and stickers
	"video":    whatsmeow.MediaVideo,
	"audio":    whatsmeow.MediaAudio,
	"document": whatsmeow.MediaDocument,
}

// A stored has the methods that all messages with files share.
type stored interface {
	GetDirectPath() string
	GetMediaKey() []byte
	GetFileSHA256() []byte
	GetFileEncSHA256() []byte
	GetFileLength() uint64
	GetMimetype() string
}

// file returns the content of a message that is a file.
func file(a bus.Attachment, media string, f stored, caption string) content {
	a.Type = channels.MIMEType(f.GetMimetype())
	a.Size = int64(min(f.GetFileLength(), maxFile))
	r, _ := json.Marshal(ref{ // bytes and strings can always be encoded
		Media: media, Path: f.GetDirectPath(), Key: f.GetMediaKey(),
		Hash: f.GetFileSHA256(), Sealed: f.GetFileEncSHA256(), Size: f.GetFileLength(),
	})
	a.Ref = string(r)
	return content{text: caption, files: []bus.Attachment{a}}
}

// Fetch implements [channels.Fetcher]. It uses a temporary file, because the content is verified
// only when all of it was read.
func (c *Channel) Fetch(ctx context.Context, name string, w io.Writer) (err error) {
	var r ref
	if err := json.Unmarshal([]byte(name), &r); err != nil || mediaTypes[r.Media] == "" ||
		!strings.HasPrefix(r.Path, "/") || len(r.Key) == 0 || len(r.Hash) != 32 {
		return fmt.Errorf("whatsapp: fetch: %w: not a file of a message", channels.ErrRefused)
	}
	s, err := c.current.wait(ctx, c.opts.ConnectWait)
	if err != nil {
		return fmt.Errorf("whatsapp: fetch: %w", err)
	}
	if !s.working.enter() {
		return fmt.Errorf("whatsapp: fetch: %w", errOffline)
	}
	defer s.working.leave()
	tmp, err := os.CreateTemp("", "whatsapp-*")
	if err != nil {
		return fmt.Errorf("whatsapp: fetch: %w", err)
	}
	defer func() { err = errors.Join(err, tmp.Close(), os.Remove(tmp.Name())) }()
	// The library first writes the encrypted file, and then decrypts it in place.
	into := &bounded{File: tmp, limit: int64(min(r.Size, maxFile)) + sealing}
	if err := s.client.DownloadMediaWithPathToFile(ctx, r.Path, r.Sealed, r.Hash, r.Key,
		mediaTypes[r.Media], "", false, into); err != nil {
		return fmt.Errorf("whatsapp: fetch: %w", downloadError(err))
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("whatsapp: fetch: %w", err)
	}
	if _, err := io.Copy(w, tmp); err != nil {
		return fmt.Errorf("whatsapp: fetch: %w", err)
	}
	return nil
}

// sealing is the maximum number of bytes that encryption adds to a file: padding and a checksum.
const sealing = 16 + 10

// A bounded is a file with a maximum size. It is not an *os.File, which would make the library
// allocate as much space as the server claims to send.
type bounded struct {
	*os.File
	limit int64 // bytes
}

var errTooLong = errors.New("the file is longer than its message says")

// ReadFrom replaces the content of the file by everything that r has. It returns errTooLong if that
// exceeds the limit. The library calls it once for each attempt, and does not remove what an
// attempt that failed at another host has left.
func (b *bounded) ReadFrom(r io.Reader) (int64, error) {
	if _, err := b.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	if err := b.Truncate(0); err != nil {
		return 0, err
	}
	n, err := io.Copy(b.File, io.LimitReader(r, b.limit+1))
	if err == nil && n > b.limit {
		err = errTooLong
	}
	return n, err
}

// downloadError converts an error of a download into one of the channel contract.
func downloadError(err error) error {
	switch {
	case errors.Is(err, whatsmeow.ErrMediaDownloadFailedWith403),
		errors.Is(err, whatsmeow.ErrMediaDownloadFailedWith404),
		errors.Is(err, whatsmeow.ErrMediaDownloadFailedWith410):
		return fmt.Errorf("%w: WhatsApp no longer has the file", channels.ErrRefused)
	case errors.Is(err, whatsmeow.ErrInvalidMediaHMAC), errors.Is(err, errTooLong),
		errors.Is(err, whatsmeow.ErrInvalidMediaEncSHA256), errors.Is(err, whatsmeow.ErrTooShortFile),
		errors.Is(err, whatsmeow.ErrInvalidMediaSHA256):
		return channels.ErrDamaged
	}
	return classify(err)
}
