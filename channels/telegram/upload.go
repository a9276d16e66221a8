package telegram

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"sync"
	"sync/atomic"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"gateway/bus"
	"gateway/channels"
)

// stallTimeout is how long a transfer may make no visible progress. It is long because some
// progress is invisible: the end of an upload in buffers on the way, and Telegram processing a
// video.
const stallTimeout = 2 * time.Minute

// An attached is a file in a call.
type attached struct {
	field string // the method's parameter
	name  string // shown to people
	file  *bus.File
}

// upload is like call, for a method with a file, which it streams. It gives up when there is no
// progress for the time stall; the total time depends on the file. The outcome is unknown only once
// the last byte was sent, because Telegram can't execute a partial call.
//
// It does not use tgbotapi.UploadFiles, whose goroutine outlives the call.
func (c *client) upload(
	ctx context.Context, stall time.Duration, method string, p tgbotapi.Params, a attached,
) (json.RawMessage, error) {
	content, err := a.file.Open()
	if err != nil {
		return nil, fmt.Errorf("open file: %w", err)
	}
	body, err := newForm(p, a, content)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read file: %w", err), content.Close())
	}
	defer body.Close()
	ctx, tick, stop := channels.WithStall(ctx, stall)
	defer stop()
	body.tick = tick
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		c.base+"/bot"+c.bot.Token+"/"+method, body)
	if err != nil {
		return nil, errors.New("api_url is not a valid address") // err contains the token
	}
	// Without a length net/http would send the form in chunks.
	r.ContentLength = body.left
	r.Header.Set("Content-Type", body.kind)
	resp, err := c.exchange(r, &body.complete)
	if err != nil {
		return nil, stallError(ctx, err)
	}
	// The rest does what tgbotapi's MakeRequest does with an answer.
	var answer tgbotapi.APIResponse
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("%w: garbled answer", channels.ErrUncertain)
	}
	if answer.Ok {
		return answer.Result, nil
	}
	failed := &tgbotapi.Error{Code: answer.ErrorCode, Message: answer.Description}
	if answer.Parameters != nil {
		failed.ResponseParameters = *answer.Parameters
	}
	return nil, failed
}

// A form is the body of an upload: the parameters, then the file. The transport reads and closes it
// on a goroutine of its own, which may outlive upload.
type form struct {
	kind     string // content type
	tick     func() // called after each read
	complete atomic.Bool

	mu     sync.Mutex // held while a local file is read; Close waits for it
	reader io.Reader
	file   io.Closer // nil after Close
	left   int64     // bytes
}

// newForm returns a form that owns content. The text around the file is built in memory, and its
// length gives the length of the whole form.
func newForm(p tgbotapi.Params, a attached, content io.ReadSeekCloser) (*form, error) {
	size, err := content.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	var around bytes.Buffer // the parts before and after the file
	w := multipart.NewWriter(&around)
	for name, value := range p {
		if err := w.WriteField(name, value); err != nil {
			return nil, err
		}
	}
	if _, err := w.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {multipart.FileContentDisposition(a.field, a.name)},
		"Content-Type":        {cmp.Or(channels.MIMEType(a.file.Type), "application/octet-stream")},
	}); err != nil {
		return nil, err
	}
	before := around.Len()
	if err := w.Close(); err != nil {
		return nil, err
	}
	// Content that grows meanwhile must not exceed the length that the header announces.
	return &form{
		kind: w.FormDataContentType(),
		file: content,
		left: int64(around.Len()) + size,
		reader: io.MultiReader(bytes.NewReader(around.Bytes()[:before]),
			io.LimitReader(content, size), bytes.NewReader(around.Bytes()[before:])),
	}, nil
}

// Read implements [io.Reader].
func (f *form) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return 0, fs.ErrClosed
	}
	// Once the transport has the last byte, Telegram may have it, too.
	n, err := f.reader.Read(p)
	if f.left -= int64(n); f.left <= 0 {
		f.complete.Store(true)
	}
	f.tick()
	return n, err
}

// Close closes the file. The transport also does, but perhaps later.
func (f *form) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	// A later Read sees nil and fails, instead of reading a closed file.
	file := f.file
	f.file = nil
	return file.Close()
}

// stallError returns err, or [channels.ErrStalled] if the transfer was cancelled for lack of
// progress.
func stallError(ctx context.Context, err error) error {
	if context.Cause(ctx) != channels.ErrStalled {
		return err
	}
	if errors.Is(err, channels.ErrUncertain) {
		return fmt.Errorf("%w: %w", channels.ErrUncertain, channels.ErrStalled)
	}
	return channels.ErrStalled
}
