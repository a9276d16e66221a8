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

// An Auth is how who posts shows to know the secret of a hook.
type Auth string

// The ways to show it.
const (
	Bearer   Auth = "bearer"   // by the secret itself
	HMAC     Auth = "hmac"     // by a signature of the body
	Standard Auth = "standard" // by one of id, time and body, see [ParseKey]
)

// isBearer reports whether the secret itself is sent.
func (h Hook) isBearer() bool { return h.Auth == "" || h.Auth == Bearer }

// A proof is what tells a post from others.
type proof struct {
	key       string // the same each time it is sent
	keyed     bool   // the sender has sent the key
	signature []byte // of HMAC: the one of its body; else nil
}

// identify returns which post it is that has a header.
func (h Hook) identify(header http.Header) (proof, error) {
	names := []string{"Idempotency-Key", "X-GitHub-Delivery"}
	if h.Auth == Standard { // any other key is not signed
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

// verify reports an error if p is not signed by who knows the secret.
func (h Hook) verify(p *proof, header http.Header, body []byte, now time.Time) error {
	switch h.Auth {
	case HMAC:
		if !h.signed(header.Get(h.Header), body) {
			return unauthorized("want the HMAC-SHA256 of the body in " + h.Header)
		}
		mac, _ := parseSignature(header.Get(h.Header)) // as it is one
		p.signature = mac[:]
	case Standard:
		return h.verifyStandard(p.key, header, body, now)
	}
	return nil
}

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

// checkKey reports an error if the value of a header can't be a key.
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
