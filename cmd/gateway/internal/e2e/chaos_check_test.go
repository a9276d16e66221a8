//go:build unix

package e2e

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gateway/bus"
	"gateway/store"
)

// isQuiet reports whether all messages have arrived and nothing is left to do.
func (c *chaos) isQuiet(db *store.DB) bool {
	c.mu.Lock()
	said := len(c.said)
	c.mu.Unlock()
	return c.count(db, "inbox WHERE origin = 'person'") == said &&
		c.count(db, "inbox WHERE state IN ('waiting', 'taken')") == 0 &&
		c.count(db, "turns WHERE state = 'running'") == 0 &&
		c.count(db, "outbox WHERE state IN ('waiting', 'sending')") == 0
}

// A chaosAnswer is a row of the outbox.
type chaosAnswer struct {
	bus.OutboundMessage
	state     string
	uncertain int
}

// check compares the gateway's data, and what people see, with what was said.
func (c *chaos) check() {
	c.t.Helper()
	c.look(func(db *store.DB) {
		answers := make(map[bus.Address][]chaosAnswer)
		var body []byte
		var a chaosAnswer
		for range c.query(db, []any{&body, &a.state, &a.uncertain},
			"SELECT body, state, uncertain FROM outbox ORDER BY id") {
			a.OutboundMessage = outbound(c.t, body)
			answers[a.To] = append(answers[a.To], a)
			if a.state != "sent" {
				c.t.Errorf("%s was not sent: %s", body, a.state)
			}
		}
		c.checkInbox(db, answers)
		for _, chat := range c.chats {
			c.checkChat(chat, answers[chat.at])
		}
		for _, rows := range []string{"turns WHERE state = 'running'", "previews",
			"inbox WHERE state NOT IN ('done', 'dropped', 'heard')"} {
			if n := c.count(db, rows); n > 0 {
				c.t.Errorf("%d rows are left of %s", n, rows)
			}
		}
	})
}

// checkInbox checks that each message is stored once and has its answer.
func (c *chaos) checkInbox(db *store.DB, answers map[bus.Address][]chaosAnswer) {
	c.t.Helper()
	stored := make(map[int]int)
	var body []byte
	for range c.query(db, []any{&body},
		"SELECT body FROM inbox WHERE origin = 'person' ORDER BY id") {
		var m bus.InboundMessage
		if err := json.Unmarshal(body, &m); err != nil {
			c.t.Fatal(err)
		}
		for _, n := range marksIn(m.Text, chaosAsked) {
			stored[n]++
			if at := c.said[n].chat.at; at != m.From {
				c.t.Errorf("message %d of %s came from %s", n, at, m.From)
			}
			c.checkAnswered(n, m.ID, answers[m.From])
		}
	}
	for n, s := range c.said {
		if stored[n] != 1 {
			c.t.Errorf("message %d of %s is stored %d times", n, s.chat.at, stored[n])
		}
	}
}

// checkAnswered checks that one answer names message n. If a text of the gateway itself is for the
// message, such as an apology, it needs no other answer.
func (c *chaos) checkAnswered(n int, id string, answers []chaosAnswer) {
	c.t.Helper()
	named, excused := 0, false
	for _, a := range answers {
		if !strings.HasPrefix(a.Text, "answer to") {
			excused = excused || slices.Contains(a.Answers, id)
		} else if slices.Contains(marksIn(a.Text, chaosAnswered), n) {
			named++
		}
	}
	if named > 1 || named == 0 && !excused {
		c.t.Errorf("message %d (%s) of %s has %d answers", n, id, c.said[n].chat.at, named)
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

// checkChat compares what people see in a chat with the answers for it.
func (c *chaos) checkChat(chat *chaosChat, answers []chaosAnswer) {
	c.t.Helper()
	var promised, order []string
	times := make(map[string]int)
	for _, a := range answers {
		if strings.HasPrefix(a.Text, "answer to") {
			promised = append(promised, a.Text)
		}
	}
	for _, text := range chat.read() {
		for _, word := range chaosSecret.FindAllString(text, -1) {
			if word != chat.secret {
				c.t.Errorf("%s shows a word of another chat: %q", chat.at, text)
			}
		}
		if text = chaosAnswerText.FindString(text); text == "" {
			continue
		}
		if times[text]++; times[text] == 1 || order[len(order)-1] != text {
			order = append(order, text)
		}
	}
	if !slices.Equal(order, promised) {
		c.t.Errorf("%s shows\n%q, want\n%q", chat.at, order, promised)
	}
	for text, n := range times {
		if most := c.dead.caught[text] + c.lost[text]; n > 1 && (chat.exact || n > 1+most) {
			c.t.Errorf("%s shows %q %d times; %d of its tries were cut off", chat.at, text, n, most)
		}
	}
	newest := make(map[int]int) // by author
	for _, n := range marksIn(strings.Join(promised, " "), chaosAnswered) {
		author := c.said[n].author
		if last, ok := newest[author]; ok && n <= last {
			c.t.Errorf("%s answers message %d after %d", chat.at, n, last)
		}
		newest[author] = n
	}
}
