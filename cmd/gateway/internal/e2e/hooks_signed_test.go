//go:build unix

package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
	"gateway/store"
)

// standardSecret is the secret of a hook with Standard Webhooks.
const standardSecret = "whsec_YS1zZWNyZXQtb2YtdGhlLWhvb2tz"

// withSigned is a configuration with two hooks that require a signature.
const withSigned = quiet + `
[hooks.signed]
to = "telegram/1"
secret = "` + hookSecret + `"
auth = "hmac"
[hooks.standard]
to = "telegram/1"
secret = "` + standardSecret + `"
auth = "standard"
`

// standardHook returns a post with a signature of Standard Webhooks, made at a given time.
func (o *operator) standardHook(id, body string, at time.Time) *http.Request {
	o.t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(standardSecret, "whsec_"))
	if err != nil {
		o.t.Fatal(err)
	}
	req := o.hook("standard", "", body)
	mac := hmac.New(sha256.New, key)
	stamp := fmt.Sprint(at.Unix())
	mac.Write([]byte(id + "." + stamp + "." + body))
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", stamp)
	// A sender sends two signatures while it changes its secret.
	req.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(make([]byte, 32))+
		" v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return req
}

// TestSignedHooksReplayed checks that a signed post is accepted once, even if it is posted again
// with another key and even if the gateway was killed meanwhile. A post with an old time is
// rejected.
func TestSignedHooksReplayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{channel: withSigned})
	w.telegram.AddUser(telegramtest.User{ID: 1, First: "Anna"})
	o := w.operate()
	now := time.Now()
	post := func(what string, req *http.Request, code int, words string) {
		t.Helper()
		got, body, err := o.post(t, req)
		if err != nil || got != code || !strings.Contains(body, words) {
			t.Errorf("%s: answer = %d %s, %v; want %d with %q", what, got, body, err, code, words)
		}
	}
	moved := o.standardHook("m1", `{"n":1}`, now)
	moved.Header.Set("Webhook-Id", "m2")
	post("signed for another id", moved, 401, "Webhook-Signature")
	post("old", o.standardHook("m1", `{"n":1}`, now.Add(-time.Hour)), 401, "5 minutes")
	post("of the future", o.standardHook("m1", `{"n":1}`, now.Add(time.Hour)), 401, "5 minutes")
	post("good", o.standardHook("m1", `{"n":1}`, now), 202, `"id":"hook:standard:m1"`)
	post("signed body", o.hook("signed", "k1", `{"n":1}`), 202, `"id":"hook:signed:k1"`)
	for range 2 {
		post("the same", o.standardHook("m1", `{"n":1}`, now), 202, `"duplicate":true`)
		keyed := o.standardHook("m1", `{"n":1}`, now)
		keyed.Header.Set("Idempotency-Key", "other")
		post("under a key", keyed, 202, `"duplicate":true`)
		post("under another key", o.hook("signed", "k2", `{"n":1}`), 202, `"duplicate":true`)
		post("without a key", o.hook("signed", "", `{"n":1}`), 202, `"duplicate":true`)
		o.kill()
		o = w.operate()
	}
	for range 2 { // like a monitor that repeats its report
		post("never with a key", o.hook("signed", "", `{"up":false}`), 202, `"id":`)
	}
	w.eventually("four answers", func(db *store.DB) bool {
		return w.count(db, "outbox WHERE state = 'sent'") == 4
	})
	w.look(func(db *store.DB) {
		if n := w.count(db, "inbox"); n != 4 {
			t.Errorf("%d messages in the inbox, want 4", n)
		}
	})
}

// TestStandardHookSecret checks that an invalid secret is reported at the start without showing
// it.
func TestStandardHookSecret(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"whsec_not-base64-at-all!", "whsec_c2hvcnQtb25l"} {
		w := newWorld(t, worldOptions{
			channel: strings.Replace(withSigned, standardSecret, secret, 1)})
		out, err := w.gateway("config", "check")
		if err == nil || !strings.Contains(out, "hooks.standard.secret: want ") ||
			strings.Contains(out, secret[6:]) {
			t.Errorf("config check of %s: %v\n%s\nwant it refused, and not shown", secret, err, out)
		}
	}
}

// TestHookOfGroup checks that the agent knows that a post goes to a group, and that the next
// person who asks there gets the earlier messages as context.
func TestHookOfGroup(t *testing.T) {
	t.Parallel()
	answer := func(r openaitest.Request) openaitest.Reply {
		var all []string
		for _, m := range r.Messages[1:] {
			all = append(all, m.Content)
		}
		return openaitest.Reply{Text: []string{"told: " + strings.Join(all, "\n")}}
	}
	w := newWorld(t, worldOptions{answer: answer,
		channel: strings.ReplaceAll(withSigned, "telegram/1", "telegram/-42")})
	w.telegram.AddGroup(-42, "Garden")
	o := w.operate()
	w.telegram.Say(-42, bobID, "@gateway_bot hello")
	w.await("an answer", func() bool { return w.telegram.SentCount(-42) == 1 })
	w.telegram.Say(-42, bobID, "the roses need water")
	w.eventually("it to be heard", func(db *store.DB) bool {
		return w.count(db, "inbox WHERE state = 'heard'") == 1
	})
	if code, body, err := o.post(t, o.hook("signed", "k1", `{"n":1}`)); code != 202 || err != nil {
		t.Fatalf("answer = %d %s, %v", code, body, err)
	}
	w.await("an answer", func() bool { return w.telegram.SentCount(-42) == 2 })
	if got := w.texts(-42)[1]; strings.Contains(got, "roses") {
		t.Errorf("what was said in the group went to the hook: %q", got)
	}
	w.look(func(db *store.DB) {
		const group = `inbox WHERE body LIKE '%"kind":"hook"%' AND ` +
			`body LIKE '%"group":true,"chat_title":"Garden"%'`
		if n := w.count(db, group); n != 1 {
			t.Errorf("%d posts are known to go to the group, want 1", n)
		}
	})
	w.telegram.Say(-42, annID, "@gateway_bot what does the garden need?")
	w.await("an answer", func() bool { return w.telegram.SentCount(-42) == 3 })
	if got := w.texts(-42)[2]; !strings.Contains(got, "the roses need water") {
		t.Errorf("what was said before the post is not known to the next question: %q", got)
	}
}
