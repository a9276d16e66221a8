package agent

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gateway/agent/budget"
	"gateway/agent/policy"
	"gateway/agent/question"
	"gateway/bus"
	"gateway/session"
)

// approve answers /approve, and deny /deny.
func (d *Dispatcher) approve(c *call) (Say, error) {
	return d.settle(c, question.Granted, "")
}

func (d *Dispatcher) deny(c *call) (Say, error) {
	return d.settle(c, question.Refused, resultDenied)
}

// settle decides whether a tool call may happen.
func (d *Dispatcher) settle(c *call, state question.State, answer string) (Say, error) {
	q, say, err := d.open(c, c.args, question.Approve)
	if q == nil {
		return say, err
	}
	if !c.message.Role.AtLeast(q.Least) {
		return Say{Text: fmt.Sprintf("Only who is %s or more can decide that.", article(q.Least))}, nil
	}
	if _, err := d.questions.Decide(c.tx, q, state, answer, by(c.message)); err != nil {
		return Say{}, err
	}
	c.after = func() { d.decided(q) }
	if state == question.Granted {
		return Say{Text: "Approved."}, nil
	}
	return Say{Text: "Denied."}, nil
}

// answer answers /answer, which buttons send.
func (d *Dispatcher) answer(c *call) (Say, error) {
	code, text, _ := strings.Cut(c.args, " ")
	q, say, err := d.open(c, code, question.Ask)
	if q == nil {
		return say, err
	}
	if q.Sender != c.message.Sender.ID || q.Address.Account != c.message.From.Account {
		return Say{Text: "I have asked somebody else."}, nil
	}
	if strings.TrimSpace(text) == "" {
		return Say{Text: "Write your answer behind the code, or just send it."}, nil
	}
	chosen := chosen(q, text)
	_, err = d.questions.Decide(c.tx, q, question.Answered, chosen, by(c.message))
	c.after = func() { d.decided(q) }
	return Say{Text: chosenSay(chosen)}, err
}

func chosenSay(chosen string) string {
	_, what, _ := strings.Cut(chosen, ": ")
	return "Noted: " + what
}

// open returns the open question of a kind that has a code, or what to say if there is none.
func (d *Dispatcher) open(
	c *call, code string, kind question.Kind,
) (*question.Question, Say, error) {
	if strings.TrimSpace(code) == "" {
		return nil, Say{Text: fmt.Sprintf("Write the code behind `/%s`.", c.name)}, nil
	}
	q, err := d.questions.ByCode(c.tx, code)
	switch {
	case errors.Is(err, question.ErrNone):
		return nil, Say{Text: "There is no question with this code."}, nil
	case err != nil:
		return nil, Say{}, err
	case q.Kind != kind:
		return nil, Say{Text: "There is no question with this code."}, nil
	case q.State == question.Open && !d.opts.Now().Before(q.Expires),
		q.State == question.Expired:
		return nil, Say{Text: "That question has expired."}, nil
	case q.State != question.Open:
		return nil, Say{Text: "That is decided already."}, nil
	}
	return q, Say{}, nil
}

// decided lets the turn that has asked q go on.
func (d *Dispatcher) decided(q *question.Question) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.due(session.Key(q.Session))
}

// by names who has written m.
func by(m bus.InboundMessage) string { return m.From.Account + "/" + m.Sender.ID }

// haltAll answers /halt.
func (d *Dispatcher) haltAll(c *call) (Say, error) {
	ok, err := policy.SetHalt(c.tx, by(c.message), d.opts.Now())
	if err != nil || !ok {
		return Say{Text: "Everything is halted already. `/resume` lets it go on."}, err
	}
	return Say{Text: "Halted: no model is called and no tool is used, in any conversation, until " +
		"somebody sends `/resume`."}, nil
}

// resume answers /resume.
func (d *Dispatcher) resume(c *call) (Say, error) {
	ok, err := policy.ClearHalt(c.tx)
	if err != nil || !ok {
		return Say{Text: "Nothing is halted."}, err
	}
	return Say{Text: "I answer again. What was under way when I was halted has ended."}, nil
}

// usage answers /usage.
func (d *Dispatcher) usage(c *call) (Say, error) {
	info, err := d.sessions.Info(c.tx, c.key)
	if err != nil {
		return Say{}, err
	}
	who := budget.Spender{Session: string(c.key), Person: c.message.Person, Sender: by(c.message)}
	lines, err := d.opts.Usage.Today(c.tx, who)
	if err != nil {
		return Say{}, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "- This conversation, in all: %d tokens in (%d cached), %d out, $%.4f\n",
		info.Usage.Input, info.Usage.Cached, info.Usage.Output, info.Cost)
	limits := d.opts.Usage.Limits()
	for _, kind := range []string{"session", "person", "day"} {
		if kind == "day" && !c.message.Role.AtLeast(bus.Admin) {
			continue // what others use is theirs
		}
		var used budget.Amount
		if i := slices.IndexFunc(lines, func(l budget.Line) bool { return l.Kind == kind }); i >= 0 {
			used = budget.Amount{Tokens: lines[i].Usage.Input + lines[i].Usage.Output,
				Cost: lines[i].Cost}
		}
		fmt.Fprintf(&b, "- %s today: %s\n", usageNames[kind], usedOf(used, limits[kind]))
	}
	if limit, ok := limits["turn"]; ok {
		b.WriteString("- One answer at most: " + limitOf(limit) + "\n")
	}
	return Say{Text: b.String()}, nil
}

var usageNames = map[string]string{
	"session": "This conversation", "person": "You", "day": "Everybody",
}

func limitOf(l budget.Limit) string {
	var parts []string
	if l.Tokens > 0 {
		parts = append(parts, strconv.Itoa(l.Tokens)+" tokens")
	}
	if l.Dollars > 0 {
		parts = append(parts, fmt.Sprintf("$%.2f", l.Dollars))
	}
	return strings.Join(parts, ", ")
}
