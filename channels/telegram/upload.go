package telegram

import (
	"bytes"
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

// stallTimeout is how long a transfer may stand still. It is long because of what cannot be seen
// from here: the end of an upload on its way through buffers, and Telegram at work on a video.
const stallTimeout = 2 * time.Minute

// An attached is a file that goes with a call.
type attached struct {
	field string // the method's parameter
	name  string // that people see
	file  *bus.File
}

// upload is call for a method that takes a file, which is streamed. It is given up when nothing
// moves for a while; how long the whole takes depends on the file. The outcome is open only from
// the last byte on: what Telegram has in part it can't execute.
//
// It does not use tgbotapi.UploadFiles, whose goroutine outlives the call.
func (c *Channel) upload(
	ctx context.Context, method string, p tgbotapi.Params, a attached,
) (json.RawMessage, error) {
	content, err := a.file.Open()
	if err != nil {
		return nil, unreadable(err)
	}
	body, err := newForm(p, a, content)
	if err != nil {
		return nil, errors.Join(unreadable(err), content.Close())
	}
	defer body.Close()
	ctx, tick, stop := c.progress(ctx)
	defer stop()
	body.tick = tick
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		c.base+"/bot"+c.api.Token+"/"+method, body)
	if err != nil {
		return nil, errors.New("api_url is not a valid address") // err shows it with the token
	}
	r.ContentLength = body.left
	r.Header.Set("Content-Type", body.kind)
	resp, err := c.exchange(r, &body.complete)
	if err != nil {
		return nil, stalled(ctx, err)
	}
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

// unreadable returns the error for a file that can't be read, which is final if it is gone.
func unreadable(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the file is not there any more", channels.ErrRefused)
	}
	return fmt.Errorf("read file: %w", err)
}

// A form is the body of an upload: parameters, then the file.
type form struct {
	kind     string // content type
	tick     func() // called whenever something was read
	complete atomic.Bool

	mu     sync.Mutex // held while a local file is read: Close waits for that
	reader io.Reader
	file   io.Closer // nil once it is closed
	left   int64     // bytes
}

// newForm takes over content.
func newForm(p tgbotapi.Params, a attached, content io.ReadSeekCloser) (*form, error) {
	size, err := content.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	var around bytes.Buffer // what stands before and after the file
	w := multipart.NewWriter(&around)
	for name, value := range p {
		if err := w.WriteField(name, value); err != nil {
			return nil, err
		}
	}
	if _, err := w.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {multipart.FileContentDisposition(a.field, a.name)},
		"Content-Type":        {mimeType(a.file.Type, "application/octet-stream")},
	}); err != nil {
		return nil, err
	}
	before := around.Len()
	if err := w.Close(); err != nil {
		return nil, err
	}
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
	n, err := f.reader.Read(p)
	if f.left -= int64(n); f.left <= 0 {
		f.complete.Store(true)
	}
	f.tick()
	return n, err
}

// Close closes the file. The transport does so, too, but perhaps later.
func (f *form) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	file := f.file
	f.file = nil
	return file.Close()
}

// errStalled reports that a transfer did not get on.
var errStalled = errors.New("nothing moves any more")

// progress returns a context that ends when tick was not called for a while.
func (c *Channel) progress(ctx context.Context) (_ context.Context, tick, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(c.stall, func() { cancel(errStalled) })
	return ctx, func() { timer.Reset(c.stall) }, func() {
		timer.Stop()
		cancel(nil)
	}
}

// stalled returns err of a transfer, which says little if it was ended for standing still.
func stalled(ctx context.Context, err error) error {
	if context.Cause(ctx) != errStalled {
		return err
	}
	if errors.Is(err, channels.ErrUncertain) {
		return fmt.Errorf("%w: %w", channels.ErrUncertain, errStalled)
	}
	return errStalled
}
