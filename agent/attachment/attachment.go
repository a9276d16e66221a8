// Package attachment converts the files that people send into input for a model: the text of
// documents and voice messages, and images in a size that models accept.
package attachment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"gateway/agent/budget"
	"gateway/agent/extract"
	"gateway/agent/llm"
	"gateway/agent/modelcall"
	"gateway/agent/opus"
	"gateway/agent/prompt"
	"gateway/bus"
	"gateway/session"
)

// Limits of the parts of files that the model gets.
const (
	maxDocumentText = 12_000 // bytes of a document's text in the prompt
	maxImageSide    = 2048   // pixels
	maxImageBytes   = 1 << 20
	transcribeTime  = 2 * time.Minute
)

// Folder is the name under which the model knows the folder with the files of its conversation.
const Folder = "media"

// Media stores the files that people send. It is safe for concurrent use.
type Media interface {
	// Fetch fetches the files of m and of the message that m quotes. Afterwards each attachment
	// has either a Path or a Problem.
	Fetch(ctx context.Context, m *bus.InboundMessage)

	// Open opens the file at the Path of an attachment.
	Open(path string) (*os.File, error)

	// Put stores a file for a conversation.
	Put(to bus.Address, name string, r io.Reader) (bus.Attachment, error)

	// Erase removes all files of a conversation.
	Erase(a bus.Address) error
}

// A Transcriber converts speech in a sound file to text. It is safe for concurrent use.
type Transcriber interface {
	Transcribe(ctx context.Context, name string, r io.Reader) (string, error)
}

// A Loader loads attachments. It is safe for concurrent use.
type Loader struct {
	Media       Media // nil: files are only mentioned to the model
	Extract     *extract.Extractor
	Transcriber Transcriber // nil: voice messages are not transcribed
	Calls       *modelcall.Calls
	Logger      *slog.Logger

	readied convertedImages
}

// HasFiles reports whether m or the message that it quotes has attachments.
func HasFiles(m bus.InboundMessage) bool {
	q := m.ReplyTo
	return len(m.Attachments) > 0 || q != nil && len(q.Attachments) > 0
}

// Load fetches the files of m and of the message that m quotes, and returns the model's input for
// each. price is the cost of transcription in dollars per second of sound. If ctx ends, the input
// may lack files, and Load changes nothing in m, so that a later call fetches them.
func (l *Loader) Load(
	ctx context.Context, m *bus.InboundMessage, price float64,
) (files, quoted []prompt.File) {
	if l.Media != nil && HasFiles(*m) {
		fetched := *m
		fetched.Attachments = slices.Clone(m.Attachments)
		if m.ReplyTo != nil {
			fetched.ReplyTo = new(*m.ReplyTo)
			fetched.ReplyTo.Attachments = slices.Clone(m.ReplyTo.Attachments)
		}
		l.Media.Fetch(ctx, &fetched)
		if ctx.Err() == nil { // also for copies of m, which share the attachments
			copy(m.Attachments, fetched.Attachments)
			if m.ReplyTo != nil {
				copy(m.ReplyTo.Attachments, fetched.ReplyTo.Attachments)
			}
		}
		m = &fetched
	}
	for _, a := range m.Attachments {
		files = append(files, l.load(ctx, *m, a, price))
	}
	if m.ReplyTo != nil {
		for _, a := range m.ReplyTo.Attachments {
			quoted = append(quoted, l.load(ctx, *m, a, price))
		}
	}
	return files, quoted
}

// Transcribe fetches and transcribes the voice message that m consists of, and sets its Said or
// Unsaid. price is the cost in dollars per second of sound. If the file can't be fetched, or ctx
// ends, Transcribe changes nothing, and [Loader.Load] tries again.
func (l *Loader) Transcribe(ctx context.Context, m *bus.InboundMessage, price float64) {
	fetched := *m
	fetched.Attachments, fetched.ReplyTo = slices.Clone(m.Attachments), nil
	l.Media.Fetch(ctx, &fetched)
	a := fetched.Utterance() // now with the file's real size
	if a == nil || a.Path == "" {
		return
	}
	a.Transcript, a.TranscriptError = l.transcribe(ctx, fetched, *a, price)
	if ctx.Err() == nil {
		m.Attachments = fetched.Attachments
	}
}

// load returns the model's input for an attachment of m or of the message that m quotes.
func (l *Loader) load(
	ctx context.Context, m bus.InboundMessage, a bus.Attachment, price float64,
) prompt.File {
	if a.Path == "" {
		return prompt.MissingFile(a)
	}
	file := path.Join(Folder, path.Base(a.Path))
	f := prompt.File{Note: fmt.Sprintf("%s, %s, %s", prompt.FileLabel(a), a.Type, file)}
	class, _, _ := strings.Cut(a.Type, "/")
	switch {
	case a.Kind == bus.Voice:
		text, problem := l.transcribe(ctx, m, a, price)
		if problem != "" {
			f.Note += ": " + problem
			return f
		}
		f.Note, f.Said = prompt.FileLabel(a), prompt.Escape(text)
	case class == "image":
		l.loadImage(ctx, m.From, a, file, &f)
	case a.Kind == bus.Document:
		f.Text = l.loadDocument(ctx, m.From, a, file)
	}
	return f
}

// transcribe returns the text of a voice message, or the reason why there is none.
func (l *Loader) transcribe(
	ctx context.Context, m bus.InboundMessage, a bus.Attachment, price float64,
) (text, problem string) {
	if a.Transcript != "" || a.TranscriptError != "" {
		return a.Transcript, a.TranscriptError
	}
	if l.Transcriber == nil {
		return "", "it can't be understood, because no transcription is configured"
	}
	f, err := l.Media.Open(a.Path)
	if err != nil {
		return "", "it is not there any more"
	}
	defer f.Close()
	err = l.paySpeech(ctx, m, a, max(a.Seconds, opus.Seconds(f)), price)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	switch {
	case modelcall.IsSpent(err):
		return "", "it was not transcribed, because the budget is spent"
	case err != nil:
		l.Logger.WarnContext(ctx, "voice message not transcribed", "err", err)
		return "", "it could not be transcribed"
	}
	ctx, cancel := context.WithTimeout(ctx, transcribeTime)
	defer cancel()
	text, err = l.Transcriber.Transcribe(ctx, path.Base(a.Path), f)
	if err == nil && strings.TrimSpace(text) == "" {
		err = errors.New("nothing was understood")
	}
	if err != nil {
		l.Logger.WarnContext(ctx, "voice message not transcribed", "err", err)
		return "", "it could not be transcribed"
	}
	return strings.TrimSpace(text), ""
}

// slowestSpeech is the lowest assumed rate of a sound file, in bytes per second (32 kbit/s, the
// rate of the platforms' apps). It bounds the length from the file's size, because a sender can
// state a length that is too short. The packets of Ogg Opus show the length at lower rates, too.
const slowestSpeech = 4 << 10

// speechModel is the name under which transcription is billed.
const speechModel = "transcription"

// paySpeech bills the transcription of a, which is at least so many seconds long, or returns an
// error if the budget is spent.
func (l *Loader) paySpeech(
	ctx context.Context, m bus.InboundMessage, a bus.Attachment, seconds int, price float64,
) error {
	who := budget.Spender{Session: session.Of(m), Person: m.Person,
		Sender: m.From.Account + "/" + m.Sender.ID}
	seconds = max(seconds, int(a.Size/slowestSpeech), 1)
	return l.Calls.Charge(ctx, who, budget.Entry{Model: speechModel, Calls: 1,
		Cost: float64(seconds) * price})
}

// loadImage converts an image for the model and sets seen.Image. If it fails, it adds the reason
// to seen.Note. It stores the converted image, so that later turns need not decode the file
// again.
func (l *Loader) loadImage(
	ctx context.Context, from bus.Address, a bus.Attachment, file string, seen *prompt.File,
) {
	f, err := l.Media.Open(a.Path)
	if err != nil {
		seen.Note += ": it is not there any more"
		return
	}
	defer f.Close()
	data, kind, err := l.Extract.Picture(ctx, from.String(), f, a.Size, maxImageSide, maxImageBytes)
	if err != nil {
		if !errors.Is(err, extract.ErrUnsupported) {
			l.Logger.InfoContext(ctx, "image not read", "from", from.String(), "err", err)
		}
		seen.Note += ": it can't be shown: " + Reason(err)
		return
	}
	seen.Image = &llm.Image{Path: file, Type: kind, Ready: true}
	if int64(len(data)) == a.Size && kind == a.Type {
		return // the model gets the file unchanged
	}
	_, ext, _ := strings.Cut(kind, "/")
	kept, err := l.Media.Put(from, "image."+ext, bytes.NewReader(data))
	if err != nil {
		l.Logger.WarnContext(ctx, "image not kept as it is shown", "err", err)
		seen.Image.Ready = false // each turn decodes the file again
		return
	}
	seen.Image.Path = path.Join(Folder, path.Base(kept.Path))
}

// Reason explains to the model why a file can't be read.
func Reason(err error) string {
	if errors.Is(err, extract.ErrUnsupported) {
		return "its format is not one of JPEG, PNG, GIF and WebP"
	}
	return prompt.Name(err.Error(), "it is damaged")
}

// loadDocument returns the text of a document, labelled with its file name, or "" if it has no
// text.
func (l *Loader) loadDocument(
	ctx context.Context, from bus.Address, a bus.Attachment, file string,
) string {
	f, err := l.Media.Open(a.Path)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := l.Extract.Text(ctx, from.String(), f, a.Size, a.Type, maxDocumentText)
	switch {
	case errors.Is(err, extract.ErrUnsupported):
		return ""
	case err != nil:
		l.Logger.InfoContext(ctx, "document not read", "type", a.Type, "err", err)
		return "[" + file + " could not be read: " + prompt.Name(err.Error(), "it is damaged") + "]"
	}
	return prompt.DocumentText(file, text)
}

// Image returns an image of a transcript with its data, in a size that models accept. If it
// fails, it returns the image without data.
func (l *Loader) Image(
	ctx context.Context, from bus.Address, im llm.Image,
) (_ llm.Image, err error) {
	shown := im
	if !im.Ready {
		shown, err = l.convertedImage(ctx, from, im)
	}
	if err == nil {
		im.Type = shown.Type
		im.Data, err = l.imageData(from, shown)
	}
	if err != nil && shown.Ready && !im.Ready {
		l.readied.forget(path.Join(from.Folder(), path.Base(im.Path)))
	}
	return im, err
}

// imageData reads the file of a converted image.
func (l *Loader) imageData(from bus.Address, im llm.Image) ([]byte, error) {
	f, err := l.Media.Open(path.Join(from.Folder(), path.Base(im.Path)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxImageBytes))
}

// FitImage converts an image of a tool to a size that models accept, and returns the data and its
// type.
func (l *Loader) FitImage(
	ctx context.Context, from bus.Address, data []byte,
) (fit []byte, kind string, err error) {
	return l.Extract.Picture(ctx, from.String(), bytes.NewReader(data), int64(len(data)),
		maxImageSide, maxImageBytes)
}

// SaveFile stores data as a file of a conversation, and returns the path by which the model knows
// it.
func (l *Loader) SaveFile(to bus.Address, name string, data []byte) (string, error) {
	if l.Media == nil {
		return "", errors.New("there is no place for files")
	}
	a, err := l.Media.Put(to, name, bytes.NewReader(data))
	return path.Join(Folder, path.Base(a.Path)), err
}

// convertedImages caches conversions of images from transcripts of earlier versions. The key is the
// path of the original file; the value is the converted image, or nil if conversion failed.
type convertedImages struct {
	mu   sync.Mutex
	list map[string]*llm.Image
}

// maxReadied is the largest number of cached conversions.
const maxReadied = 1024

var errNotShown = errors.New("it can't be shown, as was found before")

// forget removes an image from the cache after its converted file was deleted.
func (r *convertedImages) forget(file string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.list, file)
}

// convertedImage returns the converted image for an image of an earlier version. Each process
// decodes a file at most once and stores the converted image.
func (l *Loader) convertedImage(
	ctx context.Context, from bus.Address, im llm.Image,
) (llm.Image, error) {
	file := path.Join(from.Folder(), path.Base(im.Path))
	r := &l.readied
	r.mu.Lock()
	shown, known := r.list[file]
	r.mu.Unlock()
	if known && shown == nil {
		return im, errNotShown
	}
	if known {
		return *shown, nil
	}
	f, err := l.Media.Open(file)
	if err != nil {
		return im, err // not cached: a restored backup may bring the file back
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return im, err
	}
	data, kind, err := l.Extract.Picture(ctx, from.String(), f, info.Size(), maxImageSide,
		maxImageBytes)
	if err == nil {
		shown = &llm.Image{Path: im.Path, Type: kind, Ready: true}
		if int64(len(data)) != info.Size() {
			kept, err := l.Media.Put(from, "image."+strings.TrimPrefix(kind, "image/"),
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
