package discord

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bwmarrin/discordgo"

	"gateway/bus"
	"gateway/channels"
)

// buckets are the rate limits that Discord announces in its answers: one for each channel or thread
// and each group of routes. If a bucket is empty, the call is not made, because Discord temporarily
// blocks a bot that makes 10,000 invalid requests in ten minutes:
// https://discord.com/developers/docs/topics/rate-limits. The methods are safe for concurrent use.
type buckets struct {
	mu    sync.Mutex
	names map[string]string    // names of buckets, by route
	full  map[string]time.Time // when an empty bucket is refilled, by bucket and channel
}

// maxFull is the number of remembered buckets above which refilled ones are removed.
const maxFull = 1024

// routeOf returns the route of a request and its channel. The route is "" if no limit is tracked
// for it.
func routeOf(method, path string) (route, channel string) {
	_, path, _ = strings.Cut(path, "/channels/")
	parts := strings.Split(path, "/")
	if len(parts) < 2 {
		return "", ""
	}
	// The first part is the channel. Every other id becomes "*", because the limit does not depend
	// on it.
	for i := range parts[1:] {
		if i > 0 && parts[i] == "reactions" {
			return "reactions", parts[0] // any change of reactions
		}
		if isID(parts[i+1]) {
			parts[i+1] = "*"
		}
	}
	return method + " " + strings.Join(parts[1:], "/"), parts[0]
}

// note records what an answer says about the bucket of a route.
func (b *buckets) note(route, channel string, h http.Header, now time.Time) {
	name := h.Get("X-RateLimit-Bucket")
	if route == "" || name == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names == nil {
		b.names, b.full = make(map[string]string), make(map[string]time.Time)
	}
	b.names[route] = name
	if h.Get("X-RateLimit-Remaining") != "0" {
		return
	}
	after, err := strconv.ParseFloat(h.Get("X-RateLimit-Reset-After"), 64) // seconds
	// A time above an hour is taken for a mistake: it would silence the channel.
	if err != nil || after <= 0 || after > 3600 {
		return
	}
	if len(b.full) >= maxFull {
		maps.DeleteFunc(b.full, func(_ string, until time.Time) bool { return !until.After(now) })
	}
	b.full[name+"/"+channel] = now.Add(time.Duration(after * float64(time.Second)))
}

// wait returns how long the bucket of a route stays empty. It is 0 if nothing is known about the
// bucket.
func (b *buckets) wait(route, channel string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(b.full[b.names[route]+"/"+channel].Sub(now), 0)
}

// Wait implements [channels.Pacer].
func (c *Channel) Wait(to bus.Address) time.Duration {
	return c.web.buckets.wait("POST messages", channelOf(to), time.Now())
}

// A startLimit says how many sessions of the gateway the bot may begin. If it begins more, Discord
// ends all of them and resets the bot's token: https://discord.com/developers/docs/events/gateway.
type startLimit struct {
	Total      int   `json:"total"`       // in 24 hours
	Remaining  int   `json:"remaining"`   // until the reset
	ResetAfter int64 `json:"reset_after"` // milliseconds
}

// reset returns the time until the limit is reset.
func (l *startLimit) reset() time.Duration {
	return time.Duration(max(l.ResetAfter, 0)) * time.Millisecond
}

// wait returns how long to wait before n sessions begin. The first half of the sessions need not
// wait, so that a connection that breaks now and then is restored at once. The second half is
// distributed over the time until the reset.
func (l *startLimit) wait(n int) time.Duration {
	if l.Remaining >= n && l.Remaining > l.Total/2 {
		return 0
	}
	return l.reset() / time.Duration(max(l.Remaining/n, 1))
}

// awaitStart waits until each shard of c may begin a session.
func awaitStart(ctx context.Context, c *Channel, in channels.Intake) error {
	var answer struct {
		Limit startLimit `json:"session_start_limit"`
	}
	if err := c.get(ctx, discordgo.EndpointGatewayBot, &answer); err != nil {
		return fmt.Errorf("look up the limit of sessions: %w", err)
	}
	wait := answer.Limit.wait(c.opts.Shards)
	if wait == 0 {
		return nil
	}
	why := fmt.Sprintf("connected too often: Discord allows %d more connections in the next %v; "+
		"the gateway connects again in %v", answer.Limit.Remaining,
		answer.Limit.reset().Round(time.Second), wait.Round(time.Second))
	in.Report(channels.Disconnected, why)
	c.log.WarnContext(ctx, why, "account", c.name)
	if !channels.Sleep(ctx, wait) {
		return ctx.Err()
	}
	return nil
}
