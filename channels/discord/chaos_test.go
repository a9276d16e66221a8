package discord_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/discord"
	"gateway/channels/discord/discordtest"
)

// TestChaos lets people write while every part fails now and then. Each message arrives in its
// order, and each sent part arrives once.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	w := start(t, &discordtest.Options{Heartbeat: 100 * time.Millisecond},
		&discord.Options{OpenTimeout: 2 * time.Second, Silence: 2 * time.Second})
	var troubled atomic.Bool
	w.in.OnPublish = func() error {
		if troubled.Load() && rand.N(300) == 0 {
			return errors.New("disk full")
		}
		return nil
	}
	w.run(t)
	places := []string{direct, room, talk, post}
	want := make(map[string][]string)
	for _, p := range places { // a gap is read again only in known places
		want[p] = []string{"0"}
		w.Say(p, person, "0")
	}
	w.received(t, len(places))
	troubled.Store(true)
	var faults []func()
	fault := func(f discordtest.Fault) { faults = append(faults, w.Inject(f)) }
	odd := func(string) bool { return rand.N(4) == 0 }
	fault(discordtest.Fault{Method: "createMessage", When: odd, Effect: discordtest.Lose})
	fault(discordtest.Fault{Method: "createMessage", When: odd, Effect: discordtest.Drop})
	fault(discordtest.Fault{Method: "listMessages", When: odd, Status: 500})
	fault(discordtest.Fault{Method: "listMessages", When: odd, RetryAfter: time.Millisecond})
	fault(discordtest.Fault{Method: "getChannel", When: odd, Effect: discordtest.Drop})
	fault(discordtest.Fault{Method: "getMe", When: odd, Effect: discordtest.Page})
	// Each place gets fewer than the thousand messages that are read after a gap.
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end) && len(want[direct]) < 900; {
		for _, p := range places {
			text := fmt.Sprint(len(want[p]))
			want[p] = append(want[p], text)
			w.Say(p, person, text)
			sendUntilTaken(t, w, text)
		}
		switch rand.N(60) {
		case 0:
			w.Drop()
		case 1:
			w.Reconnect()
		case 2:
			w.InvalidSession(rand.N(2) == 0)
		case 3:
			w.CloseGateway(4009)
		case 4:
			w.RefuseResume(1)
			w.Drop()
		case 5:
			w.ReconnectOnResume(1)
			w.Drop()
		}
		time.Sleep(time.Millisecond)
	}
	for _, remove := range faults {
		remove()
	}
	total := len(places) * len(want[direct])
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if len(w.in.Messages()) == total {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	got := w.in.Messages()
	for _, p := range places {
		if !slices.Equal(in(got, p), want[p]) {
			t.Errorf("received %d messages in %s, want %d; the first that differs is %s", len(in(got, p)),
				p, len(want[p]), differs(in(got, p), want[p]))
		}
	}
	sent := w.History(lobby)
	if len(sent) != total-len(places) {
		t.Errorf("sent %d messages, want %d", len(sent), total-len(places))
	}
	t.Logf("%d messages, %d sessions, %d resumed, %d runs", len(got), w.Calls("identify"),
		w.Calls("resume"), w.Calls("getMe"))
}

func differs(got, want []string) string {
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			return want[i]
		}
	}
	return "none"
}

// sendUntilTaken sends a part again until Discord accepts it.
func sendUntilTaken(t *testing.T, w *world, text string) {
	t.Helper()
	n := len(w.History(lobby))
	part := bus.Part{Key: fmt.Sprint("key ", n), To: at(lobby, ""), Text: text}
	for {
		_, err := w.c.Send(t.Context(), part)
		if err == nil {
			return
		}
		if errors.Is(err, channels.ErrRefused) || errors.Is(err, channels.ErrUncertain) {
			t.Errorf("Send = %v", err)
			return
		}
	}
}
