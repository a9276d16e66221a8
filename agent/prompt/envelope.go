package prompt

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gateway/bus"
)

// TimeLayout is the form of the time that each message of a person begins with.
const TimeLayout = "Monday 2006-01-02 15:04 -07:00"

// JoinParts returns the messages of batch as people see them: the parts of an album are one, and
// a new wording stands in the place of the old one, if that is there.
func JoinParts(batch []bus.Received) []bus.InboundMessage {
	var list []bus.InboundMessage
	for _, r := range batch {
		m := r.Message
		last := len(list) - 1
		i := slices.IndexFunc(list, func(o bus.InboundMessage) bool {
			return m.Edits != "" && o.ID == m.Edits
		})
		switch {
		case i >= 0:
			list[i].Text = m.Text
			if len(m.Attachments) > 0 {
				list[i].Attachments = m.Attachments
			}
		case last >= 0 && m.Album != "" && list[last].Album == m.Album:
			list[last].Text = strings.TrimSpace(list[last].Text + "\n" + m.Text)
			list[last].Attachments = slices.Concat(list[last].Attachments, m.Attachments)
		default:
			list = append(list, m)
		}
	}
	return list
}

// Envelope returns what stands before the text of m, so that the model knows what it must: when
// it was sent, who wrote it where several people do, and what it quotes.
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
		fmt.Fprintf(&b, "[in reply to %s: %q] ", author, Clip(q.Text, maxQuote))
	}
	return b.String()
}

// Escape returns text in a form that cannot pass for a part of an envelope.
func Escape(text string) string {
	text = envelopeLike.ReplaceAllString(text, "($1)")
	return envelopeStart.ReplaceAllString(text, "($1") // what stands within another one
}

// What could pass in the text of a message for the envelope of another one, or for what the
// gateway says of quotes, files and tasks, whatever stands for its spaces. It loses its brackets,
// also where the text ends before it does.
var (
	envelopeLike  = gapped(`(?i)\[_*(your_+task_*|(?:` + envelopeWords + `)[^\]]*)(?:\]|\z)`)
	envelopeStart = gapped(`(?i)\[(_*(?:` + envelopeWords + `))`)
)

const envelopeWords = `[a-z]+day_+\d{4}-\d\d-\d\d|(?:end|text|outcome)_+of_+|what_+was_+said_+|` +
	`in_+reply_+to_+|in_+the_+quoted_+|forwarded,_+|new_+wording_+|voice_+message[,:]_+|` +
	`what_+you_+remember|the_+skill_+|archived_+context_+|heartbeat;|the_+job_+|` +
	`posted_+by_+`

func gapped(pattern string) *regexp.Regexp {
	return regexp.MustCompile(strings.NewReplacer("_+", gap+"+", "_*", gap+"*").Replace(pattern))
}

// gap is a sign that shows as a space, or not at all.
const gap = `[\s\p{Z}\p{Cf}]`

// maxQuote is how much of a quoted message is repeated, in bytes.
const maxQuote = 500

// Name returns s in a form that cannot pass for a part of the envelope: a display name is
// its owner's choice.
func Name(s, otherwise string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case strings.ContainsRune("[]:", r), strings.ContainsRune("()（）", r): // the role's brackets
			return ' '
		case unicode.IsSpace(r):
			return ' '
		case !printable(r):
			return -1
		}
		return r
	}, s)
	s = Clip(strings.Join(strings.Fields(s), " "), 64)
	if s == "" {
		return otherwise
	}
	return s
}

// printable reports whether r shows by itself, and changes nothing around it.
func printable(r rune) bool { return unicode.IsPrint(r) }

// Clip returns the beginning of s, of at most n bytes, and never a part of a rune.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
