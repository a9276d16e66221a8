package router

import (
	"strings"
	"testing"
	"testing/iotest"

	"gateway/bus"
)

func TestSecretsGrown(t *testing.T) {
	s := NewSecrets([]string{"sk-12345678", "sk-12345678", "123456789:AAA", "short", ""})
	if len(s) != 2 {
		t.Fatalf("there are %d secrets, want those that are long enough, once", len(s))
	}
	for text, want := range map[string]string{
		"":                           "",
		"nothing":                    "nothing",
		"the key is sk-1":            "the key is ",
		"the key is s":               "the key is ",
		"it is sk-1234567 or so":     "it is sk-1234567 or so",
		"it is sk-12345678":          textWithheld,
		"it is sk-12345678 there":    textWithheld,
		"ask-12345678":               textWithheld,
		"it is 123456789:AA":         "it is ",
		`it is sk\-12345678`:         textWithheld,
		"it is sk&#45;123**45**678":  textWithheld,
		"it is sk-1234`5678`":        textWithheld,
		`it is sk\-123456`:           "it is ",
		"it is sk-**1234":            "it is ",
		"it is sk&#45;":              "it is ",
		"it is sk&#45":               "it is ",
		"it is sk&amp;9":             "it is sk&amp;9",
		"it is &#115;k&#x2d;&#49;&#": "it is ",
		"R&D&amp;":                   "R&D&amp;",
		`it is \_sk\-9_`:             `it is \_sk\-9_`,
	} {
		if got := s.safePrefix(text); got != want {
			t.Errorf("of %q is shown %q, want %q", text, got, want)
		}
	}
}

// While a long preview is searched for secrets, other conversations are not blocked.
func TestSearchHoldsUpNobody(t *testing.T) {
	r := New(Options{})
	r.SetSecrets(NewSecrets([]string{"sk-12345678"}))
	w := &worker{r: r, wake: make(chan struct{}, 1)}
	w.display = display{w: w, r: r}
	w.update(bus.Progress{Stream: "s", Text: strings.Repeat("&amp; *so* `long` ", 1<<20)})
	go w.next(t.Context(), false)
	for searching := false; !searching; {
		r.mu.Lock()
		applied := w.display.preview.stream == "s"
		searching = len(w.updates) == 0 && !applied
		r.mu.Unlock()
		if applied {
			t.Fatal("the lock of all conversations was held during the search")
		}
	}
}

// A secret is found anywhere in a file, also across the boundary of two reads.
func TestSecretsInFile(t *testing.T) {
	s := NewSecrets([]string{"sk-12345678", "a-much-longer-secret-of-another-kind"})
	for _, secret := range append(s, "sk-1234567") {
		for _, before := range []int{0, 1, 64<<10 - 5, 64 << 10, 64<<10 + 5, 64<<10 + 40, 200_000} {
			text := strings.Repeat("x", before) + secret + strings.Repeat("y", 100)
			for name, r := range map[string]func() (bool, error){
				"whole": func() (bool, error) { return s.FoundInFile(strings.NewReader(text)) },
				"by half": func() (bool, error) {
					return s.FoundInFile(iotest.HalfReader(strings.NewReader(text)))
				},
			} {
				got, err := r()
				if want := len(secret) > 10; got != want || err != nil {
					t.Errorf("%s: %q after %d bytes: found %v, %v, want %v",
						name, secret, before, got, err, want)
				}
			}
		}
	}
	if _, err := s.FoundInFile(iotest.ErrReader(iotest.ErrTimeout)); err == nil {
		t.Error("a file that can't be read is taken for one without secrets")
	}
}
