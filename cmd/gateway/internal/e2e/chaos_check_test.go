//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gateway/bus"
	"gateway/store"
)

// isQuiet reports whether all messages have arrived and nothing is left to do.
func (c *chaos) isQuiet(db *store.DB) bool {
	missing := make(map[bus.Address]int)
	c.mu.Lock()
	for _, chat := range c.chats {
		missing[chat.at] = chat.others
	}
	for _, s := range c.said {
		if !s.edits && !s.erased && !s.hook {
			missing[s.chat.at]++
		}
	}
	c.mu.Unlock()
	var at bus.Address
	for range c.query(db, []any{&at.Account, &at.Chat}, "SELECT account, chat FROM "+arrived) {
		missing[c.now(at)]--
	}
	for _, n := range missing {
		if n != 0 {
			return false
		}
	}
	erasing := c.erasing && c.count(db, "chores WHERE kind = 'erase'") > 0
	return !erasing && c.telegram.Pending() == 0 && c.left(db) == ""
}

// arrived are the messages that must arrive. Discord can lose its own commands, and people may
// press buttons at any time.
const arrived = "inbox WHERE origin = 'person' AND body NOT LIKE '%\"edits\":%' " +
	"AND message NOT GLOB 'cb*' AND message NOT GLOB 'i*'"

// left describes the rows that are not finished. If the gateway dies just after a turn was stopped,
// it keeps its preview.
func (c *chaos) left(db *store.DB) string {
	var all, row string
	for range c.query(db, []any{&row}, `
		SELECT concat_ws(' ', 'inbox', id, state, turn, body) FROM inbox
			WHERE state IN ('waiting', 'taken') UNION ALL
		SELECT concat_ws(' ', 'turn', id, state, session) FROM turns WHERE state = 'running' UNION ALL
		SELECT concat_ws(' ', 'outbox', id, state, error, body) FROM outbox
			WHERE state <> 'sent' UNION ALL
		SELECT concat_ws(' ', 'job', id, state) FROM jobs WHERE state = 'active' UNION ALL
		SELECT concat_ws(' ', 'run', id, state) FROM runs WHERE ended_ms = 0 UNION ALL
		SELECT concat_ws(' ', 'preview', stream, state) FROM previews
			LEFT JOIN turns ON turns.id = CAST(stream AS INTEGER)
			WHERE coalesce(state, '') <> 'stopped' UNION ALL
		SELECT concat_ws(' ', 'question', code, session, body) FROM questions
			WHERE state = 'open' UNION ALL
		SELECT concat_ws(' ', 'chore', kind, scope, session, attempts, crashes) FROM chores
			WHERE tell <> '' OR due_ms <= unixepoch('subsec') * 1000`) {
		all += row + "\n"
	}
	return all
}

// check compares the gateway's data, and the messages that people see, with the messages that
// people wrote.
func (c *chaos) check() {
	c.t.Helper()
	c.look(func(db *store.DB) {
		answers := make(map[bus.Address][]bus.OutboundMessage)
		var body []byte
		for range c.query(db, []any{&body},
			"SELECT body FROM outbox ORDER BY id") {
			a := outbound(c.t, body)
			answers[c.now(a.To)] = append(answers[c.now(a.To)], a)
		}
		if left := c.left(db); left != "" {
			c.t.Errorf("not finished:\n%s", left)
		}
		c.checkInbox(db, answers)
		c.checkTools(db)
		c.checkReminders(db, answers)
		c.checkForgotten()
		for _, chat := range c.chats {
			c.checkChat(chat, answers[chat.at])
		}
		if c.t.Failed() {
			c.t.Logf("%d messages have arrived", c.count(db, arrived))
			c.dump(db)
		}
	})
}

// dump logs what came in and went out, in the order of time.
func (c *chaos) dump(db *store.DB) {
	c.t.Helper()
	var row string
	for range c.query(db, []any{&row}, `
		SELECT concat_ws(' ', at, what, account, chat, id, state, turn, text) FROM (
			SELECT received_ms AS at, 'in' AS what, account, chat, id, state, turn,
				message || ' ' || coalesce(CAST(body AS TEXT) ->> '$.text', '') AS text FROM inbox UNION ALL
			SELECT created_ms, 'out', account, chat, id, state, '',
				coalesce(CAST(body AS TEXT) ->> '$.answers', '') || ' ' ||
				coalesce(CAST(body AS TEXT) ->> '$.text', '') FROM outbox)
		ORDER BY account, chat, at, what, id`) {
		c.t.Log(row)
	}
}

// checkInbox checks that each message is stored once and has its answer.
func (c *chaos) checkInbox(db *store.DB, answers map[bus.Address][]bus.OutboundMessage) {
	c.t.Helper()
	stored := make(map[int]int)
	var body []byte
	var origin string
	var stopped, failed bool
	for range c.query(db, []any{&body, &origin, &stopped, &failed},
		"SELECT body, origin, inbox.state = 'dropped' OR coalesce(turns.state, '') = 'stopped', "+
			"coalesce(turns.state, '') = 'failed' FROM inbox LEFT JOIN turns ON turns.id = turn "+
			"WHERE origin IN ('person', 'hook') ORDER BY inbox.id") {
		var m bus.InboundMessage
		if err := json.Unmarshal(body, &m); err != nil {
			c.t.Fatal(err)
		}
		// The reply to /stop in a supergroup can't name messages from before: their ids mean others now.
		unnamed := stopped && m.From != c.now(m.From)
		if origin == "person" && !unnamed {
			c.checkClaimed(m, answers[c.now(m.From)])
		}
		for _, n := range marksIn(m.Text, chaosAsked) {
			stored[n]++
			if at := c.said[n].chat.at; at != c.now(m.From) {
				c.t.Errorf("message %d of %s came from %s", n, at, m.From)
			}
			c.checkAnswered(n, m.ID, answers[c.now(m.From)],
				unnamed || origin == "hook" && (stopped || failed))
		}
	}
	for n, s := range c.said {
		want := 1
		if s.erased {
			want = 0
		}
		if stored[n] != want && !(s.edited && stored[n] == 0) {
			c.t.Errorf("message %d of %s is stored %d times, want %d", n, s.chat.at, stored[n], want)
		}
	}
}

// checkClaimed checks that an answer is for m. After a restart, the gateway does not know for which
// messages of an interrupted turn the next answer is, too.
func (c *chaos) checkClaimed(m bus.InboundMessage, answers []bus.OutboundMessage) {
	c.t.Helper()
	interrupted := slices.ContainsFunc(c.chats, func(chat *chaosChat) bool {
		return chat.at == c.now(m.From) && chat.interrupts
	})
	if !interrupted && !slices.ContainsFunc(answers, func(a bus.OutboundMessage) bool {
		return slices.Contains(a.Answers, m.ID)
	}) {
		c.t.Errorf("no answer is for message %s of %s: %q", m.ID, m.From, m.Text)
	}
}

// checkAnswered checks that one answer names message n. If a text of the gateway itself is for the
// message, such as an apology, it needs no other answer. Nor does one of an interrupted turn, if
// the person ends the conversation after a restart, a post whose turn was stopped or has failed, or
// a message of a group that was stopped after the group had moved: excused says the last two.
func (c *chaos) checkAnswered(n int, id string, answers []bus.OutboundMessage, excused bool) {
	c.t.Helper()
	named := 0
	for _, a := range answers {
		if !chaosAnswerText.MatchString(a.Text) {
			excused = excused || slices.Contains(a.Answers, id)
		} else if slices.Contains(marksIn(a.Text, chaosAnswered), n) ||
			slices.Contains(marksIn(a.Text, chaosDecided), n) {
			named++
		}
	}
	if named > 1 || named == 0 && !excused && !c.said[n].edited && !c.said[n].chat.interrupts {
		c.t.Errorf("message %d (%s) of %s has %d answers", n, id, c.said[n].chat.at, named)
	}
}

// checkReminders checks that each reminder has come once, in its chat. The reply to the command
// contains its text, too, but has no mark of the model. /stop and /new also end reminders.
func (c *chaos) checkReminders(db *store.DB, answers map[bus.Address][]bus.OutboundMessage) {
	c.t.Helper()
	for n, r := range c.reminders {
		at, times := r.chat.at, 0
		for _, a := range answers[at] {
			if strings.Contains(a.Text, fmt.Sprintf("reminder%dz", n)) {
				times++
			}
		}
		if r.job != 0 {
			c.checkRuns(db, n, times)
			continue
		}
		stopped := c.count(db, fmt.Sprintf("inbox LEFT JOIN turns ON turns.id = turn "+
			"WHERE origin = 'job' AND body LIKE '%%about r%dz%%' AND "+
			"(inbox.state = 'dropped' OR turns.state = 'stopped')", n))
		if times != 1 && (times > 1 || stopped == 0 && !r.erased) {
			c.t.Errorf("reminder %d of %s has come %d times", n, at, times)
		}
	}
}

// marksIn returns the numbers of the marks in text.
func marksIn(text string, mark *regexp.Regexp) (list []int) {
	for _, m := range mark.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1]) // the pattern matches only digits
		list = append(list, n)
	}
	return list
}

// checkPart checks that text is not a part of an answer, unless the answer was stopped. If Telegram
// hides that it has sent the first part, or the gateway dies meanwhile, nobody can remove it.
func (c *chaos) checkPart(chat *chaosChat, text string) {
	c.t.Helper()
	if !chaosPart.MatchString(text) || chaosAnswerText.MatchString(text) ||
		strings.Contains(text, "… (stopped)") {
		return
	}
	if !chat.exact && c.lost[text] > 0 {
		c.lost[text]--
		return
	}
	c.dead.growing[chat.at.Chat]--
	if chat.exact || c.dead.growing[chat.at.Chat] < 0 {
		c.t.Errorf("%s still shows a part of an answer: %q", chat.at, text)
	}
}

// isLeft reports whether text is a whole answer that Telegram hides that it has sent, and that the
// model has then begun anew. Nobody can remove it, as in checkPart.
func (c *chaos) isLeft(chat *chaosChat, text string, promised []string) bool {
	if chat.exact || slices.Contains(promised, text) || c.lost[text] == 0 {
		return false
	}
	c.lost[text]--
	return true
}

// checkChat compares what people see in a chat with the answers for it.
func (c *chaos) checkChat(chat *chaosChat, answers []bus.OutboundMessage) {
	c.t.Helper()
	var promised, order []string
	times := make(map[string]int)
	for _, a := range answers {
		if chaosAnswerText.MatchString(a.Text) {
			promised = append(promised, a.Text)
			if !chat.album && len(a.Answers) > 0 && !chaosAnswered.MatchString(a.Text) &&
				!chaosDecided.MatchString(a.Text) {
				c.t.Errorf("%s shows %q, which answers %q", chat.at, a.Text, a.Answers)
			}
		}
	}
	for _, text := range chat.read() {
		if c.checkSecrets(chat, text) {
			continue
		}
		c.checkPart(chat, strings.TrimPrefix(text, "(reply) "))
		if text = chaosAnswerText.FindString(text); text == "" || c.isLeft(chat, text, promised) {
			continue
		}
		if times[text]++; times[text] == 1 || order[len(order)-1] != text {
			order = append(order, text)
		}
	}
	order, wanted := c.postsLast(order), c.postsLast(promised)
	if !slices.Equal(order, wanted) {
		c.t.Errorf("%s shows\n%q, want\n%q", chat.at, order, wanted)
	}
	for text, n := range times {
		if most := c.dead.caught[text] + c.lost[text]; n > 1 && (chat.exact || n > 1+most) {
			c.t.Errorf("%s shows %q %d times; %d of its tries were cut off", chat.at, text, n, most)
		}
	}
	newest := make(map[int]int) // by author
	for _, n := range marksIn(strings.Join(promised, " "), chaosAnswered) {
		if c.said[n].edits || c.said[n].hook {
			continue // it took the place of an earlier message, or came in at any time
		}
		author := c.said[n].author
		if last, ok := newest[author]; ok && n <= last {
			c.t.Errorf("%s answers message %d after %d", chat.at, n, last)
		}
		newest[author] = n
	}
}
