package hooks

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

// An Auth is the way in which a sender proves that it knows the secret of a hook.
type Auth string

// The ways of authentication.
const (
	Bearer   Auth = "bearer"   // the secret itself
	HMAC     Auth = "hmac"     // a signature of the body
	Standard Auth = "standard" // a signature of id, time and body; see [ParseKey]
)

// isBearer reports whether senders send the secret itself.
func (h Hook) isBearer() bool { return h.Auth == "" || h.Auth == Bearer }

// A proof identifies a post.
type proof struct {
	key       string // the idempotency key; random if the sender sent none
	keyed     bool   // the sender sent the key
	signature []byte // with HMAC: the signature of the body; else nil
}

// identify returns the proof with the key in a header.
func (h Hook) identify(header http.Header) (proof, error) {
	names := []string{"Idempotency-Key", "X-GitHub-Delivery"}
	if h.Auth == Standard { // this header is signed, others are not
		names = []string{standardID}
	}
	for _, name := range names {
		if key := header.Get(name); key != "" {
			return proof{key: key, keyed: true}, checkKey(name, key)
		}
	}
	if h.Auth == Standard {
		return proof{}, refused("want an id in " + standardID)
	}
	return proof{key: rand.Text()}, nil
}

// verify returns an error if the signature of p is missing or wrong.
func (h Hook) verify(p *proof, header http.Header, body []byte, now time.Time) error {
	switch h.Auth {
	case HMAC:
		if !h.signed(header.Get(h.Header), body) {
			return unauthorized("want the HMAC-SHA256 of the body in " + h.Header)
		}
		mac, _ := parseSignature(header.Get(h.Header)) // signed has parsed it successfully
		p.signature = mac[:]
	case Standard:
		return h.verifyStandard(p.key, header, body, now)
	}
	return nil
}

// hasSecret reports whether an Authorization header contains the secret. It compares in constant
// time.
func (h Hook) hasSecret(authorization string) bool {
	scheme, secret, _ := strings.Cut(authorization, " ")
	got, want := sha256.Sum256([]byte(strings.TrimSpace(secret))), sha256.Sum256([]byte(h.Secret))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// signed reports whether a header contains the signature of body. It compares in constant time.
func (h Hook) signed(header string, body []byte) bool {
	got, ok := parseSignature(header)
	mac := hmac.New(sha256.New, []byte(h.Secret))
	mac.Write(body)
	return hmac.Equal(got[:], mac.Sum(nil)) && ok
}

// parseSignature parses a hexadecimal HMAC-SHA256 with or without the prefix "sha256=".
func parseSignature(header string) (mac [sha256.Size]byte, ok bool) {
	digits := strings.TrimPrefix(strings.TrimSpace(header), "sha256=")
	if len(digits) != 2*sha256.Size {
		return mac, false
	}
	_, err := hex.Decode(mac[:], []byte(digits))
	return mac, err == nil
}

// maxKey is the maximum length of an idempotency key.
const maxKey = 200

// checkKey returns an error if the value of a header is not a valid key.
func checkKey(name, key string) error {
	visible := func(r rune) bool { return r > ' ' && r <= '~' }
	if len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return !visible(r) }) {
		return refused("want a key of at most 200 visible characters in " + name)
	}
	return nil
}

func refused(reason string) error {
	return &refusal{http.StatusBadRequest, Refused, reason, 0}
}
