package whatsapp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/types"
	"go.mau.fi/whatsmeow/types/events"

	"gateway/channels"
	"gateway/channels/whatsapp/internal/mute"
	"gateway/store"
)

// How long the first QR code and each later one are shown, as in WhatsApp's own clients, and how
// long WhatsApp may take to send them.
const (
	firstCode  = time.Minute
	laterCode  = 20 * time.Second
	answerWait = 30 * time.Second
)

// restartWait is the time limit for a new device's first real connection. After nudge, the pairing
// connects by itself, because the client does not if the server hung up too early. The device is
// already linked at that point.
const (
	restartWait = 30 * time.Second
	nudge       = 3 * time.Second

	// restartGrace is how long the news of a link may come after the end of the connection.
	restartGrace = 3 * time.Second
)

// Pair implements [channels.Pairer]. It returns an *[channels.AccountError] if a person must know
// something.
func (c *Channel) Pair(
	ctx context.Context, phone string, show func(channels.PairingCode),
) (err error) {
	mute.SilenceSignal()
	st, err := openStore(ctx, c.store.path, c.log)
	if errors.Is(err, store.ErrLocked) {
		return &channels.AccountError{Reason: "The gateway is connected with this account just " +
			"now, or another gateway pair runs. Stop that first."}
	}
	if err != nil {
		return fmt.Errorf("whatsapp: open store: %w", err)
	}
	defer func() { err = errors.Join(err, st.close()) }()
	device, err := st.device(ctx)
	if err != nil {
		return fmt.Errorf("whatsapp: read store: %w", err)
	}
	if device != nil {
		return &channels.AccountError{Reason: "This account is already linked, as +" +
			device.GetJID().User + ". To link another one, remove it on the phone first " +
			"(Settings, Linked devices)."}
	}
	err = c.link(ctx, st, phone, show)
	if errors.Is(err, errOutdated) && c.renewVersion(ctx) {
		err = c.link(ctx, st, phone, show)
	}
	return err
}

// link links a new device of st.
func (c *Channel) link(
	ctx context.Context, st *storage, phone string, show func(channels.PairingCode),
) (err error) {
	p := &pairing{c: c, phone: phone, show: show, events: make(chan any, 16),
		answers: make(chan *types.WebAuthnResponse, 1)}
	if p.wire, err = newWire(c.opts.Transport, c.opts.BaseURL); err != nil {
		return err
	}
	// The client lives a little longer than ctx, so that disconnect can end it in order.
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	p.client = c.newClient(st.container.NewDevice(), p.wire)
	p.client.BackgroundEventCtx = life
	p.client.AutoReconnectHook = func(error) bool { return !p.wire.isCut() }
	p.client.AddEventHandlerWithSuccessStatus(p.handle)
	defer disconnect(life, p.client, p.wire)
	stop := context.AfterFunc(ctx, p.wire.cut) // connecting ignores ctx
	defer stop()
	if err := p.run(ctx, life); err != nil {
		return cmp.Or(ctx.Err(), err) // the end of ctx cuts the connection and causes err
	}
	return nil
}

// A pairing is the linking of an account. It belongs to one call of Pair.
type pairing struct {
	c      *Channel
	phone  string // or "" to show QR codes
	show   func(channels.PairingCode)
	wire   *wire
	client *whatsmeow.Client
	events chan any // events of the client that show the progress

	// answers receives the person's answer to a challenge, and nil for an answer to a code to compare.
	answers chan *types.WebAuthnResponse
}

// handle handles an event of the client. It leaves messages to Run: WhatsApp delivers
// unacknowledged messages again. It runs on the client's goroutine and must not block there.
func (p *pairing) handle(evt any) bool {
	switch evt.(type) {
	case *events.Message:
		return false
	case *events.QR, *events.PairSuccess, *events.PairError, *events.Connected,
		*events.Disconnected, *events.QRScannedWithoutMultidevice, *events.PairPasskeyRequest,
		*events.PairPasskeyConfirmation, *events.PairPasskeyError, events.PermanentDisconnect:
		select {
		case p.events <- evt:
		default: // a pairing has far fewer events
		}
	}
	return true
}

// run links the account. The client runs until life is done.
func (p *pairing) run(ctx, life context.Context) error {
	if err := p.client.ConnectContext(life); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return unreachable(err)
	}
	var codes []string
	next := time.NewTimer(answerWait)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-next.C:
			// No code has come in time, or the last one has expired.
			if len(codes) == 0 {
				return pairingExpired()
			}
			p.showQR(&codes, next, laterCode)
		case answer := <-p.answers:
			next.Reset(passkeyWait)
			if err := p.answerPasskey(ctx, answer); err != nil {
				return err
			}
		case evt := <-p.events:
			switch e := evt.(type) {
			case *events.PairPasskeyRequest:
				codes = nil
				if err := p.askPasskey(e.PublicKey, next); err != nil {
					return err
				}
			case *events.PairPasskeyConfirmation:
				next.Reset(passkeyWait)
				p.compare(e)
			case *events.QR:
				codes = e.Codes
				if err := p.begin(ctx, &codes, next); err != nil {
					return err
				}
			case *events.PairSuccess:
				return p.awaitRestart(ctx, life)
			case *events.Connected: // only a linked device gets there, and PairSuccess comes late
				return nil
			case *events.Disconnected: // WhatsApp also does this when the account was linked
				codes = nil
				next.Reset(restartGrace)
			default:
				return failure(evt)
			}
		}
	}
}

// begin shows the first code. There is only one phone code, which is valid as long as all QR codes
// together.
func (p *pairing) begin(ctx context.Context, codes *[]string, next *time.Timer) error {
	if p.phone == "" {
		p.showQR(codes, next, firstCode)
		return nil
	}
	life := firstCode + time.Duration(max(0, len(*codes)-1))*laterCode
	*codes = nil
	next.Reset(life)
	return p.showPhone(ctx, time.Now().Add(life))
}

// showQR shows the next QR code for the given time.
func (p *pairing) showQR(codes *[]string, next *time.Timer, life time.Duration) {
	if len(*codes) == 0 {
		next.Reset(0)
		return
	}
	code := (*codes)[0]
	*codes = (*codes)[1:]
	next.Reset(life)
	p.show(channels.PairingCode{QR: code, Expires: time.Now().Add(life)})
}

// showPhone requests a phone code and shows it.
func (p *pairing) showPhone(ctx context.Context, expires time.Time) error {
	// WhatsApp accepts only a few names of browsers and systems.
	code, err := p.client.PairPhone(ctx, p.phone, true, whatsmeow.PairClientChrome, "Chrome (Linux)")
	switch {
	case err == nil:
		p.show(channels.PairingCode{Phone: code, Expires: expires})
		return nil
	case errors.Is(err, whatsmeow.ErrPhoneNumberTooShort),
		errors.Is(err, whatsmeow.ErrPhoneNumberIsNotInternational):
		return &channels.AccountError{Reason: "The phone number must begin with the country code " +
			"and have no leading zero, such as 4915112345678."}
	case errors.Is(err, whatsmeow.ErrIQRateOverLimit):
		return &channels.AccountError{Reason: "WhatsApp allows no more codes for this number right " +
			"now. Wait an hour, or scan a QR code instead."}
	case errors.Is(err, whatsmeow.ErrIQBadRequest), errors.Is(err, whatsmeow.ErrIQNotFound):
		return &channels.AccountError{Reason: "WhatsApp does not accept this phone number. " +
			"Check it, or scan a QR code instead."}
	}
	return fmt.Errorf("whatsapp: pair: ask for a phone code: %w", err)
}

// failure returns the error for an event that has ended the pairing.
func failure(evt any) error {
	switch e := evt.(type) {
	case *events.QRScannedWithoutMultidevice:
		return &channels.AccountError{Reason: "WhatsApp on the phone is too old to link devices. " +
			"Update it, then try again."}
	case *events.PairPasskeyError:
		return passkeyFailed(e.Error)
	case *events.PairError:
		return fmt.Errorf("whatsapp: pair: %w", e.Error)
	case events.PermanentDisconnect:
		return disconnectError(e)
	}
	return pairingExpired() // WhatsApp closes the connection after a time limit
}

// pairingExpired returns the error for a person who did not link the account while a code was
// valid.
func pairingExpired() error {
	return &channels.AccountError{Reason: "Nobody has linked the account in time. Try again."}
}

// WhatsApp wants many accounts to confirm a link with their passkey. Only a browser can use it, on
// WhatsApp's own page, so the person carries the challenge there and the answer back.

// passkeyWait is the time limit for WhatsApp and the phone after an answer of the person.
const passkeyWait = 2 * time.Minute

// askPasskey shows the challenge for the account's passkey.
func (p *pairing) askPasskey(options *types.WebAuthnPublicKey, next *time.Timer) error {
	challenge, err := challengeJSON(options)
	if err != nil {
		return passkeyFailed(err)
	}
	life := time.Duration(options.Timeout) * time.Millisecond
	if life <= 0 {
		life = 5 * time.Minute
	}
	next.Reset(life)
	p.show(channels.PairingCode{Challenge: challenge, Expires: time.Now().Add(life),
		Answer: func(text string) error {
			answer := new(types.WebAuthnResponse)
			err := json.Unmarshal([]byte(strings.TrimSpace(text)), answer)
			if err != nil || len(answer.RawID) == 0 || len(answer.Response.Signature) == 0 {
				return errors.New(`this is not the answer of a passkey, which begins with { and ends with }`)
			}
			p.pass(answer)
			return nil
		}})
	return nil
}

// challengeJSON returns options as a browser's parseRequestOptionsFromJSON takes them: without
// fields that are null.
func challengeJSON(options *types.WebAuthnPublicKey) (string, error) {
	full, err := json.Marshal(options)
	if err != nil {
		return "", err
	}
	var fields map[string]any
	if err := json.Unmarshal(full, &fields); err != nil {
		return "", err
	}
	dropNull(fields)
	list, _ := fields["allowCredentials"].([]any)
	for _, one := range list {
		if credential, ok := one.(map[string]any); ok {
			dropNull(credential)
		}
	}
	challenge, err := json.Marshal(fields)
	return string(challenge), err
}

// dropNull removes the fields that are nil.
func dropNull(fields map[string]any) {
	maps.DeleteFunc(fields, func(_ string, v any) bool { return v == nil })
}

// pass hands an answer to run. Further answers are dropped until run has taken it.
func (p *pairing) pass(answer *types.WebAuthnResponse) {
	select {
	case p.answers <- answer:
	default:
	}
}

// compare shows a code that the person compares with the phone's. If WhatsApp already knows that
// one person has both, compare confirms the link itself.
func (p *pairing) compare(e *events.PairPasskeyConfirmation) {
	if e.SkipHandoffUX {
		p.pass(nil)
		return
	}
	p.show(channels.PairingCode{Compare: e.Code, Expires: time.Now().Add(passkeyWait),
		Answer: func(string) error {
			p.pass(nil)
			return nil
		}})
}

// answerPasskey sends WhatsApp the person's answer, or the confirmation if it is nil.
func (p *pairing) answerPasskey(ctx context.Context, answer *types.WebAuthnResponse) (err error) {
	if answer == nil {
		err = p.client.SendPasskeyConfirmation(ctx)
	} else {
		err = p.client.SendPasskeyResponse(ctx, answer)
	}
	if err != nil && ctx.Err() == nil {
		return passkeyFailed(err)
	}
	return err
}

// passkeyFailed returns the error for a passkey that did not link the account.
func passkeyFailed(err error) error {
	return &channels.AccountError{Reason: "WhatsApp did not accept the passkey (" +
		channels.Clean(err.Error(), 200) + "). Try again, within five minutes after the scan."}
}

// awaitRestart waits until the new device is connected for the first time; WhatsApp makes it
// reconnect. Before that nobody has keys to write to it.
func (p *pairing) awaitRestart(ctx, life context.Context) error {
	timer, early := time.NewTimer(restartWait), time.NewTimer(nudge)
	defer timer.Stop()
	defer early.Stop()
	for {
		select {
		case evt := <-p.events:
			switch e := evt.(type) {
			case *events.Connected:
				return nil
			case events.PermanentDisconnect:
				return disconnectError(e)
			}
		case <-early.C:
			err := p.client.ConnectContext(life)
			if err != nil && !errors.Is(err, whatsmeow.ErrAlreadyConnected) {
				p.c.log.InfoContext(ctx, "linked, but can't connect", "err", err)
			}
		case <-timer.C:
			p.c.log.WarnContext(ctx, "linked, but not connected yet")
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
