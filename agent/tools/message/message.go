// Package message implements the tool "message", with which the agent sends something in
// addition to its answer: a file, an interim result, or a message to another conversation.
//
// The message is written to the outbox in the transaction that writes the call's result,
// so that it is sent exactly once. The package owns no tables.
package message

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"gateway/agent/tool"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
	"gateway/store/plaintext"
)

// Options are the dependencies of the tool. All are required.
type Options struct {
	DB     *store.DB
	Outbox *bus.Outbox
	Now    func() time.Time

	// Open opens a file that the model names.
	Open func(c tool.Call, name string) (*os.File, error)
	// Put stores a file for a conversation.
	Put func(to bus.Address, name string, r io.Reader) (bus.Attachment, error)
}

// Limits of a message.
const (
	maxText    = 64 << 10 // bytes
	maxFiles   = 10
	maxButtons = 8
	maxLabel   = 40 // bytes, per button
)

const description = "Sends a message besides your answer: files, an interim result, or to " +
	"another conversation. Your answer itself is sent anyway, without files."

type arguments struct {
	Text    string   `json:"text,omitempty"`
	To      string   `json:"to,omitempty" jsonschema:"account/chat[/thread]"`
	Files   []string `json:"files,omitempty"`
	Buttons []string `json:"buttons,omitempty"`
}

// sender has the functions of the tool. It keeps no state between calls.
type sender struct{ Options }

// New returns the tool.
func New(o Options) tool.Tool {
	t := tool.New("message", description, tool.Idempotent, sender{o}.run)
	t.MinRole = bus.User
	t.Aliases = map[string]string{"content": "text", "media": "files"} // nanobot's names
	t.Asks = toOtherConversation
	t.Operands = sender{o}.operands
	return t
}

// toOtherConversation reports whether a call writes to another conversation. Such a call needs an
// approval after foreign text, which could otherwise make the agent send data to others.
// It returns false for callers who may not write there, because they are refused anyway.
func toOtherConversation(c tool.Call) bool {
	var a arguments
	return c.Role.AtLeast(bus.Admin) && (json.Unmarshal(c.Args, &a) != nil ||
		a.To != "" && a.To != c.Address.String())
}

// maxOperand is the number of bytes of each file sent elsewhere that are read for an
// approval.
const maxOperand = 256 << 20

// operands returns the files that a call sends.
func (s sender) operands(c tool.Call) []tool.Operand {
	var a arguments
	if json.Unmarshal(c.Args, &a) != nil || len(a.Files) > maxFiles {
		return nil // the call itself reports the error
	}
	return tool.ReadOperands(a.Files, maxOperand, func(name string) (*os.File, error) {
		return s.Open(c, name)
	})
}

// run checks the message and stores its files. Only then the transaction of the result puts it into
// the outbox. If the call fails in between, a stored file is left without a message.
func (s sender) run(ctx context.Context, c tool.Call, a arguments) (tool.Result, error) {
	out := bus.OutboundMessage{To: c.Address, Text: strings.TrimSpace(a.Text)}
	switch {
	case out.Text == "" && len(a.Files) == 0:
		return tool.Result{}, errors.New("there is neither a text nor a file to send")
	case len(out.Text) > maxText:
		return tool.Result{}, fmt.Errorf("the text is longer than %d bytes; send a file", maxText)
	case len(a.Files) > maxFiles:
		return tool.Result{}, fmt.Errorf("%d files are more than %d; pack them", len(a.Files), maxFiles)
	case len(a.Buttons) > maxButtons:
		return tool.Result{}, fmt.Errorf("%d buttons are more than %d", len(a.Buttons), maxButtons)
	}
	for _, label := range a.Buttons {
		// A button sends its label in the name of the person who presses it, so it must not be a
		// command.
		label = plaintext.OneLine(label)
		if label == "" || len(label) > maxLabel || strings.HasPrefix(label, "/") {
			return tool.Result{}, fmt.Errorf("button %q: want 1 to %d bytes, and no command",
				label, maxLabel)
		}
		out.Buttons = append(out.Buttons, bus.Button{Label: label, Text: label})
	}
	if a.To != "" {
		to, err := s.permitted(s.DB.Read(ctx), c, a.To)
		if err != nil {
			return tool.Result{}, err
		}
		out.To = to
	}
	for _, name := range a.Files {
		file, err := s.attach(c, out.To, name)
		if err != nil {
			return tool.Result{}, err
		}
		out.Attachments = append(out.Attachments, file)
	}
	return tool.Result{Commit: func(tx *store.Tx) (string, error) {
		id, err := s.Outbox.Add(tx, out, s.Now())
		return fmt.Sprintf("It is on its way to %s, as message %d.", out.To, id), err
	}}, nil
}

// permitted returns the conversation called name, if the speaker may write there. Only
// admins and owners may write to other conversations.
func (s sender) permitted(q store.Queryer, c tool.Call, name string) (bus.Address, error) {
	if name == c.Address.String() {
		return c.Address, nil
	}
	if !c.Role.AtLeast(bus.Admin) {
		return bus.Address{}, fmt.Errorf("only an admin may have you write to another conversation "+
			"than %s; tell the user", c.Address)
	}
	key, ok, err := session.Named(q, name)
	switch {
	case err != nil:
		return bus.Address{}, err
	case ok && key.IsConversation() && key.Person == 0:
		return key.Conversation, nil
	}
	list, err := session.List(q, 20)
	if err != nil {
		return bus.Address{}, err
	}
	var known []string
	for _, info := range list {
		if info.Key.Task == "" && info.Key.Person == 0 {
			known = append(known, info.Key.String())
		}
	}
	return bus.Address{}, fmt.Errorf("there is no conversation %q; those used last are: %s",
		name, strings.Join(known, ", "))
}

// attach copies a file to the files of the conversation that gets the message.
func (s sender) attach(c tool.Call, to bus.Address, name string) (bus.Attachment, error) {
	f, err := s.Open(c, name)
	if err != nil {
		return bus.Attachment{}, err
	}
	defer f.Close()
	a, err := s.Put(to, path.Base(filepath.ToSlash(name)), f)
	if err != nil {
		return a, fmt.Errorf("%q can't be sent: %w", name, err)
	}
	return a, nil
}
