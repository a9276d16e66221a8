package discord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"gateway/channels"
)

const (
	callTimeout = 30 * time.Second // for any call without a file
	uploadStall = 3 * time.Minute  // how long an upload may make no progress
	maxAnswer   = 16 << 20         // bytes; 100 messages are far smaller
)

// A transport redirects requests to another server if one is configured, and converts answers
// without a usable body to errors.
type transport struct {
	base *url.URL // or nil
	next http.RoundTripper

	buckets buckets
}

// ours reports whether u is on a host of Discord, or on the server that replaces it. A request to
// any other host is refused, because it would carry the bot's token there.
func (t *transport) ours(u *url.URL) bool {
	switch u.Host {
	case "discord.com", "cdn.discordapp.com", "media.discordapp.net":
		return u.Scheme == "https"
	}
	return t.base != nil && u.Scheme == t.base.Scheme && u.Host == t.base.Host
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.ours(r.URL) {
		return nil, unsent(r, errors.New("not a host of Discord"))
	}
	// A RoundTripper must not change its request, so this changes a copy.
	if t.base != nil && r.URL.Host != t.base.Host {
		u, moved := *r.URL, *r
		u.Scheme, u.Host = t.base.Scheme, t.base.Host
		u.Path = t.base.Path + u.Path
		if u.RawPath != "" {
			u.RawPath = t.base.EscapedPath() + u.RawPath
		}
		moved.URL, moved.Host = &u, ""
		r = &moved
	}
	route, channel := routeOf(r.Method, r.URL.Path)
	if wait := t.buckets.wait(route, channel, time.Now()); wait > 0 {
		return nil, unsent(r, &channels.RateError{After: wait})
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// The library says less about these answers. A 429 without JSON becomes a decoding error there.
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		defer resp.Body.Close()
		if resp.StatusCode >= 500 {
			return nil, statusError(resp.StatusCode)
		}
		return nil, rateError(resp)
	}
	t.buckets.note(route, channel, resp.Header, time.Now())
	return resp, nil
}

// unsent returns err for a request that is not sent. It closes the body, as a RoundTripper must.
func unsent(r *http.Request, err error) error {
	if r.Body != nil {
		_ = r.Body.Close() // only read, so errors don't matter
	}
	return err
}

func statusError(code int) error { return fmt.Errorf("status %d %s", code, http.StatusText(code)) }

// rateError returns the wait that a 429 demands. A 429 without JSON is from servers in front of
// Discord and applies to everything from this address. A message that is old takes few edits: that
// limit is a refusal, because it must not delay other messages.
func rateError(resp *http.Response) error {
	limit := &channels.RateError{After: time.Second, Account: true}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		limit.After = time.Duration(s) * time.Second
	}
	var body struct {
		After  float64 `json:"retry_after"` // seconds, more exact than the header
		Global bool    `json:"global"`
		Code   int     `json:"code"`
	}
	if json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&body) == nil {
		limit.Account = body.Global || resp.Header.Get("X-RateLimit-Scope") == "global"
		if body.After > 0 {
			limit.After = time.Duration(body.After * float64(time.Second))
		}
	}
	if body.Code == oldMessage {
		return &refusedError{"the message is too old for so many edits", oldMessage, nil}
	}
	return limit
}

// call makes a call of the REST API and returns the JSON of the answer, or an error of the channel
// contract. If body is not nil, it is sent as JSON.
func (c *Channel) call(ctx context.Context, method, address string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	// The library's own rate limiter sleeps without watching ctx. Each call therefore gets a new
	// limiter, which never waits.
	bucket := discordgo.NewRatelimiter().LockBucket("")
	answer, err := c.rest.RequestWithLockedBucket(method, address, "application/json", raw,
		bucket, 0, discordgo.WithContext(ctx), discordgo.WithRetryOnRatelimit(false),
		discordgo.WithRestRetries(0))
	if err != nil {
		return nil, c.classify(err)
	}
	return answer, nil
}

// get requests an address and decodes the answer into v.
func (c *Channel) get(ctx context.Context, address string, v any) error {
	answer, err := c.call(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	if json.Unmarshal(answer, v) != nil {
		return errors.New("garbled answer") // the error might contain a person's text
	}
	return nil
}

// classify converts an error of the library into one of the channel contract. The result contains
// neither the bot's token nor addresses, which may contain the token of an interaction.
func (c *Channel) classify(err error) error {
	if answer, ok := errors.AsType[*discordgo.RESTError](err); ok {
		return refusal(answer.Response.StatusCode, answer.ResponseBody)
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	if c.token != "" && strings.Contains(err.Error(), c.token) {
		return errors.New(strings.ReplaceAll(err.Error(), c.token, "[token]"))
	}
	return err
}

// badToken is the error when Discord doesn't know the token.
var badToken = &channels.AccountError{
	Reason: "Discord does not accept the bot token. Reset it in the Discord developer portal " +
		"under Bot and configure the new one.",
}

// Codes of Discord that decide what happens after a refusal.
const (
	overloaded  = 130000 // temporary
	blocked     = 40333  // Cloudflare, in front of Discord, has refused the request
	noChannel   = 10003  // unknown channel
	noGuild     = 10004  // unknown guild; also that of others
	noSuch      = 10008  // unknown message
	oldMessage  = 30046  // too many edits of a message that is older than an hour
	noAccess    = 50001  // the bot may not see the channel
	noHistory   = 160002 // a reply needs the permission Read Message History
	invalidBody = 50035  // the answer names the fields
)

// A refusedError is a [channels.ErrRefused] with Discord's reason.
type refusedError struct {
	reason string
	code   int      // Discord's code, or the status if there is none
	fields []string // invalid top-level fields of the body
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("%v: %s (%d)", channels.ErrRefused, e.reason, e.code)
}

func (*refusedError) Unwrap() error { return channels.ErrRefused }

// refusesReply reports whether err objects only to the message to which the part replies.
func refusesReply(err error) bool {
	e, ok := errors.AsType[*refusedError](err)
	return ok && (e.code == noHistory || e.code == noSuch ||
		e.code == invalidBody && slices.Equal(e.fields, []string{"message_reference"}))
}

// refusal returns the error for an answer with a status below 500.
func refusal(status int, body []byte) error {
	var answer struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Errors  json.RawMessage `json:"errors"`
	}
	if status == http.StatusUnauthorized {
		return badToken
	}
	known := json.Unmarshal(body, &answer) == nil && answer.Message != ""
	switch {
	case answer.Code == blocked:
		return fmt.Errorf("the network in front of Discord blocks the gateway's requests (%d)", blocked)
	case !known || answer.Code == overloaded:
		return statusError(status) // not a final answer of the API
	}
	// The answer is text of the platform, and may quote what a person wrote.
	reason := channels.Clean(answer.Message, 200)
	if detail := firstError(answer.Errors); detail != "" {
		reason += ": " + detail
	}
	switch status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge:
		var fields map[string]json.RawMessage
		_ = json.Unmarshal(answer.Errors, &fields) // some answers name no fields
		return &refusedError{reason, cmp.Or(answer.Code, status), slices.Collect(maps.Keys(fields))}
	}
	return fmt.Errorf("%s (%d)", reason, status)
}

// firstError returns the first message in Discord's tree of errors by field. If several fields are
// wrong, any of them will do.
func firstError(raw json.RawMessage) string {
	var leaf struct {
		Errors []struct {
			Message string `json:"message"`
		} `json:"_errors"`
	}
	if json.Unmarshal(raw, &leaf) == nil && len(leaf.Errors) > 0 {
		return channels.Clean(leaf.Errors[0].Message, 200)
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return ""
	}
	for name, field := range fields {
		if detail := firstError(field); detail != "" {
			return channels.Clean(name, 40) + ": " + detail
		}
	}
	return ""
}

// maxRetries is how often to retry a call after a temporary failure. One such failure must not end
// the connection, and with it the reading of all other channels.
const maxRetries = 4

const (
	// longestLimit is the longest rate limit to wait for if others may be waiting.
	longestLimit = time.Second
	// anyLimit is for calls for which no channel waits.
	anyLimit time.Duration = math.MaxInt64
)

// retry makes a call, and retries it after temporary failures and rate limits up to longest. A rate
// limit does not count as a failure. The pauses between failures are 1/4, 1/2, 1 and 2 seconds.
func retry(ctx context.Context, longest time.Duration, call func() error) error {
	wait := 250 * time.Millisecond
	for failures := 0; ; {
		err := call()
		if err == nil || errors.Is(err, channels.ErrRefused) {
			return err
		}
		if _, ok := errors.AsType[*channels.AccountError](err); ok {
			return err
		}
		pause := wait
		if limit, ok := errors.AsType[*channels.RateError](err); ok {
			if pause = limit.After; pause > longest {
				return err
			}
		} else if failures++; failures > maxRetries {
			return err
		} else {
			wait *= 2
		}
		if !channels.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}
