package wire

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"gateway/agent/llm"
)

// MaxCalls is the greatest number of tool calls in an answer, much more than any model makes at
// once. Each call takes memory and time in the turn, however small it is.
const MaxCalls = 512

// ErrManyCalls reports an answer that exceeds MaxCalls.
var ErrManyCalls = fmt.Errorf("the answer has more than %d tool calls", MaxCalls)

// idLen is the length in characters of new ids. Mistral accepts only this length, and all
// other providers accept it too.
const idLen = 9

// SetIDs gives a new id to each call that has none, or the id of another call in the conversation.
// Results refer to calls by their ids, and some providers number the calls of each answer anew.
func SetIDs(calls []llm.ToolCall, conversation []llm.Message) {
	if len(calls) == 0 {
		return
	}
	used := map[string]bool{"": true}
	for _, m := range conversation {
		for _, c := range m.ToolCalls {
			used[c.ID] = true
		}
	}
	for i := range calls {
		for used[calls[i].ID] {
			calls[i].ID = rand.Text()[:idLen]
		}
		used[calls[i].ID] = true
	}
}

// Limits of providers for the calls of a conversation, in characters. If one call exceeds them, the
// provider refuses the request, and every later request of the conversation.
const (
	maxCallName = 64 // OpenAI: at most 64 of a-z, A-Z, 0-9, _ and -
	maxCallID   = 40 // OpenAI; Anthropic allows 64 of the same characters as in names
)

// SentID returns id, or a hash of id if providers would refuse it.
func SentID(id string) string {
	if id == llm.PlainName(id) && len(id) <= maxCallID {
		return id
	}
	return hashed(id)
}

// ShortID returns id, or a hash of id if Mistral would refuse it. Mistral accepts nine letters and
// digits.
func ShortID(id string) string {
	if id == llm.PlainName(id) && len(id) == idLen && !strings.ContainsAny(id, "_-") {
		return id
	}
	return hashed(id)
}

func hashed(id string) string {
	sum := sha256.Sum256([]byte(id))
	return base32.StdEncoding.EncodeToString(sum[:])[:idLen]
}

// SentName returns name, changed so that providers accept it.
func SentName(name string) string {
	if name == "" {
		return "unknown"
	}
	name = llm.PlainName(name)
	return name[:min(len(name), maxCallName)]
}

// SentArguments returns args if they are a JSON object. Otherwise it returns an object that
// contains them as text.
func SentArguments(args string) string {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(args), &object) == nil && object != nil {
		return args
	}
	if strings.TrimSpace(args) == "" {
		return "{}"
	}
	b, err := EncodePlain(map[string]string{"raw": args}, len(args))
	if err != nil { // encoding a string can't fail
		return "{}"
	}
	return string(b)
}

// OneObject returns the arguments of a call in text. Some servers send an empty object before the
// arguments, or send the arguments several times, also encoded as a string. OneObject returns text
// unchanged if it has different arguments.
func OneObject(text string) string {
	if json.Valid([]byte(text)) {
		return text
	}
	found := ""
	for dec := json.NewDecoder(strings.NewReader(text)); ; {
		var raw json.RawMessage
		switch err := dec.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return found
		case err != nil:
			return text
		}
		value := TextOf(raw)
		switch {
		case !strings.HasPrefix(value, "{"):
			return text
		case found == "" || CompactJSON(found) == "{}":
			found = value
		case CompactJSON(found) != CompactJSON(value):
			return text
		}
	}
}

// CompactJSON returns a JSON value without white space, or the text itself if it is not JSON.
func CompactJSON(text string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(text)) != nil {
		return text
	}
	return b.String()
}
