package discord

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"path"
	"strings"

	"gateway/bus"
	"gateway/channels"
)

// maxWaveform is the maximum number of points of a voice message's waveform.
const maxWaveform = 256

// A fileRef identifies an attachment. Its link expires after a day; then the message has a new one.
// Stored messages contain it as JSON, so the keys of the fields must not change.
type fileRef struct {
	Channel string `json:"c"`
	Message string `json:"m"`
	ID      string `json:"a"`
	URL     string `json:"u"`
}

// String returns the reference as it stands in [bus.Attachment.Ref].
func (r fileRef) String() string {
	raw, _ := json.Marshal(r) // strings can always be encoded
	return string(raw)
}

// errExpired reports that a link no longer leads to a file.
var errExpired = fmt.Errorf("%w: the file is gone", channels.ErrRefused)

// Fetch implements [channels.Fetcher]. It asks for a new link only when the stored one has expired.
func (c *Channel) Fetch(ctx context.Context, ref string, w io.Writer) error {
	var r fileRef
	if json.Unmarshal([]byte(ref), &r) != nil || idNumber(r.Message) == 0 {
		return fmt.Errorf("discord: fetch a file: %w: not a file of Discord", channels.ErrRefused)
	}
	err := c.download(ctx, r.URL, w)
	if errors.Is(err, errExpired) {
		if r.URL, err = c.link(ctx, r); err == nil {
			err = c.download(ctx, r.URL, w)
		}
	}
	if err != nil {
		return fmt.Errorf("discord: fetch file %s: %w", r.ID, err)
	}
	return nil
}

// link reads a message again to get a new link to its file.
func (c *Channel) link(ctx context.Context, r fileRef) (string, error) {
	var m message
	to := bus.Address{Chat: r.Channel}
	if err := c.get(ctx, c.message(to, r.Message), &m); err != nil {
		return "", err
	}
	lists := [][]attachment{m.Attachments}
	// The file of a forwarded message belongs to a snapshot.
	for _, s := range m.Snapshots {
		lists = append(lists, s.Message.Attachments)
	}
	for _, list := range lists {
		for _, a := range list {
			if a.ID == r.ID {
				return a.URL, nil
			}
		}
	}
	return "", errExpired
}

// download writes the file at link to w.
func (c *Channel) download(ctx context.Context, link string, w io.Writer) error {
	u, err := url.Parse(link)
	// The link comes from a stored message. Nobody may lead the gateway to another host.
	if err != nil || !c.web.ours(u) {
		return fmt.Errorf("%w: not a file of Discord", channels.ErrRefused)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, link, nil)
	if err != nil {
		return c.classify(err)
	}
	resp, err := c.rest.Client.Do(req)
	if err != nil {
		return c.classify(err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return errExpired
	default:
		return statusError(resp.StatusCode)
	}
	_, err = io.Copy(w, resp.Body)
	return err
}

// voiceFields returns the attachment of a voice message, or nil if Discord can't show part as one.
// A voice message has no text and no buttons, and Discord requires its length and waveform. The
// sound is Opus in Ogg: other formats have no waveform.
func voiceFields(part bus.Part) fields {
	f := part.File
	if f == nil || f.Kind != bus.Voice || part.Text != "" || len(part.Buttons) > 0 ||
		f.Seconds <= 0 || f.Waveform == "" {
		return nil
	}
	wave, err := base64.StdEncoding.DecodeString(f.Waveform)
	if err != nil || len(wave) == 0 || len(wave) > maxWaveform {
		return nil
	}
	for i, v := range wave {
		// The points of bus are from 0 to 100, those of Discord from 0 to 255.
		wave[i] = byte(int(v) * 255 / 100)
	}
	return fields{"id": 0, "filename": fileName(f), "duration_secs": f.Seconds,
		"waveform": base64.StdEncoding.EncodeToString(wave)}
}

// An uploadBody is the body of an upload.
type uploadBody struct {
	io.Reader
	io.Closer
	tick func() // called after each read
}

// Read implements [io.Reader].
func (b *uploadBody) Read(p []byte) (int, error) {
	defer b.tick()
	return b.Reader.Read(p)
}

// upload sends a message with a file. Unlike the library, it does not read the file into memory. It
// returns an error if no byte is sent for the time uploadStall. The total time has no limit.
func (c *Channel) upload(
	ctx context.Context, address string, f *bus.File, body fields,
) ([]byte, error) {
	ctx, tick, stop := channels.WithStall(ctx, uploadStall)
	defer stop()
	name := fileName(f)
	if body["attachments"] == nil {
		// The id is the number in the name of the form's part, "files[0]".
		body["attachments"] = []fields{{"id": 0, "filename": name}}
	}
	before, after, form, err := envelope(name, f.Type, body)
	if err != nil {
		return nil, err
	}
	file, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = file.Close() // only read, so errors don't matter
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	// A file that grows meanwhile must not exceed the length in the header.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, &uploadBody{
		Reader: io.MultiReader(bytes.NewReader(before), io.LimitReader(file, size),
			bytes.NewReader(after)),
		Closer: file, tick: tick,
	})
	if err != nil {
		_ = file.Close() // only read, so errors don't matter
		return nil, err
	}
	req.ContentLength = int64(len(before)) + size + int64(len(after))
	req.Header.Set("Content-Type", form)
	req.Header.Set("Authorization", c.rest.Token)
	req.Header.Set("User-Agent", c.rest.UserAgent)
	resp, err := c.rest.Client.Do(req) // Do closes the file
	if err != nil {
		return nil, c.classify(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && resp.StatusCode >= 300 {
		err = refusal(resp.StatusCode, answer)
	}
	return answer, err
}

// envelope returns the parts of a form before and after the file, and the form's type. An invalid
// type of the file becomes the general one.
func envelope(name, kind string, body fields) (before, after []byte, form string, err error) {
	payload, err := json.Marshal(body)
	if err != nil {
		return nil, nil, "", err
	}
	if _, _, err := mime.ParseMediaType(kind); err != nil {
		kind = "application/octet-stream"
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	parts := []textproto.MIMEHeader{{
		"Content-Disposition": {`form-data; name="payload_json"`},
		"Content-Type":        {"application/json"},
	}, {
		"Content-Disposition": {multipart.FileContentDisposition("files[0]", name)},
		"Content-Type":        {kind},
	}}
	for i, header := range parts {
		p, err := w.CreatePart(header)
		if err == nil && i == 0 {
			_, err = p.Write(payload)
		}
		if err != nil {
			return nil, nil, "", err
		}
	}
	// What is written after the header of the file is the end of the form.
	n := b.Len()
	if err := w.Close(); err != nil {
		return nil, nil, "", err
	}
	return b.Bytes()[:n], b.Bytes()[n:], w.FormDataContentType(), nil
}

// maxFileName is the maximum length of a sent file's name, in runes.
const maxFileName = 100

// fileName returns a name for f that is valid on any computer. The characters are those that
// Windows forbids in names.
func fileName(f *bus.File) string {
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, channels.Clean(f.Name, 1000))
	if runes := []rune(name); len(runes) > maxFileName {
		ext := []rune(path.Ext(name))
		if len(ext) > maxFileName/2 {
			ext = nil
		}
		name = string(runes[:maxFileName-len(ext)]) + string(ext)
	}
	if strings.Trim(name, ". ") == "" {
		return "file"
	}
	return name
}
