//go:build !race

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"gateway/channels/whatsapp/whatsapptest"
	"gateway/cmd/gateway/internal/cli"
	"gateway/cmd/gateway/internal/config"
)

// The WhatsApp library has a data race when it closes a connection after a stream error. Each
// pairing causes a stream error, so this test runs without the race detector.

// TestPair checks that a running gateway uses an account as soon as another process has linked
// it, with a QR code, with a phone code, or with a passkey, too. Before that, the state of the
// account says what to do.
func TestPair(t *testing.T) {
	t.Parallel()
	for name, number := range map[string]string{
		"QR code": "", "passkey": "", "phone": "+1 555 000-0001",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{answer: repeat})
			fake := whatsapptest.New(nil)
			if name == "passkey" {
				fake.RequirePasskey()
			}
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
			p, err := cli.Pairer(cfg, "whatsapp")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var out bytes.Buffer
			file := filepath.Join(t.TempDir(), "code.png")
			in, keyboard := io.Pipe()
			owner := &phone{Pairer: p, whatsapp: fake, keyboard: keyboard, t: t}
			if err = cli.Pair(ctx, owner, in, &out, number, file); err != nil {
				t.Fatal(err)
			}
			if name == "passkey" && !strings.Contains(out.String(), "Paste it again") {
				t.Errorf("pair printed %q", out.String())
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
			err = cli.Pair(ctx, p, strings.NewReader(""), &out, number, "")
			if err == nil || !strings.Contains(err.Error(), "is connected with this account") {
				t.Errorf("a second pairing = %v, want that it is in use", err)
			}
		})
	}
}
