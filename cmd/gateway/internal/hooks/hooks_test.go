package hooks

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gateway/bus"
	"gateway/bus/bustest"
	"gateway/session"
	"gateway/store"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const secret = "a-secret-of-the-hook"

var chat = bus.Address{Account: "telegram", Chat: "7"}

// A world is a server with hooks, and the inbox that the hooks write to.
type world struct {
	t     *testing.T
	db    *store.DB
	inbox *bus.Inbox
	url   string
	now   atomic.Int64 // Unix seconds

	handler *Handler

	mu       sync.Mutex
	outcomes map[Outcome]int
}

func newWorld(t *testing.T, patience time.Duration, list ...Hook) *world {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway.db")
	db, err := store.Open(t.Context(), path, []store.Migration{bus.Migration, Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, db: db, inbox: bus.NewInbox(), outcomes: make(map[Outcome]int)}
	w.now.Store(1_000_000)
	for i := range list {
		h := &list[i]
		if h.To == (bus.Address{}) {
			h.To = chat
		}
		if h.Rate == 0 {
			h.Rate = 1 << 20
		}
		if h.MaxBytes == 0 {
			h.MaxBytes = 64 << 10
		}
	}
	h := New(db, w.inbox, list, &Options{
		Patience: patience, Now: func() time.Time { return time.Unix(w.now.Load(), 0) },
		Done: func(_ string, o Outcome) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.outcomes[o]++
		},
	})
	w.handler = h
	mux := http.NewServeMux()
	mux.Handle("POST /hooks/{name}", h)
	srv := httptest.NewServer(mux)
	w.url = srv.URL
	t.Cleanup(func() {
		srv.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// A post is a request to a hook: its body and its headers.
type post struct {
	hook, body string
	header     map[string]string
}

func (p post) with(name, value string) post {
	header := map[string]string{name: value}
	for k, v := range p.header {
		if _, ok := header[k]; !ok {
			header[k] = v
		}
	}
	p.header = header
	return p
}

func bearer(hook, contentType, body string) post {
	return post{hook, body, map[string]string{
		"Authorization": "Bearer " + secret, "Content-Type": contentType}}
}

func signed(hook, body string) post {
	return post{hook, body, map[string]string{
		"X-Signature": "sha256=" + signature(body), "Content-Type": "application/json"}}
}

func signature(body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

func (w *world) post(p post) (*http.Response, string) {
	w.t.Helper()
	resp, body, err := w.try(p)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, body
}

func (w *world) try(p post) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost,
		w.url+"/hooks/"+p.hook, strings.NewReader(p.body))
	if err != nil {
		return nil, "", err
	}
	for name, value := range p.header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// take sends p, which the hook must accept.
func (w *world) take(p post) (a answer) {
	w.t.Helper()
	resp, body := w.post(p)
	if resp.StatusCode != http.StatusAccepted {
		w.t.Fatalf("answer = %d %s, want 202", resp.StatusCode, body)
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		w.t.Fatal(err)
	}
	return a
}

// refuse sends p, which the hook must refuse with a status code and without a new message.
func (w *world) refuse(p post, code int) (*http.Response, string) {
	w.t.Helper()
	before := len(w.messages())
	resp, body := w.post(p)
	if resp.StatusCode != code {
		w.t.Errorf("answer = %d %s, want %d", resp.StatusCode, body, code)
	}
	if after := len(w.messages()); after != before {
		w.t.Errorf("%d messages are in the inbox, want %d as before", after, before)
	}
	if strings.Contains(body, secret) {
		w.t.Errorf("the answer shows the secret: %s", body)
	}
	return resp, body
}

// messages returns the messages in the inbox.
func (w *world) messages() (list []bus.InboundMessage) {
	w.t.Helper()
	for after := int64(0); ; {
		batch, err := w.inbox.Waiting(w.db.Read(w.t.Context()), after)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, r := range batch {
			list, after = append(list, r.Message), r.Seq
		}
		if len(batch) < bus.ReadLimit {
			return list
		}
	}
}

// newest returns the newest message in the inbox.
func (w *world) newest() bus.InboundMessage {
	w.t.Helper()
	list := w.messages()
	if len(list) == 0 {
		w.t.Fatal("there is no message")
	}
	return list[len(list)-1]
}

func (w *world) count(o Outcome, want int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.outcomes[o]; got != want {
		w.t.Errorf("%d posts are %s, want %d", got, o, want)
	}
}

// parsed returns a hook with a template.
func parsed(t testing.TB, text string) *Hook {
	t.Helper()
	tmpl, err := ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return &Hook{Name: "t", Secret: secret, Template: tmpl}
}

func TestMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0,
		Hook{Name: "own", Secret: secret, Role: bus.User, Own: true,
			To: bus.Address{Account: "telegram", Chat: "-5", Thread: "9"}},
		Hook{Name: "chat", Secret: secret, Role: bus.Guest})
	a := w.take(bearer("own", "text/plain", "disk full").with("Idempotency-Key", "k1"))
	if a.ID != "hook:own:k1" || a.Duplicate {
		t.Errorf("answer = %+v, want the id hook:own:k1", a)
	}
	m := w.newest()
	if m.ID != a.ID || m.Text != "disk full" || m.Role != bus.User || m.Person != 0 ||
		!m.Addressed || m.From.String() != "telegram/-5/9" || m.Sender.ID != "hook:own" {
		t.Errorf("message = %+v", m)
	}
	want := bustest.Session("telegram/-5/9").OfHook("own")
	if m.Origin.Kind != bus.Hook || m.Origin.Label != "own" || session.Of(m) != want {
		t.Errorf("origin = %+v of session %s, want a hook's of %s", m.Origin, session.Of(m), want)
	}
	select {
	case <-w.inbox.C():
	default:
		t.Error("nobody was woken")
	}
	w.take(bearer("chat", "text/plain", "again"))
	if m := w.newest(); session.Of(m).String() != "telegram/7" || m.Role != bus.Guest {
		t.Errorf("message = %+v of %s, want a guest's of telegram/7", m, session.Of(m))
	}
}

// The message of a hook to a group is marked as one in that group as soon as somebody has written
// in the group, in any thread.
func TestGroup(t *testing.T) {
	t.Parallel()
	to := bus.Address{Account: "telegram", Chat: "-5", Thread: "9"}
	w := newWorld(t, 0, Hook{Name: "g", Secret: secret, To: to})
	w.take(bearer("g", "text/plain", "x"))
	if m := w.newest(); m.Group || m.ChatTitle != "" {
		t.Errorf("message = %+v, want none of a group that nobody has heard of", m)
	}
	for _, said := range []bus.InboundMessage{
		{ID: "1", From: bus.Address{Account: "telegram", Chat: "-5"}, Group: true, ChatTitle: "Old"},
		{ID: "2", From: to, Group: true, ChatTitle: "Garden", Text: `"note":{`},
		{ID: "3", From: chat}, // another chat
	} {
		err := w.db.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := w.inbox.Put(tx, said, time.Unix(w.now.Load(), 0))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.now.Add(60)
	w.take(bearer("g", "text/plain", "x"))
	if m := w.newest(); !m.Group || m.ChatTitle != "Garden" || m.From != to {
		t.Errorf("message = %+v, want one of the group Garden", m)
	}
}

// A repeated post is accepted only once. The answer to the second one says that it is a
// duplicate.
func TestReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0, Hook{Name: "b", Secret: secret},
		Hook{Name: "h", Secret: secret, Auth: HMAC, Header: "X-Signature"})
	for _, tt := range []struct {
		p      post
		header string
	}{
		{bearer("b", "text/plain", "x"), "Idempotency-Key"},
		{signed("h", `{"a":1}`), "X-GitHub-Delivery"},
	} {
		p := tt.p.with(tt.header, "72d3162e-cc78-11e3-81ab-4c9367dc0958")
		first, again := w.take(p), w.take(p)
		if first.Duplicate || !again.Duplicate || first.ID != again.ID {
			t.Errorf("answers = %+v, then %+v; want the second to be a duplicate", first, again)
		}
		// A signed post stays the same post under another key, or without a key.
		isSigned := p.hook == "h"
		if other := w.take(p.with(tt.header, "other")); other.Duplicate != isSigned {
			t.Errorf("%s under another key: %+v, want a duplicate: %t", p.hook, other, isSigned)
		}
		if bare := w.take(tt.p); bare.Duplicate != isSigned {
			t.Errorf("%s without a key: %+v, want a duplicate: %t", p.hook, bare, isSigned)
		}
	}
	if one, two := w.take(bearer("b", "", "y")), w.take(bearer("b", "", "y")); one.ID == two.ID {
		t.Errorf("without a key two posts have the id %s", one.ID)
	}
	if n := len(w.messages()); n != 6 {
		t.Errorf("%d messages, want 6", n)
	}
	w.count(Duplicate, 4)
	w.count(Accepted, 6)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0, Hook{Name: "b", Secret: secret, MaxBytes: 100},
		Hook{Name: "h", Secret: secret, Auth: HMAC, Header: "X-Signature", MaxBytes: 100},
		Hook{Name: "nosecret"}, *parsed(t, strings.Repeat("{{ a }}", 1000)))
	const js = "application/json"
	good := bearer("b", "text/plain", "x")
	for _, tt := range []struct {
		name string
		p    post
		code int
	}{
		{"unknown hook", bearer("none", "text/plain", "x"), 404},
		{"hook without a secret", bearer("nosecret", "text/plain", "x"), 404},
		{"hook without a secret, empty one", good.with("Authorization", "Bearer "), 401},
		{"no secret", post{"b", "x", nil}, 401},
		{"wrong secret", good.with("Authorization", "Bearer "+secret+"x"), 401},
		{"secret's beginning", good.with("Authorization", "Bearer "+secret[:9]), 401},
		{"basic", good.with("Authorization", "Basic "+secret), 401},
		{"secret alone", good.with("Authorization", secret), 401},
		{"signature instead", signed("b", "x"), 401},
		{"no signature", post{"h", `{}`, nil}, 401},
		{"secret instead", bearer("h", js, `{}`), 401},
		{"signature of another body", signed("h", `{}`).with("X-Signature", signature("x")), 401},
		{"cut signature", signed("h", `{}`).with("X-Signature", signature("{}")[:62]), 401},
		{"no hexadecimal", signed("h", `{}`).with("X-Signature", strings.Repeat("z", 64)), 401},
		{"sha1", signed("h", `{}`).with("X-Signature", "sha1="+signature("{}")), 401},
		{"large", bearer("b", "text/plain", strings.Repeat("x", 101)), 413},
		{"large and signed", signed("h", strings.Repeat("x", 101)), 413},
		{"no UTF-8", bearer("b", "text/plain", "a\xff"), 415},
		{"JSON without UTF-8", bearer("b", js, "\"\xff\""), 415},
		{"another charset", bearer("b", "text/plain; charset=iso-8859-1", "x"), 415},
		{"binary", bearer("b", "application/octet-stream", "\x89PNG\xff"), 415},
		{"no JSON", bearer("b", js, "{"), 400},
		{"JSON and more", bearer("b", js, "{} {}"), 400},
		{"form without UTF-8", bearer("b", "application/x-www-form-urlencoded", "a=%ff"), 400},
		{"empty form", bearer("b", "application/x-www-form-urlencoded", ""), 400},
		{"nothing", bearer("b", "text/plain", ""), 400},
		{"spaces", bearer("b", "text/plain", " \n"), 400},
		{"long key", good.with("Idempotency-Key", strings.Repeat("k", 201)), 400},
		{"key with a space", good.with("Idempotency-Key", "a b"), 400},
		{"template", bearer("t", js, `{"a":"`+strings.Repeat("x", 70)+`"}`), 422},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.t = t
			resp, body := w.refuse(tt.p, tt.code)
			if tt.code == 401 && resp.Header.Get("WWW-Authenticate") == "" {
				t.Error("401 without WWW-Authenticate")
			}
			if strings.TrimSpace(body) == "" {
				t.Error("no reason is given")
			}
		})
	}
	w.t = t
	w.take(bearer("b", "text/plain", strings.Repeat("x", 100))) // the maximum size
	w.take(signed("h", `{"x":1}`).with("X-Signature", strings.ToUpper(signature(`{"x":1}`))))
}

// A body of unknown length is refused when it becomes too large.
func TestChunked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0, Hook{Name: "b", Secret: secret, MaxBytes: 1000})
	body := io.MultiReader(strings.NewReader(strings.Repeat("x", 900)),
		strings.NewReader(strings.Repeat("y", 101)))
	req, err := http.NewRequestWithContext(t.Context(), "POST", w.url+"/hooks/b", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge || len(w.messages()) > 0 {
		t.Errorf("answer = %d, want 413 and no message", resp.StatusCode)
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0, Hook{Name: "b", Secret: secret, Rate: 3})
	p := bearer("b", "text/plain", "x")
	for range 5 { // unauthorized posts don't count
		w.refuse(p.with("Authorization", "Bearer no"), 401)
	}
	for range 3 {
		w.take(p)
	}
	resp, _ := w.refuse(p, http.StatusTooManyRequests)
	if got := resp.Header.Get("Retry-After"); got != "20" {
		t.Errorf("Retry-After = %q, want 20", got)
	}
	w.now.Add(19)
	w.refuse(p, http.StatusTooManyRequests)
	w.now.Add(1)
	w.take(p)
	w.count(Limited, 2)
	w.count(Unauthorized, 5)
}

// A thousand posts at once all get an answer. Each accepted message is in the inbox once.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Minute, Hook{Name: "b", Secret: secret})
	var wg sync.WaitGroup
	var accepted, duplicate atomic.Int64
	const posts, keys = 1000, 700
	gate := make(chan struct{}, 250) // limits the open files of the test
	for i := range posts {
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			p := bearer("b", "application/json", fmt.Sprintf(`{"n":%d}`, i)).
				with("Idempotency-Key", fmt.Sprint(i%keys))
			resp, body, err := w.try(p)
			if err != nil || resp.StatusCode != http.StatusAccepted {
				t.Errorf("post %d: %v %s", i, err, body)
				return
			}
			if strings.Contains(body, `"duplicate":true`) {
				duplicate.Add(1)
			} else {
				accepted.Add(1)
			}
		})
	}
	wg.Wait()
	if a, d := accepted.Load(), duplicate.Load(); a != keys || d != posts-keys {
		t.Errorf("%d accepted, %d duplicates; want %d and %d", a, d, keys, posts-keys)
	}
	seen := make(map[string]bool)
	for _, m := range w.messages() {
		seen[m.ID] = true
	}
	if len(seen) != keys || len(w.messages()) != keys {
		t.Errorf("%d messages with %d ids, want %d", len(w.messages()), len(seen), keys)
	}
}

// A post that can't be stored is not accepted.
func TestStoreGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0, Hook{Name: "b", Secret: secret})
	if err := w.db.Close(); err != nil {
		t.Fatal(err)
	}
	resp, body := w.post(bearer("b", "text/plain", "x"))
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("answer = %d %s, want 503 and when to try again", resp.StatusCode, body)
	}
	w.count(Failed, 1)
}

// A client that disconnects before the answer is not a failure of the gateway, about which a
// person would be alerted.
func TestGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	var outcome Outcome
	var log strings.Builder
	h := New(w.db, w.inbox, []Hook{{Name: "b", To: chat, Secret: secret, Rate: 60, MaxBytes: 100}},
		&Options{Done: func(_ string, o Outcome) { outcome = o },
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, "POST", "/hooks/b", strings.NewReader("x"))
	r.SetPathValue("name", "b")
	r.Header.Set("Authorization", "Bearer "+secret)
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	if answer.Code != http.StatusServiceUnavailable || outcome != Refused {
		t.Errorf("answer = %d, outcome %s; want 503, refused", answer.Code, outcome)
	}
	if strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("logged is\n%s", &log)
	}
}

// A refusal reaches a client that is still sending the body, even on a connection for one request
// only, which many proxies use.
func TestRefusalArrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0, Hook{Name: "b", Secret: secret, MaxBytes: 1 << 10})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for authorization, want := range map[string]int{"Bearer " + secret: 413, "Bearer x": 401} {
		for range 50 {
			req, err := http.NewRequestWithContext(t.Context(), "POST", w.url+"/hooks/b",
				strings.NewReader(strings.Repeat("x", 512<<10)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", authorization)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatalf("answer = %v, want %d", err, want)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Fatalf("answer = %d, want %d", resp.StatusCode, want)
			}
		}
	}
}
