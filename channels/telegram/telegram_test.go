package telegram_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/telegram"
	"gateway/channels/telegram/telegramtest"
)

const token = "123456:SECRET"

// start returns a fake Bot API with the person 42 and a Channel that uses it.
func start(t *testing.T, opts *telegramtest.Options) (*telegramtest.Server, *telegram.Channel) {
	t.Helper()
	api := telegramtest.New(token, opts)
	url, err := api.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	api.AddUser(telegramtest.User{ID: 42, First: "Ada", Last: "Lovelace", Username: "ada"})
	transport := telegram.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	return api, telegram.New("tg", token, &telegram.Options{BaseURL: url, Transport: transport})
}

// An inbox is an Intake that keeps batches in memory.
type inbox struct {
	mu      sync.Mutex
	batches []channels.Batch
	cursor  string
	err     error // what Publish returns
	notify  chan struct{}
}

func (in *inbox) Cursor(context.Context) (string, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.cursor, nil
}

func (in *inbox) Publish(_ context.Context, b channels.Batch) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err != nil {
		return in.err
	}
	in.batches = append(in.batches, b)
	if b.Cursor != "" {
		in.cursor = b.Cursor
	}
	select {
	case in.notify <- struct{}{}:
	default:
	}
	return nil
}

// receive runs c until n messages have come or a moment passes without any, and returns them.
func receive(t *testing.T, c *telegram.Channel, in *inbox, n int) []bus.InboundMessage {
	t.Helper()
	in.notify = make(chan struct{}, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, in) }()
	var got []bus.InboundMessage
	for len(got) < n && ctx.Err() == nil {
		select {
		case <-in.notify:
		case <-ctx.Done():
		}
		got = nil
		in.mu.Lock()
		for _, b := range in.batches {
			got = append(got, b.Messages...)
		}
		in.mu.Unlock()
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want context.Canceled", err)
	}
	if len(got) != n {
		t.Fatalf("received %d messages, want %d: %+v", len(got), n, got)
	}
	return got
}

func TestReceive(t *testing.T) {
	api, c := start(t, nil)
	api.Say(42, 42, "hello")
	m := receive(t, c, new(inbox), 1)[0]
	want := bus.InboundMessage{
		ID: "1", From: bus.Address{Account: "tg", Chat: "42"},
		Sender: bus.Sender{ID: "42", Name: "Ada Lovelace", Username: "ada"},
		Text:   "hello", Time: m.Time, Addressed: true,
	}
	if m != want {
		t.Errorf("received %+v\nwant %+v", m, want)
	}
	if d := time.Since(m.Time); d < 0 || d > time.Minute {
		t.Errorf("message is dated %v", m.Time)
	}
}

func TestSend(t *testing.T) {
	api, c := start(t, nil)
	id, err := c.Send(t.Context(), bus.Part{To: bus.Address{Account: "tg", Chat: "42"}, Text: "a < b"})
	if err != nil || id != "1" {
		t.Fatalf("Send = %q, %v", id, err)
	}
	if h := api.History(42); len(h) != 1 || h[0].Text != "a < b" {
		t.Errorf("history is %+v", h)
	}
}

func TestSendBuildsErrors(t *testing.T) {
	to := bus.Address{Account: "tg", Chat: "42"}
	rate := func(err error) bool {
		e, ok := errors.AsType[*channels.RateError](err)
		return ok && e.After == 7*time.Second && !e.Account
	}
	is := func(target error) func(error) bool {
		return func(err error) bool { return errors.Is(err, target) }
	}
	again := func(err error) bool {
		return err != nil && !errors.Is(err, channels.ErrRefused) && !errors.Is(err, channels.ErrUncertain)
	}
	account := func(err error) bool {
		_, ok := errors.AsType[*channels.AccountError](err)
		return ok
	}
	for _, tt := range []struct {
		name  string
		fault telegramtest.Fault
		check func(error) bool
	}{
		{"rate", telegramtest.Fault{RetryAfter: 7}, rate},
		{"bad request", telegramtest.Fault{Code: 400, Text: "Bad Request: x"}, is(channels.ErrRefused)},
		{"forbidden", telegramtest.Fault{Code: 403, Text: "Forbidden: x"}, is(channels.ErrRefused)},
		{"unauthorized", telegramtest.Fault{Code: 401, Text: "Unauthorized"}, account},
		{"no such token", telegramtest.Fault{Code: 404, Text: "Not Found"}, account},
		{"no such method", telegramtest.Fault{Code: 404, Text: "Not Found: method not found"}, again},
		{"internal", telegramtest.Fault{Code: 500}, is(channels.ErrUncertain)},
		{"page 502", telegramtest.Fault{Effect: telegramtest.Page}, is(channels.ErrUncertain)},
		{"page 503", telegramtest.Fault{Effect: telegramtest.Page, Code: 503}, again},
		{"page 200", telegramtest.Fault{Effect: telegramtest.Page, Code: 200}, is(channels.ErrUncertain)},
		{"drop", telegramtest.Fault{Effect: telegramtest.Drop}, is(channels.ErrUncertain)},
		{"lose", telegramtest.Fault{Effect: telegramtest.Lose}, is(channels.ErrUncertain)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, c := start(t, nil)
			tt.fault.Method = "sendMessage"
			api.Inject(tt.fault)
			_, err := c.Send(t.Context(), bus.Part{To: to, Text: "hi"})
			if !tt.check(err) {
				t.Errorf("Send = %v", err)
			}
			if tt.fault.Effect == telegramtest.Lose && len(api.History(42)) != 1 {
				t.Errorf("the lost call was not executed")
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	var log strings.Builder
	c := telegram.New("tg", token, &telegram.Options{
		BaseURL: "http://127.0.0.1:1", Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	_, err := c.Send(t.Context(), bus.Part{To: bus.Address{Account: "tg", Chat: "42"}, Text: "hi"})
	if err == nil || errors.Is(err, channels.ErrUncertain) || errors.Is(err, channels.ErrRefused) {
		t.Errorf("Send without a server = %v, want an error that says: not delivered", err)
	}
	if err := c.Run(t.Context(), new(inbox)); err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("Run without a server = %v, want an error without the token", err)
	}
	if strings.Contains(log.String(), "SECRET") {
		t.Errorf("the log shows the token: %s", &log)
	}
}
