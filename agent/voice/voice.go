// Package voice transcribes short voice messages before the gateway decides how to treat them: as
// a command, as a message to the agent, or in a group as a message to others. Each voice message is
// transcribed on a goroutine of its own, so only its own conversation waits. The main type is
// [Transcriber].
//
// One transaction stores the transcript and the decision in the message's row of the inbox. A
// message whose row has them is not transcribed again, not even after a restart.
package voice

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
	// Admitted shows people that the gateway has received messages, for example by a reaction. The
	// gate does that for all messages but the overheard ones.
	Admitted(messages []bus.InboundMessage)
}

// A Transcriber transcribes voice messages and decides how to treat them. All fields are required.
// It is safe for concurrent use.
type Transcriber struct {
	DB       *store.DB
	Loader   *attachment.Loader
	Commands *command.Commands
	Accounts Accounts
	Now      func() time.Time
	Logger   *slog.Logger
}

// Settings are the settings that can change while the gateway runs.
type Settings struct {
	Names []string // of the agent; in a group, a voice message that contains one is for the agent
	Cost  float64  // dollars per second of sound
}

// NeedsTranscript reports whether m must go through [Transcriber.Transcribe] before it is handed
// out.
func (h *Transcriber) NeedsTranscript(m bus.InboundMessage) bool {
	return m.VoiceState == bus.Overheard ||
		m.VoiceState == "" && h.configured() && m.Utterance() != nil
}

func (h *Transcriber) configured() bool {
	return h.Loader.Transcriber != nil && h.Loader.Media != nil
}

// Transcribe transcribes r, decides how to treat it, and stores the transcript and the decision. It
// returns r with both. It returns nil if r must not be handed out: r is not for the agent, r was
// dropped meanwhile, or ctx has ended. If the context reading ends before ctx, Transcribe decides
// without a transcript. After an error nothing is stored.
func (h *Transcriber) Transcribe(
	ctx, reading context.Context, r bus.Received, s Settings,
) (heard *bus.Received, err error) {
	overheard := r.Message.VoiceState == bus.Overheard
	if h.configured() {
		h.transcribe(reading, &r.Message, s.Cost)
	}
	if ctx.Err() != nil {
		return nil, nil // the next process reads it
	}
	h.decide(&r.Message, s.Names)
	waiting := false
	err = h.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) (err error) {
		waiting, err = bus.StoreTranscript(tx, r, h.Now())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("hearing: %w", err)
	}
	fault.Point("heard")
	if !waiting || r.Message.VoiceState == bus.Overheard {
		return nil, nil
	}
	if overheard {
		h.Accounts.Admitted([]bus.InboundMessage{r.Message})
	}
	return &r, nil
}

// transcribe transcribes m. A panic leaves m without a transcript.
func (h *Transcriber) transcribe(ctx context.Context, m *bus.InboundMessage, cost float64) {
	defer func() {
		if p := recover(); p != nil {
			h.Logger.ErrorContext(ctx, "transcription panicked", "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()))
		}
	}()
	h.Loader.Transcribe(ctx, m, cost)
}

// decide sets the kind of m: a spoken command, a message to the agent, or still an overheard
// message.
func (h *Transcriber) decide(m *bus.InboundMessage, names []string) {
	said := ""
	if a := m.Utterance(); a != nil {
		said = a.Transcript
	}
	text, named := h.Commands.ParseSpoken(said, names, m.VoiceState == bus.Overheard)
	switch {
	case text != "":
		m.VoiceState, m.Text = bus.SpokenCommand, text
	case named || m.VoiceState != bus.Overheard:
		m.VoiceState = bus.NotCommand
	}
	m.Addressed = m.Addressed || m.VoiceState != bus.Overheard && (text != "" || named)
}
