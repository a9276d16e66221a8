package discordtest

import (
	"strconv"
	"time"
)

// A bucket is the rate limit of one channel. It allows a number of calls in a period that begins
// with the first call.
type bucket struct {
	left  int
	until time.Time
}

// A bucketKind says which calls share a bucket, and how many it allows.
type bucketKind struct {
	name  string
	limit int
	per   time.Duration
}

// bucketKinds are Discord's long-standing limits, by method.
var bucketKinds = map[string]bucketKind{
	"createMessage":  {"create", 5, 5 * time.Second},
	"editMessage":    {"edit", 5, 5 * time.Second},
	"putReaction":    {"react", 1, 250 * time.Millisecond},
	"deleteReaction": {"react", 1, 250 * time.Millisecond},
}

// A limit is the state of a bucket after a call, as the answer's headers report it.
type limit struct {
	kind  bucketKind
	left  int
	after time.Duration
}

// headers returns l as headers.
func (l *limit) headers() map[string]string {
	return map[string]string{
		"X-RateLimit-Bucket":      l.kind.name,
		"X-RateLimit-Limit":       strconv.Itoa(l.kind.limit),
		"X-RateLimit-Remaining":   strconv.Itoa(l.left),
		"X-RateLimit-Reset-After": strconv.FormatFloat(l.after.Seconds(), 'f', 3, 64),
	}
}

// allow removes a token for c from its bucket and returns the bucket's state, or nil if c has no
// bucket. ok is false if the bucket was empty. The caller holds s.mu.
func (s *Server) allow(c *call) (l *limit, ok bool) {
	kind, found := bucketKinds[c.method]
	if !found || !s.opts.Buckets {
		return nil, true
	}
	now := time.Now()
	b := s.buckets[kind.name+c.channel]
	if b == nil || !b.until.After(now) {
		b = &bucket{kind.limit, now.Add(kind.per)}
		s.buckets[kind.name+c.channel] = b
	}
	if b.left--; b.left < 0 {
		s.limited++
		return &limit{kind, 0, b.until.Sub(now)}, false
	}
	return &limit{kind, b.left, b.until.Sub(now)}, true
}

// Limited returns how many calls were refused because of the channels' rate limits.
func (s *Server) Limited() int { return locked(s, func() int { return s.limited }) }
