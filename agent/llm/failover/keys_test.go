package failover

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
)

// keys returns a chain that has one model with several keys.
func keys(models ...llm.Model) *Chain {
	var entries []Entry
	for i, m := range models {
		entries = append(entries, Entry{Name: "key " + string(rune('1'+i)), Model: m})
	}
	return New([]Entry{{Name: "main", Model: NewKeys("main", entries, nil)}}, nil)
}

// An error that concerns a key leads to the next key at once. Other errors are retried as with
// one key.
func TestKeysByKind(t *testing.T) {
	for kind, next := range map[llm.Kind]bool{
		llm.RateLimited: true, llm.OutOfQuota: true, llm.Unauthorized: true, llm.Forbidden: true,
		llm.Overloaded: false, llm.Unavailable: false, llm.TimedOut: false, llm.NotFound: false,
		llm.BadRequest: false, llm.ContextTooLong: false, llm.NoImages: false,
	} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad, good := always(kind, time.Hour), steady("good")
				start := time.Now()
				_, _, err := collect(t.Context(), keys(bad, good))
				if took := time.Since(start); took != 0 {
					t.Errorf("it took %v, want no time", took)
				}
				if next != (err == nil) || next != (calls(good) == 1) {
					t.Errorf("got %v, %d calls with the second key", err, calls(good))
				}
			})
		})
	}
}

// A working key stays in use until it fails. A key that failed is tried again when its cool-down
// is over.
func TestKeysStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := llmtest.Step{Err: &llm.Error{Kind: llm.RateLimited, After: 2 * time.Minute}}
		first := llmtest.New("first", limited, llmtest.Say("first"))
		second := llmtest.New("second", llmtest.Say("second"), llmtest.Say("second"), limited)
		m := keys(first, second)
		for i, want := range []string{"second", "second", "first"} {
			if i > 0 {
				time.Sleep(2 * time.Minute)
			}
			if text, _, err := collect(t.Context(), m); text != want || err != nil {
				t.Errorf("call %d got %q, %v, want %q", i, text, err, want)
			}
		}
	})
}

// If all keys are limited, the call waits for the key that is free first.
func TestKeysAllLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := always(llm.RateLimited, time.Hour)
		soon := llmtest.New("soon",
			llmtest.Step{Err: &llm.Error{Kind: llm.RateLimited, After: 10 * time.Second}},
			llmtest.Say("fine"))
		revoked := always(llm.Unauthorized, 0)
		start := time.Now()
		text, _, err := collect(t.Context(), keys(slow, soon, revoked))
		if took := time.Since(start); text != "fine" || err != nil || took < 10*time.Second ||
			took > 13*time.Second {
			t.Errorf("got %q, %v after %v, want an answer after 10 s", text, err, took)
		}
		if calls(slow) != 1 || calls(revoked) != 1 {
			t.Errorf("the other keys were asked %d and %d times", calls(slow), calls(revoked))
		}
	})
}

// If one key is refused and another one is limited for a short time, the call waits for the
// limited key.
func TestKeysRefusedBesideLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited, refused := steady("limited"), always(llm.Unauthorized, 0)
		k := NewKeys("main", []Entry{{Name: "key 1", Model: limited},
			{Name: "key 2", Model: refused}}, nil)
		k.links[0].failed(llm.RateLimited, 20*time.Second, time.Now())
		m := New([]Entry{{Name: "main", Model: k},
			{Name: "other", Model: steady("other")}}, nil)
		_, model, err := collect(t.Context(), m)
		if model != "limited" || err != nil || calls(refused) != 1 {
			t.Errorf("%q has answered, %v, after %d calls with the refused key", model, err, calls(refused))
		}
	})
}

// The log names the key and the kind of its error.
func TestKeysLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		m := NewKeys("main", []Entry{{Name: "key 1", Model: always(llm.Unauthorized, 0)},
			{Name: "key 2", Model: steady("good")}},
			&Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if _, _, err := collect(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		const want = `level=WARN msg="model's key is left alone" model=main key="key 1" ` +
			`kind=unauthorized after=5m0s`
		if !strings.Contains(log.String(), want) {
			t.Errorf("logged %s, want %s", log.String(), want)
		}
	})
}
