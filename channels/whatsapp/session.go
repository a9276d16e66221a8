package whatsapp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/proto/waE2E"
	"go.mau.fi/whatsmeow/proto/waWa6"
	"go.mau.fi/whatsmeow/store"
	"go.mau.fi/whatsmeow/types"
	"go.mau.fi/whatsmeow/types/events"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/recent"
	"gateway/channels/whatsapp/internal/inorder"
)

// A session is the connection of a linked account, with everything that ends with it.
type session struct {
	c      *Channel
	in     channels.Intake
	client *whatsmeow.Client
	st     *storage
	wire   *wire

	me       identity
	events   *translator
	order    *inorder.Keeper // set by run
	timers   *timers
	composer *composer
	sender   *sender
	presence *presence

	ended    chan error  // receives the first reason to end
	watch    *time.Timer // ends a session that does not reconnect
	handling activity    // event handlers
	working  activity    // calls
}

// newSession returns a session of the linked device in h.
func (c *Channel) newSession(h *openStorage, in channels.Intake) (*session, error) {
	w, err := newWire(c.opts.Transport, c.opts.BaseURL)
	if err != nil {
		return nil, err
	}
	client := c.newClient(h.device, w)
	s := &session{
		c: c, in: in, client: client, st: h.st, wire: w,
		me:    identityOf(h.device),
		ended: make(chan error, 1),
	}
	s.presence = &presence{client: client, working: &s.working, linger: c.opts.Online, log: c.log}
	// The stores are copies, too, because the client clears its device at a logout.
	people := &addressBook{
		me: s.me, lids: h.device.LIDs, contacts: h.device.Contacts, client: client, log: c.log,
		phoneOnly: recent.New[types.JID, bool](maxPhoneOnly),
	}
	s.timers = &timers{st: h.st, people: people, log: c.log}
	s.events = &translator{
		account: c.name, client: client, people: people, timers: s.timers,
		recent: c.recent, titles: c.titles, log: c.log,
	}
	s.composer = &composer{
		client: client, me: s.me, timers: s.timers, recent: c.recent, working: &s.working,
	}
	s.sender = &sender{
		client: client, sessions: h.device.Sessions, lock: h.sessionLock, acks: c.acks,
		working: &s.working, turn: make(chan struct{}, 1),
		keyless: recent.New[types.JID, bool](maxKeyless),
	}
	s.watch = time.AfterFunc(c.opts.Reconnect, func() {
		s.end(errors.New("whatsapp: no connection for " + c.opts.Reconnect.String()))
	})
	return s, nil
}

// newClient returns a client for a device, with the settings on which our promises depend.
func (c *Channel) newClient(d *store.Device, w *wire) *whatsmeow.Client {
	cli := whatsmeow.NewClient(d, newLog(c.log, "client", w.isCut))
	to := &http.Client{Transport: w}
	cli.SetPreLoginHTTPClient(to)
	cli.SetWebsocketHTTPClient(to)
	cli.SetMediaHTTPClient(to)
	cli.SynchronousAck = true             // acknowledge a message when the handler has returned,
	cli.EnableDecryptedEventBuffer = true // and deliver it again if the handler failed
	cli.UseRetryMessageStore = true       // answer requests for sent messages after a restart
	cli.AutomaticMessageRerequestFromPhone = true
	cli.ManualHistorySyncDownload = true // ignore history from before linking
	cli.AutoTrustIdentity = true         // people change phones
	cli.SetMaxParallelRetryReceiptHandling(4)
	cli.GetClientPayload = func() *waWa6.ClientPayload { return c.payload(d) }
	return cli
}

// run holds the connection until life is done or the session ends, and returns the reason. It
// accepts messages until ctx is done, which happens earlier.
func (s *session) run(ctx, life context.Context) error {
	// The timer runs from the beginning, so it also ends a session that never connects.
	defer s.watch.Stop()
	// The client outlives life by the time that an orderly end takes.
	work, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	s.client.BackgroundEventCtx = work
	// The client reconnects at once when it loses the connection, and then after 2, 4, 6 seconds
	// and so on. If that does not help, the session ends after Options.Reconnect.
	s.client.AutoReconnectHook = func(error) bool { return !s.wire.isCut() }
	s.order = inorder.New(s.c.opts.HoldWait, func(b channels.Batch, late bool) error {
		return s.publish(ctx, b, late)
	})
	defer s.order.Stop()
	s.client.AddEventHandlerWithSuccessStatus(func(evt any) bool {
		return s.handle(ctx, life, evt)
	})
	stop := context.AfterFunc(life, func() { s.end(ctx.Err()) })
	defer stop()
	cut := context.AfterFunc(life, s.wire.cut) // connecting ignores its context
	defer cut()
	// The client reconnects by itself only after a first success.
	if err := s.client.ConnectContext(work); err != nil {
		s.close(work, kill)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return unreachable(err)
	}
	err := <-s.ended
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

// close ends the client and waits for everything that works for the session. Nobody may begin to
// use the client while it ends.
func (s *session) close(work context.Context, kill context.CancelFunc) {
	s.c.current.drop(s)
	// Whatever enters later is refused. What is under way may still use the connection.
	s.handling.close()
	s.working.close()
	s.handling.wait()
	// The client acknowledges a message after the handler has returned, and does not report when.
	// If the acknowledgement is lost, WhatsApp delivers the message again, which is harmless.
	s.wire.awaitWrite()
	disconnect(work, s.client, s.wire)
	idle := make(chan struct{})
	go func() {
		s.working.wait()
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

// handle handles an event of the client: messages until ctx is done, and other events until life is
// done. For a message, false makes WhatsApp deliver it again. The client treats a panic as success,
// so handle must recover it.
func (s *session) handle(ctx, life context.Context, evt any) (ok bool) {
	if !s.handling.enter() {
		return false
	}
	defer s.handling.leave()
	defer func() {
		if r := recover(); r != nil {
			s.c.log.ErrorContext(ctx, "whatsapp event not handled", "event", fmt.Sprintf("%T", evt),
				"panic", channels.PanicText(r), "stack", string(debug.Stack()))
			switch e := evt.(type) {
			case *events.Message:
				recent.Count(s.c.panics, e.Info.ID)
			case *events.UndecryptableMessage:
				recent.Count(s.c.panics, e.Info.ID)
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
		if from, ok := s.events.sender(ctx, &e.Info); ok && e.DecryptFailMode != events.DecryptFailHide {
			s.order.Await(from, e.Info.ID)
		}
	case *events.JoinedGroup:
		return ctx.Err() == nil && s.joined(ctx, e)
	case *events.GroupInfo:
		if e.Name != nil {
			known, _ := s.c.titles.Get(e.JID) // nothing else about the group is news
			s.c.titles.Put(e.JID, title{channels.Clean(e.Name.Name, channels.MaxName), known.until})
		}
		if g := e.Ephemeral; g != nil {
			s.timers.set(life, e.JID, timer{seconds: g.DisappearingTimer}, e.Timestamp)
		}
	default:
		s.state(life, evt)
	}
	return true
}

// viewOnce stores a label for a view-once message, because linked devices never get its content.
func (s *session) viewOnce(ctx context.Context, e *events.UndecryptableMessage) bool {
	text := "[view-once message: WhatsApp shows it on the phone only, not to linked devices]"
	return ctx.Err() == nil && s.tryMessage(ctx, &events.Message{Info: e.Info, IsViewOnce: true,
		Message: &waE2E.Message{Conversation: &text}})
}

// tryMessage stores a message. If its last attempt panics, the message is set aside instead of
// retried.
func (s *session) tryMessage(ctx context.Context, e *events.Message) (ok bool) {
	// Early attempts let the panic pass to handle, which counts it and has the message delivered
	// again.
	if n, _ := s.c.panics.Get(e.Info.ID); n < maxPanics-1 {
		return s.message(ctx, e)
	}
	tried := s.in.Recover(ctx, func() { ok = s.message(ctx, e) })
	return ok || !tried
}

// message stores a message. It returns false if WhatsApp should deliver it again.
func (s *session) message(ctx context.Context, e *events.Message) bool {
	m, ok := s.events.inbound(ctx, e)
	if !ok {
		if !s.order.Waits() {
			return true
		}
		from, ok := s.events.sender(ctx, &e.Info)
		return !ok || s.order.Skip(from, e.Info.ID) == nil
	}
	if s.order.Publish(e.Info.ID, m, stops(&m)) != nil {
		return false
	}
	s.wire.expectWrite() // the acknowledgement
	return true
}

// stops reports whether m is a command that stops the agent. It waits for no other message.
func stops(m *bus.InboundMessage) bool {
	words := strings.Fields(strings.ToLower(m.Text))
	return len(words) > 0 && !m.Literal && (words[0] == "/stop" || words[0] == "/halt")
}

// publish stores a batch. An error ends the session, unless ctx is done: other calls may still be
// sending then. late says that b releases messages that have waited in vain.
func (s *session) publish(ctx context.Context, b channels.Batch, late bool) error {
	if late {
		if !s.handling.enter() {
			return errOffline
		}
		defer s.handling.leave()
		s.c.log.WarnContext(ctx, "a message can't be decrypted; newer ones no longer wait for it")
	}
	err := s.in.Publish(ctx, b)
	if err != nil && ctx.Err() == nil {
		s.end(fmt.Errorf("whatsapp: store messages: %w", err))
	}
	return err
}

// joined stores that somebody has added the account to a group. It returns false if WhatsApp should
// tell it again.
func (s *session) joined(ctx context.Context, e *events.JoinedGroup) bool {
	m, ok := s.events.joined(ctx, e)
	if !ok {
		return true
	}
	if err := s.in.Publish(ctx, channels.Batch{Joined: []bus.InboundMessage{m}}); err != nil {
		s.c.log.WarnContext(ctx, "the account was added to a group, which could not be stored",
			"group", e.JID, "err", err)
		return false
	}
	return true
}

// state handles an event about the connection.
func (s *session) state(ctx context.Context, evt any) {
	switch e := evt.(type) {
	case *events.Connected:
		// Senders get the session last, when everything else is ready.
		s.watch.Stop()
		s.presence.show(ctx, true)
		s.report(ctx, channels.Connected, s.me.describe())
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
		s.report(ctx, channels.Connected, s.me.describe())
	case *events.PushNameSetting:
		s.presence.show(ctx, false)
	case *events.AppStateSyncComplete:
		s.presence.show(ctx, false)
	case *events.StreamError:
		s.c.log.WarnContext(ctx, "whatsapp stream error", "code", e.Code)
	case events.PermanentDisconnect:
		s.c.current.drop(s)
		s.end(disconnectError(e))
	}
}

// report tells the gateway and the log about the connection.
func (s *session) report(ctx context.Context, state channels.State, text string) {
	s.in.Report(state, text)
	s.c.log.InfoContext(ctx, "whatsapp connection", "state", text)
}

// A presence shows the account as online while it types, because people don't see that otherwise.
// At all other times the account is offline: while a linked device is online, WhatsApp notifies the
// phone of no message in any chat. The methods of a presence are safe for concurrent use.
type presence struct {
	client  *whatsmeow.Client
	working *activity     // of the session
	linger  time.Duration // how long the account stays online after it has typed
	log     *slog.Logger

	mu      sync.Mutex
	shownAs string      // name under which the account was shown
	until   time.Time   // when the account goes offline; zero: it is offline
	idle    *time.Timer // calls leave; nil: it has not typed yet
}

// show tells WhatsApp the name of the account, unless it was told the current one. First the phone
// must send that name. connected says that a connection has just begun, on which nothing is shown.
func (p *presence) show(ctx context.Context, connected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Without a name the client can't show the account. WhatsApp sends the name after a connection.
	name := p.client.Store.PushName
	if p.shownAs == name && name != "" && !connected {
		return // each sync of the app's state ends with this event
	}
	p.shownAs, p.until = name, time.Time{}
	p.send(ctx, types.PresenceUnavailable)
}

// enter shows the account as online for a while. ctx must not end before the session.
func (p *presence) enter(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	online := now.Before(p.until)
	p.until = now.Add(p.linger)
	if p.idle == nil {
		p.idle = time.AfterFunc(p.linger, func() { p.leave(ctx) })
	} else {
		p.idle.Reset(p.linger)
	}
	if !online {
		p.send(ctx, types.PresenceAvailable)
	}
}

// leave shows the account as offline, unless it has typed again.
func (p *presence) leave(ctx context.Context) {
	_ = p.working.do(ctx, func() error { // it fails if the session has ended
		p.mu.Lock()
		defer p.mu.Unlock()
		if !time.Now().Before(p.until) {
			p.until = time.Time{}
			p.send(ctx, types.PresenceUnavailable)
		}
		return nil
	})
}

// send sends a presence. p.mu is held.
func (p *presence) send(ctx context.Context, state types.Presence) {
	err := p.client.SendPresence(ctx, state)
	if err != nil && !errors.Is(err, whatsmeow.ErrNoPushName) {
		p.log.InfoContext(ctx, "presence could not be sent", "state", state, "err", err)
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
		return errOutdated
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

// An activity counts the goroutines that do something, so that its end can wait for them. The zero
// activity is ready for use. Its methods are safe for concurrent use.
type activity struct {
	mu     sync.Mutex
	closed bool
	group  sync.WaitGroup // no Add after closed is true
}

// enter counts a goroutine, which must call leave. It returns false if the activity is over.
func (a *activity) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.group.Add(1)
	return true
}

// leave undoes a successful enter.
func (a *activity) leave() { a.group.Done() }

// close lets no further goroutine enter.
func (a *activity) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
}

// wait waits until all goroutines have left.
func (a *activity) wait() { a.group.Wait() }

// do calls f and returns its error, or ctx's error if ctx is done first. Some methods of the client
// ignore their context. Then f may run until the activity ends, which waits for it.
func (a *activity) do(ctx context.Context, f func() error) error {
	if !a.enter() {
		return errOffline
	}
	done := make(chan error, 1)
	go func() {
		defer a.leave()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
