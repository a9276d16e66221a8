package export

import (
	"context"
	"errors"
	"io"

	"gateway/agent/background"
	"gateway/bus"
	"gateway/memory"
)

// Media stores files.
type Media interface {
	// Put stores a file for a conversation.
	Put(to bus.Address, name string, r io.Reader) (bus.Attachment, error)
}

// A Sender sends people their exports. It is the [background.Handler] of [background.Export]. One
// transaction sends the archive and ends the task, so the archive is sent exactly once, also after
// a restart.
type Sender struct {
	*Exporter
	Files   Media
	MaxFile int64 // maximum size of a stored file, in bytes
}

// maxArchive is the largest archive that is sent, in bytes: Discord takes files up to 10 MiB.
const maxArchive = 9 << 20

const (
	textSent = "Here is everything that I have stored about you, as a zip archive. Begin with " +
		"README.md. Keep it safe: whoever has it can read our conversations."
	textTooLarge = "Your data is too large for a file in this chat. The person who runs me can " +
		"write all of it to a folder with `gateway export`."
)

// Do implements [background.Handler].
func (s *Sender) Do(ctx context.Context, t *background.Task) (background.Outcome, error) {
	// Nobody waits for the export.
	if t.Notice == nil {
		return background.Outcome{}, nil
	}
	out := *t.Notice
	chat := background.ChatOf(out.To)
	// The archive goes through a pipe, so it is never in memory as a whole. It is written here and
	// not on another goroutine, so that the caller can recover from a panic.
	pr, pw := io.Pipe()
	var a bus.Attachment
	var err error
	stored := make(chan struct{})
	go func() {
		defer close(stored)
		a, err = s.Files.Put(chat, bus.Export, pr)
		pr.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // ends the writer if Put has failed
	}()
	failed := s.writeTo(ctx, pw, t.Scope, chat)
	<-stored
	// Put fails with the error of the writer, which has reached it through the pipe. Only one of
	// these errors has an answer.
	switch {
	case errors.Is(failed, ErrTooLarge):
		return background.Outcome{Text: textTooLarge}, nil
	case err != nil:
		return background.Outcome{}, err
	}
	a.Kind, a.Type = bus.Document, "application/zip"
	out.Text, out.Attachments = textSent, []bus.Attachment{a}
	return background.Outcome{Send: &out}, nil
}

// writeTo writes the archive to a pipe, and closes the pipe.
func (s *Sender) writeTo(
	ctx context.Context, to *io.PipeWriter, of memory.Scope, chat bus.Address,
) (err error) {
	err = errors.New("export: the archive is not complete") // after a panic
	defer func() { to.CloseWithError(err) }()
	archive := NewZip(to, min(maxArchive, s.MaxFile), s.Now())
	if err = s.Write(ctx, of, []bus.Address{chat}, archive); err == nil {
		err = archive.Close()
	}
	return err
}
