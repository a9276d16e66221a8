package whatsapp

import (
	"context"
	"time"

	"go.mau.fi/whatsmeow"
	waBinary "go.mau.fi/whatsmeow/binary"
	"go.mau.fi/whatsmeow/proto/waE2E"
	"go.mau.fi/whatsmeow/types"
)

// longestSend is the time limit for what precedes a message's departure: for example, the client
// requests the keys of the receiver's devices.
const longestSend = 75 * time.Second

// post sends a message and waits for WhatsApp's answer, up to the given time after its encryption.
//
// The client could end the wait itself, but it has two errors. It closes the channel on which it
// passes the answer. If the answer arrives at that moment, the client panics, and the process ends:
// see https://github.com/tulir/whatsmeow/issues/552. And if its context ends while it writes a
// frame, the next frame can overtake that one, and WhatsApp closes the connection. So post ends the
// wait by another answer. It ends the context only if that does not help.
func (s *sender) post(
	ctx context.Context, to types.JID, id types.MessageID, m *waE2E.Message, wait time.Duration,
) error {
	limited, expire := context.WithCancelCause(ctx)
	defer expire(nil)
	timer := time.AfterFunc(longestSend, func() { expire(errLate) })
	defer timer.Stop()
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	unregister := context.AfterFunc(limited, func() {
		answer(own, s.client, id, done)
		cancel()
	})
	defer unregister()
	encrypted := func() { timer.Reset(wait) }
	err := s.lock.Send(own, encrypted, func(ctx context.Context) error {
		_, err := s.client.SendMessage(ctx, to, m,
			whatsmeow.SendRequestExtra{ID: id, Timeout: -1}) // no limit
		return err
	})
	if err != nil && limited.Err() != nil {
		return context.Cause(limited)
	}
	return err
}

// answer makes the client believe that WhatsApp has refused the message with the given id, unless
// WhatsApp has answered. It returns when done is closed, or after a second, if the client does not
// wait for that answer.
func answer(
	ctx context.Context, client *whatsmeow.Client, id types.MessageID, done <-chan struct{},
) {
	const tries, pause = 20, 50 * time.Millisecond
	refusal := &waBinary.Node{Tag: "ack", Attrs: waBinary.Attrs{"id": id, "error": "408"}}
	answered := false
	for range tries {
		if !answered {
			//lint:ignore SA1019 no other function of the client passes an answer
			answered = client.DangerousInternals().ReceiveResponse(ctx, refusal)
		}
		select {
		case <-done:
			return
		case <-time.After(pause):
		}
	}
}
