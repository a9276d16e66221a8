//go:build unix

package e2e

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"gateway/agent/llm/anthropic/anthropictest"
	"gateway/agent/llm/openai/openaitest"
)

// A limiter decides how the provider treats each key, and records the used keys.
type limiter struct {
	mu     sync.Mutex
	faults map[string]openaitest.Fault
	asked  []string
}

// answer is an [openaitest.Answer].
func (l *limiter) answer(r openaitest.Request) openaitest.Reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	l.asked = append(l.asked, key[:1])
	reply := repeat(r)
	reply.Fault = l.faults[key]
	return reply
}

// keysAsked returns the letters of the keys that were used since the last call.
func (l *limiter) keysAsked() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.asked = nil }()
	return strings.Join(l.asked, "")
}

// TestModelKeys checks that the next key is used at once if one is limited, revoked or out of
// money. The log names the key but never contains the whole key.
func TestModelKeys(t *testing.T) {
	t.Parallel()
	keys := []string{"a-key-of-the-test-aaaa", "b-key-of-the-test-bbbb", "c-key-of-the-test-cccc"}
	l := &limiter{faults: map[string]openaitest.Fault{
		keys[0]: {Status: http.StatusTooManyRequests, RetryAfter: "86400"},
		keys[1]: {Status: http.StatusPaymentRequired},
	}}
	w := newWorld(t, worldOptions{answer: l.answer})
	w.set("[models.fake]", "[models.fake]\nkey = \"env:KEY_A\"\nkeys = [\"env:KEY_B\", \"env:KEY_C\"]")
	w.configure(quiet)
	p := w.start("KEY_A="+keys[0], "KEY_B="+keys[1], "KEY_C="+keys[2])
	p.ready()
	w.answers(annID, "hello")
	if got := l.keysAsked(); got != "abc" {
		t.Errorf("the keys %s were asked, want one after the other", got)
	}
	p.says("model's key is left alone", 2)
	log := p.newest()
	for _, want := range []string{`"key":"key 1 (…aaaa)","kind":"rate limited"`,
		`"key":"key 2 (…bbbb)","kind":"out of quota"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	w.answers(annID, "hello again")
	if got := l.keysAsked(); got != "c" {
		t.Errorf("the keys %s were asked, want only the one that works", got)
	}
	if slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(log, key) }) {
		t.Errorf("the log has a key:\n%s", log)
	}
}

// TestClaudeKeys checks that the next key is used if one is revoked, with Anthropic's protocol.
func TestClaudeKeys(t *testing.T) {
	t.Parallel()
	said := func(r anthropictest.Request) anthropictest.Reply {
		content := r.Messages[len(r.Messages)-1].Content
		return anthropictest.Reply{Text: "you said " + content[len(content)-1].Text}
	}
	claude := anthropictest.Start(t, "the-good-key", said)
	w := newWorld(t, worldOptions{answer: repeat})
	w.set("[models.fake]", "[models.fake]\nprovider = \"anthropic\"\n"+
		"keys = [\"the-revoked-key\", \"the-good-key\"]")
	w.set(w.model.URL, claude.URL)
	w.configure(quiet)
	w.run()
	w.answers(annID, "hello")
}
