//go:build unix

package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
	"gateway/store"
)

const hookSecret = "a-secret-of-the-hooks"

// withHooks is a configuration with two hooks whose answers go to chat 1 on Telegram.
const withHooks = quiet + `
[hooks.alerts]
to = "telegram/1"
secret = "` + hookSecret + `"
template = "{{.status}}: {{.text}}"
rate = 100000
[hooks.signed]
to = "telegram/1"
secret = "` + hookSecret + `"
auth = "hmac"
session = "chat"
rate = 2
[hooks.off]
enabled = false
to = "telegram/1"
secret = "env:NOT_SET"
`

// hook returns a post of JSON to a hook, with an idempotency key.
func (o *operator) hook(name, key, body string) *http.Request {
	o.t.Helper()
	req, err := http.NewRequestWithContext(o.t.Context(), "POST",
		"http://"+o.Address+"/hooks/"+name, strings.NewReader(body))
	if err != nil {
		o.t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write([]byte(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+hookSecret)
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	req.Header.Set("Idempotency-Key", key)
	return req
}

// TestHookOfSupergroup checks that a hook of a group posts into the conversation of the supergroup
// that the group has become, and that a repeated post from before has no effect.
func TestHookOfSupergroup(t *testing.T) {
	t.Parallel()
	const group, supergroup = -42, -1009876543210
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		var heard []string
		for _, m := range r.Messages {
			if m.Role == "assistant" {
				continue
			}
			heard = append(heard, regexp.MustCompile(`word\d`).FindAllString(m.Content, -1)...)
		}
		return say("I heard " + strings.Join(slices.Compact(heard), " "))
	}})
	w.configure(quiet + fmt.Sprintf("\ngroups = [%d]\n[hooks.h]\nto = \"telegram/%d\"\n"+
		"secret = %q\nsession = \"chat\"\n", group, group, hookSecret))
	w.telegram.AddGroup(group, "Garden")
	o := w.operate()
	post := func(key, text string) {
		t.Helper()
		code, body, err := o.post(t, o.hook("h", key, fmt.Sprintf(`{"text":%q}`, text)))
		if err != nil || code != http.StatusAccepted {
			t.Errorf("answer = %d %s, %v", code, body, err)
		}
	}
	ask := func(chat int64, text, want string) {
		t.Helper()
		w.telegram.Say(chat, annID, "@gateway_bot "+text)
		w.await(want, func() bool { return heard(w, chat, want) })
	}
	ask(group, "word1", "I heard word1")
	post("k1", "word2")
	w.await("the post", func() bool { return heard(w, group, "I heard word1 word2") })
	w.telegram.Migrate(group, supergroup)
	ask(supergroup, "word3", "I heard word3")
	post("k1", "word2")
	post("k2", "word4")
	w.await("the post", func() bool { return heard(w, supergroup, "word4") })
	ask(supergroup, "word5", "I heard word3 word4 word5")
	o.process.stop()
}

// TestHooks checks that a post is answered once in the chat, and that an invalid post has no
// effect.
func TestHooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{channel: withHooks})
	w.telegram.AddUser(telegramtest.User{ID: 1, First: "Anna"})
	o := w.operate()
	post := func(req *http.Request, want int) string {
		t.Helper()
		code, body, err := o.post(t, req)
		if err != nil || code != want {
			t.Errorf("answer = %d %s, %v; want %d", code, body, err, want)
		}
		return body
	}
	changed := func(name, value string) *http.Request {
		req := o.hook("alerts", "k0", `{}`)
		req.Header.Set(name, value)
		return req
	}
	post(changed("Authorization", "Bearer wrong"), 401)
	post(changed("Authorization", ""), 401)
	post(o.hook("off", "k0", `{}`), 404)
	post(o.hook("none", "k0", `{}`), 404)
	post(o.hook("alerts", "k0", `{"text":"`+strings.Repeat("x", 256<<10)+`"}`), 413)
	forged := o.hook("signed", "k0", `{"n":1}`)
	forged.Header.Set("X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64))
	post(forged, 401)

	const alert = `{"status":"firing","text":"disk full"}`
	first := post(o.hook("alerts", "k1", alert), 202)
	again := post(o.hook("alerts", "k1", alert), 202)
	if !strings.Contains(first, `"id":"hook:alerts:k1"`) ||
		!strings.Contains(again, `"duplicate":true`) {
		t.Errorf("answers = %s and %s, want the id, and then a duplicate", first, again)
	}
	w.await("an answer", func() bool { return w.telegram.SentCount(1) == 1 })
	if got := w.texts(1)[0]; !strings.Contains(got, "firing: disk full") {
		t.Errorf("answer = %q, want what the template has made of the post", got)
	}
	signed := w.postUntilLimited(o)
	w.look(func(db *store.DB) {
		if n := w.count(db, "inbox"); n != 1+signed {
			t.Errorf("%d messages in the inbox, want %d", n, 1+signed)
		}
		for key, want := range map[string]int{"telegram/1#@hook-alerts": 1, "telegram/1": signed} {
			if n := w.count(db, "turns WHERE session = '"+key+"'"); n != want {
				t.Errorf("%d turns in %s, want %d", n, key, want)
			}
		}
	})
	series := o.series()
	for key, want := range map[string]float64{
		"hook=alerts,outcome=accepted": 1, "hook=alerts,outcome=duplicate": 1,
		"hook=alerts,outcome=unauthorized": 2, "hook=alerts,outcome=refused": 1,
		"hook=signed,outcome=accepted": float64(signed), "hook=signed,outcome=limited": 1,
		"hook=signed,outcome=unauthorized": 1,
	} {
		if got := series["gateway_hook_posts_total{"+key+"}"]; got != want {
			t.Errorf("posts with %s = %v, want %v", key, got, want)
		}
	}
}

// postUntilLimited posts to the hook with the limit of two posts per minute until it refuses one.
// It returns the number of accepted posts: two, and one more for each half minute that this
// takes.
func (w *world) postUntilLimited(o *operator) (taken int) {
	w.t.Helper()
	for began := time.Now(); ; taken++ {
		body := fmt.Sprintf(`{"n":%d}`, taken)
		code, text, err := o.post(w.t, o.hook("signed", fmt.Sprint("k", taken+1), body))
		switch most := 2 + int(time.Since(began)/(30*time.Second)); {
		case err == nil && code == http.StatusTooManyRequests && taken >= 2:
			return taken
		case err != nil || code != http.StatusAccepted || taken >= most:
			w.t.Fatalf("post %d = %d %s, %v; want %d posts taken and the next one refused", taken+1,
				code, text, err, most)
		}
		w.await("an answer", func() bool { return w.telegram.SentCount(1) == 2+taken })
	}
}

// TestHooksSurviveKills checks that accepted posts survive the end of the process. Like real
// senders, the test repeats each post until it gets a response, and each post is answered once.
func TestHooksSurviveKills(t *testing.T) {
	t.Parallel()
	l := newLedger()
	w := newWorld(t, worldOptions{channel: withHooks, answer: l.answer, onSend: l.onSend})
	w.telegram.AddUser(telegramtest.User{ID: 1, First: "Anna"})
	const posts, atOnce = 300, 30
	bodies := make([]string, posts)
	for i := range bodies { // one answer may be for several posts, so each post has a mark
		bodies[i] = fmt.Sprintf(`{"status":"firing","text":%q}`, l.next(1, 0))
	}
	accepted := make(map[int]bool)
	var mu sync.Mutex
	// send posts everything that was not accepted yet. If more is less than posts, send kills the
	// gateway as soon as more posts were accepted.
	send := func(o *operator, more int) {
		var wg sync.WaitGroup
		places := make(chan struct{}, atOnce)
		enough := make(chan struct{})
		n := 0
		for i := range bodies {
			mu.Lock()
			done := accepted[i]
			mu.Unlock()
			if done {
				continue
			}
			req := o.hook("alerts", fmt.Sprint(i), bodies[i])
			wg.Go(func() {
				places <- struct{}{}
				defer func() { <-places }()
				code, _, err := o.post(t, req)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && code == 202 {
					accepted[i] = true
					if n++; n == more {
						close(enough)
					}
				}
			})
		}
		ended := make(chan struct{})
		go func() { wg.Wait(); close(ended) }()
		select {
		case <-enough:
		case <-ended:
		}
		if more < posts {
			o.kill() // while the other posts are under way
		}
		<-ended
	}
	for range 3 {
		send(w.operate(), posts/6)
		w.relieve("GATEWAY_HTTP__LISTEN=127.0.0.1:0")
	}
	o := w.operate()
	w.repeat("all posts to be accepted", func() bool { // a post may time out; it is then sent again
		send(o, posts)
		mu.Lock()
		defer mu.Unlock()
		return len(accepted) == posts
	})
	l.await(t, 0, o.done)
	w.look(func(db *store.DB) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := o.wait(ctx, func() bool {
			return w.count(db, "outbox WHERE state <> 'sent'") == 0 &&
				w.count(db, "inbox WHERE state = 'done'") == posts
		})
		if err != nil {
			t.Fatalf("never quiet: %v\n%s", err, o.newest())
		}
		if n := w.count(db, "inbox"); n != posts {
			t.Errorf("%d messages in the inbox, want %d", n, posts)
		}
		// The outbox must contain each mark once.
		times := make(map[string]int)
		var body []byte
		for range w.query(db, []any{&body}, "SELECT body FROM outbox") {
			for _, m := range marks(outbound(t, body).Text) {
				times[m]++
			}
		}
		for m, n := range times {
			if n != 1 {
				t.Errorf("%s is answered %d times", m, n)
			}
		}
		if len(times) != posts {
			t.Errorf("%d posts are answered, want %d", len(times), posts)
		}
	})
}

// TestHooksSlowBody checks that a slow body does not block other requests or the end of the
// gateway.
func TestHooksSlowBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{channel: withHooks})
	o := w.operate()
	body := &slowBody{first: strings.NewReader(`{"status`), closed: make(chan struct{})}
	defer body.Close()
	req := o.hook("alerts", "slow", "")
	req.Body, req.ContentLength = body, 100
	answers := make(chan int, 1)
	go func() {
		resp, err := o.client.Do(req)
		code := 0
		if err == nil {
			code = resp.StatusCode
			resp.Body.Close()
		}
		answers <- code
	}()
	if code, _, err := o.post(t, o.hook("alerts", "k", `{"status":"a"}`)); err != nil || code != 202 {
		t.Errorf("another post = %d, %v; want 202", code, err)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case code := <-answers:
		if code != http.StatusRequestTimeout && code != 0 { // 0: the connection was closed early
			t.Errorf("answer = %d, want 408", code)
		}
	case <-timer.C:
		t.Fatal("a body that never comes is waited for")
	}
	w.look(func(db *store.DB) {
		if n := w.count(db, "inbox"); n != 1 {
			t.Errorf("%d messages in the inbox, want that of the other post", n)
		}
	})
}

// A slowBody is a body that blocks after its beginning until it is closed.
type slowBody struct {
	first  *strings.Reader
	once   sync.Once
	closed chan struct{}
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.first.Len() > 0 {
		return b.first.Read(p)
	}
	<-b.closed
	return 0, context.Canceled
}

func (b *slowBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}
