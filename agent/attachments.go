package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"gateway/agent/extract"
	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/bus"
)

// What the model gets of files.
const (
	maxDocumentText = 12_000 // bytes of a document's text in the prompt
	maxImageSide    = 2048   // pixels
	maxImageBytes   = 1 << 20
	transcribeTime  = 2 * time.Minute
)

// mediaFolder is how the model knows the folder of its conversation's files.
const mediaFolder = "media"

func hasFiles(r bus.Received) bool {
	q := r.Message.ReplyTo
	return len(r.Message.Attachments) > 0 || q != nil && len(q.Attachments) > 0
}

// fetch makes sure that the files of m are there.
func (d *Dispatcher) fetch(ctx context.Context, m *bus.InboundMessage) {
	if d.Media != nil && hasFiles(bus.Received{Message: *m}) {
		d.Media.Fetch(ctx, m)
	}
}

// loadAttachments returns what the model learns of the attachments of m, whose files were fetched,
// and of those of the message that it quotes.
func (d *Dispatcher) loadAttachments(
	ctx context.Context, m bus.InboundMessage,
) (files, quoted []prompt.File) {
	for _, a := range m.Attachments {
		files = append(files, d.loadAttachment(ctx, m, a))
	}
	if m.ReplyTo != nil {
		for _, a := range m.ReplyTo.Attachments {
			quoted = append(quoted, d.loadAttachment(ctx, m, a))
		}
	}
	return files, quoted
}

// loadAttachment returns what the model learns of an attachment of m, or of what m quotes.
func (d *Dispatcher) loadAttachment(
	ctx context.Context, m bus.InboundMessage, a bus.Attachment,
) prompt.File {
	if a.Path == "" {
		return prompt.MissingFile(a)
	}
	file := path.Join(mediaFolder, path.Base(a.Path))
	f := prompt.File{Note: fmt.Sprintf("%s, %s, %s", prompt.FileLabel(a), a.Type, file)}
	class, _, _ := strings.Cut(a.Type, "/")
	switch {
	case a.Kind == bus.Voice:
		text, problem := d.transcribe(ctx, m, a)
		if problem != "" {
			f.Note += ": " + problem
			return f
		}
		f.Note, f.Said = prompt.FileLabel(a), prompt.Escape(text)
	case class == "image":
		d.loadImage(ctx, m.From, a, file, &f)
	case a.Kind == bus.Document:
		f.Text = d.loadDocument(ctx, m.From, a, file)
	}
	return f
}

// transcribe returns what is said in a voice message, or why that is not known.
func (d *Dispatcher) transcribe(
	ctx context.Context, m bus.InboundMessage, a bus.Attachment,
) (text, problem string) {
	if d.opts.Transcriber == nil {
		return "", "it can't be understood, because no transcription is configured"
	}
	f, err := d.Media.Open(a.Path)
	if err != nil {
		return "", "it is not there any more"
	}
	defer f.Close()
	switch err := d.paySpeech(ctx, m, a); {
	case isSpent(err):
		return "", "it was not transcribed, because the budget is spent"
	case err != nil:
		d.opts.Logger.WarnContext(ctx, "voice message not transcribed", "err", err)
		return "", "it could not be transcribed"
	}
	ctx, cancel := context.WithTimeout(ctx, transcribeTime)
	defer cancel()
	text, err = d.opts.Transcriber.Transcribe(ctx, path.Base(a.Path), f)
	if err == nil && strings.TrimSpace(text) == "" {
		err = errors.New("nothing was understood")
	}
	if err != nil {
		d.opts.Logger.WarnContext(ctx, "voice message not transcribed", "err", err)
		return "", "it could not be transcribed"
	}
	return strings.TrimSpace(text), ""
}

// loadImage makes the image in a file fit for a model, or says in seen why that can't be done. The
// converted image is kept, so that no later turn need decode the file again.
func (d *Dispatcher) loadImage(
	ctx context.Context, from bus.Address, a bus.Attachment, file string, seen *prompt.File,
) {
	f, err := d.Media.Open(a.Path)
	if err != nil {
		seen.Note += ": it is not there any more"
		return
	}
	defer f.Close()
	data, kind, err := d.Extract.Picture(ctx, from.String(), f, a.Size, maxImageSide, maxImageBytes)
	if err != nil {
		if !errors.Is(err, extract.ErrUnsupported) {
			d.opts.Logger.InfoContext(ctx, "image not read", "from", from.String(), "err", err)
		}
		seen.Note += ": it can't be shown: " + reason(err)
		return
	}
	seen.Image = &llm.Image{Path: file, Type: kind, Ready: true}
	if int64(len(data)) == a.Size && kind == a.Type {
		return // it is shown as it is
	}
	_, ext, _ := strings.Cut(kind, "/")
	kept, err := d.Media.Put(from, "image."+ext, bytes.NewReader(data))
	if err != nil {
		d.opts.Logger.WarnContext(ctx, "image not kept as it is shown", "err", err)
		seen.Image.Ready = false // it is decoded for each turn
		return
	}
	seen.Image.Path = path.Join(mediaFolder, path.Base(kept.Path))
}

// reason returns what an error says of a file, for the model.
func reason(err error) string {
	if errors.Is(err, extract.ErrUnsupported) {
		return "its format is not one of JPEG, PNG, GIF and WebP"
	}
	return prompt.Name(err.Error(), "it is damaged")
}

// loadDocument returns the text of a document, marked as what it is, or "" if it has none.
func (d *Dispatcher) loadDocument(
	ctx context.Context, from bus.Address, a bus.Attachment, file string,
) string {
	f, err := d.Media.Open(a.Path)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := d.Extract.Text(ctx, from.String(), f, a.Size, a.Type, maxDocumentText)
	switch {
	case errors.Is(err, extract.ErrUnsupported):
		return ""
	case err != nil:
		d.opts.Logger.InfoContext(ctx, "document not read", "type", a.Type, "err", err)
		return "[" + file + " could not be read: " + prompt.Name(err.Error(), "it is damaged") + "]"
	}
	return prompt.DocumentText(file, text)
}

// withImages returns messages with the images that the model shall see: the newest ones. The
// others stay without their data, and are mentioned.
func (t *turn) withImages(ctx context.Context, messages []llm.Message) []llm.Message {
	left := prompt.MaxImages
	if t.noImages || t.config().NoImages || t.d.Media == nil {
		left = 0
	}
	for i := len(messages) - 1; i >= 0 && left > 0; i-- {
		m := &messages[i]
		if len(m.Images) == 0 {
			continue
		}
		images := make([]llm.Image, len(m.Images)) // the transcript's are shared
		copy(images, m.Images)
		for j := len(images) - 1; j >= 0 && left > 0; j-- {
			images[j] = t.image(ctx, images[j])
			left--
		}
		m.Images = images
	}
	return messages
}

// image returns im with its data, in the size that models take, if that is possible.
func (t *turn) image(ctx context.Context, im llm.Image) llm.Image {
	if known, ok := t.images[im.Path]; ok {
		return known
	}
	shown, err := im, error(nil)
	if !im.Ready {
		shown, err = t.ready(ctx, im)
	}
	if err == nil {
		im.Type = shown.Type
		im.Data, err = t.imageData(shown)
	}
	if err != nil && shown.Ready && !im.Ready {
		t.d.readied.forget(path.Join(t.Address.Folder(), path.Base(im.Path)))
	}
	if err != nil {
		t.d.logger(&t.Turn).InfoContext(ctx, "image not shown to the model", "err", err)
	}
	if t.images == nil {
		t.images = make(map[string]llm.Image)
	}
	t.images[im.Path] = im
	return im
}

// imageData returns the data of an image that is ready to be shown.
func (t *turn) imageData(im llm.Image) ([]byte, error) {
	f, err := t.d.Media.Open(path.Join(t.Address.Folder(), path.Base(im.Path)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxImageBytes))
}

// readied has what has become of images in transcripts of earlier versions, which are not ready to
// be shown: by the path of the file, the image that is shown, or nil if it can't be.
type readied struct {
	mu   sync.Mutex
	list map[string]*llm.Image
}

// maxReadied is how many of them are known at a time.
const maxReadied = 1024

var errNotShown = errors.New("it can't be shown, as was found before")

// forget forgets an image whose kept file is gone.
func (r *readied) forget(file string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.list, file)
}

// ready returns the image that is shown for one of an earlier version. It is decoded once in the
// life of the process, and kept as it is shown.
func (t *turn) ready(ctx context.Context, im llm.Image) (llm.Image, error) {
	file := path.Join(t.Address.Folder(), path.Base(im.Path))
	r := &t.d.readied
	r.mu.Lock()
	shown, known := r.list[file]
	r.mu.Unlock()
	if known && shown == nil {
		return im, errNotShown
	}
	if known {
		return *shown, nil
	}
	f, err := t.d.Media.Open(file)
	if err != nil {
		return im, err // it may come back with a backup
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return im, err
	}
	data, kind, err := t.d.Extract.Picture(ctx, t.Address.String(), f, info.Size(), maxImageSide,
		maxImageBytes)
	if err == nil {
		shown = &llm.Image{Path: im.Path, Type: kind, Ready: true}
		if int64(len(data)) != info.Size() {
			kept, err := t.d.Media.Put(t.Address, "image."+strings.TrimPrefix(kind, "image/"),
				bytes.NewReader(data))
			if err != nil {
				return im, err
			}
			shown.Path = kept.Path
		}
	} else if ctx.Err() != nil {
		return im, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list == nil || len(r.list) >= maxReadied {
		r.list = make(map[string]*llm.Image)
	}
	r.list[file] = shown
	if shown == nil {
		return im, err
	}
	return *shown, nil
}
