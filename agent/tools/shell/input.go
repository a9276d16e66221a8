package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"gateway/agent/tool"
	"gateway/bus"
)

const (
	maxWait     = 60 * time.Second
	usualWait   = 2 * time.Second // to wait for output after writing
	writeWait   = 10 * time.Second
	maxLineShow = 100 // characters of a command that a list shows
)

const inputDescription = "Shows the new output of a background command and whether it still " +
	"runs; can write to its input and end it."

const listDescription = "Lists background commands, running and recently ended, with their " +
	"ids."

type inputArgs struct {
	ID   string `json:"id"`
	Text string `json:"text,omitempty" jsonschema:"for its input; end a line with \\n"`
	EOF  bool   `json:"eof,omitempty" jsonschema:"close its input"`
	Wait int    `json:"wait,omitempty" jsonschema:"seconds to wait for output, at most 60"`
	End  bool   `json:"end,omitempty" jsonschema:"end it"`
}

func (s *Shell) input(ctx context.Context, c tool.Call, a inputArgs) (tool.Result, error) {
	p, err := s.find(c.Session, a.ID)
	if err != nil {
		return tool.Result{}, err
	}
	if a.Wait < 0 {
		return tool.Result{}, errors.New("wait can't be negative; leave it out not to wait")
	}
	if (a.Text != "" || a.EOF || a.End) && p.running() && !p.owner.mayBeControlledBy(ownerOf(c)) {
		return tool.Result{}, fmt.Errorf("%s was started by somebody else; only they, or an admin, "+
			"may have you give it input or end it; tell the user", p.id)
	}
	wait := min(time.Duration(min(a.Wait, 60))*time.Second, maxWait)
	if a.Text != "" || a.EOF {
		if !p.running() {
			return s.show(p), nil // show says that it has ended
		}
		if err := s.write(ctx, p, a.Text, a.EOF); err != nil {
			return tool.Result{}, err
		}
		if a.Wait == 0 {
			wait = usualWait
		}
	}
	if a.End {
		p.cancel()
		select {
		case <-p.done:
		case <-ctx.Done():
		}
	} else if wait > 0 {
		p.wait(ctx, wait)
	}
	return s.show(p), nil
}

// receiver returns the argument vector of the process that a call writes to, or nil if it writes
// nothing.
func (s *Shell) receiver(c tool.Call) []string {
	var a inputArgs
	if json.Unmarshal(c.Args, &a) != nil || a.Text == "" && !a.EOF {
		return nil
	}
	p, err := s.find(c.Session, a.ID)
	if err != nil {
		return nil // the call itself reports the error
	}
	return p.argv
}

func (s *Shell) find(session bus.Session, id string) (*process, error) {
	var known []string
	for _, p := range s.processesOf(session) {
		if p.id == id {
			return p, nil
		}
		known = append(known, p.id)
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("there is no command %q in the background, and no other command", id)
	}
	return nil, fmt.Errorf("there is no command %q in the background; there are: %s", id,
		strings.Join(known, ", "))
}

// write writes to a process, which may read slowly.
func (s *Shell) write(ctx context.Context, p *process, text string, eof bool) error {
	written := make(chan error, 1)
	s.wg.Go(func() { // ends with the process at the latest: the pipe is closed then
		_, err := io.WriteString(p.stdin, text)
		if eof {
			err = errors.Join(err, p.stdin.Close())
		}
		written <- err
	})
	select {
	case err := <-written:
		if err != nil && p.running() {
			return fmt.Errorf("it does not take input: %w", err)
		}
		return nil
	case <-time.After(writeWait):
		return errors.New("it does not read its input; what was written may reach it later")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// show returns the new output and the state of a process.
func (s *Shell) show(p *process) tool.Result {
	running := p.running() // asked first: output that arrives later is shown by the next call
	return tool.Result{Text: withNote(p.newOutput(), s.state(p, running)), Foreign: foreign}
}

// state describes the state of a process.
func (s *Shell) state(p *process, running bool) string {
	switch {
	case running:
		return fmt.Sprintf("%s still runs, for %s", p.id, age(time.Since(p.started)))
	case p.err != nil:
		return p.id + " has ended: " + shorten(p.err.Error(), 300)
	case p.outcome.Err != "":
		return p.id + " has ended: " + startError(p.outcome).Error()
	}
	return fmt.Sprintf("%s has ended after %s: %s", p.id, age(p.ended.Sub(p.started)),
		s.note(p.outcome))
}

func age(d time.Duration) string { return d.Round(time.Second).String() }

type listArgs struct{}

func (s *Shell) list(_ context.Context, c tool.Call, _ listArgs) (tool.Result, error) {
	var b strings.Builder
	for _, p := range s.processesOf(c.Session) {
		fmt.Fprintf(&b, "%s: %s\n", s.state(p, p.running()), shorten(p.line, maxLineShow))
	}
	if b.Len() == 0 {
		return tool.Result{Text: "No commands run in the background."}, nil
	}
	return tool.Result{Text: b.String()}, nil
}
