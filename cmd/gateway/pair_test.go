package main

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gateway/channels"
	"gateway/channels/whatsapp/whatsapptest"
	"gateway/cmd/gateway/internal/config"
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

// A gateway that runs takes up an account as soon as it is linked in another process, by QR code or
// by phone code, and tells what to do before that.
func TestPair(t *testing.T) {
	for _, number := range []string{"", "+1 555 000-0001"} {
		t.Run("phone "+number, func(t *testing.T) {
			w := newWorld(t, worldOptions{answer: repeat})
			fake := whatsapptest.New(nil)
			url, err := fake.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(fake.Close)
			w.configure(quiet + fmt.Sprintf("\n[channels.whatsapp]\naccess = \"open\"\napi_url = %q", url))
			w.run()
			w.awaitState("whatsapp", "run gateway pair whatsapp")

			cfg, err := config.Load("", w.environ())
			if err != nil {
				t.Fatal(err)
			}
			p, err := pairer(cfg, "whatsapp")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var out bytes.Buffer
			file := filepath.Join(t.TempDir(), "code.png")
			err = pair(ctx, &phone{Pairer: p, whatsapp: fake, t: t}, &out, number, file)
			if err != nil {
				t.Fatal(err)
			}
			checkPairing(t, out.String(), number, file)
			ann, err := fake.NewPerson(ctx, "Ann", whatsapptest.Known)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ann.Say(ctx, "hello"); err != nil {
				t.Fatal(err)
			}
			answered := func() bool { return has(ann.Texts(), "you said hello") }
			if err := fake.Wait(ctx, answered); err != nil {
				t.Fatalf("no answer on WhatsApp: %v", err)
			}
			w.awaitState("whatsapp", "connected as +15550000001")
			if v := fake.Violations(); len(v) > 0 {
				t.Errorf("WhatsApp does not know %q", v)
			}
			err = pair(ctx, p, &out, number, "")
			if err == nil || !strings.Contains(err.Error(), "is connected with this account") {
				t.Errorf("a second pairing = %v, want that it is in use", err)
			}
		})
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
		states, err := channels.States(db.Read(w.t.Context()))
		if err != nil {
			w.t.Fatal(err)
		}
		return strings.Contains(states[account].State, text)
	})
}
