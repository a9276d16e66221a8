package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"gateway/channels"
)

// localTimeout is the time limit for getFile with a server that runs with --local. It answers only
// when it has downloaded the whole file, and the context has the limit for that.
const localTimeout = 24 * time.Hour

// Fetch implements [channels.Fetcher]. A ref is a file_id, which is valid for this bot only.
// Telegram lets bots fetch files of up to 20 MB; your own Bot API server has no such limit.
func (c *Channel) Fetch(ctx context.Context, ref string, w io.Writer) error {
	if err := c.api.fetch(ctx, c.stall, ref, w); err != nil {
		return fmt.Errorf("telegram: fetch file: %w", err)
	}
	return nil
}

// fetch copies a file to w. It gives up when there is no progress for the time stall.
func (c *client) fetch(
	ctx context.Context, stall time.Duration, ref string, w io.Writer,
) error {
	wait := callTimeout
	if c.localFiles != "" {
		wait = localTimeout
	}
	result, err := c.call(ctx, wait, "getFile", tgbotapi.Params{"file_id": ref})
	switch {
	// Telegram also says this of files that it can serve a moment later.
	case hasText(err, "temporarily unavailable"):
		return errors.New("telegram can't serve the file now")
	case err != nil:
		return classify(err, true)
	}
	var f struct {
		Path string `json:"file_path"`
	}
	if err := json.Unmarshal(result, &f); err != nil {
		return errors.New("garbled answer")
	}
	if f.Path == "" {
		return fmt.Errorf("%w: Telegram refuses to serve the file", channels.ErrRefused)
	}
	// A server with --local answers with an absolute path. The slash matters on Windows, where such
	// a path of another system is not absolute.
	if filepath.IsAbs(f.Path) || strings.HasPrefix(f.Path, "/") {
		return c.fetchLocal(ctx, f.Path, w)
	}
	// There is no limit on the total time, because the size of the file is not known here.
	ctx, tick, stop := channels.WithStall(ctx, stall)
	defer stop()
	return stallError(ctx, c.download(ctx, f.Path, notifyingWriter{w, tick}))
}

// download copies the file at a path from getFile to w. Such a path is valid for an hour.
func (c *client) download(ctx context.Context, path string, w io.Writer) error {
	address := c.base + "/file/bot" + c.bot.Token + "/" + (&url.URL{Path: path}).EscapedPath()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return errors.New("api_url is not a valid address") // err contains the address with the token
	}
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		return c.redact(err)
	}
	defer resp.Body.Close()
	switch code := resp.StatusCode; code {
	case http.StatusOK:
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("%w: the file no longer exists (%d)", channels.ErrRefused, code)
	case http.StatusUnauthorized:
		return badToken
	// Only answers of the Bot API itself say how long to wait.
	case http.StatusTooManyRequests:
		return &channels.RateError{After: callTimeout}
	default:
		return fmt.Errorf("status %d %s", code, http.StatusText(code))
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return c.redact(err)
	}
	return nil
}

// fetchLocal copies a file that a Bot API server with --local stores at path. It never reads
// outside of the configured folder, whatever the server says.
func (c *client) fetchLocal(ctx context.Context, path string, w io.Writer) error {
	if c.localFiles == "" {
		return fmt.Errorf("%w: the Bot API server keeps files locally; tell the gateway in which "+
			"folder", channels.ErrRefused)
	}
	folder, err := filepath.Abs(c.localFiles)
	if err != nil {
		return err
	}
	// A Root takes only names relative to its folder.
	name, err := filepath.Rel(folder, path)
	if err != nil || !filepath.IsLocal(name) {
		return fmt.Errorf("%w: the file is not in the folder of the Bot API server",
			channels.ErrRefused)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return c.redact(err)
	}
	defer root.Close()
	return c.copyLocal(ctx, root, name, w)
}

// copyLocal copies the file called name in root to w. Only a regular file is copied: reading from a
// pipe or a device might never end.
func (c *client) copyLocal(ctx context.Context, root *os.Root, name string, w io.Writer) error {
	info, err := root.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: the file no longer exists", channels.ErrRefused)
	case err != nil: // for example a link that leads out of the folder
		return fmt.Errorf("%w: %w", channels.ErrRefused, c.redact(err))
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: not a regular file", channels.ErrRefused)
	}
	f, err := root.Open(name)
	if err != nil {
		return c.redact(err)
	}
	defer f.Close()
	_, err = io.Copy(w, cancelable{ctx, f})
	return err
}

// notifyingWriter is a writer that calls tick at each write.
type notifyingWriter struct {
	io.Writer
	tick func()
}

// Write calls tick because bytes have arrived, before it passes them on.
func (t notifyingWriter) Write(p []byte) (int, error) {
	t.tick()
	return t.Writer.Write(p)
}

// cancelable is a reader that stops when its context is done.
type cancelable struct {
	ctx context.Context // of this call
	io.Reader
}

// Read returns the error of the context as soon as that is done, but it does not interrupt a read.
func (r cancelable) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
