//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"gateway/cmd/gateway/internal/ops"
)

// A chaosPost is a post to a hook. A program repeats a post until the gateway has accepted it, and
// sometimes afterwards.
type chaosPost struct {
	hook, key, text string
	accepted        bool
}

// hooks adds a hook for each chat in which people use commands and nobody erases anything. The
// posts go into the conversation of the chat, or have a conversation of their own.
func (c *chaos) hooks() {
	for i, chat := range c.chats {
		if chat.ann == nil && len(chat.say) == 1 || chat.slash == "-" {
			continue
		}
		chat.hook = fmt.Sprint("h", i)
		session := []string{"chat", "own"}[i%2]
		c.config += fmt.Sprintf("[hooks.%s]\nto = %q\nsecret = %q\nrate = 100000\nsession = %q\n",
			chat.hook, chat.at, hookSecret, session)
	}
}

// post posts something new to the hook of a chat, or something old again.
func (c *chaos) post(chat *chaosChat) {
	c.t.Helper()
	if len(c.posts) == 0 || c.n(3) > 0 {
		text := c.next(&chaosSaying{chat: chat, hook: true})
		c.posts = append(c.posts, &chaosPost{hook: chat.hook, key: fmt.Sprint("k", len(c.posts)),
			text: text})
		c.send(c.posts[len(c.posts)-1])
		return
	}
	c.send(c.posts[c.n(len(c.posts))])
}

// send makes an attempt at a post, if a gateway listens.
func (c *chaos) send(p *chaosPost) {
	c.t.Helper()
	if c.p == nil {
		return
	}
	c.calmDisk() // else the gateway does not answer
	e, err := ops.ReadEndpoint(c.home)
	if err != nil || e.PID != c.p.cmd.Process.Pid {
		return
	}
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost,
		"http://"+e.Address+"/hooks/"+p.hook, strings.NewReader(p.text))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "text/plain")
	req.Header.Set("Authorization", "Bearer "+hookSecret)
	req.Header.Set("Idempotency-Key", p.key)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return // the gateway has ended
	}
	_ = resp.Body.Close() // only the code matters
	switch resp.StatusCode {
	case http.StatusAccepted:
		p.accepted = true
	case http.StatusServiceUnavailable: // it stops
	default:
		c.t.Errorf("post %s to %s has code %d", p.key, p.hook, resp.StatusCode)
	}
}

// postAll repeats all posts until the gateway has accepted them.
func (c *chaos) postAll() {
	c.t.Helper()
	for _, p := range c.posts {
		for !p.accepted {
			if !c.isReady() {
				c.bury()
				c.start()
				continue
			}
			c.send(p)
		}
	}
}

// postsLast moves the answers to posts behind the others. Posts can have a conversation of their
// own, and of two answers that grow at once, the one that began first is seen first.
func (c *chaos) postsLast(texts []string) (list []string) {
	var last []string
	for _, text := range texts {
		marks := append(marksIn(text, chaosAnswered), marksIn(text, chaosDecided)...)
		if slices.ContainsFunc(marks, func(n int) bool { return c.said[n].hook }) {
			last = append(last, text)
		} else {
			list = append(list, text)
		}
	}
	return append(list, last...)
}
