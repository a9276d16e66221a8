package discord

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gateway/channels"
)

// A mentionNames holds the names for mentions in a text.
type mentionNames struct {
	me       string // our user id, whose mentions are removed; or ""
	role     string // our role, whose mentions are removed; or ""
	users    map[string]string
	roles    map[string]string
	channels func(id string) string
}

// encoded matches what Discord encodes like "<@id>": mentions, custom emoji and dates.
var encoded = regexp.MustCompile(`<[^<>]+>`)

// read replaces mentions, custom emoji and dates with what people see. It removes mentions of us
// unless there is nothing else.
func (v *mentionNames) read(text string) string {
	read := text
	// Work backwards, so that removing text changes no position that is still needed.
	for _, at := range slices.Backward(encoded.FindAllStringIndex(text, -1)) {
		start, end := at[0], at[1]
		word := text[start+1 : end-1]
		switch seen, ok := v.word(word); {
		case !ok:
		case v.isMe(word):
			read = channels.WithoutMention(read, start, end)
		default:
			read = read[:start] + seen + read[end:]
		}
	}
	if read == "" && (v.me != "" || v.role != "") {
		all := *v
		all.me, all.role = "", ""
		return all.read(text)
	}
	return read
}

// isMe reports whether "<word>" is a mention of us. The caller has checked that it is a mention, so
// that it has an id. Some clients write "!" before the id.
func (v *mentionNames) isMe(word string) bool {
	return word == "@"+v.me || word == "@!"+v.me || word == "@&"+v.role
}

// word returns what people see instead of "<word>". It returns false if people see it unchanged.
func (v *mentionNames) word(word string) (string, bool) {
	switch {
	case strings.HasPrefix(word, "@&"): // a role
		name, ok := v.roles[word[2:]]
		return "@" + name, ok
	case strings.HasPrefix(word, "@"): // a person
		id := strings.TrimPrefix(word[1:], "!")
		name, ok := v.users[id]
		return "@" + name, ok || id == v.me && id != ""
	case strings.HasPrefix(word, "#"): // a channel
		name := ""
		if v.channels != nil {
			name = v.channels(word[1:])
		}
		return "#" + name, name != ""
	case strings.HasPrefix(word, "t:"):
		return date(word[2:])
	}
	kind, rest, _ := strings.Cut(word, ":")
	name, id, ok := strings.Cut(rest, ":")
	switch {
	case ok && (kind == "" || kind == "a") && isID(id) && name != "": // an emoji; "a": it moves
		return ":" + name + ":", true
	case strings.HasPrefix(kind, "/") && len(kind) > 1 && isID(rest): // a command
		return kind, true
	}
	return "", false
}

// isID reports whether s has the form of Discord's ids: a decimal number of up to 64 bits.
func isID(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
}

// date returns a date that people see in their own zone and style: "1700000000:R".
func date(word string) (string, bool) {
	word, _, _ = strings.Cut(word, ":")
	seconds, err := strconv.ParseInt(word, 10, 64)
	if err != nil || seconds < -1<<40 || seconds > 1<<40 {
		return "", false
	}
	return time.Unix(seconds, 0).UTC().Format("2006-01-02 15:04 UTC"), true
}
