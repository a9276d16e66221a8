// Package extract decodes files that strangers may have made: it gets the text out of documents
// and makes pictures fit for a model.
//
// An [Extractor] has each file decoded by a process of its own, which is the program itself started
// again: main must hand over to [Main] when its first argument is [Argument]. That process gets the
// file through a pipe. It can open nothing (see [sandbox.Seal]), and it has a bound on memory,
// processor time and what it returns. It ends with the context, with its deadline, and with the
// gateway. Whatever a file does to it, the gateway goes on and can say what was refused.
//
// Bounds: 96 MiB of memory for a file, or 288 MiB where that is not enough, 20 s of processor time
// and 60 s in all. Two files are decoded at once, and one large one beside them, but only one of
// each conversation. Where there is no sandbox (macOS, Windows, a kernel without seccomp) the
// bounds hold all the same, though on macOS and Windows memory is looked at every 20 ms only. The
// package owns no tables or files.
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

// ErrUnsupported reports that there is no text in a file of this type, or that it is not a picture
// of a type that can be read.
var ErrUnsupported = document.ErrUnsupported

// What the errors say of a file that was refused. They are for people, and for a model.
var (
	errTooLarge = errors.New("the file is too large to be read")
	errMemory   = errors.New("reading the file takes too much memory")
	errTooLong  = errors.New("reading the file takes too long")
	errBroken   = errors.New("the file is damaged")
)

// The bounds of one file.
const (
	maxFile     = 64 << 20 // bytes
	usualMemory = 96 << 20 // bytes beside those of a process that does nothing
	largeMemory = 288 << 20
	usualSlots  = 2 // files at once
	largeSlots  = 1 // files at once that need more than the usual memory
	cpuTime     = 20 * time.Second
	allTime     = 60 * time.Second
)

// A Func is a kind of work: it decodes file and returns what is in it, and a short note beside it.
// Its error is [ErrUnsupported], or one whose text is a plain clause about the file.
type Func func(args json.RawMessage, file []byte) (data []byte, note string, err error)

// An Extractor decodes files. It is safe for concurrent use.
type Extractor struct {
	self  string
	log   *slog.Logger
	usual chan struct{} // decoding a file holds one
	large chan struct{} // decoding a large one holds one of these instead
	told  sync.Once     // that there is no sandbox

	cpu, all time.Duration // bounds of one file, which the tests make narrower

	mu    sync.Mutex
	seats map[string]*seat // of whom a file is decoded or waits
}

// Options are the optional settings of an [Extractor]. The zero value is ready for use.
type Options struct {
	Self   string       // path of this program; by default the file that runs
	Logger *slog.Logger // default discards
}

// New returns an Extractor.
func New(o Options) (*Extractor, error) {
	if o.Self == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("extract: path of the program: %w", err)
		}
		if o.Self = self; runtime.GOOS == "linux" {
			o.Self = "/proc/self/exe" // stays the same if the file is replaced
		}
	}
	return &Extractor{
		self: o.Self, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		usual: make(chan struct{}, usualSlots), large: make(chan struct{}, largeSlots),
		seats: make(map[string]*seat), cpu: cpuTime, all: allTime,
	}, nil
}

// A Job is a file to be decoded.
type Job struct {
	Kind string // of work, as [Main] knows it
	For  string // whose it is, such as a conversation: one of each is decoded at a time
	Args any    // for the [Func]; has a JSON form
	File io.ReaderAt
	Size int64 // bytes of File
	Most int   // bytes that may come of it
}

// Text returns the text of a file of the given size, at most limit bytes; see [document.Text].
func (x *Extractor) Text(
	ctx context.Context, whose string, r io.ReaderAt, size int64, mime string, limit int,
) (string, error) {
	data, _, err := x.Do(ctx, Job{Kind: kindText, For: whose, File: r, Size: size, Most: limit,
		Args: textArgs{mime, limit}})
	return string(data), err
}

// Picture returns the picture in a file with sides of at most longest pixels and at most most
// bytes, and its MIME type; see [picture.Fit]. most must be greater than 0.
func (x *Extractor) Picture(
	ctx context.Context, whose string, r io.ReaderAt, size int64, longest, most int,
) (data []byte, mime string, err error) {
	return x.Do(ctx, Job{Kind: kindPicture, For: whose, File: r, Size: size, Most: most,
		Args: pictureArgs{longest, most}})
}

// Do decodes a file. The error is [ErrUnsupported], that of ctx or of the file, or one whose text
// is a plain clause about the file, such as "reading the file takes too long".
func (x *Extractor) Do(ctx context.Context, j Job) (data []byte, note string, err error) {
	if j.Size > maxFile {
		return nil, "", errTooLarge
	}
	leave, err := x.sit(ctx, j.For)
	if err != nil {
		return nil, "", err
	}
	defer leave()
	if j.Size <= usualMemory/4 {
		data, note, err = x.within(ctx, x.usual, j, usualMemory)
		if !errors.Is(err, errMemory) {
			return data, note, err
		}
	}
	return x.within(ctx, x.large, j, largeMemory)
}

// within decodes a file when there is a slot for it.
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

// A seat is the place of a conversation: who has it decodes a file.
type seat struct {
	taken chan struct{} // holds a value while somebody sits
	users int           // who sit or wait
}

// sit waits until nothing else of whose is decoded.
func (x *Extractor) sit(ctx context.Context, whose string) (leave func(), err error) {
	x.mu.Lock()
	s := x.seats[whose]
	if s == nil {
		s = &seat{taken: make(chan struct{}, 1)}
		x.seats[whose] = s
	}
	s.users++
	x.mu.Unlock()
	gone := func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(x.seats, whose)
		}
	}
	select {
	case s.taken <- struct{}{}:
		return func() { <-s.taken; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, ctx.Err()
	}
}

// The kinds of work that every program knows.
const (
	kindText    = "text"
	kindPicture = "picture"
)

type textArgs struct {
	Type  string
	Limit int
}

type pictureArgs struct{ Longest, Most int }

func text(args json.RawMessage, file []byte) ([]byte, string, error) {
	var a textArgs
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, "", err
	}
	text, err := document.Text(newReader(file), int64(len(file)), a.Type, a.Limit)
	return []byte(text), "", err
}

func fit(args json.RawMessage, file []byte) ([]byte, string, error) {
	var a pictureArgs
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, "", err
	}
	data, mime, err := picture.Fit(newReader(file), a.Longest, a.Most)
	if errors.Is(err, picture.ErrUnsupported) {
		err = ErrUnsupported
	}
	return data, mime, err
}
