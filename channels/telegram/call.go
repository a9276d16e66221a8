package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
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

// A doer is a function that tgbotapi takes for an HTTP client.
type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

// call invokes a Bot API method and returns the result's JSON. The error is a *tgbotapi.Error
// if Telegram answered with one. Any other error wraps channels.ErrUncertain if the call may
// have been executed, and never contains the token.
func (c *Channel) call(
	ctx context.Context, timeout time.Duration, method string, p tgbotapi.Params,
) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// Until there is a connection, nothing can have reached Telegram. From then on any failure
	// leaves the outcome open.
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	api := c.api // tgbotapi knows no contexts: each call has a copy with a client of its own
	var sent bool
	var lost error
	api.Client = doer(func(r *http.Request) (resp *http.Response, err error) {
		sent = true
		resp, lost = c.exchange(r.WithContext(ctx), &connected)
		return resp, lost
	})
	resp, err := api.MakeRequest(method, p)
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
		return nil, errors.New("api_url is not a valid address") // err shows it with the token
	}
	return nil, fmt.Errorf("%w: garbled answer", channels.ErrUncertain)
}

// exchange sends r and reads the whole answer, so that the connection can be used again. An
// answer that is not JSON becomes an error here, while its status is still known. From when on
// begun is set, Telegram may execute r.
func (c *Channel) exchange(r *http.Request, begun *atomic.Bool) (*http.Response, error) {
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		if begun.Load() {
			return nil, fmt.Errorf("%w: %w", channels.ErrUncertain, c.redact(err))
		}
		return nil, c.redact(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if resp.ContentLength > 0 {
		body.Grow(int(min(resp.ContentLength, maxAnswer)) + bytes.MinRead)
	}
	if _, err := body.ReadFrom(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return nil, fmt.Errorf("%w: read answer: %w", channels.ErrUncertain, c.redact(err))
	}
	if !bytes.HasPrefix(body.Bytes(), []byte("{")) {
		return nil, statusError(resp.StatusCode)
	}
	resp.Body = io.NopCloser(&body)
	return resp, nil
}

// statusError returns the error for an answer that says nothing but its status. A proxy in front
// of Telegram gives such; only with 503 and below 500 the call surely was not executed.
func statusError(code int) error {
	if code == http.StatusRequestEntityTooLarge {
		return fmt.Errorf("%w: the file is too large for the server", channels.ErrRefused)
	}
	if code == http.StatusServiceUnavailable || code >= 300 && code < 500 {
		return fmt.Errorf("status %d %s", code, http.StatusText(code))
	}
	return fmt.Errorf("%w: status %d %s", channels.ErrUncertain, code, http.StatusText(code))
}

// redact returns err, or its text without the token if some transport put the URL into it.
func (c *Channel) redact(err error) error {
	if c.token == "" || !strings.Contains(err.Error(), c.token) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), c.token, "[token]"))
}

// classify turns an error of call into one of the channel contract. inChat says that the call
// was about a chat.
func classify(err error, inChat bool) error {
	answer, ok := err.(*tgbotapi.Error) // call returns it bare
	if !ok {
		return err
	}
	reason := strings.TrimPrefix(answer.Message, "Bad Request: ")
	reason = channels.Clean(strings.TrimPrefix(reason, "Forbidden: "), 200)
	switch answer.Code {
	case http.StatusTooManyRequests:
		// The answer doesn't say which limit was hit. Per chat it is one message a second, or 20
		// a minute in groups, which a busy chat meets long before the bot meets its 30 a second;
		// and if it was the bot's, each chat that sends is told so itself.
		after := time.Duration(max(answer.RetryAfter, 1)) * time.Second
		return &channels.RateError{After: after, Account: !inChat}
	case http.StatusUnauthorized:
		return badToken
	case http.StatusNotFound:
		if answer.Message == "Not Found" { // else an unknown method, of an old server
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

// conflict explains why getUpdates was refused. The gateway does not delete a webhook by itself:
// another program may live on it.
func conflict(message string) error {
	if strings.Contains(message, "webhook") && !strings.Contains(message, "setWebhook") {
		return errors.New("a webhook is set for this bot, so Telegram delivers its messages " +
			"there: remove it with deleteWebhook, or use another bot")
	}
	return errors.New("another program receives this bot's messages with the same token: " +
		"stop it, or use another bot")
}
