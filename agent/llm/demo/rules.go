package demo

import (
	"fmt"
	"regexp"
	"strings"

	"gateway/store/plaintext"
)

// A rule is one ability of the demo model: it calls a tool and shows the result.
type rule struct {
	usage   string // what the user writes
	does    string // what the ability is good for
	tool    string // required tool
	pattern func() *regexp.Regexp
	args    []string // argument names, one for each group of the pattern
	action  string   // for a tool with several actions; or ""
}

// rules are tried in this order.
var rules = []rule{
	{"time", "tells the time", "time",
		plaintext.Pattern(`(?i)^(?:what(?:'s| is) the )?time(?: is it)?$`), nil, ""},
	{"ls [PATH]", "lists a folder", "list_dir",
		plaintext.Pattern(`(?i)^ls(?:\s+(\S.*))?$`), []string{"path"}, ""},
	{"read FILE", "shows a file", "read_file",
		plaintext.Pattern(`(?i)^read\s+(\S.*)$`), []string{"path"}, ""},
	{"run COMMAND", "runs a command in a sandbox", "exec",
		plaintext.Pattern(`(?i)^run\s+(\S.*)$`), []string{"command"}, ""},
	{"fetch URL", "reads a web page", "web_fetch",
		plaintext.Pattern(`(?i)^fetch\s+(\S+)$`), []string{"url"}, ""},
	{"remember KEY: VALUE", "remembers it for later conversations", "remember",
		plaintext.Pattern(`(?i)^remember\s+([^:\n]+):\s*(\S.*)$`), []string{"key", "value"}, ""},
	{"recall WORDS", "looks up what I remember", "recall",
		plaintext.Pattern(`(?i)^recall\s+(\S.*)$`), []string{"query"}, ""},
	{"ask me QUESTION", "asks you, and waits for your answer", "ask",
		plaintext.Pattern(`(?i)^ask me\s+(\S.*)$`), []string{"question"}, ""},
	{"remind me every 2h to TEXT", "reminds you again and again", "schedule",
		plaintext.Pattern(`(?i)^remind me every\s+(\S.*?)\s+(?:to|that)\s+(\S.*)$`),
		[]string{"every", "text"}, "add"},
	{"remind me in 1m to TEXT", "reminds you, also `at 9:00` or `tomorrow 9:00`", "schedule",
		plaintext.Pattern(`(?i)^remind me\s+(\S.*?)\s+(?:to|that)\s+(\S.*)$`),
		[]string{"at", "text"}, "add"},
}

// defaults are the arguments for empty groups.
var defaults = map[string]string{"path": "."}

var helpPattern = plaintext.Pattern(`(?i)^(?:/?help|what can you do)$`)

const introduction = "I am the demo model: a table of rules inside the gateway, " +
	"not a language model. To talk to a real one, set OPENAI_API_KEY and start the gateway again."

// Limits of what is shown, in bytes.
const (
	maxEcho   = 200
	maxResult = 3000
)

// A reply is the model's answer: a text, or a tool call if tool is not empty.
type reply struct {
	text string
	tool string
	args map[string]string
}

// answer returns the reply to a request.
func answer(r request) reply {
	if own, ok := internalReply(r); ok {
		return own
	}
	say := func(text string) reply {
		if !r.answered() {
			text = introduction + "\n\n" + text
		}
		return reply{text: text}
	}
	if results := r.results(); results != "" {
		return say(results)
	}
	question := r.question()
	if images := describe(question.Images); images != "" {
		return say("I see " + images + ". What is in it only a real model can tell.")
	}
	text := remembered().ReplaceAllString(question.Text, "")
	if due, ok := proactive(text); ok {
		return due
	}
	requests := readings(jobFrame().ReplaceAllString(text, ""))
	for _, request := range requests {
		if helpPattern().MatchString(request) {
			return say(abilities(r))
		}
		for _, rule := range rules {
			if m := rule.pattern().FindStringSubmatch(request); m != nil && r.offers(rule.tool) {
				return reply{tool: rule.tool, args: rule.arguments(m)}
			}
		}
	}
	if requests[0] == "" {
		return say(abilities(r))
	}
	return say(fmt.Sprintf("You wrote: %q. %s", plaintext.Clip(requests[0], maxEcho), abilities(r)))
}

var (
	// jobFrame matches what the gateway adds around the text of a job.
	jobFrame = plaintext.Pattern(
		`(?s)\[the job "[^\n]*\]\n|\n\nIf there is nothing that anybody .*`)
	// reminder matches a reminder, and heartbeat the gateway's heartbeat message.
	reminder  = plaintext.Pattern(`(?s)^Reminder: .*`)
	heartbeat = plaintext.Pattern(`^\[heartbeat; `)
)

// proactive answers a message that nobody wrote: it repeats a reminder and reports nothing for a
// heartbeat. It returns false for other messages.
func proactive(message string) (reply, bool) {
	message = jobFrame().ReplaceAllString(envelope().ReplaceAllString(message, ""), "")
	switch {
	case reminder().MatchString(message):
		return reply{text: strings.TrimSpace(message)}, true
	case heartbeat().MatchString(message):
		return reply{text: "HEARTBEAT_OK"}, true
	}
	return reply{}, false
}

func (r *rule) arguments(match []string) map[string]string {
	args := make(map[string]string)
	for i, name := range r.args {
		value := strings.Trim(strings.TrimSpace(match[i+1]), "`\"'")
		if value == "" {
			value = defaults[name]
		}
		args[name] = value
	}
	if r.action != "" {
		args["action"] = r.action
	}
	return args
}

// abilities returns a text about what the user can ask for.
func abilities(r request) string {
	var b strings.Builder
	b.WriteString("You can write:\n")
	for _, rule := range rules {
		if r.offers(rule.tool) {
			fmt.Fprintf(&b, "\n- `%s` %s", rule.usage, rule.does)
		}
	}
	b.WriteString("\n- `help` shows this list")
	return b.String()
}

var (
	// envelope matches the timestamp before a message, such as "[Monday 2026-02-16 12:51 +08:00] ".
	envelope = plaintext.Pattern(`(?m)^\s*\[[^\]\n]*\d{4}-\d{2}-\d{2}[^\]\n]*\]\s*`)
	// remembered matches the facts and skills that the gateway adds to a message.
	remembered = plaintext.Pattern(`(?s)\n\n\[(?:what you remember|the skill )[^\]]*\].*`)

	speaker = plaintext.Pattern(`^[^:\n]{1,64}:\s+`)
	mention = plaintext.Pattern(`^@\S+\s+`)
)

// readings returns the possible requests in a message, at least one: the message without its
// envelope; without what may be the speaker's name, as in groups; and its last line, because
// messages that arrive together are joined to one.
func readings(message string) []string {
	lines := strings.Split(strings.TrimSpace(message), "\n")
	var all []string
	for _, text := range []string{strings.Join(lines, "\n"), lines[len(lines)-1]} {
		text = envelope().ReplaceAllString(text, "")
		all = append(all, plain(text), plain(speaker().ReplaceAllString(text, "")))
	}
	return all
}

// plain removes a mention at the beginning and the punctuation around a request.
func plain(text string) string {
	text = mention().ReplaceAllString(strings.TrimSpace(text), "")
	return strings.TrimRight(strings.Trim(text, "`"), "?! \t\r\n")
}
