package hooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The secret of these tests, and the secret that replaces it.
const (
	standardSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	nextSecret     = "whsec_bmV4dC1zZWNyZXQtb2YtdGhlLWhvb2s="
)

// standard returns a post as a sender of Standard Webhooks sends it at a time.
func standard(secret, id string, seconds int64, body string) post {
	return post{"s", body, map[string]string{
		"webhook-id": id, "webhook-timestamp": strconv.FormatInt(seconds, 10),
		"webhook-signature": standardMAC(secret, id, strconv.FormatInt(seconds, 10), body),
		"Content-Type":      "application/json"}}
}

func standardMAC(secret, id, stamp, body string) string {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		panic(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "." + body))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// TestStandardExample checks the example of
// https://docs.svix.com/receiving/verifying-payloads/how-manual with which many libraries test
// themselves. None of our code has made it.
func TestStandardExample(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0, Hook{Name: "s", Secret: standardSecret, Auth: Standard})
	w.now.Store(1614265330)
	a := w.take(post{"s", `{"test": 2432232314}`, map[string]string{
		"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
		"webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		"Content-Type":      "application/json"}})
	if want := "hook:s:msg_p5jXN8AQM9LWM0D4loKWxJek"; a.ID != want {
		t.Errorf("id = %s, want %s", a.ID, want)
	}
}

// A signed post is accepted once, near its time, and only as it was signed.
func TestStandard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0, Hook{Name: "s", Secret: standardSecret, Auth: Standard})
	now := w.now.Load()
	good := standard(standardSecret, "m1", now, `{"n":1}`)
	first, again := w.take(good), w.take(good)
	if first.Duplicate || !again.Duplicate || first.ID != "hook:s:m1" || again.ID != first.ID {
		t.Errorf("answers = %+v, then %+v; want hook:s:m1, and then a duplicate", first, again)
	}
	if other := w.take(good.with("Idempotency-Key", "k")); !other.Duplicate {
		t.Errorf("under a key that is not signed: %+v, want a duplicate", other)
	}
	// A sender that has got no answer signs the post again.
	if late := w.take(standard(standardSecret, "m1", now+60, `{"n":1}`)); !late.Duplicate {
		t.Errorf("signed anew: %+v, want a duplicate", late)
	}
	for _, secret := range []string{nextSecret, standardSecret} { // while the secret is replaced
		id := "during-" + secret[6:9]
		p := standard(nextSecret, id, now, `{}`)
		both := p.header["webhook-signature"] + " v2,x v1, v1a,AAAA " +
			standardMAC(standardSecret, id, strconv.FormatInt(now, 10), `{}`)
		if a := w.take(p.with("webhook-signature", both)); a.Duplicate {
			t.Errorf("with both signatures: %+v, want it taken", a)
		}
	}
	for _, shift := range []int64{-300, 300} { // the largest accepted differences
		w.take(standard(standardSecret, "at"+strconv.FormatInt(shift, 10), now+shift, `{}`))
	}
	w.count(Duplicate, 3)
	w.count(Accepted, 5)
}

func TestStandardRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0, Hook{Name: "s", Secret: standardSecret, Auth: Standard},
		Hook{Name: "bad", Secret: "no base64 at all", Auth: Standard})
	now := w.now.Load()
	good := standard(standardSecret, "m1", now, `{"n":1}`)
	mac := good.header["webhook-signature"]
	hex := strings.Repeat("0", 64)
	changed := func(p post, body string) post { p.body = body; return p }
	for name, tt := range map[string]struct {
		p    post
		code int
	}{
		"another id":      {good.with("webhook-id", "m2"), 401},
		"another time":    {good.with("webhook-timestamp", strconv.FormatInt(now+1, 10)), 401},
		"another body":    {changed(good, `{"n":2}`), 401},
		"old":             {standard(standardSecret, "old", now-301, "{}"), 401},
		"of the future":   {standard(standardSecret, "new", now+301, "{}"), 401},
		"farthest past":   {standard(standardSecret, "past", -1<<63, "{}"), 401},
		"farthest future": {standard(standardSecret, "far", 1<<63-1, "{}"), 401},
		"no time": {good.with("webhook-timestamp", "").with("webhook-signature",
			standardMAC(standardSecret, "m1", "", `{"n":1}`)), 401},
		"no number": {good.with("webhook-timestamp", "now").with("webhook-signature",
			standardMAC(standardSecret, "m1", "now", `{"n":1}`)), 401},
		"no id":             {good.with("webhook-id", ""), 400},
		"no id but a key":   {good.with("webhook-id", "").with("Idempotency-Key", "m1"), 400},
		"id with a space":   {good.with("webhook-id", "m 1"), 400},
		"long id":           {good.with("webhook-id", strings.Repeat("m", 201)), 400},
		"ambiguous id":      {standard(standardSecret, "m.1", now, "{}"), 400},
		"no signature":      {good.with("webhook-signature", ""), 401},
		"unknown scheme":    {good.with("webhook-signature", "v2"+mac[2:]), 401},
		"no scheme":         {good.with("webhook-signature", mac[3:]), 401},
		"cut signature":     {good.with("webhook-signature", mac[:40]), 401},
		"hexadecimal":       {good.with("webhook-signature", "v1,"+hex), 401},
		"with another key":  {standard(nextSecret, "m3", now, "{}"), 401},
		"the secret itself": {bearer("s", "application/json", "{}").with("webhook-id", "m4"), 401},
		"secret is no key":  {post{"bad", "{}", good.header}, 503},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.refuse(tt.p, tt.code)
		})
	}
	w.t = t
	w.take(good)
}

// A signature without a time is accepted under one key only, for three days. A sender that gives
// no keys may send the same post again.
func TestSignedReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0, Hook{Name: "h", Secret: secret, Auth: HMAC, Header: "X-Signature"},
		Hook{Name: "other", Secret: secret, Auth: HMAC, Header: "X-Signature"})
	p := signed("h", `{"up":false}`)
	take := func(what string, p post, duplicate bool) {
		t.Helper()
		if a := w.take(p); a.Duplicate != duplicate {
			t.Errorf("%s: %+v, want a duplicate: %t", what, a, duplicate)
		}
	}
	take("without a key", p, false)
	take("the same an hour later", p, false)
	first := w.take(p.with("Idempotency-Key", "k1"))
	if again := w.take(p.with("Idempotency-Key", "k2")); again.ID != first.ID || !again.Duplicate {
		t.Errorf("under another key: %+v, want a duplicate of %s", again, first.ID)
	}
	take("without the key", p, true)
	take("in other letters", p.with("X-Signature", strings.ToUpper(signature(p.body))), true)
	take("to another hook", post{"other", p.body, p.header}.with("Idempotency-Key", "k2"), false)
	take("another body", signed("h", `{"up":true}`).with("Idempotency-Key", "k2"), false)
	take("another body under a key that was used",
		signed("h", `{"up":1}`).with("Idempotency-Key", "k1"), true)
	w.now.Add(int64(signatureTime/time.Second) - 1)
	take("at the end of its time", p.with("Idempotency-Key", "k3"), true)
	w.now.Add(1)
	take("after its time", p.with("Idempotency-Key", "k4"), false)
	take("and again", p.with("Idempotency-Key", "k5"), true)
	var n int
	if err := w.db.Read(t.Context()).QueryRow("SELECT count(*) FROM hook_signatures").
		Scan(&n); err != nil || n != 1 {
		t.Errorf("%d signatures are remembered, %v; want the one of the last three days", n, err)
	}
}
