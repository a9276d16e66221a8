package hooks

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// Half sent posts, which anybody can begin, hold up no signed one: they give way to it.
func TestHalfSentPosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 20*time.Second,
		Hook{Name: "h", Secret: secret, Auth: HMAC, Header: "X-Signature"})
	answers := make(chan string, 2*maxReading)
	for range cap(answers) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = fmt.Fprint(conn, "POST /hooks/h HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
		if err != nil {
			t.Fatal(err)
		}
		go func() { // which the end of conn ends
			line, _ := bufio.NewReader(conn).ReadString('\n')
			answers <- line
		}()
	}
	for range maxReading {
		if line := <-answers; !strings.HasPrefix(line, "HTTP/1.1 503 ") {
			t.Errorf("answer = %q, want 503: the place is taken by another", line)
		}
	}
	w.take(signed("h", `{}`)) // while all places are held
	w.count(Refused, 0)
	w.count(Limited, maxReading+1)
}
