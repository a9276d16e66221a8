package hooks

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"gateway/store"
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

// An HMAC signs the body but not the key. So an attacker who has seen a post could send it again
// with another key or without one. Therefore the package remembers the signatures of posts with a
// key. A sender that uses keys gives each post a different one, so an equal signature means the
// same post. A sender without keys may send the same body twice on purpose.

// Migration creates the table of this package.
var Migration = store.Migration{Package: "hooks", Steps: []string{`
CREATE TABLE hook_signatures (
	hook        TEXT NOT NULL,
	signature   TEXT NOT NULL, -- SHA-256 of it, in hexadecimal
	message     TEXT NOT NULL, -- ID of the inbound message
	accepted_ms BIGINT NOT NULL,
	PRIMARY KEY (hook, signature)
);
CREATE INDEX hook_signatures_old ON hook_signatures (accepted_ms);`}}

// signatureTime is how long a signature is remembered. GitHub can redeliver posts of the last
// three days: https://docs.github.com/en/webhooks/testing-and-troubleshooting-webhooks.
const signatureTime = 72 * time.Hour

// signedBefore returns the ID of the message that an earlier post with a key and the same
// signature made, or "".
func signedBefore(
	tx *store.Tx, hook string, signature []byte, now time.Time,
) (id string, err error) {
	if signature == nil {
		return "", nil
	}
	err = tx.QueryRow("SELECT message FROM hook_signatures "+
		"WHERE hook = $1 AND signature = $2 AND accepted_ms > $3",
		hook, digest(signature), now.Add(-signatureTime).UnixMilli()).Scan(&id)
	return id, store.Wrap(store.Optional(err), "hooks: look up a signature of %s", hook)
}

// rememberSignature stores the signature of a post with the ID of its message, and deletes old
// ones.
func rememberSignature(
	tx *store.Tx, hook string, signature []byte, id string, now time.Time,
) error {
	if signature == nil {
		return nil
	}
	_, err := tx.Exec("DELETE FROM hook_signatures WHERE accepted_ms <= $1",
		now.Add(-signatureTime).UnixMilli())
	if err == nil {
		_, err = tx.Exec("INSERT INTO hook_signatures (hook, signature, message, accepted_ms) "+
			"VALUES ($1, $2, $3, $4)", hook, digest(signature), id, now.UnixMilli())
	}
	return store.Wrap(err, "hooks: remember a signature of %s", hook)
}

// digest returns the hash of a signature. With the signature itself, a reader of the database
// could send the post again.
func digest(signature []byte) string {
	sum := sha256.Sum256(signature)
	return hex.EncodeToString(sum[:])
}

// The headers of Standard Webhooks, https://www.standardwebhooks.com.
const (
	standardID        = "Webhook-Id"
	standardTime      = "Webhook-Timestamp" // Unix seconds
	standardSignature = "Webhook-Signature" // signatures separated by spaces
)

const (
	keyPrefix       = "whsec_" // prefix of a secret
	signatureScheme = "v1,"    // prefix of an HMAC-SHA256 signature
)

// tolerance is the maximum difference between the sender's clock and ours. The inbox remembers
// the id of a post for longer, so a signature can be used only once.
const tolerance = 5 * time.Minute

// minKey is the minimum length of a key in bytes.
const minKey = 16

// ParseKey decodes the secret of a hook with [Standard]: base64, with or without "whsec_" before
// it.
func ParseKey(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, keyPrefix))
	if err != nil { // the text of err contains a part of the secret
		return nil, errors.New(`want base64, with or without "whsec_" before it`)
	}
	if len(key) < minKey {
		return nil, errors.New("want the base64 of at least 16 bytes")
	}
	return key, nil
}

// verifyStandard returns an error if a post with an id has no valid signature, or if its time
// differs from now by more than the tolerance.
func (h Hook) verifyStandard(id string, header http.Header, body []byte, now time.Time) error {
	key, err := ParseKey(h.Secret)
	if err != nil {
		return err // the configuration was validated
	}
	if strings.Contains(id, ".") { // another id and another body could have the same signature
		return refused("want no full stop in " + standardID)
	}
	stamp := header.Get(standardTime)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	if !signs(header.Get(standardSignature), mac.Sum(nil)) {
		return unauthorized("want a signature of " + standardID + ", " + standardTime +
			" and the body in " + standardSignature)
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return unauthorized("want the time in Unix seconds in " + standardTime)
	}
	early, late := now.Add(-tolerance).Unix(), now.Add(tolerance).Unix()
	if seconds < early || seconds > late {
		return unauthorized(standardTime + " is more than 5 minutes from the time here")
	}
	return nil
}

// signs reports whether one of the signatures in a header is mac. It compares in constant time. A
// header has several signatures while the sender changes its secret.
func signs(header string, mac []byte) bool {
	found := false
	for text := range strings.FieldsSeq(header) {
		digits, ok := strings.CutPrefix(text, signatureScheme)
		if !ok {
			continue // signature of another scheme
		}
		got, err := base64.StdEncoding.DecodeString(digits)
		found = hmac.Equal(got, mac) && err == nil || found
	}
	return found
}
