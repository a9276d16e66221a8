package telegram

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"
	"golang.org/x/net/netutil"

	"gateway/channels"
)

// A Webhook says where Telegram calls the gateway. It stays set when the gateway stops, so that
// messages wait. Call deleteWebhook before polling the bot again.
type Webhook struct {
	// Listen is the address to listen on; default 127.0.0.1:8443. The server speaks plain HTTP. A
	// proxy in front of it holds the certificate.
	Listen string

	// URL is the address that Telegram calls. Only its path is served.
	URL string

	// Secret is sent by Telegram with each call: 1 to 256 letters, digits, "_" and "-".
	Secret string
}

const (
	maxUpdate     = 4 << 20 // bytes; a message is far smaller
	maxCallers    = 256     // connections; Telegram uses one, others may be anybody's
	maxSecret     = 256
	secretHeader  = "X-Telegram-Bot-Api-Secret-Token"
	defaultListen = "127.0.0.1:8443"
	closeTimeout  = time.Second / 2 // for calls under way at the stop
)

// check returns an error that says what a person must change. A nil Webhook is valid.
func (h *Webhook) check() error {
	if h == nil {
		return nil
	}
	u, err := url.Parse(h.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return &channels.AccountError{Reason: "The URL of the Telegram webhook is not an https address."}
	case h.Secret == "":
		return &channels.AccountError{Reason: "The Telegram webhook has no secret, so anybody " +
			"could write in the name of others. Set one, for example with \"openssl rand -hex 32\"."}
	case len(h.Secret) > maxSecret || strings.IndexFunc(h.Secret, notInSecret) >= 0:
		return &channels.AccountError{Reason: "The secret of the Telegram webhook must have at " +
			"most 256 letters, digits, \"_\" and \"-\"."}
	}
	return nil
}

// notInSecret reports whether Telegram would refuse a secret because of r.
func notInSecret(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
		r != '_' && r != '-'
}

// listen sets the webhook and serves it until ctx is done or an update can't be stored.
func (r *receiver) listen(ctx context.Context, hook *Webhook) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", cmp.Or(hook.Listen, defaultListen))
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The server listens before Telegram learns the address, so that no call fails at the start.
	h := newHook(r, hook)
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			h.serve(ctx, w, q)
		}),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       callTimeout,
		WriteTimeout:      2 * callTimeout, // a caller may not read the answers
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
	// A server that fails also ends the wait below, because it cancels ctx.
	ended := make(chan error, 1)
	go func() {
		ended <- srv.Serve(netutil.LimitListener(ln, maxCallers))
		cancel()
	}()
	if err = r.setWebhook(ctx, hook); err == nil {
		r.connected(ctx, byWebhook)
		err = h.watch(ctx)
	}
	// Calls that wait for their turn end now. Telegram repeats them later.
	cancel()
	h.close(ctx, srv)
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = fmt.Errorf("webhook: %w", served) // the cause of the stop
	}
	return err
}

// setWebhook makes Telegram call hook, one update at a time to preserve their order.
func (r *receiver) setWebhook(ctx context.Context, hook *Webhook) error {
	_, err := r.api.call(ctx, callTimeout, "setWebhook", tgbotapi.Params{
		"url":             hook.URL,
		"secret_token":    hook.Secret,
		"allowed_updates": allowedUpdates,
		"max_connections": "1",
	})
	if err != nil {
		return fmt.Errorf("set webhook: %w", classify(err, false))
	}
	return nil
}

// byWebhook is appended to the report of a connection.
const byWebhook = " by webhook"

// inspectTime is the time between two looks at what Telegram says about the webhook.
const inspectTime = time.Minute

// A webhookInfo is what Telegram says about the webhook.
type webhookInfo struct {
	URL     string `json:"url"`                  // "" if there is no webhook
	Waiting int    `json:"pending_update_count"` // updates
	Failed  int64  `json:"last_error_date"`      // Unix time of the last failed call; 0: never
	Reason  string `json:"last_error_message"`
}

// A hook serves the calls of a webhook, for one call of listen.
type hook struct {
	*receiver
	path   string
	secret []byte
	turn   chan struct{} // held while an update is stored, so that they are stored one by one
	failed chan error    // the error of an update that could not be stored
	heard  atomic.Bool   // an update was stored since the last look
}

func newHook(r *receiver, w *Webhook) *hook {
	h := &hook{receiver: r, path: "/", secret: []byte(w.Secret),
		turn: make(chan struct{}, 1), failed: make(chan error, 1)}
	if u, err := url.Parse(w.URL); err == nil && u.Path != "" { // check has validated it
		h.path = u.Path
	}
	return h
}

// watch waits until ctx is done, an update can't be stored, or another program has changed the
// webhook. Telegram's calls can fail where the gateway does not see it, for example because of the
// certificate. So watch asks Telegram, and reports what it says.
func (h *hook) watch(ctx context.Context) error {
	tick := time.NewTicker(h.inspect)
	defer tick.Stop()
	var before webhookInfo // of the last look
	shown := ""            // the reported problem
	for {
		select {
		case err := <-h.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		info, err := h.api.getWebhookInfo(ctx)
		if err != nil {
			continue // the next look may succeed
		}
		// Telegram may write the address in another form than the gateway.
		if info.URL == "" || before.URL != "" && info.URL != before.URL {
			return errors.New("webhook: another program has changed or removed the webhook of " +
				"this bot: stop it, or use another bot")
		}
		// Only Telegram's own times are compared: the clocks may differ.
		switch heard := h.heard.Swap(false); {
		case heard || info.Waiting == 0:
			if shown != "" {
				h.connected(ctx, byWebhook)
			}
			shown = ""
		case before.URL != "" && info.Failed != before.Failed && info.problem() != shown:
			shown = info.problem()
			h.in.Report(channels.Disconnected, shown)
			h.log.WarnContext(ctx, shown, "account", h.name)
		}
		before = info
	}
}

// problem says why Telegram's last call has failed.
func (i *webhookInfo) problem() string {
	return "Telegram can't deliver messages to the webhook: " + channels.Clean(i.Reason, 150) +
		"; check its address, certificate and proxy"
}

// getWebhookInfo returns what Telegram says about the webhook.
func (c *client) getWebhookInfo(ctx context.Context) (info webhookInfo, err error) {
	result, err := c.call(ctx, callTimeout, "getWebhookInfo", nil)
	if err != nil {
		return info, classify(err, false)
	}
	return info, json.Unmarshal(result, &info)
}

// serve answers one call: 200 once the update is stored, otherwise an error that makes Telegram
// repeat the call. ctx is the context of Run.
func (h *hook) serve(ctx context.Context, w http.ResponseWriter, q *http.Request) {
	refuse := func(why string, status int) {
		w.Header().Set("Connection", "close") // others than Telegram hold no idle connection
		http.Error(w, why, status)
	}
	switch {
	case q.URL.Path != h.path:
		refuse("not found", http.StatusNotFound)
		return
	// The comparison takes the same time for each wrong secret, so that a caller can't guess the
	// secret character by character.
	case subtle.ConstantTimeCompare([]byte(q.Header.Get(secretHeader)), h.secret) != 1:
		refuse("wrong secret", http.StatusUnauthorized)
		return
	case q.Method != http.MethodPost:
		refuse("POST only", http.StatusMethodNotAllowed)
		return
	}
	update, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxUpdate))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		http.Error(w, "incomplete", http.StatusBadRequest)
		return
	}
	if err := h.accept(ctx, update); err != nil {
		http.Error(w, "not stored", http.StatusServiceUnavailable)
	}
}

// accept stores one update. After a failure, later updates wait until Run is called again.
func (h *hook) accept(ctx context.Context, update json.RawMessage) error {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
	}
	// If both cases are ready, select chooses one at random. An update must not be stored after the
	// end of Run, so ctx decides.
	if err := ctx.Err(); err != nil {
		return err
	}
	batch, presses := h.translate(ctx, []json.RawMessage{update})
	if batch.Cursor == "" {
		return nil // it is not an update and never will be
	}
	err := h.store(ctx, batch, presses)
	if err == nil {
		h.heard.Store(true)
	} else {
		select {
		case h.failed <- err:
		default: // one error is enough
		}
	}
	return err
}

// close stops srv and waits for the update that is being stored.
func (h *hook) close(ctx context.Context, srv *http.Server) {
	// The caller's ctx is cancelled already.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		h.log.DebugContext(ctx, "webhook: calls under way are cut off", "err", err)
		_ = srv.Close() // the listener is already closed; nothing else can be done
	}
	h.turn <- struct{}{} // never released
}
