package e2e

import (
	"context"
	"strings"
	"testing"
)

// TestWrongToken checks that the log explains an invalid Telegram token in one plain sentence,
// without the token, and that the gateway continues.
func TestWrongToken(t *testing.T) {
	t.Parallel()
	const wrong = "987654:WRONG-TOKEN"
	w := newWorld(t, worldOptions{})
	p := w.start("GATEWAY_CHANNELS__TELEGRAM__TOKEN=" + wrong)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := p.wait(ctx, func() bool { return p.logged("channel refused") > 0 })
	if err != nil {
		t.Fatalf("no refusal: %v\n%s", err, p.newest())
	}
	log := p.newest()
	if !strings.Contains(log, `"reason":"Telegram does not accept the bot token. Send /token to`) {
		t.Errorf("the log does not say what to do:\n%s", log)
	}
	if strings.Contains(log, wrong) {
		t.Errorf("the log shows the token:\n%s", log)
	}
	select {
	case <-p.done:
		t.Errorf("the gateway has ended:\n%s", log)
	default:
	}
}
