package whatsapp_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/channels"
	"gateway/channels/whatsapp"
	"gateway/channels/whatsapp/whatsapptest"
)

// pair links the world's channel and returns Pair's error. It scans or types in the code that is
// shown.
func (w *world) pair(phone string) error {
	ctx, cancel := contextWithPatience(w.t)
	defer cancel()
	return w.ch.Pair(ctx, phone, func(code channels.PairingCode) {
		if code.Expires.Before(time.Now().Add(10 * time.Second)) {
			w.t.Errorf("a code expires at %v", code.Expires)
		}
		if (code.QR != "") == (code.Phone != "") {
			w.t.Errorf("a code is %+v, want one of QR and phone", code)
		}
		var err error
		if code.QR != "" {
			err = w.server.Scan(code.QR)
		} else {
			err = w.server.EnterCode(code.Phone)
		}
		if err != nil {
			w.t.Error(err)
		}
	})
}

// accountError fails the test unless err is an AccountError whose reason contains words.
func accountError(t *testing.T, err error, words string) {
	t.Helper()
	refused, ok := errors.AsType[*channels.AccountError](err)
	if !ok || !strings.Contains(refused.Reason, words) {
		t.Errorf("error is %v, want an AccountError with %q", err, words)
	}
}

func TestPairByQR(t *testing.T) {
	t.Parallel()
	w := unlinked(t, whatsapp.Options{DeviceName: "my gateway"})
	if err := w.pair(""); err != nil {
		t.Fatal(err)
	}
	if got := w.server.DeviceName(); got != "my gateway" {
		t.Errorf("the phone shows %q, want my gateway", got)
	}
	if runtime.GOOS != "windows" {
		info, err := os.Stat(w.path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the store has mode %v, %v, want 0600", info.Mode(), err)
		}
	}
	w.ada = w.person("Ada", whatsapptest.Known)
	w.run()
	w.reported("connected as +15550000001")
	w.say("hello")
	if got := w.receive(1)[0].Text; got != "hello" {
		t.Errorf("received %q", got)
	}
	accountError(t, w.channel(whatsapp.Options{}).Pair(t.Context(), "", nil), "connected")
}

func TestPairByPhoneCode(t *testing.T) {
	t.Parallel()
	w := unlinked(t, whatsapp.Options{})
	if err := w.pair("+1 (555) 000-0001"); err != nil {
		t.Fatal(err)
	}
	if n := w.server.Devices(); n != 1 {
		t.Errorf("%d devices are linked, want 1", n)
	}
	accountError(t, w.pair(""), "already linked, as +15550000001")
}

// pairWithPasskey links the world's channel with a QR code and the passkey of the account. sign
// answers the challenge.
func (w *world) pairWithPasskey(sign func(challenge string) string) error {
	ctx, cancel := contextWithPatience(w.t)
	defer cancel()
	w.server.RequirePasskey()
	return w.ch.Pair(ctx, "", func(code channels.PairingCode) {
		var err error
		switch {
		case code.QR != "":
			err = w.server.Scan(code.QR)
		case code.Challenge != "":
			if code.Answer("hello") == nil || code.Answer(`{"rawId":"YQ"}`) == nil {
				w.t.Error("a text that is no answer of a passkey was accepted")
			}
			err = code.Answer("  " + sign(code.Challenge) + "\n")
		default:
			w.t.Errorf("the person sees %+v", code)
		}
		if err != nil {
			w.t.Error(err)
		}
	})
}

// TestPairByPasskey checks a link that WhatsApp wants to be confirmed with the account's passkey.
func TestPairByPasskey(t *testing.T) {
	t.Parallel()
	w := unlinked(t, whatsapp.Options{})
	err := w.pairWithPasskey(func(challenge string) string {
		answer, err := whatsapptest.SignChallenge(challenge)
		if err != nil {
			t.Error(err)
		}
		return answer
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := w.server.Devices(); n != 1 {
		t.Errorf("%d devices are linked, want 1", n)
	}
	w.run()
	w.reported("connected as +15550000001")
}

// TestPasskeyRefused checks that the answer to another challenge links nothing.
func TestPasskeyRefused(t *testing.T) {
	t.Parallel()
	w := unlinked(t, whatsapp.Options{})
	err := w.pairWithPasskey(func(string) string {
		answer, err := whatsapptest.SignChallenge(`{"challenge":"YQ","rpId":"whatsapp.com"}`)
		if err != nil {
			t.Error(err)
		}
		return answer
	})
	accountError(t, err, "did not accept the passkey")
	if n := w.server.Devices(); n != 0 {
		t.Errorf("%d devices are linked, want none", n)
	}
}

// TestOutdated checks that a client whose version WhatsApp refuses says that it is the newest one,
// while it is linked and while it connects.
func TestOutdated(t *testing.T) {
	t.Parallel()
	w := unlinked(t, whatsapp.Options{})
	w.server.ReleaseVersion()
	if err := w.pair(""); err != nil {
		t.Fatal(err)
	}
	ch := w.channel(whatsapp.Options{}) // another process
	err := ch.Run(t.Context(), w.in)
	if refused, ok := errors.AsType[*channels.AccountError](err); err == nil || ok {
		t.Fatalf("Run = %v, %v, want an error after which it is tried again", err, refused)
	}
	w.runTo(ch, w.in)
	w.reported("connected as +15550000001")
}

func TestPairRefused(t *testing.T) {
	t.Parallel()
	w := unlinked(t, whatsapp.Options{})
	accountError(t, w.pair("0555"), "country code")
	accountError(t, w.pair("0155500000001"), "country code")
	accountError(t, w.pair("4915112345678"), "does not accept this phone number")
	w.server.FailLogin(whatsapptest.LoginFailure{Reason: 405, Pairing: true})
	accountError(t, w.pair(""), "newer one")
	w.server.FailLogin(whatsapptest.LoginFailure{Reason: 402, Code: 101, Expire: 3600, Pairing: true})
	accountError(t, w.pair(""), "banned this account for 1h0m0s: it wrote to too many people")
	w.server.SetOutage(true)
	if err := w.pair(""); err == nil {
		t.Error("Pair during an outage succeeds")
	}
}

func TestPairTimeout(t *testing.T) {
	t.Parallel()
	w := unlinked(t, whatsapp.Options{})
	err := w.ch.Pair(t.Context(), "", func(channels.PairingCode) { w.server.Drop() })
	accountError(t, err, "in time")
}

func TestPairCancelled(t *testing.T) {
	t.Parallel()
	w := unlinked(t, whatsapp.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	err := w.ch.Pair(ctx, "", func(channels.PairingCode) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Pair = %v, want context.Canceled", err)
	}
	if err := w.pair(""); err != nil {
		t.Errorf("the next Pair = %v", err)
	}
}

// TestPairMeanwhile links the account in another process while the gateway waits for the link.
func TestPairMeanwhile(t *testing.T) {
	t.Parallel()
	w := unlinked(t, whatsapp.Options{})
	w.run()
	w.reported("not linked: run gateway pair wa")
	if err := w.server.PairFile(t.Context(), w.path); err != nil {
		t.Fatal(err)
	}
	w.reported("connected as +15550000001")
}

func TestStoreInUse(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	w.reported("connected as")
	other := w.channel(whatsapp.Options{})
	err := other.Run(t.Context(), w.in)
	if err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second Run = %v, want an error about another process", err)
	}
	accountError(t, other.Pair(t.Context(), "", nil), "Stop that first")
}

// TestOnline checks that the account is online only while it types. While a linked device is
// online, WhatsApp does not notify the phone of messages.
func TestOnline(t *testing.T) {
	t.Parallel()
	w := startWith(t, whatsapp.Options{Online: time.Millisecond})
	w.change("UPDATE whatsmeow_device SET push_name = 'Robot'")
	w.run()
	w.reported("connected as +15550000001 (Robot)")
	if ids := w.in.Identified(); len(ids) != 1 || ids[0] != "15550000001@s.whatsapp.net" {
		t.Errorf("the channel says that it is %q, want its number, without the device's", ids)
	}
	for want := []bool{false}; len(want) < 6; want = append(want, true, false) {
		w.wait("the account is offline", func() bool { return len(w.server.Presences()) >= len(want) })
		if got := w.server.Presences(); !slices.Equal(got, want) {
			t.Errorf("the account was online: %v, want %v", got, want)
		}
		if err := w.ch.Type(t.Context(), w.adas()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStaysOnline checks that the account says once that it is online while it types.
func TestStaysOnline(t *testing.T) {
	t.Parallel()
	w := startWith(t, whatsapp.Options{Online: time.Hour})
	w.change("UPDATE whatsmeow_device SET push_name = 'Robot'")
	w.run()
	w.reported("connected as")
	for range 3 {
		if err := w.ch.Type(t.Context(), w.adas()); err != nil {
			t.Fatal(err)
		}
	}
	w.wait("Ada sees typing", func() bool { return w.ada.Typing() == 3 })
	if got := w.server.Presences(); !slices.Equal(got, []bool{false, true}) {
		t.Errorf("the account was online: %v, want false, true", got)
	}
}

// change changes the store. Nobody may use it at the same time.
func (w *world) change(query string) {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.path+"?_pragma=busy_timeout(0)")
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := db.ExecContext(w.t.Context(), query); err != nil {
		w.t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		w.t.Fatal(err)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"http://127.0.0.1:1", "http://bad host", "http://[::1", ":"} {
		w := start(t)
		w.url = base
		ch := w.channel(whatsapp.Options{})
		err := ch.Run(t.Context(), w.in)
		if err == nil {
			t.Errorf("Run with %s succeeds", base)
		}
		if _, ok := errors.AsType[*channels.AccountError](err); ok {
			t.Errorf("Run with %s = %v, which blames the account", base, err)
		}
	}
}
