package e2e

import (
	"context"
	"fmt"
	"image/png"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"gateway/channels"
	"gateway/channels/supervisor"
	"gateway/channels/whatsapp/whatsapptest"
	"gateway/store"
)

// A phone is a Pairer whose owner scans or enters each code at once.
type phone struct {
	channels.Pairer
	whatsapp *whatsapptest.Server
	keyboard io.Writer // types into the command
	t        *testing.T
	wg       sync.WaitGroup
}

func (p *phone) Pair(ctx context.Context, number string, show func(channels.PairingCode)) error {
	defer p.wg.Wait()
	return p.Pairer.Pair(ctx, number, func(c channels.PairingCode) {
		show(c)
		p.wg.Go(func() {
			var err error
			switch {
			case c.Phone != "":
				err = p.whatsapp.EnterCode(c.Phone)
			case c.QR != "":
				err = p.whatsapp.Scan(c.QR)
			default:
				var answer string
				answer, err = whatsapptest.SignChallenge(c.Challenge)
				fmt.Fprintf(p.keyboard, "what?\n%s\n", answer)
			}
			if err != nil {
				p.t.Error(err)
			}
		})
	})
}

// checkPairing checks the printed instructions and the image of the QR code.
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

// awaitState waits until the recorded state of an account contains text.
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
