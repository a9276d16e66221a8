package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"gateway/agent/tool"
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

// input implements exec_input. Everybody in the conversation may look at a command; to write to it
// or end it needs the rights of its owner.
func (s *Shell) input(ctx context.Context, c tool.Call, a inputArgs) (tool.Result, error) {
	p, err := s.background.find(c.Session, a.ID)
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
			return p.show(), nil // show says that it has ended
		}
		if err := s.background.write(ctx, p, a.Text, a.EOF); err != nil {
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
	return p.show(), nil
}

// receiver returns the argument vector of the process that a call writes to, or nil if it writes
// nothing.
func (s *Shell) receiver(c tool.Call) []string {
	var a inputArgs
	if json.Unmarshal(c.Args, &a) != nil || a.Text == "" && !a.EOF {
		return nil
	}
	p, err := s.background.find(c.Session, a.ID)
	if err != nil {
		return nil // the call itself reports the error
	}
	return p.argv
}

type listArgs struct{}

func (s *Shell) list(_ context.Context, c tool.Call, _ listArgs) (tool.Result, error) {
	var b strings.Builder
	for _, p := range s.background.of(c.Session) {
		fmt.Fprintf(&b, "%s: %s\n", p.state(p.running()), shorten(p.line, maxLineShow))
	}
	if b.Len() == 0 {
		return tool.Result{Text: "No commands run in the background."}, nil
	}
	return tool.Result{Text: b.String()}, nil
}
