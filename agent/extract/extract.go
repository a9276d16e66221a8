// Package extract decodes untrusted files: it extracts text from documents and converts pictures
// for a model.
//
// An [Extractor] decodes each file in a separate process, which is the same program started again:
// main must call [Main] when its first argument is [Argument]. That process gets the file through a
// pipe. It can't open anything (see [sandbox.Seal]). Its memory, processor time and output are
// limited. It ends with the context, at its deadline, and with the gateway. Even a malicious file
// does not harm the gateway, which can say why it refused the file.
//
// Limits: 96 MiB of memory for a file, or 288 MiB if that is not enough, 20 s of processor time and
// 60 s in total. After 15 s of processor time the text of a document ends where it is. Two files
// are decoded at once, plus one that needs the larger memory, but only one per conversation.
// Without a sandbox (macOS, Windows, a kernel without seccomp) the same limits apply, but on macOS
// and Windows the memory is measured only every 20 ms, and the clock counts as processor time. The
// package has no database tables or files.
package extract

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"gateway/agent/extract/document"
	"gateway/agent/extract/picture"
)

// ErrUnsupported reports that files of this type have no text, or that the file is not a picture of
// a supported type.
var ErrUnsupported = document.ErrUnsupported

// Errors about a refused file. Their texts are for people and models.
var (
	errTooLarge = errors.New("the file is too large to be read")
	errMemory   = errors.New("reading the file takes too much memory")
	errTooLong  = errors.New("reading the file takes too long")
	errBroken   = errors.New("the file is damaged")
	errShorter  = errors.New("the file has become shorter while it was read; try again")
)

// Limits for one file.
const (
	maxFile     = 64 << 20 // bytes
	usualMemory = 96 << 20 // bytes in addition to the memory of an idle process
	largeMemory = 288 << 20
	usualSlots  = 2 // number of files decoded at once
	largeSlots  = 1 // the same for files that need more memory
	cpuTime     = 20 * time.Second
	allTime     = 60 * time.Second
)

// A Func does one kind of work: it decodes file and returns the contents and a short note. Its
// error is [ErrUnsupported], or an error whose text is a plain clause about the file.
type Func func(args json.RawMessage, file []byte) (data []byte, note string, err error)

// An Extractor decodes files. It is safe for concurrent use.
type Extractor struct {
	self   string
	log    *slog.Logger
	slots  chan struct{} // one token for each file being decoded
	large  chan struct{} // the same for files that need more memory
	warned sync.Once     // whether the log says that there is no sandbox

	cpu, all time.Duration // limits for one file; tests reduce them

	mu            sync.Mutex
	conversations map[string]*conversation // those with a file being decoded or waiting
}

// Options are the optional settings of an [Extractor]. The zero value is ready to use.
type Options struct {
	Self   string       // path of this program; by default the running executable
	Logger *slog.Logger // discards by default
}

// New returns an Extractor.
func New(o Options) (*Extractor, error) {
	if o.Self == "" && runtime.GOOS == "linux" {
		o.Self = "/proc/self/exe" // this path still works if the file is replaced
	} else if o.Self == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("extract: path of the program: %w", err)
		}
		o.Self = self
	}
	return &Extractor{
		self: o.Self, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		slots: make(chan struct{}, usualSlots), large: make(chan struct{}, largeSlots),
		conversations: make(map[string]*conversation), cpu: cpuTime, all: allTime,
	}, nil
}

// A Job is a file to decode.
type Job struct {
	Kind string // kind of work, as registered in [Main]
	For  string // owner, such as a conversation; one of its files is decoded at a time
	Args any    // for the [Func]; encoded as JSON
	File io.ReaderAt
	Size int64 // bytes of File
	Most int   // limit of the output in bytes
}

// Text returns at most limit bytes of the text of a file with the given size. See [document.Text].
func (x *Extractor) Text(
	ctx context.Context, whose string, r io.ReaderAt, size int64, mime string, limit int,
) (string, error) {
	data, _, err := x.Do(ctx, Job{Kind: kindText, For: whose, File: r, Size: size, Most: limit,
		Args: textArgs{mime, limit}})
	return string(data), err
}

// Picture returns the picture in a file, with sides of at most longest pixels and a size of at most
// most bytes, and its MIME type. most must be greater than 0. See [picture.Fit].
func (x *Extractor) Picture(
	ctx context.Context, whose string, r io.ReaderAt, size int64, longest, most int,
) (data []byte, mime string, err error) {
	return x.Do(ctx, Job{Kind: kindPicture, For: whose, File: r, Size: size, Most: most,
		Args: pictureArgs{longest, most}})
}

// Do decodes a file. Its error is [ErrUnsupported], ctx's error, an error of j.File, or an error
// whose text is a plain clause about the file, such as "reading the file takes too long".
func (x *Extractor) Do(ctx context.Context, j Job) (data []byte, note string, err error) {
	if j.Size > maxFile {
		return nil, "", errTooLarge
	}
	unlock, err := x.lock(ctx, j.For)
	if err != nil {
		return nil, "", err
	}
	defer unlock()
	if j.Size <= usualMemory/4 {
		data, note, err = x.within(ctx, x.slots, j, usualMemory)
		if !errors.Is(err, errMemory) {
			return data, note, err
		}
	}
	return x.within(ctx, x.large, j, largeMemory)
}

// within waits for a free slot and decodes a file.
func (x *Extractor) within(ctx context.Context, slots chan struct{}, j Job, memory int64) (
	[]byte, string, error,
) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
	start := time.Now()
	data, note, err := x.run(ctx, j, memory)
	x.log.DebugContext(ctx, "file decoded", "kind", j.Kind, "for", j.For, "bytes", j.Size,
		"took", time.Since(start), "err", err)
	return data, note, err
}

// A conversation lets one of its files be decoded at a time.
type conversation struct {
	held  chan struct{} // holds a value while a file is decoded
	users int           // decoding or waiting
}

// lock waits until no other file of whose is decoded. The caller must call unlock.
func (x *Extractor) lock(ctx context.Context, whose string) (unlock func(), err error) {
	x.mu.Lock()
	s := x.conversations[whose]
	if s == nil {
		s = &conversation{held: make(chan struct{}, 1)}
		x.conversations[whose] = s
	}
	s.users++
	x.mu.Unlock()
	gone := func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(x.conversations, whose)
		}
	}
	select {
	case s.held <- struct{}{}:
		return func() { <-s.held; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, ctx.Err()
	}
}

// The kinds of work of this package.
const (
	kindText    = "text"
	kindPicture = "picture"
)

type textArgs struct {
	Type  string
	Limit int
}

type pictureArgs struct{ Longest, Most int }

// textUntil returns the work of extracting text. If late returns true, it ends when there is text.
func textUntil(late func() bool) Func {
	return func(args json.RawMessage, file []byte) ([]byte, string, error) {
		var a textArgs
		if err := json.Unmarshal(args, &a); err != nil {
			return nil, "", err
		}
		text, err := document.Text(file, a.Type, a.Limit, late)
		return []byte(text), "", err
	}
}

func fit(args json.RawMessage, file []byte) ([]byte, string, error) {
	var a pictureArgs
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, "", err
	}
	data, mime, err := picture.Fit(file, a.Longest, a.Most)
	if errors.Is(err, picture.ErrUnsupported) {
		err = ErrUnsupported
	}
	return data, mime, err
}
