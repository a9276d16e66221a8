// Package speech says answers aloud. The text of an answer is sent at once; its voice note is a
// background task, which is added in the transaction that sends the text. The voice note and the
// end of the task are one transaction, too, so that a voice note is sent once at most. If it can't
// be made, only the text is there. The package owns no tables.
package speech

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"gateway/agent/background"
	"gateway/agent/budget"
	"gateway/agent/modelcall"
	"gateway/bus"
	"gateway/store"
)

// When the answers of a conversation are spoken.
const (
	Never  = "never"
	Always = "always"
	Auto   = "auto" // if the question was a voice message
)

// A Synthesizer makes sound of text. It is used concurrently.
type Synthesizer interface {
	Speak(ctx context.Context, text string) ([]byte, error)
}

// A Voice says how answers are spoken. All its fields are required.
type Voice struct {
	Synthesizer Synthesizer
	Readable    func(markdown string) string // what is read aloud of an answer
	Withholds   func(text string) bool       // whether a text must not be sent in any form
	Plays       func(account string) bool    // whether people on an account can listen
	MaxText     int                          // characters that are spoken of an answer
	Cost        float64                      // of a character, dollars
}

// Media keeps files.
type Media interface {
	// Put stores a file for a conversation.
	Put(to bus.Address, name string, r io.Reader) (bus.Attachment, error)
}

// A Speaker makes voice notes of answers: it is the [background.Handler] of [background.Speak]. All
// its fields are required. It is used concurrently.
type Speaker struct {
	Voice
	Calls  *modelcall.Calls
	Media  Media
	Now    func() time.Time
	Logger *slog.Logger
}

// A note is the state of a task: an answer that is to be spoken.
type note struct {
	To      bus.Address    `json:"to"`
	Text    string         `json:"text"` // Markdown
	Spender budget.Spender `json:"spender"`
	At      time.Time      `json:"at"`
}

// Bounds of a voice note.
const (
	maxAge   = 10 * time.Minute // of the answer: later nobody expects its voice
	maxTime  = 2 * time.Minute  // of a call
	maxSound = 16 << 20         // bytes; Telegram and WhatsApp take as much
	maxText  = 64 << 10         // bytes of an answer that are looked at
)

// Add adds the task that speaks an answer, and reports whether people can listen to it. What there
// is to speak is found out later, beside the transaction. The Kind and State of the work are set
// here. [background.Runner.Wake] must be called after the transaction.
func (s *Speaker) Add(
	tx *store.Tx, w background.Work, out bus.OutboundMessage, who budget.Spender,
) (bool, error) {
	if out.Text == "" || !s.Plays(out.To.Account) {
		return false, nil
	}
	text := out.Text
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	now := s.Now()
	state, err := json.Marshal(note{To: out.To, Text: text, Spender: who, At: now})
	if err != nil {
		return false, fmt.Errorf("speech: %w", err)
	}
	w.Kind = background.Speak
	return true, background.Store{}.Put(tx, background.Task{Work: w, State: state}, now)
}

// cut returns the first sentences of text that have at most so many characters, or so many
// characters if there is no end of a sentence among them.
func cut(text string, most int) string {
	text = strings.TrimSpace(text)
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	text = string([]rune(text)[:most])
	end := -1
	for _, mark := range []string{". ", "! ", "? ", ".\n", "!\n", "?\n", "。", "！", "？", "\n\n"} {
		if i := strings.LastIndex(text, mark); i >= 0 {
			_, size := utf8.DecodeRuneInString(text[i:])
			end = max(end, i+size)
		}
	}
	if end < 0 {
		end = len(text)
	}
	return strings.TrimSpace(text[:end])
}

// Do implements [background.Handler]. A voice note that can't be made is left out: its text has
// been sent. Only one that the end of the process interrupts is tried again.
func (s *Speaker) Do(ctx context.Context, t *background.Task) (background.Outcome, error) {
	var n note
	if err := json.Unmarshal(t.State, &n); err != nil {
		s.Logger.ErrorContext(ctx, "voice note not readable", "err", err)
		return background.Outcome{}, nil
	}
	if n.Text = s.Readable(n.Text); n.Text == "" {
		return background.Outcome{}, nil
	}
	a, err := s.speak(ctx, n)
	if ctx.Err() != nil {
		return background.Outcome{}, ctx.Err()
	}
	if err != nil {
		s.Logger.WarnContext(ctx, "answer not spoken", "to", n.To.String(), "err", err)
		return background.Outcome{}, nil
	}
	return background.Outcome{
		Send: &bus.OutboundMessage{To: n.To, Attachments: []bus.Attachment{a}},
	}, nil
}

// speak returns the voice note of an answer.
func (s *Speaker) speak(ctx context.Context, n note) (a bus.Attachment, err error) {
	switch {
	case s.Now().Sub(n.At) > maxAge:
		return a, fmt.Errorf("the answer is older than %s", maxAge)
	case s.Withholds(n.Text):
		return a, errors.New("it contains a secret of the gateway")
	}
	n.Text = cut(n.Text, s.MaxText)
	characters := utf8.RuneCountInString(n.Text)
	err = s.Calls.Pay(ctx, n.Spender, budget.Entry{Model: "speech", Calls: 1,
		Cost: float64(characters) * s.Cost})
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	sound, err := s.Synthesizer.Speak(ctx, n.Text)
	if err != nil {
		return a, err
	}
	f := formatOf(sound)
	if f.ending == "" || len(sound) > maxSound {
		return a, fmt.Errorf("%d bytes that are no sound, or too many", len(sound))
	}
	if a, err = s.Media.Put(n.To, "voice"+f.ending, bytes.NewReader(sound)); err != nil {
		return a, err
	}
	a.Kind, a.Type, a.Seconds = f.kind, f.mime, f.seconds
	return a, nil
}
