package prompt

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"gateway/bus"
	"gateway/store/plaintext"
)

// TimeLayout is the layout of the time at the beginning of each message of a person.
const TimeLayout = "Monday 2006-01-02 15:04 -07:00"

// JoinParts returns the messages of batch as people see them. It puts an edited message in the
// place of the original, if batch has it, and then joins the parts of an album.
func JoinParts(batch []bus.Received) []bus.InboundMessage {
	var list []bus.InboundMessage
	for _, m := range current(batch) {
		last := len(list) - 1
		if last >= 0 && m.Album != "" && list[last].Album == m.Album {
			list[last].Text = strings.TrimSpace(list[last].Text + "\n" + m.Text)
			list[last].Attachments = slices.Concat(list[last].Attachments, m.Attachments)
		} else {
			list = append(list, m)
		}
	}
	return list
}

// current returns the messages of batch, each with its newest wording. An edit remains a message of
// its own if batch lacks the original.
func current(batch []bus.Received) (list []bus.InboundMessage) {
	for _, r := range batch {
		m := r.Message
		i := slices.IndexFunc(list, func(o bus.InboundMessage) bool {
			// The chats of a person may be one conversation. Their messages can have equal IDs.
			return m.Rewords(&o)
		})
		if i < 0 {
			list = append(list, m)
			continue
		}
		list[i].Text = m.Text
		if len(m.Attachments) > 0 {
			list[i].Attachments = m.Attachments
		}
	}
	return list
}

// Envelope returns the text that precedes the text of m. It tells the model when m was
// sent, who wrote it (in groups), and what m quotes.
func Envelope(m bus.InboundMessage, zone *time.Location) string {
	var b strings.Builder
	b.WriteString("[" + m.Time.In(zone).Format(TimeLayout) + "] ")
	if m.Group {
		b.WriteString(Name(m.Sender.Name, m.Sender.ID))
		if m.Role.Valid() {
			b.WriteString(" (" + string(m.Role) + ")")
		}
		b.WriteString(": ")
	}
	if m.Edits != "" {
		b.WriteString("[new wording of an earlier message] ")
	}
	if m.Forwarded != "" {
		b.WriteString("[forwarded, written by " + Name(m.Forwarded, "somebody") + "] ")
	}
	if q := m.ReplyTo; q != nil && q.Text != "" {
		author := "you"
		if !q.Ours {
			author = Name(q.Sender, "somebody")
		}
		if q.Claimed {
			author += ", as the sender quotes it"
		}
		fmt.Fprintf(&b, "[in reply to %s: %q] ", author, plaintext.Cut(q.Text, maxQuote))
	}
	return b.String()
}

// Escape returns text without anything that could pass for a part of an envelope.
func Escape(text string) string {
	if !strings.Contains(text, "[") { // most texts
		return text
	}
	text = envelopeLike().ReplaceAllString(text, "($1)")
	return envelopeStart().ReplaceAllString(text, "($1") // one nested in another
}

// These expressions match text in a message that looks like the envelope of another
// message, or like the gateway's own texts about quotes, files and tasks, with any kind of
// spaces. Escape removes the brackets, even if the closing one is missing.
var (
	envelopeLike  = spacedPattern(`(?i)\[_*(your_+task_*|(?:` + envelopeWords + `)[^\]]*)(?:\]|\z)`)
	envelopeStart = spacedPattern(`(?i)\[(_*(?:` + envelopeWords + `))`)
)

const envelopeWords = `[a-z]+day_+\d{4}-\d\d-\d\d|(?:end|text|outcome)_+of_$|what_+was_+said_$|` +
	`in_+reply_+to_$|in_+the_+quoted_$|forwarded,_$|new_+wording_$|voice_+message[,:]_$|` +
	`what_+you_+remember|the_+skill_$|archived_+context_$|heartbeat;|the_+job_$|posted_+by_$`

// spacedPattern compiles a pattern in which _+ stands for gaps, _* for gaps or nothing, and _$ for
// gaps or the end of the text.
func spacedPattern(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(strings.NewReplacer("_+", gap+"+", "_*", gap+"*",
			"_$", "(?:"+gap+`+|\z)`).Replace(pattern))
	})
}

// gap matches a character that looks like a space or is invisible.
const gap = `[\s\p{Z}\p{Cf}]`

// maxQuote is the part of a quoted message that is repeated, in bytes.
const maxQuote = 500

// Name returns s without anything that could pass for a part of an envelope, because users choose
// their display names. If nothing is left, it returns otherwise.
func Name(s, otherwise string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case strings.ContainsRune("[]:", r), strings.ContainsRune("()（）", r): // the brackets of the role
			return ' '
		case unicode.IsSpace(r):
			return ' '
		case !printable(r):
			return -1
		}
		return r
	}, s)
	s = plaintext.Cut(strings.Join(strings.Fields(s), " "), 64)
	if s == "" {
		return otherwise
	}
	return s
}

// printable reports whether r is visible and does not affect the characters around it.
func printable(r rune) bool { return unicode.IsPrint(r) }
