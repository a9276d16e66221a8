package whatsapp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mau.fi/whatsmeow"
	waBinary "go.mau.fi/whatsmeow/binary"
	"go.mau.fi/whatsmeow/proto/waE2E"
	"go.mau.fi/whatsmeow/store"
	"go.mau.fi/whatsmeow/types"

	"gateway/channels"
	"gateway/channels/recent"
	"gateway/channels/whatsapp/internal/sessionlock"
)

// A sender sends messages, one at a time, as the client does.
type sender struct {
	client   *whatsmeow.Client
	sessions store.SessionStore // to check what was encrypted
	lock     *sessionlock.Lock  // of the sessions
	acks     *acks
	working  *activity     // of the session
	turn     chan struct{} // held while a message is sent

	// keyless are devices for which a second attempt did not encrypt a message either.
	keyless *recent.Map[types.JID, bool]
}

// maxKeyless is the maximum number of remembered devices without keys. Forgetting one costs a
// second attempt.
const maxKeyless = 1024

// sendAgain is like send, for messages that are retried until WhatsApp accepts them. key identifies
// the message.
func (s *sender) sendAgain(
	ctx context.Context, to types.JID, id types.MessageID, m *waE2E.Message, key string,
) error {
	err := s.send(ctx, to, id, m, s.acks.wait(key))
	s.acks.record(key, err)
	return err
}

// send sends a message and waits until WhatsApp has accepted it, up to the given time.
func (s *sender) send(
	ctx context.Context, to types.JID, id types.MessageID, m *waE2E.Message, wait time.Duration,
) error {
	return s.working.do(ctx, func() error {
		select {
		case s.turn <- struct{}{}: // the client's own lock ignores ctx
		case <-ctx.Done():
			return ctx.Err()
		}
		defer func() { <-s.turn }()
		if err := s.post(ctx, to, id, m, wait); err != nil {
			return classifySend(err, to)
		}
		missed, err := s.missed(ctx, to)
		if err != nil || len(missed) == 0 {
			return err
		}
		// The devices that have the message show it only once.
		if err := s.post(ctx, to, id, m, wait); err != nil {
			return classifySend(err, to)
		}
		missed, err = s.missed(ctx, to)
		for _, d := range missed {
			s.keyless.Put(d, true)
		}
		return err
	})
}

// missed returns the devices of the person of a direct chat for which the message just sent was not
// encrypted. It returns an error if those are all devices. WhatsApp accepts a message for nobody.
//
// The client skips devices whose keys it could not get, and devices that it does not know yet. If
// WhatsApp's answer to the message shows that there are such devices, the client asks for their
// list again, but does not send the message again. In a group, a device without the keys asks the
// client for them.
func (s *sender) missed(ctx context.Context, to types.JID) (missed []types.JID, err error) {
	if to.Server != types.HiddenUserServer {
		return nil, nil
	}
	devices, err := s.client.GetUserDevices(ctx, []types.JID{to}) // as a rule from the client's cache
	if err != nil {
		return nil, err
	}
	reached := false
	for _, d := range devices {
		ok, err := s.sessions.HasSession(ctx, d.SignalAddress().String())
		if err != nil {
			return nil, err
		}
		if _, keyless := s.keyless.Get(d); !ok && !keyless && d != s.client.Store.GetLID() {
			missed = append(missed, d)
		}
		reached = reached || ok
	}
	switch {
	case len(devices) == 0:
		return nil, fmt.Errorf("%w: this account has no devices any more", channels.ErrRefused)
	case !reached:
		return nil, errors.New("the keys of the receiver are not available")
	}
	return missed, nil
}

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
//
// It does not answer at once. If the connection has ended, the client ends the wait by itself, and
// closes the channel on which it would get the answer.
func answer(
	ctx context.Context, client *whatsmeow.Client, id types.MessageID, done <-chan struct{},
) {
	const tries, pause = 20, 50 * time.Millisecond
	answered := false
	for range tries {
		select {
		case <-done:
			return
		case <-time.After(pause):
		}
		answered = answered || refuse(ctx, client, id)
	}
}

// refuse passes a refusal to the client. It reports false if the client does not wait for an answer
// yet. It survives the panic of the client if that closes its channel at this moment.
func refuse(ctx context.Context, client *whatsmeow.Client, id types.MessageID) (answered bool) {
	defer func() {
		if recover() != nil {
			answered = true
		}
	}()
	refusal := &waBinary.Node{Tag: "ack", Attrs: waBinary.Attrs{"id": id, "error": "408"}}
	//lint:ignore SA1019 no other function of the client passes an answer
	inner := client.DangerousInternals()
	if !inner.ReceiveResponse(ctx, refusal) {
		return false
	}
	// If the client then fails to write the message, it closes its channel under its lock. The next
	// call only takes that lock, so that the answer comes before.
	inner.ReceiveResponse(ctx, refusal)
	return true
}

// longestAck is the longest time to wait for WhatsApp to accept a message, after any number of
// attempts.
const longestAck = 30 * time.Second

// maxLate is the maximum number of remembered messages that WhatsApp did not accept in time.
// Forgetting a message only shortens the wait for its next attempt.
const maxLate = 1024

// acks determines how long to wait until WhatsApp has accepted a message. The client sends one
// message at a time, so all chats of an account wait meanwhile, and a lost acknowledgement must not
// cost much. The first attempt gets the time first, which is enough even on bad connections. Each
// further attempt at the same message gets twice the time of the one before, so that a slow
// connection succeeds. A repeated message has the same id and is shown only once. The methods are
// safe for concurrent use.
type acks struct {
	first time.Duration            // for the first attempt
	late  *recent.Map[string, int] // number of late attempts, by message key
}

func newAcks(first time.Duration) *acks {
	return &acks{first: first, late: recent.New[string, int](maxLate)}
}

// wait returns the time limit of the next attempt at a message.
func (a *acks) wait(key string) time.Duration {
	late, _ := a.late.Get(key)
	// More than ten doublings exceed longestAck anyway, and could overflow.
	wait := a.first << min(late, 10)
	return min(wait, max(a.first, longestAck))
}

// record records the result of an attempt at a message.
func (a *acks) record(key string, err error) {
	switch {
	case err == nil:
		a.late.Delete(key)
	case errors.Is(err, errLate):
		recent.Count(a.late, key)
	}
}
