package discord

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"gateway/bus"
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
