package hooks

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"
)

// knows reports whether a header is that of who knows the secret, in a time that says nothing of
// the secret.
func (h Hook) knows(authorization string) bool {
	scheme, secret, _ := strings.Cut(authorization, " ")
	got, want := sha256.Sum256([]byte(strings.TrimSpace(secret))), sha256.Sum256([]byte(h.Secret))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// signed reports whether a header is the signature of body, likewise.
func (h Hook) signed(header string, body []byte) bool {
	got, ok := parseSignature(header)
	mac := hmac.New(sha256.New, []byte(h.Secret))
	mac.Write(body)
	return hmac.Equal(got[:], mac.Sum(nil)) && ok
}

// parseSignature reads an HMAC-SHA256 in hexadecimal, with or without "sha256=" before it.
func parseSignature(header string) (mac [sha256.Size]byte, ok bool) {
	digits := strings.TrimPrefix(strings.TrimSpace(header), "sha256=")
	if len(digits) != 2*sha256.Size {
		return mac, false
	}
	_, err := hex.Decode(mac[:], []byte(digits))
	return mac, err == nil
}

// maxKey is the greatest length of an idempotency key.
const maxKey = 200

// idempotencyKey returns what tells a post from others: the same each time it is sent.
func idempotencyKey(header http.Header) (string, error) {
	for _, name := range []string{"Idempotency-Key", "X-GitHub-Delivery"} {
		key := header.Get(name)
		if key == "" {
			continue
		}
		for _, c := range []byte(key) {
			if c <= ' ' || c > '~' {
				key = ""
			}
		}
		if key == "" || len(key) > maxKey {
			return "", refused("want a key of at most 200 visible characters in " + name)
		}
		return key, nil
	}
	return rand.Text(), nil
}

func refused(reason string) error {
	return &refusal{http.StatusBadRequest, Refused, reason, 0}
}
