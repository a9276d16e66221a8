package e2e

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gateway/agent/policy"
	"gateway/channels/telegram/telegramtest"
	"gateway/channels/whatsapp/whatsapptest"
	"gateway/store"
)

// TestReadyChannel checks that the gateway is not ready while Telegram is down, and is ready
// again when Telegram is back.
func TestReadyChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	o := w.operate(soonTroubled)
	o.healthy(w)
	up := w.telegram.Inject(telegramtest.Fault{Effect: telegramtest.Drop})
	w.telegram.Say(1, 1, "are you there?") // this message ends the current poll
	o.turns(w, "channel telegram", false, "connect")
	up()
	o.healthy(w)
	w.await("an answer", func() bool { return w.telegram.SentCount(1) == 1 })
}

// TestReadyWrongToken checks that an account is not ready if Telegram has never accepted its
// token.
func TestReadyWrongToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	o := w.operate("GATEWAY_CHANNELS__TELEGRAM__TOKEN=987654:WRONG-TOKEN")
	w.repeat("the refusal", func() bool {
		r, _ := o.check("channel telegram")
		return !r.OK && strings.Contains(r.State, "does not accept the bot token")
	})
	if r, _ := o.check("channel terminal"); !r.OK {
		t.Errorf("another channel: %+v, want it well", r)
	}
	if code, _ := o.get("/healthz"); code != 200 {
		t.Errorf("/healthz = %d, want 200: a restart would help nobody", code)
	}
}

// TestReadyBanned checks that an account which only a person can repair is not ready as soon as
// that is known.
func TestReadyBanned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	fake := openWhatsApp(t, w.home)
	w.configure(quiet + "\n[channels.whatsapp]\n" + fake.config())
	o := w.operate()
	o.healthy(w)
	fake.FailLogin(whatsapptest.LoginFailure{Reason: 406})
	fake.Drop()
	w.repeat("the ban", func() bool {
		r, _ := o.check("channel whatsapp")
		banned := strings.Contains(r.State, "WhatsApp has banned this account")
		if banned && r.OK {
			t.Errorf("%+v: a ban is taken for a lost connection", r)
		}
		return banned
	})
}

// TestReadyStore checks that the gateway is not ready, and waits, while another process locks the
// database. A gateway that starts meanwhile says so and ends.
func TestReadyStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	o := w.operate(soonTroubled)
	o.healthy(w)
	other, err := sql.Open("sqlite", "file:"+filepath.Join(w.home, "gateway.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	conn, err := other.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	execute := func(query string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	execute("PRAGMA busy_timeout = 60000")
	execute("BEGIN EXCLUSIVE")
	o.turns(w, "store", false, "no answer for")
	code, body := o.get("/metrics")
	if code != 200 || !strings.Contains(body, "gateway_inbox_waiting") {
		t.Errorf("/metrics = %d, want them also while nothing can be written", code)
	}
	w.telegram.Say(1, 1, "are you there?")
	execute("ROLLBACK")
	o.healthy(w)
	w.await("an answer", func() bool { return w.telegram.SentCount(1) == 1 })
	o.process.kill()
	execute("BEGIN EXCLUSIVE")
	out, err := w.gateway("run")
	if err == nil || !strings.Contains(out, "another program has locked the database in "+w.home) {
		t.Errorf("with a locked database gateway run ends with %v and says\n%s", err, out)
	}
}

// TestReadyDispatcher checks that a hanging dispatcher is reported and loses nothing.
func TestReadyDispatcher(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	hold := filepath.Join(t.TempDir(), "hold")
	o := w.operate(soonTroubled, "GATEWAY_HOLD=dispatch:"+hold)
	o.healthy(w)
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.telegram.Say(1, 1, "are you there?")
	o.turns(w, "dispatcher", false, "stuck")
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	o.healthy(w)
	w.await("an answer", func() bool { return w.telegram.SentCount(1) == 1 })
}

// TestReadyInbox checks that a message is reported if nobody works on it for twice the turn
// timeout.
func TestReadyInbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{agent: `turn_timeout = "1s"`})
	hold := filepath.Join(t.TempDir(), "hold")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o := w.operate(soonTroubled, "GATEWAY_HOLD=dispatch:"+hold)
	o.turns(w, "inbox", true)
	w.telegram.Say(1, 1, "are you there?")
	o.turns(w, "inbox", false, "nobody works on it")
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	o.healthy(w)
}

// TestReadyConfigurationAndHalt checks that an invalid configuration is reported until it is
// corrected, and that a halt is shown but does not count as a problem.
func TestReadyConfigurationAndHalt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	o := w.operate(soonTroubled)
	o.healthy(w)
	w.configure("nonsense = 1")
	o.turns(w, "configuration", false, "nonsense")
	w.configure(quiet)
	o.healthy(w)
	o.turns(w, "halt", true, "not halted")
	w.look(func(db *store.DB) {
		err := db.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := policy.SetHalt(tx, "the test", time.Now())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	o.turns(w, "halt", true, "halted for ")
	o.healthy(w)
}

// TestHealthCommand checks that the command reports the same as the server, with a matching exit
// code.
func TestHealthCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	health := func(args ...string) (string, error) {
		path, err := buildBinary()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := commandIn(ctx, path, w, append([]string{"health"}, args...)...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	fails := func(want string, args ...string) {
		t.Helper()
		if out, err := health(args...); err == nil || !strings.Contains(out, want) {
			t.Errorf("health %v = %q, %v; want a failure with %q", args, out, err, want)
		}
	}
	fails("no gateway runs in " + w.home)
	hold := filepath.Join(t.TempDir(), "hold")
	o := w.operate(soonTroubled, "GATEWAY_HOLD=dispatch:"+hold)
	o.healthy(w)
	if out, err := health(); err != nil {
		t.Errorf("health = %q, %v", out, err)
	}
	w.repeat("health --ready to find all well", func() bool { // a check may be slow for a moment
		_, err := health("--ready")
		return err == nil
	})
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.turns(w, "dispatcher", false, "stuck")
	fails("dispatcher: stuck", "--ready")
	if out, err := health(); err != nil {
		t.Errorf("health while it is not ready = %q, %v; it is alive", out, err)
	}
	o.kill()
	fails("no gateway answers at " + o.Address) // the file with its address still exists
	w.home = filepath.Join(hold, "home")        // hold is a file
	fails(w.home + " is not a folder")
}

// TestOperatorsTokenIsWithheld checks that the generated operator's token counts as a secret.
func TestOperatorsTokenIsWithheld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{channel: quiet + "\nowners = [\"7\"]"})
	o := w.operate()
	w.telegram.Say(7, 7, "the token is "+o.Token)
	w.await("the answer", func() bool { return len(w.texts(7)) > 0 })
	if said := w.texts(7)[0]; !strings.Contains(said, "I have withheld this message") {
		t.Errorf("the answer is %q, want that it was withheld", said)
	}
}
