package main

import (
	"bytes"
	"context"
	"image/png"
	"os"
	"strings"
	"sync"
	"testing"

	"gateway/channels"
	"gateway/channels/supervisor"
	"gateway/channels/whatsapp/whatsapptest"
	"gateway/store"
)

// A phone is a pairer whose owner does at once what the code asks for.
type phone struct {
	channels.Pairer
	whatsapp *whatsapptest.Server
	t        *testing.T
	wg       sync.WaitGroup
}

func (p *phone) Pair(ctx context.Context, number string, show func(channels.PairingCode)) error {
	defer p.wg.Wait()
	return p.Pairer.Pair(ctx, number, func(c channels.PairingCode) {
		show(c)
		p.wg.Go(func() {
			var err error
			if c.Phone != "" {
				err = p.whatsapp.EnterCode(c.Phone)
			} else {
				err = p.whatsapp.Scan(c.QR)
			}
			if err != nil {
				p.t.Error(err)
			}
		})
	})
}

// A linked is a pairer that shows one code.
type linked struct{ number string }

func (l *linked) Pair(_ context.Context, number string, show func(channels.PairingCode)) error {
	l.number = number
	show(channels.PairingCode{Phone: "ABCD-1234"})
	return nil
}

// A zero after the country's code is pointed out before the code is shown, unless the country's
// numbers have it.
func TestPairZero(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ number, want string }{
		{"+49 0151 2345678", "repeat this with --phone +491512345678."},
		{"4901512345678", "after the country's code, 49."},
		{"+353 086 123 4567", "repeat this with --phone +353861234567."},
		{"+7 0912 345 67 89", "repeat this with --phone +79123456789."},
		{"+49 151 2345678", ""},
		{"+1 201 555 0123", ""}, // neither 12 nor 120 is a country
		{"+44 7012 345678", ""},
		{"+39 06 1234567", ""},
		{"+225 01 23 45 67 89", ""},
		{"+242 06 123 4567", ""},
		{"+378 0549 123456", ""},
		{"", ""},
	} {
		var out bytes.Buffer
		p := &linked{}
		if err := pair(t.Context(), p, &out, tt.number, ""); err != nil {
			t.Fatal(err)
		}
		before, _, shown := strings.Cut(out.String(), "Type this into the phone")
		if !shown || !strings.Contains(before, tt.want) || tt.want == "" && before != "" {
			t.Errorf("pair with %q printed %q, want %q before the code", tt.number, out.String(), tt.want)
		}
		if p.number != digits(tt.number) {
			t.Errorf("pair with %q asked for %q", tt.number, p.number)
		}
	}
}

// checkPairing checks what a person was shown.
func checkPairing(t *testing.T, out, number, file string) {
	t.Helper()
	if !strings.HasSuffix(out, "The account is linked.\n") {
		t.Errorf("pair printed %q", out)
	}
	if number != "" {
		if !strings.Contains(out, "Type this into the phone") {
			t.Errorf("pair printed %q", out)
		}
		return
	}
	rows := strings.Split(out, "\n")
	for _, row := range rows[:20] {
		if len([]rune(row)) != len([]rune(rows[0])) {
			t.Errorf("a row of the QR code is %q", row)
		}
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the image is %v, %v; anybody who reads it could take the account", info.Mode(), err)
	}
	if img, err := png.Decode(f); err != nil || img.Bounds().Dx() < 200 {
		t.Errorf("the image is broken: %v", err)
	}
}

// awaitState waits until an account is noted to be in a state.
func (w *world) awaitState(account, text string) {
	w.t.Helper()
	w.eventually(account+" "+text, func(db *store.DB) bool {
		states, err := supervisor.States(db.Read(w.t.Context()))
		if err != nil {
			w.t.Fatal(err)
		}
		return strings.Contains(states[account].State, text)
	})
}
