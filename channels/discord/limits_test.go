package discord_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/discord"
	"gateway/channels/discord/discordtest"
)

// A closer is a file in memory that calls a function when it is closed.
type closer struct {
	*strings.Reader
	close func()
}

func (c closer) Close() error {
	c.close()
	return nil
}

// The adapter follows the limits that Discord announces before Discord must refuse a call. Each
// channel and each thread has a limit of its own.
func TestBuckets(t *testing.T) {
	w := start(t, &discordtest.Options{Buckets: true}, nil)
	id := ""
	for i := range 5 {
		if wait := w.c.Wait(at(room, "")); wait > 0 {
			t.Errorf("before message %d Wait = %v", i, wait)
		}
		var err error
		id, err = w.c.Send(t.Context(), bus.Part{Key: fmt.Sprint(i), To: at(room, ""), Text: "x"})
		if err != nil {
			t.Fatal(err)
		}
	}
	wait := w.c.Wait(at(room, ""))
	if wait <= 0 || wait > 5e9 {
		t.Errorf("after five messages Wait = %v, want up to 5 s", wait)
	}
	_, err := w.c.Send(t.Context(), bus.Part{Key: "5", To: at(room, ""), Text: "x"})
	if limit, ok := errors.AsType[*channels.RateError](err); !ok || limit.After <= 0 || limit.Account {
		t.Errorf("the sixth Send = %v, want a RateError of the channel", err)
	}
	open := 0
	file := fileOf("a.txt", "text/plain", "content")
	file.Open = func() (io.ReadSeekCloser, error) {
		open++
		return closer{strings.NewReader("content"), func() { open-- }}, nil
	}
	_, err = w.c.Send(t.Context(), bus.Part{Key: "file", To: at(room, ""), File: file})
	if _, ok := errors.AsType[*channels.RateError](err); !ok || open != 0 {
		t.Errorf("Send of a file = %v with %d open files, want a RateError and none", err, open)
	}
	if wait := w.c.Wait(at(room, talk)); wait > 0 {
		t.Errorf("Wait for a thread of the channel = %v", wait)
	}
	_, err = w.c.Send(t.Context(), bus.Part{Key: "6", To: at(room, talk), Text: "x"})
	if err != nil {
		t.Errorf("Send to a thread of the channel = %v", err)
	}
	if err := w.c.Edit(t.Context(), at(room, ""), id, "y"); err != nil {
		t.Errorf("Edit = %v", err)
	}
	if err := w.c.React(t.Context(), at(room, ""), id, "\U0001f440"); err != nil {
		t.Errorf("React = %v", err)
	}
	err = w.c.React(t.Context(), at(room, ""), id, "")
	if _, ok := errors.AsType[*channels.RateError](err); !ok {
		t.Errorf("React at once = %v, want a RateError", err)
	}
	if n := w.Limited(); n > 0 {
		t.Errorf("Discord had to refuse %d calls", n)
	}
}

// A bot that begins too many sessions in a day loses its token. So the channel waits before the
// last ones.
func TestStartLimit(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	w.LimitStarts(0, 500*time.Millisecond)
	w.run(t)
	w.Say(direct, person, "one")
	w.received(t, 1)
	if n := w.Calls("identify"); n != 1 {
		t.Errorf("identified %d times", n)
	}
	states := strings.Join(w.in.States(), "\n")
	if !strings.Contains(states, "connected too often: Discord allows 0 more connections") {
		t.Errorf("states:\n%s", states)
	}
}

func TestStartWait(t *testing.T) {
	for _, tt := range []struct {
		remaining, shards int
		want              time.Duration
	}{
		{1000, 1, 0}, {501, 1, 0}, {501, 16, 0},
		{500, 1, 72 * time.Second}, {10, 1, time.Hour}, {10, 3, 10 * time.Hour / 3},
		{1, 1, 10 * time.Hour}, {0, 1, 10 * time.Hour}, {2, 3, 10 * time.Hour},
	} {
		if got := discord.StartWait(1000, tt.remaining, 10*time.Hour, tt.shards); got != tt.want {
			t.Errorf("%d sessions left and %d shards: wait %v, want %v",
				tt.remaining, tt.shards, got, tt.want)
		}
	}
	if got := discord.StartWait(0, 0, 0, 1); got != 0 {
		t.Errorf("without a limit: wait %v", got)
	}
}
