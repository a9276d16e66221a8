// Package speech makes voice notes of answers. The text of an answer is sent at once. The
// transaction that sends the text also adds a background task that makes the voice note. One
// transaction sends the voice note and ends the task, so a voice note is sent at most once. If it
// can't be made, people get only the text. The package owns no tables.
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
	"gateway/store/plaintext"
)

// The settings for spoken answers in a conversation.
const (
	Never  = "never"
	Always = "always"
	Auto   = "auto" // only answers to voice messages
)

// A Synthesizer converts text to sound. It is safe for concurrent use.
type Synthesizer interface {
	Speak(ctx context.Context, text string) ([]byte, error)
}

// A Voice configures spoken answers. All fields are required.
type Voice struct {
	Synthesizer Synthesizer
	Readable    func(markdown string) string // returns the text to read aloud
	Withholds   func(text string) bool       // whether a text must not be sent in any form
	Plays       func(account string) bool    // whether people on an account can listen to sound
	MaxText     int                          // longest spoken part of an answer, in characters
	Cost        float64                      // dollars per character
}

// Media stores files.
type Media interface {
	// Put stores a file for a conversation.
	Put(to bus.Address, name string, r io.Reader) (bus.Attachment, error)
}

// A Speaker makes voice notes of answers. It is the [background.Handler] of [background.Speak].
// All fields are required. It is safe for concurrent use.
type Speaker struct {
	Voice
	Calls  *modelcall.Calls
	Media  Media
	Now    func() time.Time
	Logger *slog.Logger
}

// A note is the stored state of a task: an answer to speak.
type note struct {
	To      bus.Address    `json:"to"`
	Text    string         `json:"text"` // Markdown
	Spender budget.Spender `json:"spender"`
	At      time.Time      `json:"at"`
}

// Limits of a voice note.
const (
	maxAge   = 10 * time.Minute // age of the answer: nobody expects a voice note later
	maxTime  = 2 * time.Minute  // of a call of the Synthesizer
	maxSound = 16 << 20         // bytes; the limit of Telegram and WhatsApp
	maxText  = 64 << 10         // bytes of an answer that are stored
)

// Add adds the task that speaks an answer. It reports false, and adds nothing, if the answer has
// no text or people on the account can't listen. [Speaker.Do] decides later, outside the
// transaction, whether the answer has text to read aloud. Add sets Kind and State of the work.
// The caller calls [background.Runner.Wake] after the transaction.
func (s *Speaker) Add(
	tx *store.Tx, w background.Work, out bus.OutboundMessage, who budget.Spender,
) (bool, error) {
	if out.Text == "" || !s.Plays(out.To.Account) {
		return false, nil
	}
	now := s.Now()
	state, err := json.Marshal(note{To: out.To, Text: plaintext.Cut(out.Text, maxText),
		Spender: who, At: now})
	if err != nil {
		return false, fmt.Errorf("speech: %w", err)
	}
	w.Kind = background.Speak
	return true, background.Store{}.Put(tx, background.Task{Work: w, State: state}, now)
}

// cut shortens text to at most most characters. It cuts after the last complete sentence, or at
// most characters if no sentence ends before.
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

// Do implements [background.Handler]. If the voice note can't be made, Do logs the reason and the
// task ends, because the text was sent already. The task is retried only if the process ends
// meanwhile.
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

// speak makes the voice note of an answer and stores the file.
func (s *Speaker) speak(ctx context.Context, n note) (a bus.Attachment, err error) {
	switch {
	case s.Now().Sub(n.At) > maxAge:
		return a, fmt.Errorf("the answer is older than %s", maxAge)
	case s.Withholds(n.Text):
		return a, errors.New("it contains a secret of the gateway")
	}
	n.Text = cut(n.Text, s.MaxText)
	characters := utf8.RuneCountInString(n.Text)
	err = s.Calls.Charge(ctx, n.Spender, budget.Entry{Model: "speech", Calls: 1,
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
	a.Kind, a.Type, a.Seconds, a.Waveform = f.kind, f.mime, f.seconds, f.waveform
	return a, nil
}
