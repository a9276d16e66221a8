// Package hearing reads the words of short voice messages before the gateway decides what they are:
// a command, a message to the agent, or in a group a message to others. Each voice message is
// transcribed beside the sessions: only its own conversation waits.
//
// The transcript and the decision are stored in the message's row of the inbox, in one transaction.
// A message whose row has them is not transcribed again, whatever happens to the process.
package hearing

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"gateway/agent/attachment"
	"gateway/agent/command"
	"gateway/bus"
	"gateway/store"
	"gateway/store/fault"
)

// Accounts marks messages in the chats. It is safe for concurrent use.
type Accounts interface {
	// Admitted shows people that messages were received. The gate has not done so for overheard
	// messages.
	Admitted(messages []bus.InboundMessage)
}

// A Hearer reads the words of voice messages. All fields are required. It is safe for concurrent
// use.
type Hearer struct {
	DB       *store.DB
	Loader   *attachment.Loader
	Commands *command.Commands
	Accounts Accounts
	Now      func() time.Time
	Logger   *slog.Logger
}

// Settings are the settings that can change while the gateway runs.
type Settings struct {
	Names []string // of the agent; a voice message of a group that has one is for it
	Cost  float64  // dollars per second of sound
}

// Wants reports whether the words of m must be read before m is handed out.
func (h *Hearer) Wants(m bus.InboundMessage) bool {
	return m.Hearing == bus.Overheard ||
		m.Hearing == "" && h.configured() && m.Utterance() != nil
}

func (h *Hearer) configured() bool { return h.Loader.Transcriber != nil && h.Loader.Media != nil }

// Hear reads the words of r and stores what they have decided. It returns r as it is known then, or
// nil if r is not to be handed out: it was not for the agent, somebody has dropped it, or the
// process is stopping. If reading ends earlier than ctx, r is decided on without its words. An
// error means that nothing was stored.
func (h *Hearer) Hear(
	ctx, reading context.Context, r bus.Received, s Settings,
) (heard *bus.Received, err error) {
	overheard := r.Message.Hearing == bus.Overheard
	if h.configured() {
		h.transcribe(reading, &r.Message, s.Cost)
	}
	if ctx.Err() != nil {
		return nil, nil // the next process reads it
	}
	h.decide(&r.Message, s.Names)
	waiting := false
	err = h.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) (err error) {
		waiting, err = bus.Hear(tx, r, h.Now())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("hearing: %w", err)
	}
	fault.Point("heard")
	if !waiting || r.Message.Hearing == bus.Overheard {
		return nil, nil
	}
	if overheard {
		h.Accounts.Admitted([]bus.InboundMessage{r.Message})
	}
	return &r, nil
}

// transcribe transcribes m. A panic leaves m without a transcript.
func (h *Hearer) transcribe(ctx context.Context, m *bus.InboundMessage, cost float64) {
	defer func() {
		if p := recover(); p != nil {
			h.Logger.ErrorContext(ctx, "transcription panicked", "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()))
		}
	}()
	h.Loader.Hear(ctx, m, cost)
}

// decide decides what m is.
func (h *Hearer) decide(m *bus.InboundMessage, names []string) {
	said := ""
	if a := m.Utterance(); a != nil {
		said = a.Said
	}
	text, named := h.Commands.Spoken(said, names, m.Hearing == bus.Overheard)
	switch {
	case text != "":
		m.Hearing, m.Text = bus.SpokenCommand, text
	case named || m.Hearing != bus.Overheard:
		m.Hearing = bus.Heard
	}
	m.Addressed = m.Addressed || m.Hearing != bus.Overheard && (text != "" || named)
}
