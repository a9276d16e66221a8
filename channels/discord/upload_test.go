package discord_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/discord"
)

// A slowLine transfers a request in pieces, with a pause after each, until the request ends.
type slowLine struct {
	pause time.Duration
	got   int // bytes
}

func (l *slowLine) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	piece := make([]byte, 1<<10)
	for {
		n, err := r.Body.Read(piece)
		l.got += n
		if errors.Is(err, io.EOF) {
			return &http.Response{StatusCode: http.StatusOK, Request: r,
				Body: io.NopCloser(strings.NewReader(`{"id":"1"}`))}, nil
		}
		if err != nil || !channels.Sleep(r.Context(), l.pause) {
			return nil, errors.Join(err, context.Cause(r.Context()))
		}
	}
}

// An upload may take as long as the line needs, but not stand still.
func TestSlowUpload(t *testing.T) {
	part := bus.Part{To: ada, Key: "1", File: fileOf("a.txt", "text/plain",
		strings.Repeat("0123456789", 1000))}
	for _, tt := range []struct {
		pause time.Duration
		want  error
	}{{2 * time.Minute, nil}, {4 * time.Minute, channels.ErrStalled}} {
		synctest.Test(t, func(t *testing.T) {
			line := &slowLine{pause: tt.pause}
			c := discord.New("dc", token, &discord.Options{Transport: line})
			_, err := c.Send(t.Context(), part)
			if !errors.Is(err, tt.want) || (err == nil) != (line.got > 10_000) {
				t.Errorf("with pauses of %v, %d bytes were sent: %v; want %v", tt.pause, line.got, err,
					tt.want)
			}
		})
	}
}
