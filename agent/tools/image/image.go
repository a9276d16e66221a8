// Package image implements the tools "generate_image" and "edit_image", which create pictures with
// a model and send them to the conversation.
//
// The price is charged to the budget before the call. The picture is stored with the conversation's
// files. It is sent in the transaction that writes the call's result. If the gateway ends during a
// call, the call is not repeated, because it may have cost money; the model is told that the
// outcome is unknown. The package has no database tables.
package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"gateway/agent/guard"
	"gateway/agent/llm/openai"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/store"
)

// Options are the dependencies of the tools. All are required.
type Options struct {
	Painter *openai.ImageClient
	Client  *http.Client // loads pictures that the provider returns as a URL
	Price   float64      // dollars per picture
	Outbox  *bus.Outbox
	Now     func() time.Time

	// Open opens a file that the model names.
	Open func(c tool.Call, name string) (*os.File, error)
	// Put stores a file for a conversation.
	Put func(to bus.Address, name string, r io.Reader) (bus.Attachment, error)
}

// Limits of a call.
const (
	maxPrompt   = 8000     // characters
	maxCaption  = 1000     // characters
	maxPictures = 4        // number of pictures to edit
	maxBytes    = 20 << 20 // bytes of a picture to edit, and of the result
	toolTime    = 5 * time.Minute
)

type generateArgs struct {
	Prompt  string `json:"prompt" jsonschema:"what the picture shows, and its style"`
	Size    string `json:"size,omitempty" jsonschema:"such as 1024x1024"`
	Caption string `json:"caption,omitempty"`
}

type editArgs struct {
	Prompt  string   `json:"prompt" jsonschema:"what to change, or how to combine the images"`
	Images  []string `json:"images" jsonschema:"files, such as media/x.png; 1 to 4"`
	Size    string   `json:"size,omitempty" jsonschema:"such as 1024x1024"`
	Caption string   `json:"caption,omitempty"`
}

// imageTools has the functions of the tools. It keeps no state between calls.
type imageTools struct{ Options }

// Tools returns the tools.
func Tools(o Options) []tool.Tool {
	p := imageTools{o}
	generate := tool.New("generate_image", "Makes a picture and sends it to the conversation. "+
		"It costs money: call it once for each picture that somebody wants.", tool.Once, p.generate)
	generate.Rare = `makes and sends a picture, {"prompt":"…"}`
	edit := tool.New("edit_image", "Makes a new picture out of images of the conversation and sends "+
		"it. It costs money: call it once for each picture that somebody wants.", tool.Once, p.edit)
	edit.Rare = `changes or combines images and sends the result, ` +
		`{"prompt":"…","images":["media/…"]}`
	edit.Operands = p.operands
	tools := []tool.Tool{generate, edit}
	for i := range tools {
		tools[i].MinRole, tools[i].Timeout = bus.User, toolTime
	}
	return tools
}

// generate implements generate_image. It makes a picture from the prompt alone.
func (p imageTools) generate(
	ctx context.Context, c tool.Call, a generateArgs,
) (tool.Result, error) {
	return p.paint(ctx, c, a, func() (openai.GeneratedImage, error) {
		return p.Painter.Generate(ctx, a.Prompt, a.Size)
	})
}

// edit implements edit_image. Its pictures are files of the conversation that the model names.
func (p imageTools) edit(ctx context.Context, c tool.Call, a editArgs) (tool.Result, error) {
	if len(a.Images) == 0 || len(a.Images) > maxPictures {
		return tool.Result{}, fmt.Errorf("%d images are given; want 1 to %d", len(a.Images),
			maxPictures)
	}
	var pictures []openai.Picture
	for _, name := range a.Images {
		f, err := p.Open(c, name)
		if err != nil {
			return tool.Result{}, err
		}
		defer f.Close() // after the call: the picture is read while it is sent
		picture, err := describe(f, name)
		if err != nil {
			return tool.Result{}, err
		}
		pictures = append(pictures, picture)
	}
	return p.paint(ctx, c, generateArgs{a.Prompt, a.Size, a.Caption},
		func() (openai.GeneratedImage, error) {
			return p.Painter.Edit(ctx, a.Prompt, a.Size, pictures)
		})
}

// operands returns the files that a call edits.
func (p imageTools) operands(c tool.Call) []tool.Operand {
	var a editArgs
	if json.Unmarshal(c.Args, &a) != nil || len(a.Images) > maxPictures {
		return nil // the call itself reports the error
	}
	return tool.ReadOperands(a.Images, maxBytes, func(name string) (*os.File, error) {
		return p.Open(c, name)
	})
}

// describe returns the image in f, a file that the model has named.
func describe(f *os.File, name string) (openai.Picture, error) {
	picture := openai.Picture{Name: path.Base(name), Content: f}
	info, err := f.Stat()
	if err != nil {
		return picture, err
	}
	head := make([]byte, min(info.Size(), sniffed))
	if _, err := f.ReadAt(head, 0); err != nil {
		return picture, err
	}
	picture.Type, picture.Size = typeOf(head), info.Size()
	switch {
	case picture.Size > maxBytes:
		err = fmt.Errorf("%q has more than %d bytes", name, maxBytes)
	case picture.Type == "":
		err = fmt.Errorf("%q is not an image that can be edited: want PNG, JPEG or WebP", name)
	}
	return picture, err
}

// sniffed is the number of bytes from which the type of a file is detected.
const sniffed = 512

// typeOf returns the MIME type of an image that people and models can see, or "".
func typeOf(data []byte) string {
	switch t := http.DetectContentType(data); t {
	case "image/png", "image/jpeg", "image/webp":
		return t
	}
	return ""
}

// paint pays for a picture, calls the provider, and sends the picture. It pays first, because a
// picture that was made costs money even if it can't be sent. run is called only after that.
func (p imageTools) paint(
	ctx context.Context, c tool.Call, a generateArgs, run func() (openai.GeneratedImage, error),
) (tool.Result, error) {
	switch {
	case strings.TrimSpace(a.Prompt) == "":
		return tool.Result{}, errors.New("the prompt is empty")
	case utf8.RuneCountInString(a.Prompt) > maxPrompt:
		return tool.Result{}, fmt.Errorf("the prompt is longer than %d characters", maxPrompt)
	case utf8.RuneCountInString(a.Caption) > maxCaption:
		return tool.Result{}, fmt.Errorf("the caption is longer than %d characters", maxCaption)
	}
	if err := c.Pay(ctx, "pictures", p.Price); err != nil {
		return tool.Result{}, err
	}
	painting, err := run()
	if err == nil && len(painting.Data) == 0 {
		painting.Data, err = p.fetch(ctx, painting.URL)
	}
	if err != nil {
		return tool.Result{}, fmt.Errorf("no picture was made: %w", err)
	}
	kind, isImage := strings.CutPrefix(typeOf(painting.Data), "image/")
	if !isImage || len(painting.Data) > maxBytes {
		return tool.Result{}, errors.New("the picture is too large, or not a PNG, JPEG or WebP image")
	}
	// Only the message that sends the picture is part of the transaction.
	file, err := p.Put(c.Address, "picture."+kind, bytes.NewReader(painting.Data))
	if err != nil {
		return tool.Result{}, err
	}
	out := bus.OutboundMessage{To: c.Address, Text: strings.TrimSpace(a.Caption),
		Attachments: []bus.Attachment{file}}
	return tool.Result{Commit: func(tx *store.Tx) (string, error) {
		return fmt.Sprintf("The picture is media/%s and on its way to the user.", path.Base(file.Path)),
			p.Outbox.Put(tx, out, p.Now())
	}}, nil
}

// fetch loads a picture from the URL that the provider has returned. Its client decides which
// addresses that URL may have.
func (p imageTools) fetch(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, errors.New("the provider's address of the picture is not valid")
	}
	resp, err := p.Client.Do(req)
	if err != nil {
		return nil, err
	}
	data, err := guard.ReadBody(resp, maxBytes)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the provider's address of the picture answers with status %d",
			resp.StatusCode)
	}
	return data, err
}
