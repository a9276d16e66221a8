package hooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

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
