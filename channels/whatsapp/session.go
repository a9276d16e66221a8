package whatsapp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/proto/waCompanionReg"
	"go.mau.fi/whatsmeow/proto/waE2E"
	"go.mau.fi/whatsmeow/proto/waWa6"
	"go.mau.fi/whatsmeow/store"
	"go.mau.fi/whatsmeow/types"
	"go.mau.fi/whatsmeow/types/events"
	"google.golang.org/protobuf/proto"

	"gateway/channels"
	"gateway/channels/whatsapp/internal/sessionlock"
)

// A session is the connection of a linked account, with all that lives as long as it.
type session struct {
	c      *Channel
	in     channels.Intake
	st     *storage
	device *store.Device
	client *whatsmeow.Client
	wire   *wire

	// Copies, because the client empties its device when the account is logged out.
	own, ownLID types.JID
	name        string
	lids        store.LIDStore
	contacts    store.ContactStore
	sessions    store.SessionStore

	sessionLock *sessionlock.Lock
	ended       chan error    // has the first reason to end
	turn        chan struct{} // held by the sender of a message: the client sends one at a time
	watch       *time.Timer   // ends a session that does not come back

	mu        sync.Mutex
	closed    bool
	handling  sync.WaitGroup     // event handlers; grows only while closed is false
	working   sync.WaitGroup     // calls, likewise
	stored    bool               // a message was stored, and
	writes    uint64             // so much had been written then
	shownAs   string             // the name under which the account was shown as online
	phoneOnly map[types.JID]bool // of whom WhatsApp has told no hidden id
}

func (c *Channel) newSession(
	st *storage, device *store.Device, in channels.Intake,
) *session {
	s := &session{
		c: c, in: in, st: st, device: device,
		own: device.GetJID(), ownLID: device.GetLID(),
		name: channels.Clean(device.PushName, channels.MaxName),
		lids: device.LIDs, contacts: device.Contacts, sessions: device.Sessions,
		sessionLock: sessionlock.Attach(device),
		phoneOnly:   make(map[types.JID]bool),
		ended:       make(chan error, 1),
		turn:        make(chan struct{}, 1),
	}
	s.watch = time.AfterFunc(c.opts.Reconnect, func() {
		s.end(errors.New("whatsapp: no connection for " + c.opts.Reconnect.String()))
	})
	return s
}

// newClient returns a client for a device, set as our promises need it.
func (c *Channel) newClient(ctx context.Context, d *store.Device, w *wire) *whatsmeow.Client {
	cli := whatsmeow.NewClient(d, newLog(c.log, "client", w.isCut))
	to := &http.Client{Transport: w}
	cli.SetPreLoginHTTPClient(to)
	cli.SetWebsocketHTTPClient(to)
	cli.SetMediaHTTPClient(to)
	cli.BackgroundEventCtx = ctx
	cli.SynchronousAck = true             // a message is acknowledged when the handler has returned,
	cli.EnableDecryptedEventBuffer = true // and can be read again if that was without success
	cli.UseRetryMessageStore = true       // what we sent can be asked for after a restart
	cli.AutomaticMessageRerequestFromPhone = true
	cli.ManualHistorySyncDownload = true // what was before linking is none of our business
	cli.AutoTrustIdentity = true         // people change phones
	cli.SetMaxParallelRetryReceiptHandling(4)
	cli.GetClientPayload = func() *waWa6.ClientPayload { return c.payload(d) }
	return cli
}

// payload returns how d introduces itself: with our name in the phone's list of devices. The
// library has a variable for that, but one for the whole process.
func (c *Channel) payload(d *store.Device) *waWa6.ClientPayload {
	p := d.GetClientPayload()
	asked := p.GetDevicePairingData()
	if asked == nil {
		return p
	}
	var props waCompanionReg.DeviceProps
	if err := proto.Unmarshal(asked.DeviceProps, &props); err != nil {
		return p // then it has the library's name
	}
	props.Os = &c.opts.DeviceName
	if b, err := proto.Marshal(&props); err == nil {
		asked.DeviceProps = b
	}
	return p
}

// run holds the connection until life ends or the session does, and returns the reason. Messages
// are taken in until ctx ends, which is before.
func (s *session) run(ctx, life context.Context) error {
	defer s.watch.Stop()
	var err error
	if s.wire, err = newWire(s.c.opts.Transport, s.c.opts.BaseURL); err != nil {
		return err
	}
	// The client lives longer than life, by the time that it takes to end well.
	work, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	s.client = s.c.newClient(work, s.device, s.wire)
	// The client connects again at once when it loses the connection, and then after 2, 4, 6
	// seconds and so on; if that does not help, the gateway's own patience takes over.
	s.client.AutoReconnectHook = func(error) bool { return !s.wire.isCut() }
	s.client.AddEventHandlerWithSuccessStatus(func(evt any) bool {
		return s.handle(ctx, life, evt)
	})
	stop := context.AfterFunc(life, func() { s.end(ctx.Err()) })
	defer stop()
	cut := context.AfterFunc(life, s.wire.cut) // connecting does not look at a context
	defer cut()
	if err := s.client.ConnectContext(work); err != nil {
		s.close(work, kill)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return unreachable(err)
	}
	err = <-s.ended
	s.close(work, kill)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// unreachable returns what people are told of a connection that could not be made: the cause,
// without what each library has put before it.
func unreachable(err error) error {
	cause := err
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		cause = inner
	}
	text := cause.Error()
	text = text[strings.LastIndex(text, ": ")+1:]
	return errors.New("WhatsApp can't be reached, perhaps because of the network or the proxy: " +
		channels.Clean(text, 200))
}

// close ends the client and waits for everything that runs on behalf of the session.
func (s *session) close(work context.Context, kill context.CancelFunc) {
	s.c.dropSession(s)
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.handling.Wait()
	if s.stored {
		// The client acknowledges a message after the handler, without telling. If that is lost,
		// the message comes again, which is right but not nice.
		s.wire.awaitWrite(s.writes)
	}
	hangUp(work, s.client, s.wire)
	idle := make(chan struct{})
	go func() {
		s.working.Wait()
		close(idle)
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-idle:
			done = true
		case <-tick.C:
			// A reconnection under way may have made the client hope again, and calls with it.
			s.client.Disconnect()
		}
	}
	kill()
	if t, ok := s.c.opts.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// hangUp ends a client's connection for good: it is cut, and only when the client has noticed is
// it told to hang up, so that both don't happen at once.
func hangUp(ctx context.Context, client *whatsmeow.Client, w *wire) {
	w.cut()
	timer, tick := time.NewTimer(time.Second), time.NewTicker(time.Millisecond)
	defer timer.Stop()
	defer tick.Stop()
	for waiting := true; waiting; {
		// Nothing can be sent any more. The error says whether the client knows that.
		err := client.SendChatPresence(ctx, types.ServerJID, types.ChatPresencePaused, "")
		if errors.Is(err, whatsmeow.ErrNotConnected) {
			break
		}
		select {
		case <-tick.C:
		case <-timer.C:
			waiting = false
		}
	}
	client.Disconnect()
}

// end notes why the session ends; the first reason counts.
func (s *session) end(err error) {
	select {
	case s.ended <- err:
	default:
	}
}

// enter counts somebody who works for the session, and reports false if it is over. Who enters
// calls Done of the same group.
func (s *session) enter(group *sync.WaitGroup) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	group.Add(1)
	return true
}

// do calls f and returns its error, or ctx's if that ends first. The client's methods don't all
// look at a context: f may go on until the session ends, which waits for it.
func (s *session) do(ctx context.Context, f func() error) error {
	if !s.enter(&s.working) {
		return errOffline
	}
	done := make(chan error, 1)
	go func() {
		defer s.working.Done()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// handle takes an event of the client, messages until ctx ends and everything else until life
// does. For messages, false means that WhatsApp has to deliver it again. The client takes a panic
// for success, so it must not see one.
func (s *session) handle(ctx, life context.Context, evt any) (ok bool) {
	if !s.enter(&s.handling) {
		return false
	}
	defer s.handling.Done()
	defer func() {
		if r := recover(); r != nil {
			s.c.log.ErrorContext(ctx, "whatsapp event not handled", "event", fmt.Sprintf("%T", evt),
				"panic", channels.PanicText(r), "stack", string(debug.Stack()))
			switch e := evt.(type) {
			case *events.Message:
				s.c.panics.add(e.Info.ID)
			case *events.UndecryptableMessage:
				s.c.panics.add(e.Info.ID)
			}
			ok = false
		}
	}()
	switch e := evt.(type) {
	case *events.Message:
		return ctx.Err() == nil && s.tryMessage(ctx, e)
	case *events.UndecryptableMessage:
		if e.UnavailableType == events.UnavailableTypeViewOnce {
			return s.viewOnce(ctx, e)
		}
		// Its sender is asked for it again; the client has seen to that.
		s.c.log.WarnContext(ctx, "message can't be decrypted yet", "id", e.Info.ID)
	case *events.GroupInfo:
		if e.Name != nil {
			s.c.titles.set(e.JID, channels.Clean(e.Name.Name, channels.MaxName))
		}
		if g := e.Ephemeral; g != nil {
			s.setTimer(life, e.JID, timer{seconds: g.DisappearingTimer}, e.Timestamp)
		}
	default:
		s.state(life, evt)
	}
	return true
}

// viewOnce stores that a message came which is to be seen once. Linked devices never get those, so
// all that can be done is to say so.
func (s *session) viewOnce(ctx context.Context, e *events.UndecryptableMessage) bool {
	text := "[view-once message: WhatsApp shows it on the phone only, not to linked devices]"
	return ctx.Err() == nil && s.tryMessage(ctx, &events.Message{Info: e.Info,
		Message: &waE2E.Message{Conversation: &text}})
}

// tryMessage stores a message. At its last try a panic is no reason for another one: the message is
// set aside.
func (s *session) tryMessage(ctx context.Context, e *events.Message) (ok bool) {
	if s.c.panics.of(e.Info.ID) < maxPanics-1 {
		return s.message(ctx, e)
	}
	tried := s.in.Try(ctx, func() { ok = s.message(ctx, e) })
	return ok || !tried
}

// message stores a message.
func (s *session) message(ctx context.Context, e *events.Message) bool {
	m, ok := s.inbound(ctx, e)
	if !ok {
		return true
	}
	batch := channels.Batch{}
	batch.Messages = append(batch.Messages, m)
	if err := s.in.Publish(ctx, batch); err != nil {
		if ctx.Err() != nil {
			return false // others may still be sending
		}
		s.end(fmt.Errorf("whatsapp: store message %s: %w", m.ID, err))
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored, s.writes = true, s.wire.writes.Load()
	return true
}

// state takes an event that says how the connection is.
func (s *session) state(ctx context.Context, evt any) {
	switch e := evt.(type) {
	case *events.Connected:
		s.watch.Stop()
		s.mu.Lock()
		s.shownAs = ""
		s.mu.Unlock()
		s.appear(ctx)
		s.report(ctx, channels.Connected, s.whoami())
		s.c.setSession(s)
	case *events.Disconnected:
		s.c.dropSession(s)
		s.watch.Reset(s.c.opts.Reconnect)
		s.report(ctx, channels.Disconnected, "connection to WhatsApp lost; connecting again")
	case *events.KeepAliveTimeout:
		s.report(ctx, channels.Disconnected, "WhatsApp does not answer since "+
			e.LastSuccess.UTC().Format("15:04:05 UTC")+"; the network may be down")
		if e.ErrorCount > 1 { // the client itself waits for three minutes
			s.wire.drop()
		}
	case *events.KeepAliveRestored:
		s.report(ctx, channels.Connected, s.whoami())
	case *events.PushNameSetting:
		s.appear(ctx)
	case *events.AppStateSyncComplete:
		s.appear(ctx)
	case *events.StreamError:
		s.c.log.WarnContext(ctx, "whatsapp stream error", "code", e.Code)
	case events.PermanentDisconnect:
		s.c.dropSession(s)
		s.end(disconnectError(e))
	}
}

func (s *session) report(ctx context.Context, state channels.State, text string) {
	s.in.Report(state, text)
	s.c.log.InfoContext(ctx, "whatsapp connection", "state", text)
}

// whoami says that the session is connected, and as whom.
func (s *session) whoami() string {
	if s.name == "" {
		return "connected as +" + s.own.User
	}
	return "connected as +" + s.own.User + " (" + s.name + ")"
}

// appear shows the account as online, without which people don't see that it types. The phone
// has to tell the account's name first.
func (s *session) appear(ctx context.Context) {
	name := s.client.Store.PushName
	s.mu.Lock()
	shown := s.shownAs == name && name != ""
	s.shownAs = name
	s.mu.Unlock()
	if shown {
		return // each sync of the app's state ends with this
	}
	err := s.client.SendPresence(ctx, types.PresenceAvailable)
	if err != nil && !errors.Is(err, whatsmeow.ErrNoPushName) {
		s.c.log.InfoContext(ctx, "not shown as online", "err", err)
	}
}

// disconnectError returns what the end of a connection means for the account.
func disconnectError(e events.PermanentDisconnect) error {
	switch e := e.(type) {
	case *events.LoggedOut:
		switch e.Reason { // as WhatsApp Web calls them; 0 while connected
		case events.ConnectFailureMainDeviceGone:
			return &unlinkedError{locked}
		case events.ConnectFailureUnknownLogout:
			return &unlinkedError{banned}
		}
		return &unlinkedError{loggedOut}
	case *events.StreamReplaced:
		// Coming back would take the connection from the other program, and so on for ever.
		return &channels.AccountError{Final: true, Reason: "Another program has taken over this " +
			"WhatsApp connection. Stop the other gateway that uses the same account, then restart " +
			"this one."}
	case *events.ClientOutdated:
		return &channels.AccountError{Reason: "WhatsApp does not accept this version of the " +
			"gateway any more. Install a newer one."}
	case *events.TemporaryBan:
		return &channels.AccountError{Reason: ban(e)}
	case *events.ConnectFailure:
		return fmt.Errorf("whatsapp: log in: refused with code %d", int(e.Reason))
	}
	return errors.New("whatsapp: connection ended: " +
		channels.Clean(e.PermanentDisconnectDescription(), 200))
}

// ban says that an account may not be used for a time, and why.
func ban(e *events.TemporaryBan) string {
	reason := "WhatsApp has banned this account"
	if e.Expire > 0 {
		reason += " for " + e.Expire.String()
	}
	why := map[events.TempBanReason]string{
		events.TempBanSentToTooManyPeople:    "it wrote to too many people who don't know it",
		events.TempBanBlockedByUsers:         "too many people blocked it",
		events.TempBanCreatedTooManyGroups:   "it made too many groups with people who don't know it",
		events.TempBanSentTooManySameMessage: "it sent the same message too often",
		events.TempBanBroadcastList:          "it sent too much to a broadcast list",
	}[e.Code]
	if why != "" {
		reason += ": " + why
	}
	return reason + ". Wait until the ban ends; see the phone for what WhatsApp asks for."
}
