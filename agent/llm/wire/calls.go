package wire

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"strings"
)

// idLen is the length of the ids made here, in characters: what
// Mistral insists on, and all others take.
const idLen = 9

// NewID returns a new id for a tool call.
func NewID() string { return rand.Text()[:idLen] }

// Bounds of what providers take in the calls of a conversation, in characters. A request with a
// call beyond them is refused as a whole, and so would be all later ones of the conversation.
const (
	maxCallName = 64 // OpenAI: ^[a-zA-Z0-9_-]+$ and at most 64
	maxCallID   = 40 // OpenAI; Anthropic takes 64, and only ^[a-zA-Z0-9_-]+$
)

// SentID returns id, or a hash of it if it does not fit.
func SentID(id string) string {
	if id == plainName(id) && len(id) <= maxCallID {
		return id
	}
	return hashed(id)
}

// ShortID returns id, or a hash of it if Mistral would refuse it: it takes nine letters and digits.
func ShortID(id string) string {
	if id == plainName(id) && len(id) == idLen && !strings.ContainsAny(id, "_-") {
		return id
	}
	return hashed(id)
}

func hashed(id string) string {
	sum := sha256.Sum256([]byte(id))
	return base32.StdEncoding.EncodeToString(sum[:])[:idLen]
}

// SentName returns name, mended so that it fits.
func SentName(name string) string {
	if name == "" {
		return "unknown"
	}
	name = plainName(name)
	return name[:min(len(name), maxCallName)]
}

// SentArguments returns args if they are a JSON object, and else an object that has them as text.
func SentArguments(args string) string {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(args), &object) == nil && object != nil {
		return args
	}
	if strings.TrimSpace(args) == "" {
		return "{}"
	}
	b, err := EncodePlain(map[string]string{"raw": args}, len(args))
	if err != nil { // a text can always be encoded
		return "{}"
	}
	return string(b)
}

// plainName returns s with "_" for each character that names must not have.
func plainName(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, s)
}
