package whatsapp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/types/events"

	"gateway/channels"
)

// phoneCodeLife is how long a code may be typed in: WhatsApp hangs up when the QR codes, of
// which one lasts a minute and five last 20 seconds each, are used up.
const phoneCodeLife = 160 * time.Second

// restartWait bounds how long a new device waits for its first real connection, and nudge is when
// it tries itself: the client forgets to, if it was hung up on too early. It is linked before
// that already.
const (
	restartWait = 30 * time.Second
	nudge       = 3 * time.Second
)

// Pair implements [channels.Pairer]. Its errors are *[channels.AccountError]s where a person has
// to know something.
func (c *Channel) Pair(
	ctx context.Context, phone string, show func(channels.PairingCode),
) (err error) {
	quietSignal()
	st, err := openStore(ctx, c.path, c.log)
	if errors.Is(err, errLocked) {
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
	p := &pairing{c: c, phone: phone, show: show,
		connected: make(chan struct{}, 1), over: make(chan error, 1)}
	if p.wire, err = newWire(c.opts.Transport, c.opts.BaseURL); err != nil {
		return err
	}
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	p.client = c.newClient(life, st.container.NewDevice(), p.wire)
	p.client.AutoReconnectHook = func(error) bool { return !p.wire.isCut() }
	p.client.AddEventHandlerWithSuccessStatus(p.handle)
	defer p.client.Disconnect()
	defer p.wire.cut()
	stop := context.AfterFunc(ctx, p.wire.cut) // connecting does not look at ctx
	defer stop()
	return p.run(ctx, life)
}

// A pairing is an account that is being linked.
type pairing struct {
	c      *Channel
	phone  string // or "" to show QR codes
	show   func(channels.PairingCode)
	wire   *wire
	client *whatsmeow.Client

	connected chan struct{}
	over      chan error // has the reason why it can't succeed any more
}

// handle takes an event of the client. Messages are left for Run: what is not acknowledged
// comes again.
func (p *pairing) handle(evt any) bool {
	switch e := evt.(type) {
	case *events.Connected:
		select {
		case p.connected <- struct{}{}:
		default:
		}
	case *events.Message:
		return false
	case events.PermanentDisconnect:
		select {
		case p.over <- verdictOn(e):
		default:
		}
	}
	return true
}

// run links the account. The client lives as long as life.
func (p *pairing) run(ctx, life context.Context) error {
	items, err := p.client.GetQRChannel(life)
	if err != nil {
		return fmt.Errorf("whatsapp: pair: %w", err)
	}
	if err := p.client.ConnectContext(life); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("whatsapp: pair: connect: %w", err)
	}
	for shown := false; ; {
		var item whatsmeow.QRChannelItem
		select {
		case item = <-items:
		case <-ctx.Done():
			return ctx.Err()
		}
		if item.Event == whatsmeow.QRChannelSuccess.Event {
			return p.awaitRestart(ctx, life)
		}
		if err := p.failure(item); err != nil {
			return err
		}
		if !shown || p.phone == "" {
			if err := p.present(ctx, item); err != nil {
				return err
			}
			shown = true
		}
	}
}

// present shows a QR code, or asks for a phone code and shows that.
func (p *pairing) present(ctx context.Context, item whatsmeow.QRChannelItem) error {
	if p.phone == "" {
		p.show(channels.PairingCode{QR: item.Code, Expires: time.Now().Add(item.Timeout)})
		return nil
	}
	expires := time.Now().Add(phoneCodeLife)
	// WhatsApp knows a few browsers and systems by name and refuses all others.
	code, err := p.client.PairPhone(ctx, p.phone, true, whatsmeow.PairClientChrome, "Chrome (Linux)")
	switch {
	case err == nil:
		p.show(channels.PairingCode{Phone: code, Expires: expires})
		return nil
	case errors.Is(err, whatsmeow.ErrPhoneNumberTooShort),
		errors.Is(err, whatsmeow.ErrPhoneNumberIsNotInternational):
		return &channels.AccountError{Reason: "The phone number must have its country's code " +
			"and no leading zero, such as 4915112345678."}
	case errors.Is(err, whatsmeow.ErrIQRateOverLimit):
		return &channels.AccountError{Reason: "WhatsApp wants no more codes for this number just " +
			"now. Wait an hour, or scan a QR code instead."}
	case errors.Is(err, whatsmeow.ErrIQBadRequest), errors.Is(err, whatsmeow.ErrIQNotFound):
		return &channels.AccountError{Reason: "WhatsApp does not accept this phone number. " +
			"Check it, or scan a QR code instead."}
	}
	return fmt.Errorf("whatsapp: pair: ask for a phone code: %w", err)
}

// failure returns why pairing has failed, or nil for a code.
func (p *pairing) failure(item whatsmeow.QRChannelItem) error {
	reason := ""
	switch item.Event {
	case whatsmeow.QRChannelEventCode:
		return nil
	case whatsmeow.QRChannelTimeout.Event:
		reason = "Nobody has linked the account in time. Try again."
	case whatsmeow.QRChannelClientOutdated.Event:
		return verdictOn(&events.ClientOutdated{})
	case whatsmeow.QRChannelScannedWithoutMultidevice.Event:
		reason = "WhatsApp on the phone is too old to link devices. Update it, then try again."
	case whatsmeow.QRChannelEventPasskeyRequest, whatsmeow.QRChannelEventPasskeyResponse:
		reason = "WhatsApp asks for a passkey, which the gateway has not. Turn passkeys off on " +
			"the phone while you link it, or use the other way of linking (QR or phone code)."
	case whatsmeow.QRChannelEventError:
		return fmt.Errorf("whatsapp: pair: %w", item.Error)
	default:
		select {
		case err := <-p.over:
			return err
		case <-time.After(time.Second):
		}
		reason = "WhatsApp has refused to link the account. Try again later."
	}
	return &channels.AccountError{Reason: reason}
}

// awaitRestart waits until the new device is connected for the first time, for which WhatsApp
// makes it come again. Without that it would have no keys to write to it yet.
func (p *pairing) awaitRestart(ctx, life context.Context) error {
	timer, early := time.NewTimer(restartWait), time.NewTimer(nudge)
	defer timer.Stop()
	defer early.Stop()
	for {
		select {
		case <-p.connected:
			return nil
		case err := <-p.over:
			return err
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
