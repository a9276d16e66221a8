package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
)

// patience is how long a container has for what it must do.
const patience = time.Minute

// person is who writes to the bot.
const person = 7

// A trial is a world for containers: a Telegram and a model.
type trial struct {
	engine   engine
	telegram *telegramtest.Server
	env      []string
}

// try tries an engine's image.
func try(ctx context.Context, e engine) error {
	const token = "123456:TEST-TOKEN"
	t := &trial{engine: e, telegram: telegramtest.New(token, nil)}
	defer t.telegram.Close()
	url, err := t.telegram.Start(ctx)
	if err != nil {
		return err
	}
	model := openaitest.Start(nil)
	defer model.Close()
	// The network is that of this machine, since the fakes are there: the usual port may be taken.
	t.env = []string{"TELEGRAM_BOT_TOKEN=" + token, "OPENAI_API_KEY=key",
		"OPENAI_BASE_URL=" + model.URL, "GATEWAY_CHANNELS__TELEGRAM__API_URL=" + url,
		"GATEWAY_HTTP__LISTEN=127.0.0.1:0"}
	for _, part := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"nothing but two variables and a volume", t.alone},
		{"as in compose.yml, with the same volume", t.hardened},
		{"the sandbox as the engine starts it", func(ctx context.Context) error {
			return t.sandbox(ctx, options{env: t.env}, "landlock")
		}},
		{"the sandbox as in compose.yml", func(ctx context.Context) error {
			return t.sandbox(ctx, options{env: t.env, hardened: true}, "landlock")
		}},
		{"the sandbox with system calls and /proc unconfined", func(ctx context.Context) error {
			return t.sandbox(ctx, options{env: t.env, hardened: true, open: true}, "bubblewrap")
		}},
		{"the sandboxes with the system calls of deploy/gateway.service", t.unit},
	} {
		began := time.Now()
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.what, err)
		}
		fmt.Printf("ok: %s, %.1f s\n", part.what, time.Since(began).Seconds())
	}
	return nil
}

var pairingCode = regexp.MustCompile(`pairing code is (\w{8})`)

// alone starts the image as the documents do first: a stranger is let in and answered.
func (t *trial) alone(ctx context.Context) error {
	return t.serve(ctx, options{env: t.env}, func(ctx context.Context, c container) error {
		t.telegram.Say(person, person, "hello")
		said, err := t.hear(ctx, pairingCode)
		if err != nil {
			return err
		}
		if _, err := c.exec(ctx, "gateway", "people", "approve", said[1]); err != nil {
			return err
		}
		return t.talk(ctx, "first")
	})
}

// hardened starts it again: it still knows who was let in, and can write to its volume only.
func (t *trial) hardened(ctx context.Context) error {
	o := options{env: t.env, hardened: true}
	return t.serve(ctx, o, func(ctx context.Context, c container) error {
		if err := t.talk(ctx, "second"); err != nil {
			return err
		}
		if _, err := c.exec(ctx, "gateway", "health", "--ready"); err != nil {
			return err
		}
		said, err := c.exec(ctx, "id", "-u")
		if err != nil || strings.TrimSpace(said) != "10001" {
			return fmt.Errorf("container: it runs as %q, %w", said, err)
		}
		if _, err := c.exec(ctx, "grep", "-q", "^CapEff:.*[^0]$", "/proc/1/status"); err == nil {
			return errors.New("container: it has capabilities")
		}
		if _, err := c.exec(ctx, "touch", "/var/tmp/file"); err == nil {
			return errors.New("container: its root can be written")
		}
		return nil
	})
}

// serve starts a gateway, calls do when it is healthy, and stops it.
func (t *trial) serve(
	ctx context.Context, o options, do func(context.Context, container) error,
) error {
	c, err := t.engine.start(ctx, o)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = await(within, func() error { return c.healthy(within) })
	if err == nil {
		err = do(within, c)
	}
	code, stopped := c.stop(ctx)
	if err == nil && stopped == nil && code != 0 {
		err = fmt.Errorf("container: it ended with code %d", code)
	}
	if err = errors.Join(err, stopped); err != nil {
		_, log, _ := c.wait(ctx) // err says what is wrong
		return fmt.Errorf("%w\n%s", err, log)
	}
	return nil
}

// talk says something and waits for the model's echo of it.
func (t *trial) talk(ctx context.Context, text string) error {
	t.telegram.Say(person, person, text)
	_, err := t.hear(ctx, regexp.MustCompile(`echo: (?s:.*)`+text))
	return err
}

// hear waits until the bot says what pattern fits.
func (t *trial) hear(ctx context.Context, pattern *regexp.Regexp) (match []string, err error) {
	err = await(ctx, func() error {
		var texts []string
		for _, m := range t.telegram.History(person) {
			if match = pattern.FindStringSubmatch(m.Text); match != nil {
				return nil
			}
			texts = append(texts, m.Text)
		}
		return fmt.Errorf("container: the bot says %q, want %s", texts, pattern)
	})
	return match, err
}

// sandbox lets the doctor look for the sandbox: the one that is wanted must have proven itself.
func (t *trial) sandbox(ctx context.Context, o options, want string) error {
	o.args = []string{"doctor"}
	c, err := t.engine.start(ctx, o)
	if err != nil {
		return err
	}
	_, said, err := c.wait(ctx)
	if err != nil {
		return err
	}
	if !strings.Contains(said, "Sandbox: "+want) || !strings.Contains(said, "Sandbox: proven: ") {
		return fmt.Errorf("container: want the sandbox %s; the doctor says:\n%s", want, said)
	}
	return nil
}

// unit lets the doctor look for each sandbox under the filter of the unit of systemd, which is
// not at hand itself in most containers and machines of CI.
func (t *trial) unit(ctx context.Context) error {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		fmt.Println("left out: systemd-analyze is not installed")
		return nil
	}
	calls, err := unitCalls(ctx)
	if err != nil {
		return err
	}
	for _, mode := range []string{"bubblewrap", "landlock"} {
		env := slices.Concat(t.env, []string{"GATEWAY_EXEC__SANDBOX=" + mode})
		o := options{env: env, hardened: true, open: true, filter: allowOnly(calls)}
		if err := t.sandbox(ctx, o, mode); err != nil {
			return err
		}
	}
	return nil
}

// await calls cond until it has no error. When ctx ends it returns the last one of before.
func await(ctx context.Context, cond func() error) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	last := ctx.Err()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-tick.C:
		}
	}
}
