package telegram

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"gateway/channels"
)

const (
	callTimeout = 30 * time.Second // for any call but a long poll
	maxAnswer   = 32 << 20         // bytes; 100 updates are far smaller
)

// A doer is a function that implements the HTTP client interface of tgbotapi.
type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

// A client calls the Bot API of one server for one bot.
type client struct {
	token      string
	base       string          // prefix of all URLs, without a final slash
	bot        tgbotapi.BotAPI // copied for each call, never used itself
	transport  http.RoundTripper
	localFiles string // see [Options]
}

func newClient(token string, o Options) *client {
	c := &client{
		token:      token,
		base:       strings.TrimRight(cmp.Or(o.BaseURL, "https://api.telegram.org"), "/"),
		transport:  o.Transport,
		localFiles: o.LocalFiles,
	}
	if c.transport == nil {
		c.transport = NewTransport()
	}
	c.bot.Token = url.PathEscape(token) // a malformed token must not show in an error about the URL
	// tgbotapi uses the endpoint as a format string for the token and the method.
	c.bot.SetAPIEndpoint(strings.ReplaceAll(c.base, "%", "%%") + "/bot%s/%s")
	return c
}

// call calls a Bot API method and returns the JSON of the result. The error is a *tgbotapi.Error if
// Telegram answered with one. Any other error wraps channels.ErrUncertain if the call may have been
// executed. No error contains the token.
func (c *client) call(
	ctx context.Context, timeout time.Duration, method string, p tgbotapi.Params,
) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// Before there is a connection, nothing can have reached Telegram. After that, the outcome of
	// any failure is unknown.
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	bot := c.bot // tgbotapi has no contexts: each call uses a copy with its own client
	var sent bool
	var lost error
	bot.Client = doer(func(r *http.Request) (resp *http.Response, err error) {
		sent = true
		resp, lost = c.exchange(r.WithContext(ctx), &connected)
		return resp, lost
	})
	resp, err := bot.MakeRequest(method, p)
	// An error of exchange is already in its final form. Any other error means that Telegram has
	// refused the call, the URL is not valid, or the answer is not the expected JSON.
	switch {
	case err == nil:
		return resp.Result, nil
	case lost != nil:
		return nil, lost
	}
	if answer, ok := errors.AsType[*tgbotapi.Error](err); ok {
		return nil, answer
	}
	if !sent {
		return nil, errors.New("api_url is not a valid address") // err contains the token
	}
	return nil, fmt.Errorf("%w: garbled answer", channels.ErrUncertain)
}

// exchange sends r and reads the whole answer, so that the connection can be reused. It returns an
// error for an answer that is not JSON, because its status is still known here. Once begun is set,
// Telegram may execute r.
func (c *client) exchange(r *http.Request, begun *atomic.Bool) (*http.Response, error) {
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		if begun.Load() {
			return nil, fmt.Errorf("%w: %w", channels.ErrUncertain, c.redact(err))
		}
		return nil, c.redact(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	// With a known length the buffer need not grow: ReadFrom wants MinRead free bytes even at the
	// end.
	if resp.ContentLength > 0 {
		body.Grow(int(min(resp.ContentLength, maxAnswer)) + bytes.MinRead)
	}
	if _, err := body.ReadFrom(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return nil, fmt.Errorf("%w: read answer: %w", channels.ErrUncertain, c.redact(err))
	}
	// The Bot API answers with a JSON object, even to refuse a call.
	if !bytes.HasPrefix(body.Bytes(), []byte("{")) {
		return nil, statusError(resp.StatusCode)
	}
	resp.Body = io.NopCloser(&body)
	return resp, nil
}

// getMe returns the account of the bot.
func (c *client) getMe(ctx context.Context) (user, error) {
	result, err := c.call(ctx, callTimeout, "getMe", nil)
	if err != nil {
		return user{}, classify(err, false)
	}
	var me user
	if err := json.Unmarshal(result, &me); err != nil {
		return user{}, errors.New("the answer is not from a Bot API server; check api_url")
	}
	return me, nil
}

// getUpdates waits for updates from cursor on, and returns them undecoded.
func (c *client) getUpdates(
	ctx context.Context, wait time.Duration, cursor string,
) ([]json.RawMessage, error) {
	p := tgbotapi.Params{
		"timeout":         strconv.Itoa(int(wait / time.Second)),
		"allowed_updates": allowedUpdates,
	}
	p.AddNonEmpty("offset", cursor)
	// The server answers after the time wait. The rest is for the network.
	result, err := c.call(ctx, wait+15*time.Second, "getUpdates", p)
	if err != nil {
		return nil, classify(err, false)
	}
	var updates []json.RawMessage
	if err := json.Unmarshal(result, &updates); err != nil {
		return nil, errors.New("the answer is not a list of updates")
	}
	return updates, nil
}

// statusError returns the error for an answer without a usable body. Such answers come from proxies
// in front of Telegram. Only a status of 503 or below 500 means that the call was certainly not
// executed.
func statusError(code int) error {
	if code == http.StatusRequestEntityTooLarge {
		return fmt.Errorf("%w: the file is too large for the server", channels.ErrRefused)
	}
	if code == http.StatusServiceUnavailable || code >= 300 && code < 500 {
		return fmt.Errorf("status %d %s", code, http.StatusText(code))
	}
	return fmt.Errorf("%w: status %d %s", channels.ErrUncertain, code, http.StatusText(code))
}

// redact returns err, or only its text without the token if the transport put the URL into it.
func (c *client) redact(err error) error {
	if c.token == "" || !strings.Contains(err.Error(), c.token) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), c.token, "[token]"))
}

// classify converts an error of call into one of the channel contract. inChat says that the call
// was about a chat.
func classify(err error, inChat bool) error {
	answer, ok := err.(*tgbotapi.Error) // call does not wrap it
	if !ok {
		return err
	}
	reason := strings.TrimPrefix(answer.Message, "Bad Request: ")
	reason = channels.Clean(strings.TrimPrefix(reason, "Forbidden: "), 200)
	switch answer.Code {
	case http.StatusTooManyRequests:
		// The answer doesn't say which limit was exceeded. Per chat it is one message per second,
		// or 20 per minute in groups. A busy chat exceeds that long before the bot exceeds its 30
		// per second. If it was the bot's limit, each sending chat gets this answer.
		after := time.Duration(max(answer.RetryAfter, 1)) * time.Second
		return &channels.RateError{After: after, Account: !inChat}
	case http.StatusUnauthorized:
		return badToken
	case http.StatusNotFound:
		if answer.Message == "Not Found" { // otherwise an old server does not know the method
			return badToken
		}
	case http.StatusBadRequest, http.StatusForbidden, http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: %s", channels.ErrRefused, reason)
	case http.StatusConflict:
		return conflict(answer.Message)
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return fmt.Errorf("%w: %s (%d)", channels.ErrUncertain, reason, answer.Code)
	}
	return fmt.Errorf("%s (%d)", reason, answer.Code)
}

// badToken is the error when Telegram doesn't know the token.
var badToken = &channels.AccountError{
	Reason: "Telegram does not accept the bot token. " +
		"Send /token to @BotFather on Telegram to see the right one, or /newbot for a new bot.",
}

// conflict explains why getUpdates was refused. The gateway does not delete a webhook, because
// another program may depend on it.
func conflict(message string) error {
	if strings.Contains(message, "webhook") {
		return errors.New("a webhook is set for this bot, so Telegram delivers its messages " +
			"there: remove it with deleteWebhook, or use another bot")
	}
	return errors.New("another program receives this bot's messages with the same token: " +
		"stop it, or use another bot")
}
