package hooks

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// Incomplete posts, which anybody can begin, don't block a signed post: the oldest of them gives
// way to it.
func TestHalfSentPosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Hour, // no place becomes free by itself
		Hook{Name: "h", Secret: secret, Auth: HMAC, Header: "X-Signature"})
	answers := make(chan string, 2*maxReading)
	var oldest *reading
	for n := range cap(answers) {
		if n >= maxReading { // all places are taken, and this post needs one
			oldest = w.held("h", oldest)
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = fmt.Fprint(conn, "POST /hooks/h HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
		if err != nil {
			t.Fatal(err)
		}
		go func() { // ends when conn is closed
			line, _ := bufio.NewReader(conn).ReadString('\n')
			answers <- line
		}()
	}
	w.held("h", oldest)
	w.take(signed("h", `{}`)) // while all places are taken
	for range maxReading + 1 {
		if line := <-answers; !strings.HasPrefix(line, "HTTP/1.1 503 ") {
			t.Errorf("answer = %q, want 503: the place is taken by another", line)
		}
	}
	w.count(Refused, 0)
	w.count(Limited, maxReading+1)
}

// held waits until posts to a hook have all places and before is not the oldest of them. It
// returns the oldest one, which gives way first.
func (w *world) held(hook string, before *reading) *reading {
	w.t.Helper()
	p := &w.handler.hooks[hook].places
	oldest := func() *reading {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.reading) < maxReading || p.reading[0] == before {
			return nil
		}
		return p.reading[0]
	}
	for {
		if r := oldest(); r != nil {
			return r
		}
		select {
		case <-w.t.Context().Done():
			w.t.Fatal("the places are not held")
		case <-time.After(time.Millisecond):
		}
	}
}
