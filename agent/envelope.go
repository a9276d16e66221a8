package agent

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gateway/agent/llm"
	"gateway/bus"
)

// envelopeTime is the form of the time that each message of a person begins with.
const envelopeTime = "Monday 2006-01-02 15:04 -07:00"

// userMessages returns what the model sees of batch, once its files are there. Messages that were
// collected become one, numbered; so do the pieces of one that was sent in parts.
func (t *turn) userMessages(ctx context.Context, batch []bus.Received) []llm.Message {
	if len(batch) == 0 {
		return nil
	}
	t.d.mu.Lock()
	mode := t.d.mode(t.Session)
	t.d.mu.Unlock()
	heard := t.overheard(ctx, batch[len(batch)-1])
	if mode != Collect {
		var list []llm.Message
		for len(batch) > 0 {
			var context, part []bus.Received
			context, heard = upTo(heard, batch[0].Seq)
			part, batch = batch, nil
			if len(heard) > 0 {
				part, batch = upTo(part, heard[0].Seq)
			}
			list = append(list, t.asContext(ctx, context)...)
			list = append(list, t.asQuestions(ctx, part)...)
		}
		return list
	}
	list, seen := t.asContext(ctx, heard), t.asQuestions(ctx, batch)
	if len(seen) == 1 {
		return append(list, seen...)
	}
	all := llm.Message{Role: llm.User}
	for i, m := range seen {
		all.Text += fmt.Sprintf("%d. %s\n", i+1, m.Text)
		all.Images = append(all.Images, m.Images...)
		all.Foreign = cmp.Or(all.Foreign, m.Foreign)
	}
	all.Text = strings.TrimSuffix(all.Text, "\n")
	return append(list, all)
}

// upTo cuts list before the first message that came after the one with the given Seq.
func upTo(list []bus.Received, seq int64) (before, after []bus.Received) {
	i := slices.IndexFunc(list, func(r bus.Received) bool { return r.Seq > seq })
	if i < 0 {
		return list, nil
	}
	return list[:i], list[i:]
}

// asQuestions returns what the model sees of messages to it.
func (t *turn) asQuestions(ctx context.Context, list []bus.Received) (seen []llm.Message) {
	for _, m := range joinParts(list) {
		if m.Origin.Kind != bus.Person {
			seen = append(seen, t.ownMessage(m))
			continue
		}
		t.d.fetch(ctx, &m)
		seen = append(seen, t.d.userMessage(ctx, m, t.zone()))
	}
	return seen
}

// joinParts returns the messages of batch as people see them: the parts of an album are one, and
// a new wording stands in the place of the old one, if that is there.
func joinParts(batch []bus.Received) []bus.InboundMessage {
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

// overheard returns what was said in the group before r, and not to the agent. It is for the
// conversation itself, not for a sub-agent.
func (t *turn) overheard(ctx context.Context, r bus.Received) []bus.Received {
	if !r.Message.Group || !t.trigger.Origin.Interactive() {
		return nil
	}
	heard, err := t.d.Inbox.Heard(t.d.DB.Read(context.WithoutCancel(ctx)),
		r.Message.From, r.Seq, t.d.opts.Now())
	if err != nil {
		t.d.logger(&t.Turn).WarnContext(ctx, "what was said in the group is not known", "err", err)
	}
	return heard
}

// asContext returns what the model sees of what was said to others.
func (t *turn) asContext(ctx context.Context, heard []bus.Received) []llm.Message {
	if len(heard) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("[What was said in the group before, and not to you. It is context only.]\n")
	for _, h := range heard {
		m := h.Message
		for i := range m.Attachments {
			m.Attachments[i].Problem = notLooked
		}
		if q := m.ReplyTo; q != nil {
			q.Attachments = nil
		}
		b.WriteString(clip(t.d.userMessage(ctx, m, t.zone()).Text, maxHeardText) + "\n")
	}
	b.WriteString("[End of what was said before.]")
	return []llm.Message{{Role: llm.User, Text: b.String(), Foreign: fromGroup,
		Rights: string(leastOverheard(heard))}}
}

// maxHeardText is how much of a message that was not for the agent is shown, in bytes.
const maxHeardText = 600

// envelope returns what stands before the text of m, so that the model knows what it must: when
// it was sent, who wrote it where several people do, and what it quotes.
func envelope(m bus.InboundMessage, zone *time.Location) string {
	var b strings.Builder
	b.WriteString("[" + m.Time.In(zone).Format(envelopeTime) + "] ")
	if m.Group {
		b.WriteString(name(m.Sender.Name, m.Sender.ID))
		if m.Role.Valid() {
			b.WriteString(" (" + string(m.Role) + ")")
		}
		b.WriteString(": ")
	}
	if m.Edits != "" {
		b.WriteString("[new wording of an earlier message] ")
	}
	if m.Forwarded != "" {
		b.WriteString("[forwarded, written by " + name(m.Forwarded, "somebody") + "] ")
	}
	if q := m.ReplyTo; q != nil && q.Text != "" {
		author := "you"
		if !q.Ours {
			author = name(q.Sender, "somebody")
		}
		if q.Claimed {
			author += ", as the sender quotes it"
		}
		fmt.Fprintf(&b, "[in reply to %s: %q] ", author, clip(q.Text, maxQuote))
	}
	return b.String()
}

// spoken returns text in a form that cannot pass for a part of an envelope.
func spoken(text string) string {
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

// name returns s in a form that cannot pass for a part of the envelope: a display name is
// its owner's choice.
func name(s, otherwise string) string {
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
	s = clip(strings.Join(strings.Fields(s), " "), 64)
	if s == "" {
		return otherwise
	}
	return s
}

// printable reports whether r shows by itself, and changes nothing around it.
func printable(r rune) bool { return unicode.IsPrint(r) }

// clip returns the beginning of s, of at most n bytes, and never a part of a rune.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
