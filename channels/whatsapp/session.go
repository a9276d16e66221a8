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

// A session is the connection of a linked account, with everything that ends with it.
type session struct {
	c      *Channel
	in     channels.Intake
	st     *storage
	device *store.Device
	client *whatsmeow.Client
	wire   *wire

	// Copies, because the client clears its device when the account is logged out.
	own, ownLID types.JID
	name        string
	lids        store.LIDStore
	contacts    store.ContactStore
	sessions    store.SessionStore

	sessionLock *sessionlock.Lock
	ended       chan error    // receives the first reason to end
	turn        chan struct{} // held while a message is sent: the client sends one at a time
	watch       *time.Timer   // ends a session that does not reconnect

	mu        sync.Mutex
	closed    bool
	handling  sync.WaitGroup     // event handlers; no Add after closed is true
	working   sync.WaitGroup     // calls; no Add after closed is true
	stored    bool               // a message was stored, when writes
	writes    uint64             // was the number of writes so far
	shownAs   string             // name under which the account was shown as online
	phoneOnly map[types.JID]bool // people without a hidden id on WhatsApp
}

func (c *Channel) newSession(h *openStorage, in channels.Intake) *session {
	device := h.device
	s := &session{
		c: c, in: in, st: h.st, device: device,
		own: device.GetJID(), ownLID: device.GetLID(),
		name: channels.Clean(device.PushName, channels.MaxName),
		lids: device.LIDs, contacts: device.Contacts, sessions: device.Sessions,
		sessionLock: h.sessionLock,
		phoneOnly:   make(map[types.JID]bool),
		ended:       make(chan error, 1),
		turn:        make(chan struct{}, 1),
	}
	s.watch = time.AfterFunc(c.opts.Reconnect, func() {
		s.end(errors.New("whatsapp: no connection for " + c.opts.Reconnect.String()))
	})
	return s
}

// newClient returns a client for a device, with the settings on which our promises depend.
func (c *Channel) newClient(ctx context.Context, d *store.Device, w *wire) *whatsmeow.Client {
	cli := whatsmeow.NewClient(d, newLog(c.log, "client", w.isCut))
	to := &http.Client{Transport: w}
	cli.SetPreLoginHTTPClient(to)
	cli.SetWebsocketHTTPClient(to)
	cli.SetMediaHTTPClient(to)
	cli.BackgroundEventCtx = ctx
	cli.SynchronousAck = true             // acknowledge a message when the handler has returned,
	cli.EnableDecryptedEventBuffer = true // and deliver it again if the handler failed
	cli.UseRetryMessageStore = true       // answer requests for sent messages after a restart
	cli.AutomaticMessageRerequestFromPhone = true
	cli.ManualHistorySyncDownload = true // ignore history from before linking
	cli.AutoTrustIdentity = true         // people change phones
	cli.SetMaxParallelRetryReceiptHandling(4)
	cli.GetClientPayload = func() *waWa6.ClientPayload { return payload(d, &c.opts.DeviceName) }
	return cli
}

// payload returns d's introduction, with a name for the phone's list of devices. The library has
// only a global variable for that name.
func payload(d *store.Device, name *string) *waWa6.ClientPayload {
	p := d.GetClientPayload()
	asked := p.GetDevicePairingData()
	if asked == nil {
		return p
	}
	var props waCompanionReg.DeviceProps
	if err := proto.Unmarshal(asked.DeviceProps, &props); err != nil {
		return p // with the library's name
	}
	props.Os = name
	if b, err := proto.Marshal(&props); err == nil {
		asked.DeviceProps = b
	}
	return p
}

// run holds the connection until life is done or the session ends, and returns the reason. It
// accepts messages until ctx is done, which happens earlier.
func (s *session) run(ctx, life context.Context) error {
	defer s.watch.Stop()
	var err error
	if s.wire, err = newWire(s.c.opts.Transport, s.c.opts.BaseURL); err != nil {
		return err
	}
	// The client outlives life by the time that an orderly end takes.
	work, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	s.client = s.c.newClient(work, s.device, s.wire)
	// The client reconnects at once when it loses the connection, and then after 2, 4, 6 seconds
	// and so on. If that does not help, the session ends after Options.Reconnect.
	s.client.AutoReconnectHook = func(error) bool { return !s.wire.isCut() }
	s.client.AddEventHandlerWithSuccessStatus(func(evt any) bool {
		return s.handle(ctx, life, evt)
	})
	stop := context.AfterFunc(life, func() { s.end(ctx.Err()) })
	defer stop()
	cut := context.AfterFunc(life, s.wire.cut) // connecting ignores its context
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

// unreachable returns an error for people about a failed connection: the cause without the prefixes
// of the libraries.
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

// close ends the client and waits for everything that works for the session.
func (s *session) close(work context.Context, kill context.CancelFunc) {
	s.c.current.drop(s)
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.handling.Wait()
	if s.stored {
		// The client acknowledges a message after the handler has returned, and does not report
		// when. If the acknowledgement is lost, WhatsApp delivers the message again, which is
		// harmless.
		s.wire.awaitWrite(s.writes)
	}
	disconnect(work, s.client, s.wire)
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
			// A reconnection under way may have restarted the client and its calls.
			s.client.Disconnect()
		}
	}
	kill()
	if t, ok := s.c.opts.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// disconnect ends a client's connection permanently. It cuts the connection, and disconnects the
// client only after it has noticed, so that the two don't collide.
func disconnect(ctx context.Context, client *whatsmeow.Client, w *wire) {
	w.cut()
	await(time.Second, func() bool {
		// Nothing can be sent any more. The error shows whether the client has noticed.
		err := client.SendChatPresence(ctx, types.ServerJID, types.ChatPresencePaused, "")
		return errors.Is(err, whatsmeow.ErrNotConnected)
	})
	client.Disconnect()
}

// end records why the session ends. The first reason counts.
func (s *session) end(err error) {
	select {
	case s.ended <- err:
	default:
	}
}

// enter counts a goroutine that works for the session. It returns false if the session is over. The
// goroutine must call Done of the same group.
func (s *session) enter(group *sync.WaitGroup) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	group.Add(1)
	return true
}

// do calls f and returns its error, or ctx's error if ctx is done first. Some methods of the client
// ignore their context. Then f may run until the session ends, which waits for it.
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

// handle handles an event of the client: messages until ctx is done, and other events until life is
// done. For a message, false makes WhatsApp deliver it again. The client treats a panic as success,
// so handle must recover it.
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
				countPanic(s.c.panics, e.Info.ID)
			case *events.UndecryptableMessage:
				countPanic(s.c.panics, e.Info.ID)
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
		// The client has already asked the sender to send it again.
		s.c.log.WarnContext(ctx, "message can't be decrypted yet", "id", e.Info.ID)
	case *events.JoinedGroup:
		return ctx.Err() == nil && reportJoined(ctx, s, e)
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

// viewOnce stores a label for a view-once message, because linked devices never get its content.
func (s *session) viewOnce(ctx context.Context, e *events.UndecryptableMessage) bool {
	text := "[view-once message: WhatsApp shows it on the phone only, not to linked devices]"
	return ctx.Err() == nil && s.tryMessage(ctx, &events.Message{Info: e.Info,
		Message: &waE2E.Message{Conversation: &text}})
}

// tryMessage stores a message. If its last attempt panics, the message is set aside instead of
// retried.
func (s *session) tryMessage(ctx context.Context, e *events.Message) (ok bool) {
	if n, _ := s.c.panics.Get(e.Info.ID); n < maxPanics-1 {
		return s.message(ctx, e)
	}
	tried := s.in.Recover(ctx, func() { ok = s.message(ctx, e) })
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
			return false // other calls may still be sending
		}
		s.end(fmt.Errorf("whatsapp: store message %s: %w", m.ID, err))
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored, s.writes = true, s.wire.writes.Load()
	return true
}

// state handles an event about the connection.
func (s *session) state(ctx context.Context, evt any) {
	switch e := evt.(type) {
	case *events.Connected:
		s.watch.Stop()
		s.mu.Lock()
		s.shownAs = ""
		s.mu.Unlock()
		s.showOnline(ctx)
		s.report(ctx, channels.Connected, s.whoami())
		s.c.current.set(s)
	case *events.Disconnected:
		s.c.current.drop(s)
		s.watch.Reset(s.c.opts.Reconnect)
		s.report(ctx, channels.Disconnected, "connection to WhatsApp lost; reconnecting")
	case *events.KeepAliveTimeout:
		s.report(ctx, channels.Disconnected, "WhatsApp has not answered since "+
			e.LastSuccess.UTC().Format("15:04:05 UTC")+"; the network may be down")
		if e.ErrorCount > 1 { // the client itself would wait for three minutes
			s.wire.drop()
		}
	case *events.KeepAliveRestored:
		s.report(ctx, channels.Connected, s.whoami())
	case *events.PushNameSetting:
		s.showOnline(ctx)
	case *events.AppStateSyncComplete:
		s.showOnline(ctx)
	case *events.StreamError:
		s.c.log.WarnContext(ctx, "whatsapp stream error", "code", e.Code)
	case events.PermanentDisconnect:
		s.c.current.drop(s)
		s.end(disconnectError(e))
	}
}

func (s *session) report(ctx context.Context, state channels.State, text string) {
	s.in.Report(state, text)
	s.c.log.InfoContext(ctx, "whatsapp connection", "state", text)
}

// whoami describes the connected account.
func (s *session) whoami() string {
	if s.name == "" {
		return "connected as +" + s.own.User
	}
	return "connected as +" + s.own.User + " (" + s.name + ")"
}

// showOnline shows the account as online, without which people don't see the typing indicator.
// First the phone must send the account's name.
func (s *session) showOnline(ctx context.Context) {
	name := s.client.Store.PushName
	s.mu.Lock()
	shown := s.shownAs == name && name != ""
	s.shownAs = name
	s.mu.Unlock()
	if shown {
		return // each sync of the app's state ends with this event
	}
	err := s.client.SendPresence(ctx, types.PresenceAvailable)
	if err != nil && !errors.Is(err, whatsmeow.ErrNoPushName) {
		s.c.log.InfoContext(ctx, "account could not be shown as online", "err", err)
	}
}

// disconnectError returns the error for a permanent disconnect.
func disconnectError(e events.PermanentDisconnect) error {
	switch e := e.(type) {
	case *events.LoggedOut:
		switch e.Reason { // names as in WhatsApp Web; 0 while connected
		case events.ConnectFailureMainDeviceGone:
			return &unlinkedError{locked}
		case events.ConnectFailureUnknownLogout:
			return &unlinkedError{banned}
		}
		return &unlinkedError{loggedOut}
	case *events.StreamReplaced:
		// Reconnecting would take the connection from the other program, and so on forever.
		return &channels.AccountError{Final: true, Reason: "Another program has taken over this " +
			"WhatsApp connection. Stop the other gateway that uses the same account, then restart " +
			"this one."}
	case *events.ClientOutdated:
		return &channels.AccountError{Reason: "WhatsApp does not accept this version of the " +
			"gateway any more. Install a newer one."}
	case *events.TemporaryBan:
		return &channels.AccountError{Reason: banText(e)}
	case *events.ConnectFailure:
		return fmt.Errorf("whatsapp: log in: refused with code %d", int(e.Reason))
	}
	return errors.New("whatsapp: connection ended: " +
		channels.Clean(e.PermanentDisconnectDescription(), 200))
}

// banText describes a temporary ban.
func banText(e *events.TemporaryBan) string {
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
