package whatsapp_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mau.fi/whatsmeow/proto/waE2E"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/whatsapp"
	"gateway/channels/whatsapp/whatsapptest"
)

// end waits until Run has ended by itself and returns its error.
func end(t *testing.T, w *world) (err error) {
	t.Helper()
	ctx, cancel := contextWithPatience(t)
	defer cancel()
	return w.ch.Run(ctx, w.in)
}

func TestReplaced(t *testing.T) {
	t.Parallel()
	w := start(t)
	go func() {
		_ = w.server.Wait(t.Context(), w.server.Connected) // if this fails, the test's patience ends
		w.server.Replace()
	}()
	accountError(t, end(t, w), "Another program")
	if n := w.server.Logins(); n != 2 { // one for pairing and one for Run
		t.Errorf("the bot has logged in %d times, want 2: it fights", n)
	}
}

func TestLoginRefused(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.server.FailLogin(whatsapptest.LoginFailure{Reason: 402, Code: 104, Expire: 7200})
	accountError(t, end(t, w), "for 2h0m0s: it sent the same message too often")
	w.server.FailLogin(whatsapptest.LoginFailure{Reason: 405})
	accountError(t, end(t, w), "newer one")
	w.server.FailLogin(whatsapptest.LoginFailure{Reason: 400})
	err := end(t, w)
	if _, ok := errors.AsType[*channels.AccountError](err); ok || err == nil {
		t.Errorf("Run = %v, want an error that may pass", err)
	}
}

// TestServerRestarts checks that the connection comes back after each kind of interruption.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	w.reported("connected as")
	for i, interrupt := range []func(){
		func() { w.server.Restart(503) },
		func() { w.server.Restart(515) },
		func() { w.server.Drop() },
		func() {
			w.server.FailLogin(whatsapptest.LoginFailure{Reason: 503})
			w.server.Drop()
		},
	} {
		before := w.server.Logins()
		interrupt()
		w.wait("the bot has logged in again", func() bool { return w.server.Logins() > before })
		w.say("hello")
		if got := w.receive(i + 1)[i].Text; got != "hello" {
			t.Errorf("received %q", got)
		}
	}
	w.reported("connection to WhatsApp lost")
	w.send("hello")
	if got := w.seen(); len(got) != 1 {
		t.Errorf("Ada has seen %q", got)
	}
}

// TestGivesUp checks that Run ends with an error when the connection does not come back.
func TestGivesUp(t *testing.T) {
	t.Parallel()
	// This is more than a busy machine needs to connect. If the library is cut off in the middle of
	// a login, it has a data race on its number of attempts.
	w := startWith(t, whatsapp.Options{Reconnect: 8 * time.Second})
	connected := make(chan struct{})
	go func() {
		// Wait until the login is over. The library waits for an exsync.Event in the middle of a login
		// and when it reconnects, and that writes its field waiting under a read lock.
		w.reported("connected as")
		close(connected)
		w.server.SetOutage(true)
	}()
	err := end(t, w)
	for over := false; !over; { // on a busy machine, Run may give up before it is connected
		select {
		case <-connected:
			over = true
		default:
			err = end(t, w)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "no connection for") {
		t.Errorf("Run = %v, want an error about the connection", err)
	}
}

func TestSilence(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	w.reported("connected as")
	w.server.SetSilent(true)
	w.reported("has not answered since")
	w.server.SetSilent(false)
	w.wait("connected again", func() bool {
		states := w.in.States()
		return strings.Contains(states[len(states)-1], "connected as")
	})
}

// TestDeadConnection checks that a connection that receives nothing any more is replaced.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	w.reported("connected as")
	before := w.server.Logins()
	w.server.SetSilent(true)
	w.wait("a new connection", func() bool { return w.server.Logins() > before })
	w.server.SetSilent(false)
	w.say("hello")
	w.receive(1)
}

// TestUnreachableCause checks that people are told the cause, and not the error text of each
// library.
func TestUnreachableCause(t *testing.T) {
	w := start(t)
	w.server.SetOutage(true)
	err := end(t, w)
	if err == nil || !strings.HasPrefix(err.Error(), "WhatsApp can't be reached") ||
		strings.Contains(err.Error(), "websocket") {
		t.Errorf("Run = %v", err)
	}
}

// TestPanic checks that a message is delivered again if storing it panics.
func TestPanic(t *testing.T) {
	t.Parallel()
	w := start(t)
	var calls atomic.Int32
	w.in.OnPublish = func() error {
		if calls.Add(1) == 1 {
			panic("broken PRIVATE")
		}
		return nil
	}
	w.run()
	w.say("hello")
	w.wait("the panic", func() bool { return strings.Contains(w.log.String(), "event not handled") })
	if n := w.server.Pending(); n != 1 {
		t.Errorf("%d messages are pending after a panic, want 1", n)
	}
	w.server.Drop()
	if got := w.receive(1)[0].Text; got != "hello" {
		t.Errorf("received %q", got)
	}
	w.wait("the message is acknowledged", func() bool { return w.server.Pending() == 0 })
	if strings.Contains(w.log.String(), "PRIVATE") {
		t.Error("the log shows what the panic said")
	}
}

// TestPanicEachTime checks that a message is set aside at the third attempt if storing it panics
// each time. The messages after it are received.
func TestPanicEachTime(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.in.Sturdy = true
	var works atomic.Bool
	w.in.OnPublish = func() error {
		if !works.Load() {
			panic("broken PRIVATE")
		}
		return nil
	}
	w.run()
	w.say("hello")
	for tries := 1; tries < 3; tries++ {
		w.wait("a panic", func() bool {
			return strings.Count(w.log.String(), "event not handled") == tries
		})
		if n := w.server.Pending(); n != 1 {
			t.Errorf("%d messages are pending after %d panics, want 1", n, tries)
		}
		w.server.Drop()
	}
	w.wait("the message is set aside", func() bool { return w.server.Pending() == 0 })
	works.Store(true)
	w.say("and you")
	if got := w.receive(1)[0].Text; got != "and you" {
		t.Errorf("received %q", got)
	}
	if strings.Contains(w.log.String(), "PRIVATE") {
		t.Error("the log shows what the panic said")
	}
}

// TestKeysLost checks that the channel requests a message again that can't be decrypted.
func TestKeysLost(t *testing.T) {
	t.Parallel()
	w := start(t)
	stop := w.run()
	w.say("one")
	w.receive(1)
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	w.change("DELETE FROM whatsmeow_sessions")
	w.run()
	w.say("two")
	if got := w.receive(2)[1].Text; got != "two" {
		t.Errorf("received %q, want two", got)
	}
}

// TestStoreFull checks that a message waits while its keys can't be stored, and is received once
// there is room again, also by the next session. The client would ask for it a few times only.
func TestStoreFull(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"room": false, "restart": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			stop := w.run()
			w.say("one")
			w.receive(1)
			limit := func(full bool) {
				t.Helper()
				if err := w.ch.LimitStore(full); err != nil {
					t.Fatal(err)
				}
			}
			limit(true)
			long := strings.Repeat("two ", 5000)
			w.say(long)
			w.wait("the message waits", func() bool {
				return strings.Contains(w.log.String(), "a message waits: its keys can't be stored")
			})
			if restart {
				if err := stop(); !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				w.run() // the limit belongs to the connection that was closed
			} else {
				limit(false)
			}
			w.say("three")
			list := w.receive(3)
			if list[1].Text != strings.TrimSpace(long) && list[1].Text != long || list[2].Text != "three" {
				t.Errorf("received %.20q and then %.20q, want the messages in order", list[1].Text,
					list[2].Text)
			}
		})
	}
}

// TestSwallowedAck checks that a message whose acknowledgement is lost is shown once, no matter
// how often it is sent.
func TestSwallowedAck(t *testing.T) {
	t.Parallel()
	w := startWith(t, whatsapp.Options{AckWait: 100 * time.Millisecond})
	w.run()
	w.server.SwallowAcks(2)
	part := bus.Part{Key: "7/1", To: w.adas(), Text: "hello"}
	id, err := w.ch.Send(t.Context(), part)
	for err != nil { // on a busy machine an answer can be late, too
		if errors.Is(err, channels.ErrRefused) || errors.Is(err, channels.ErrUncertain) {
			t.Fatalf("Send without an answer = %v, want an error that may be tried again", err)
		}
		id, err = w.ch.Send(t.Context(), part)
	}
	n := w.server.Sends()
	if id == "" || n < 3 {
		t.Errorf("Send without two answers = %q after %d times", id, n)
	}
	if got := w.seen(); !slices.Equal(got, []string{"hello"}) {
		t.Errorf("Ada sees %q, want hello", got)
	}
	if m := w.ada.Messages("")[0]; m.Copies != n {
		t.Errorf("the message came %d times, want %d", m.Copies, n)
	}
}

// TestSlowServer checks that a message is sent even if its acknowledgement always takes longer
// than one attempt waits.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	w := startWith(t, whatsapp.Options{AckWait: 50 * time.Millisecond})
	w.run()
	w.server.DelayAcks(200 * time.Millisecond)
	tries := 0
	for err := errors.ErrUnsupported; err != nil; tries++ {
		if tries == 10 {
			t.Fatalf("Send = %v at last", err)
		}
		_, err = w.ch.Send(t.Context(), bus.Part{Key: "1", To: w.adas(), Text: "hello"})
	}
	if got := w.seen(); !slices.Equal(got, []string{"hello"}) || tries < 2 {
		t.Errorf("Ada sees %q after %d tries, want hello after several", got, tries)
	}
}

// TestMarkSwallowed checks that a lost acknowledgement of a reaction delays others for a shorter
// time than that of a message. The whole account waits meanwhile.
func TestMarkSwallowed(t *testing.T) {
	t.Parallel()
	w := startWith(t, whatsapp.Options{AckWait: time.Hour, MarkWait: 20 * time.Millisecond})
	w.run()
	id := w.say("hello")
	w.receive(1)
	w.server.SwallowAcks(1)
	ctx, cancel := contextWithPatience(t)
	defer cancel()
	err := w.ch.React(ctx, w.adas(), id, "👀")
	if err == nil || !strings.Contains(err.Error(), "did not answer in time") {
		t.Errorf("React = %v, want that WhatsApp did not answer in time", err)
	}
	w.send("the next")
}

// TestAnswerAtLimit checks that an answer may arrive at the moment when the wait for it ends. The
// client would send it on a closed channel, and the process would end.
func TestAnswerAtLimit(t *testing.T) {
	t.Parallel()
	const wait = 3 * time.Millisecond
	w := startWith(t, whatsapp.Options{MarkWait: wait})
	w.run()
	id := w.say("hello")
	w.receive(1)
	w.send("warm up")
	late := 0
	for i := range 200 {
		w.server.DelayAcks(wait - time.Duration(i%15)*200*time.Microsecond)
		err := w.ch.React(t.Context(), w.adas(), id, "👀")
		if err != nil && !strings.Contains(err.Error(), "did not answer in time") {
			t.Fatalf("React = %v", err)
		}
		if err != nil {
			late++
		}
	}
	t.Logf("%d of 200 answers came too late", late)
	w.server.DelayAcks(0)
	w.send("the next")
}

// TestSlowAcks checks that a Send whose context ends returns, even if another Send still waits.
func TestSlowAcks(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	w.send("warm up")
	release := w.server.HoldAcks()
	first := make(chan error, 1)
	go func() {
		_, err := w.ch.Send(t.Context(), bus.Part{Key: "a", To: w.adas(), Text: "a"})
		first <- err
	}()
	w.wait("the first is under way", func() bool { return w.server.Sends() >= 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := w.ch.Send(ctx, bus.Part{Key: "b", To: w.adas(), Text: "b"})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Send = %v, want context.DeadlineExceeded", err)
	}
	select {
	case err = <-first:
		t.Error("it was held up by the slow Send")
	default:
		release()
		err = <-first
	}
	if err != nil {
		t.Errorf("the slow Send = %v", err)
	}
}

// TestSendWhileStopping checks that Run ends even while a message is being sent.
func TestSendWhileStopping(t *testing.T) {
	t.Parallel()
	w := start(t)
	stop := w.run()
	w.send("warm up")
	w.server.SwallowAcks(1)
	done := make(chan error, 1)
	go func() {
		_, err := w.ch.Send(t.Context(), bus.Part{Key: "a", To: w.adas(), Text: "a"})
		done <- err
	}()
	w.wait("it is under way", func() bool { return w.server.Sends() >= 2 })
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want context.Canceled", err)
	}
	err := <-done
	if err == nil || errors.Is(err, channels.ErrRefused) {
		t.Errorf("Send = %v, want an error that may be tried again", err)
	}
	if err != nil && strings.Contains(err.Error(), "did not answer in time") {
		t.Errorf("Send = %v: Run waited for an answer that did not come", err)
	}
}

// TestBothAtOnce checks that no message is lost when both sides write at the same time.
func TestBothAtOnce(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	w.send("warm up")
	const n = 60
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range n {
			if _, err := w.ada.Say(t.Context(), strconv.Itoa(i)); err != nil {
				t.Error(err)
			}
		}
	}()
	for i := range n {
		w.send(strconv.Itoa(i))
	}
	<-done
	w.receive(n)
	if got := len(w.seen()); got != n+1 {
		t.Errorf("Ada sees %d messages, want %d", got, n+1)
	}
}

func TestSendErrors(t *testing.T) {
	t.Parallel()
	refused := func(err error) bool { return errors.Is(err, channels.ErrRefused) }
	again := func(err error) bool {
		return err != nil && !refused(err) && !errors.Is(err, channels.ErrUncertain)
	}
	w := startWith(t, whatsapp.Options{RateWait: 7 * time.Second})
	stranger := w.person("Stranger", whatsapptest.NoLID)
	group := w.server.AddGroup("Friends", false, w.ada)
	left := w.server.AddGroup("Left", false, w.ada)
	if err := w.server.Expel(left); err != nil {
		t.Fatal(err)
	}
	w.run()
	for _, tt := range []struct {
		name, chat string
		code       int
		check      func(error) bool
	}{
		{"a stranger", w.ada.Chat(), 463, refused},
		{"keys out of step", w.ada.Chat(), 479, again},
		{"a person for some hours", w.ada.Chat(), 403, again},
		{"a person for some hours", w.ada.Chat(), 405, again},
		{"a person", w.ada.Chat(), 401, refused},
		{"a server's trouble", w.ada.Chat(), 500, again},
		{"an unknown code", w.ada.Chat(), 499, again},
		{"no hidden id", stranger.Chat(), 0, refused},
		{"nobody", "15559999999@s.whatsapp.net", 0, refused},
		{"a group that was left", left, 0, refused},
		{"no group", "120363@g.us", 0, refused},
		{"a group that refuses", group, 403, refused},
		{"no address", "Ada", 0, refused},
		{"a channel", "1234@newsletter", 0, refused},
		{"a device", w.ada.LID() + ":1@lid", 0, refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.code != 0 {
				w.server.RefuseSends(tt.code)
			}
			to := bus.Address{Account: "wa", Chat: tt.chat}
			if _, err := w.ch.Send(t.Context(), bus.Part{To: to, Text: "hi"}); !tt.check(err) {
				t.Errorf("Send = %v", err)
			}
		})
	}
	w.server.RefuseSends(429, 429)
	for range 2 {
		err := w.ch.React(t.Context(), w.adas(), "ABC", "👍")
		if limit, ok := errors.AsType[*channels.RateError](err); !ok || limit.After != 7*time.Second {
			t.Errorf("React = %v, want a RateError of 7s", err)
		}
	}
}

func TestNotConnected(t *testing.T) {
	t.Parallel()
	w := startWith(t, whatsapp.Options{ConnectWait: 10 * time.Millisecond})
	for name, err := range map[string]error{
		"Send":     second(w.ch.Send(t.Context(), bus.Part{To: w.adas(), Text: "hi"})),
		"Edit":     w.ch.Edit(t.Context(), w.adas(), "ABC", "hi"),
		"Remove":   w.ch.Remove(t.Context(), w.adas(), "ABC"),
		"React":    w.ch.React(t.Context(), w.adas(), "ABC", "👍"),
		"MarkRead": w.ch.MarkRead(t.Context(), w.adas(), []string{"ABC"}),
		"Type":     w.ch.Type(t.Context(), w.adas()),
	} {
		if err == nil || errors.Is(err, channels.ErrRefused) || errors.Is(err, channels.ErrUncertain) {
			t.Errorf("%s = %v, want an error that may be tried again", name, err)
		}
	}
}

func second(_ string, err error) error { return err }

// TestSameIDTwice checks that a message that arrives twice has the same id both times.
func TestSameIDTwice(t *testing.T) {
	t.Parallel()
	w := start(t)
	var ids []string
	record := &recorder{publish: func(b channels.Batch) { ids = append(ids, b.Messages[0].ID) }}
	stop := w.runTo(w.ch, record)
	id := w.say("hello")
	text := "hello"
	if err := w.ada.SendAgain(t.Context(), "", id, &waE2E.Message{Conversation: &text}); err != nil {
		t.Fatal(err)
	}
	w.wait("both are stored", func() bool { return record.count.Load() == 2 })
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if !slices.Equal(ids, []string{id, id}) {
		t.Errorf("ids are %q, want %q twice", ids, id)
	}
}

// A recorder is an intake that passes each batch with messages to a function.
type recorder struct {
	channeltest.Inbox
	publish func(channels.Batch)
	count   atomic.Int32
}

func (r *recorder) Publish(_ context.Context, b channels.Batch) error {
	if len(b.Messages) > 0 {
		r.publish(b)
		r.count.Add(1)
	}
	return nil
}
