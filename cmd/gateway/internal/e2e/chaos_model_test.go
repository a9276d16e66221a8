//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/agent/turn"
)

// Marks of messages as people write them and as the model repeats them, and the words of chats. The
// marks differ, so that the test does not take a quoted answer for a message.
var (
	chaosAsked      = regexp.MustCompile(`\bq(\d+)z\b`)
	chaosDecided    = regexp.MustCompile(`\bt(\d+)z\b`)
	chaosAnswered   = regexp.MustCompile(`\ba(\d+)z\b`)
	chaosReminder   = regexp.MustCompile(`\babout r(\d+z)\b`)
	chaosQuote      = regexp.MustCompile(`\[in reply to [^\]]*\]`)
	chaosAnswerText = regexp.MustCompile(`answer \d+ to .* end`)
	chaosPart       = regexp.MustCompile(`\banswer \d+\b`)
	chaosSecret     = regexp.MustCompile(`\bsecret\d+x\b`)
)

// answer is the model. Its answers name the messages that they answer, and every secret word that
// the model has read. Its notes have the words, too.
func (c *chaos) answer(r openaitest.Request) openaitest.Reply {
	var known []string
	for _, m := range r.Messages {
		known = append(known, chaosSecret.FindAllString(m.Content, -1)...)
	}
	slices.Sort(known)
	words, marks := strings.Join(slices.Compact(known), " "), openMarks(r.Messages)
	reminder, isTask := reminderIn(r.Messages)
	spoil := func(reply openaitest.Reply) openaitest.Reply {
		return c.spoil(reply, marks, reminder != "")
	}
	last := r.Messages[len(r.Messages)-1]
	// After empty answers, for example, the gateway asks for the answer without tools.
	final := slices.ContainsFunc([]string{turn.AskAnswer, turn.AskSumUp, turn.AskLoop},
		func(ask string) bool { return strings.Contains(last.Content, ask) })
	if len(r.Tools) == 0 && !final {
		return spoil(say("- there was talk of " + words))
	}
	if !final && (reminder == "" || isTask) {
		if calls := c.useTools(r, words); len(calls) > 0 {
			return spoil(openaitest.Reply{Text: []string{"Let me see. "}, ToolCalls: calls})
		}
	}
	if reminder != "" {
		return spoil(say("this is reminder" + reminder))
	}
	return spoil(say(fmt.Sprintf("answer %d to%s by somebody who knows %s end", r.N, marks, words)))
}

// isAnswer reports whether m is an answer that the model has finished.
func isAnswer(m openaitest.Message) bool {
	return m.Role == "assistant" && len(m.ToolCalls) == 0 && m.Content != turn.MarkInterrupted
}

// reminderIn returns the number of the reminder or task that the newest message is, or "".
func reminderIn(messages []openaitest.Message) (number string, isTask bool) {
	for _, m := range slices.Backward(messages) {
		if isAnswer(m) { // what follows has no mark, such as a file
			break
		}
		if m.Role != "user" {
			continue
		}
		if found := chaosReminder.FindStringSubmatch(m.Content); found != nil {
			return found[1], strings.Contains(m.Content, "please talk about")
		}
		if chaosAsked.MatchString(m.Content) {
			break
		}
	}
	return "", false
}

// openMarks returns the marks of the messages since the last answer. A message that has answered a
// question of the model has another mark, because it can overtake messages that wait.
func openMarks(messages []openaitest.Message) (marks string) {
	for _, m := range messages {
		form := ""
		switch {
		case isAnswer(m):
			marks = ""
		case m.Role == "user":
			form = " a%sz"
		case m.Role == "tool":
			form = " t%sz"
		}
		text := chaosQuote.ReplaceAllString(m.Content, "")
		for _, found := range chaosAsked.FindAllStringSubmatch(text, -1) {
			if form != "" {
				marks += fmt.Sprintf(form, found[1])
			}
		}
	}
	return marks
}

// spoil makes a reply to messages with some marks slow or fail, if faults happen. An empty reply to
// a post or of a job is no fault: the agent may stay silent.
func (c *chaos) spoil(reply openaitest.Reply, marks string, proactive bool) openaitest.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.storm {
		return reply
	}
	if c.rand.IntN(2) == 0 {
		reply.Text = strings.SplitAfter(strings.Join(reply.Text, ""), " ")
		reply.First = time.Duration(c.rand.IntN(200)) * time.Millisecond
		reply.Between = time.Duration(c.rand.IntN(30)) * time.Millisecond
	}
	switch c.rand.IntN(24) {
	case 0:
		reply.Fault = openaitest.Fault{Status: http.StatusTooManyRequests, RetryAfter: "1"}
	case 1:
		reply.Fault = openaitest.Fault{Status: http.StatusServiceUnavailable}
	case 2:
		reply.Fault = openaitest.HTML502()
	case 3:
		reply.Fault = openaitest.Fault{DropAfter: 1 + c.rand.IntN(4)}
	case 4:
		reply.Fault = openaitest.Fault{EndAfter: 1 + c.rand.IntN(4)}
	case 5:
		reply.Fault = openaitest.Fault{ErrorAfter: 1 + c.rand.IntN(4)}
	case 6:
		isPost := func(n int) bool { return c.said[n].hook }
		if !proactive && !slices.ContainsFunc(marksIn(marks, chaosAnswered), isPost) {
			reply.Text, reply.ToolCalls = nil, nil
		}
	}
	return reply
}
