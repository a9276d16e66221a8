package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"gateway/cmd/gateway/internal/app"
)

// errStopped means that the person has ended the command before its end.
var errStopped = errors.New("stopped: nothing was changed")

// A question asks for one line of text.
type question struct {
	text     string
	flag     string // flag that answers it instead; "": none
	fallback string // what an empty line means
	hidden   bool   // a secret: not shown while it is typed
}

// An asker asks a person at a terminal, or a program that writes a line for each answer.
type asker struct {
	in       *os.File
	out      io.Writer
	terminal bool              // in is a terminal
	given    map[string]string // answers by flag; each is used once
	quiet    bool              // ask nothing: every answer is an empty line

	reading chan line // a read that has not ended yet
}

// A line is a line of the input.
type line struct {
	text string
	err  error
}

// answered reports whether a flag holds an answer that no question has used yet.
func (a *asker) answered(flag string) bool {
	_, ok := a.given[flag]
	return ok
}

// printf prints a line.
func (a *asker) printf(format string, args ...any) { fmt.Fprintf(a.out, format+"\n", args...) }

// ask returns the answer to a question: of its flag, or else of the person. It fails if
// the input or ctx ends.
func (a *asker) ask(ctx context.Context, q question) (string, error) {
	if text, ok := a.given[q.flag]; ok {
		delete(a.given, q.flag) // if it is wrong, the person is asked
		return text, nil
	}
	if a.quiet {
		return q.fallback, nil
	}
	fmt.Fprint(a.out, q.text, ": ")
	text, err := a.read(ctx, q.hidden)
	// In these cases no line end was shown after the question.
	if !a.terminal || q.hidden {
		fmt.Fprintln(a.out)
	}
	// On a terminal this is Ctrl-D.
	if errors.Is(err, io.EOF) {
		if a.terminal {
			return "", errStopped
		}
		hint := "--no-input leaves everything without a flag as it is"
		if q.flag != "" {
			hint = "answer it with --" + q.flag + "; " + hint
		}
		return "", fmt.Errorf("standard input ends before the question %q: %s", q.text, hint)
	}
	return cmp.Or(strings.TrimSpace(text), q.fallback), err
}

// askUntil asks a question until accept returns nil for the answer, and prints the errors of
// accept. If there is no person to ask, the first error ends the command.
func (a *asker) askUntil(
	ctx context.Context, q question, accept func(answer string) error,
) error {
	for {
		answer, err := a.ask(ctx, q)
		if err != nil {
			return err
		}
		if err = accept(answer); err == nil {
			return nil
		}
		if a.quiet {
			return app.UsageErrorf("--%s: %w", q.flag, err)
		}
		a.printf("%s.", capitalize(err.Error()))
	}
}

// capitalize returns text with a capital letter at its beginning.
func capitalize(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// confirm asks a question to be answered with yes or no. fallback is the answer of an empty line.
func (a *asker) confirm(ctx context.Context, text string, fallback bool) (yes bool, err error) {
	q := question{text: text + " [y/N]", fallback: "n"}
	if fallback {
		q = question{text: text + " [Y/n]", fallback: "y"}
	}
	err = a.askUntil(ctx, q, func(answer string) error {
		answer = strings.ToLower(answer)
		yes = answer == "y" || answer == "yes"
		if !yes && answer != "n" && answer != "no" {
			return errors.New("please answer y or n")
		}
		return nil
	})
	return yes, err
}

// read returns the next line. If an earlier call gave up while it waited for a line, read returns
// that line. A read from a terminal can't be cancelled, so after the end of ctx its goroutine
// remains.
func (a *asker) read(ctx context.Context, hidden bool) (string, error) {
	var before *term.State
	if a.terminal {
		before, _ = term.GetState(int(a.in.Fd())) // without it there is nothing to restore
	}
	if a.reading == nil {
		c := make(chan line, 1)
		a.reading = c
		go func() { c <- a.next(hidden) }()
	}
	select {
	case l := <-a.reading:
		a.reading = nil
		return l.text, l.err
	case <-ctx.Done():
		if before != nil && hidden {
			_ = term.Restore(int(a.in.Fd()), before) // the program ends
		}
		return "", errStopped
	}
}

// next reads one line. It reads byte by byte, because the next line may have to be read without
// echo.
func (a *asker) next(hidden bool) (l line) {
	if hidden && a.terminal {
		text, err := term.ReadPassword(int(a.in.Fd()))
		return line{string(text), err}
	}
	var text []byte
	for b := make([]byte, 1); ; {
		n, err := a.in.Read(b)
		switch {
		case n == 1 && b[0] == '\n':
			return line{text: string(text)}
		case n == 1:
			text = append(text, b[0])
		case len(text) > 0 && errors.Is(err, io.EOF):
			return line{text: string(text)}
		case err != nil:
			return line{err: err}
		}
	}
}
