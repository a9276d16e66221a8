package telegramtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// A hook is the webhook of the bot.
type hook struct {
	url, secret string
	connections int // number of concurrent deliveries
	lastError   string
	failed      int64              // Unix time of lastError
	wake        chan struct{}      // receives a token when an update is queued
	stop        context.CancelFunc // ends the deliveries
}

// SetWebhook registers a webhook that is never called, so that getUpdates is refused; "" removes
// it. A webhook that the bot sets is called.
func (s *Server) SetWebhook(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if address == "" {
		s.setHook(nil)
		return
	}
	s.setHook(&hook{url: address, stop: func() {}})
}

// setHook replaces the webhook; nil removes it. The caller holds s.mu.
func (s *Server) setHook(h *hook) {
	if s.hook != nil {
		s.hook.stop()
	}
	s.hook = h
	if h != nil && s.poll != nil {
		s.poll.end("Conflict: terminated by setWebhook request")
		s.poll = nil
	}
}

// Webhook returns the address of the webhook, or "".
func (s *Server) Webhook() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hook == nil {
		return ""
	}
	return s.hook.url
}

func (s *Server) webhookInfo() map[string]any {
	info := map[string]any{
		"url": "", "has_custom_certificate": false, "pending_update_count": len(s.queue),
	}
	if h := s.hook; h != nil {
		info["url"], info["max_connections"] = h.url, h.connections
		if h.lastError != "" {
			info["last_error_message"], info["last_error_date"] = h.lastError, h.failed
		}
	}
	return info
}

// setWebhook starts to deliver updates by calls. Like your own Bot API server, it accepts plain
// HTTP on this machine. s.mu is held.
func (s *Server) setWebhook(ctx context.Context, c call) reply {
	address := c.params.Get("url")
	u, err := url.Parse(address)
	secret := c.params.Get("secret_token")
	h := &hook{url: address, secret: secret, connections: 40, wake: make(chan struct{}, 1)}
	if c.params.Has("max_connections") {
		h.connections = c.int("max_connections")
	}
	select {
	case <-s.closing:
		return refuse(http.StatusInternalServerError, "Internal Server Error")
	default:
	}
	switch {
	case address == "":
		s.setHook(nil)
		return reply{result: true}
	case err != nil || u.Scheme != "https" && !net.ParseIP(u.Hostname()).IsLoopback():
		return refuse(http.StatusBadRequest,
			"Bad Request: bad webhook: An HTTPS URL must be provided for webhook")
	case len(secret) > 256 || strings.Trim(secret, "abcdefghijklmnopqrstuvwxyz"+
		"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "":
		return refuse(http.StatusBadRequest,
			"Bad Request: secret token contains unallowed characters")
	case h.connections < 1 || h.connections > 100:
		return refuse(http.StatusBadRequest, "Bad Request: max_connections is out of bounds")
	}
	if refused := s.allow(c); refused.code != 0 {
		return refused
	}
	if c.params.Get("drop_pending_updates") == "true" {
		s.queue = nil
	}
	ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.setHook(h)
	s.serving.Go(func() { s.push(ctx, h) })
	return reply{result: true}
}

// push calls the webhook with the queued updates until ctx is done. It repeats updates until they
// are accepted, after a growing pause like Telegram's, but shorter.
func (s *Server) push(ctx context.Context, h *hook) {
	const shortest, longest = 10 * time.Millisecond, time.Second
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	pause := shortest
	for ctx.Err() == nil {
		batch := s.serve(h.connections)
		var waiting <-chan time.Time
		if len(batch) > 0 {
			if s.pushBatch(ctx, client, h, batch) {
				pause = shortest
				continue
			}
			waiting = time.After(pause)
			pause = min(2*pause, longest)
		}
		wake := h.wake
		if waiting != nil {
			wake = nil
		}
		select {
		case <-wake:
		case <-waiting:
		case <-ctx.Done():
		}
	}
}

// pushBatch delivers updates concurrently and removes the accepted ones. It reports whether all
// were accepted.
func (s *Server) pushBatch(ctx context.Context, client *http.Client, h *hook, batch []queued) bool {
	failures := make([]error, len(batch))
	var wg sync.WaitGroup
	for i, u := range batch {
		wg.Go(func() { failures[i] = h.post(ctx, client, u.json) })
	}
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := true
	for i, u := range batch {
		if failures[i] != nil {
			all = false
			h.lastError, h.failed = failures[i].Error(), time.Now().Unix()
			continue
		}
		s.queue = slices.DeleteFunc(s.queue, func(q queued) bool { return q.id == u.id })
	}
	s.changed.Notify()
	return all
}

func (h *hook) post(ctx context.Context, client *http.Client, update []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(update))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if h.secret != "" {
		r.Header.Set("X-Telegram-Bot-Api-Secret-Token", h.secret)
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("wrong response from the webhook: %s", resp.Status)
	}
	return nil
}
