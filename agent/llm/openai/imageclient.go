package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"path"
	"strings"
	"time"
)

const (
	paintIdle   = 4 * time.Minute // good pictures take about two minutes
	maxPainting = 48 << 20        // bytes of an answer, which has the picture as base64
)

// An ImageClient generates pictures through any API with OpenAI's images/generations and
// images/edits. It is safe for concurrent use.
type ImageClient struct {
	mediaCaller
	baseURL, key string
}

// NewImageClient returns a painter. model is the provider's name, such as gpt-image-1. It ignores
// opts.Fields. The default IdleTimeout is 4 minutes.
func NewImageClient(model string, opts *Options) *ImageClient {
	o := cmp.Or(opts, &Options{})
	return &ImageClient{newMediaCaller(model, o, paintIdle, "application/json", maxPainting),
		strings.TrimSuffix(cmp.Or(o.BaseURL, DefaultBaseURL), "/"), o.Key}
}

// A GeneratedImage is a picture or the URL of one.
type GeneratedImage struct {
	Data []byte
	URL  string
}

// A Picture is a picture to edit. It is read while it is sent.
type Picture struct {
	Name, Type string
	Content    io.ReaderAt
	Size       int64 // bytes
}

// Generate returns a picture for a prompt. size is in the provider's form, such as 1024x1024, or
// "". The error is an [*llm.Error], or ctx's error if ctx has ended.
func (p *ImageClient) Generate(ctx context.Context, prompt, size string) (GeneratedImage, error) {
	body, err := json.Marshal(struct {
		Model  string `json:"model"`
		Prompt string `json:"prompt"`
		Size   string `json:"size,omitempty"`
	}{p.Name, prompt, size})
	if err != nil {
		return GeneratedImage{}, err
	}
	return p.paint(ctx, "/images/generations", "application/json", int64(len(body)),
		func() io.Reader { return bytes.NewReader(body) })
}

// Edit returns a picture made from other pictures and a prompt. size and the error are as for
// [ImageClient.Generate].
func (p *ImageClient) Edit(
	ctx context.Context, prompt, size string, pictures []Picture,
) (GeneratedImage, error) {
	var b bytes.Buffer // bytes before the next picture
	form := multipart.NewWriter(&b)
	fields := [][2]string{{"model", p.Name}, {"prompt", prompt}}
	if size != "" {
		fields = append(fields, [2]string{"size", size})
	}
	var err error
	for _, f := range fields {
		err = cmp.Or(err, form.WriteField(f[0], f[1]))
	}
	field := "image"
	if len(pictures) > 1 {
		field = "image[]"
	}
	var before [][]byte // bytes before each picture
	length := int64(0)
	for _, picture := range pictures {
		header := textproto.MIMEHeader{
			"Content-Disposition": {multipart.FileContentDisposition(field, path.Base(picture.Name))},
			"Content-Type":        {picture.Type},
		}
		_, failed := form.CreatePart(header)
		err = cmp.Or(err, failed)
		before = append(before, bytes.Clone(b.Bytes()))
		length += int64(b.Len()) + picture.Size
		b.Reset()
	}
	if err = cmp.Or(err, form.Close()); err != nil {
		return GeneratedImage{}, err
	}
	return p.paint(ctx, "/images/edits", form.FormDataContentType(), length+int64(b.Len()),
		func() io.Reader {
			var parts []io.Reader
			for i, picture := range pictures {
				parts = append(parts, bytes.NewReader(before[i]),
					io.NewSectionReader(picture.Content, 0, picture.Size))
			}
			return io.MultiReader(append(parts, bytes.NewReader(b.Bytes()))...)
		})
}

// paint posts a request and returns the picture in the answer. body returns the request's body,
// which has length bytes.
func (p *ImageClient) paint(
	ctx context.Context, at, kind string, length int64, body func() io.Reader,
) (painting GeneratedImage, err error) {
	err = p.do(ctx, "picture made", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.baseURL+at, body())
		if err != nil {
			return err
		}
		req.ContentLength = length
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(body()), nil }
		req.Header.Set("Content-Type", kind)
		if p.key != "" {
			req.Header.Set("Authorization", "Bearer "+p.key)
		}
		resp, err := p.http.Do(req)
		if err != nil {
			return err
		}
		answer, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it was only read
		if err == nil {
			painting, err = parsePainting(answer)
		}
		return err
	})
	return painting, err
}

// errNoPainting reports an answer without a picture.
var errNoPainting = errors.New("there is no picture in the answer")

// parsePainting parses the answer of the API.
func parsePainting(answer []byte) (painting GeneratedImage, err error) {
	var a struct {
		Data []struct {
			B64 string `json:"b64_json"`
			URL string `json:"url"`
		} `json:"data"`
	}
	if json.Unmarshal(answer, &a) != nil || len(a.Data) == 0 {
		return painting, errNoPainting
	}
	// Some providers send a data URL: data:image/png;base64,….
	text := a.Data[0].B64
	if strings.HasPrefix(text, "data:") {
		_, text, _ = strings.Cut(text, ",")
	}
	painting.URL = a.Data[0].URL
	if painting.Data, err = base64.StdEncoding.DecodeString(text); err != nil ||
		len(painting.Data) == 0 && painting.URL == "" {
		return painting, errNoPainting
	}
	return painting, nil
}
