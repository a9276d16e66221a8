package mcp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"gateway/agent/tool"
)

// Limits of the questions to a person.
const (
	maxRounds  = 10       // times that a server may ask during one call
	maxState   = 64 << 10 // bytes of the server's own state
	answerTime = 10 * time.Minute
	longAnswer = time.Hour // if only a turn of a direct chat waits for the answer
)

// The actions of a person's answer, as the protocol names them, and the labels of buttons.
const (
	accept  = "accept"
	decline = "decline"
	cancel  = "cancel"

	optionAccept  = "Accept"
	optionOpened  = "I have opened it"
	optionDecline = "Decline"
)

// An elicitation holds the questions that a server asks during one call of a tool, and the answers
// so far. It is stored with the question that the person sees.
type elicitation struct {
	Requests []request                    `json:"requests"` // still to be answered
	Answers  map[string]*sdk.ElicitResult `json:"answers,omitempty"`
	Server   string                       `json:"server,omitempty"` // the server's own state
	Rounds   int                          `json:"rounds"`           // times that the server has asked

	// Running means that the server waits in the middle of the call. Otherwise the gateway makes
	// the call again with the answers. Links means that the requests are links to open: the gateway
	// then makes the call again without answers.
	Running bool `json:"running,omitempty"`
	Links   bool `json:"links,omitempty"`

	// The form of the first request.
	Field  int            `json:"field,omitempty"` // index of the field that is asked for
	Values map[string]any `json:"values,omitempty"`
	Unfit  int            `json:"unfit,omitempty"` // answers in a row that don't fit
}

// addAnswer adds the person's answer to the first request. The answer to the last field of a
// request removes the request from q.
func (q *elicitation) addAnswer(r *tool.Reply) error {
	fields, err := q.Requests[0].fields()
	if err == nil && q.Field >= max(1, len(fields)) {
		err = fmt.Errorf("there is no field %d", q.Field)
	}
	if err != nil {
		return fmt.Errorf("the server's question can't be read: %w", err)
	}
	text := strings.TrimSpace(r.Text)
	word := strings.ToLower(text)
	switch {
	case !r.Answered || word == wordCancel:
		q.end(cancel)
		return nil
	case word == wordDecline:
		q.end(decline)
		return nil
	}
	// Without fields the person only agrees, or says that a link is open.
	fits := true
	if len(fields) == 0 {
		fits = word == accept || word == strings.ToLower(optionOpened)
	} else {
		fits = q.fill(fields[q.Field], text, word)
	}
	switch {
	case !fits:
		if q.Unfit++; q.Unfit == maxUnfit {
			q.end(cancel)
		}
	case q.Field+1 < len(fields):
		q.Field, q.Unfit = q.Field+1, 0
	default:
		result := &sdk.ElicitResult{Action: accept}
		// The answer to a link has no content. That to a form always has one, even {}.
		if q.Requests[0].Link == "" {
			result.Content = q.Values
			if result.Content == nil {
				result.Content = map[string]any{}
			}
		}
		q.answer(result)
	}
	return nil
}

// fill sets the value of f, and reports whether the person's words are a valid value or a keyword.
// skip leaves an optional value out, and default stands for the server's own value.
func (q *elicitation) fill(f *field, text, word string) bool {
	v, ok := f.preset, true
	switch {
	case word == wordSkip && !f.required:
		return true
	case word != wordDefault || f.preset == nil:
		v, ok = f.value(text)
	}
	if ok {
		if q.Values == nil {
			q.Values = make(map[string]any)
		}
		q.Values[f.name] = v
	}
	return ok
}

// answer records the answer to the first request. The next request begins with its first field.
func (q *elicitation) answer(r *sdk.ElicitResult) {
	if q.Answers == nil {
		q.Answers = make(map[string]*sdk.ElicitResult)
	}
	q.Answers[q.Requests[0].ID] = r
	q.Requests, q.Field, q.Values, q.Unfit = q.Requests[1:], 0, nil, 0
}

// end answers all remaining requests with action: decline or cancel.
func (q *elicitation) end(action string) {
	for len(q.Requests) > 0 {
		q.answer(&sdk.ElicitResult{Action: action})
	}
}

// accepted reports whether the person has accepted all requests.
func (q *elicitation) accepted() bool {
	for _, r := range q.Answers {
		if r.Action != accept {
			return false
		}
	}
	return true
}

// wait returns the question to the person about the first request of q. server and name are those
// of the MCP server and its tool; group says that the turn runs in a group.
func (q *elicitation) wait(server, name string, group bool) (*tool.Wait, error) {
	fields, err := q.Requests[0].fields()
	if err != nil {
		return nil, err
	}
	// The state is stored with the question, and comes back with the answer.
	state, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	w := &tool.Wait{State: state, For: longAnswer}
	if group || q.Running {
		w.For = answerTime
	}
	r := q.Requests[0]
	var b strings.Builder
	if q.Unfit > 0 {
		b.WriteString("This answer is not valid. ")
	}
	fmt.Fprintf(&b, "The MCP server `%s` asks you, during the call of its tool `%s`", server,
		strings.ReplaceAll(oneLine(name, 80), "`", "'"))
	switch {
	case r.Link != "":
		u, err := url.Parse(r.Link)
		if err != nil {
			return nil, err // can't occur: newRequest has parsed it
		}
		fmt.Fprintf(&b, ", to open a link. It leads to `%s`:\n\n%s", u.Host, r.Link)
		w.Options = []string{optionOpened, optionDecline}
	case len(fields) == 0:
		b.WriteString(" for your consent.")
		w.Options = []string{optionAccept, optionDecline}
	default:
		b.WriteString(":")
	}
	if r.Message != "" {
		fmt.Fprintf(&b, "\n\n“%s”", r.Message)
	}
	if len(fields) > 0 {
		f := fields[q.Field]
		b.WriteString("\n\n" + f.ask(q.Field, len(fields)))
		// Without buttons, the text lists the values, if there is a choice.
		if f.buttons() {
			w.Options = append(append([]string(nil), f.labels...), optionDecline)
		}
	}
	b.WriteString("\n\nThe server gets your answer, and I don't know what it does with it. Never " +
		"send a password or a key.")
	w.Text = b.String()
	return w, nil
}

// ask returns the question for f, which is field i of n.
func (f *field) ask(i, n int) string {
	title := oneLine(cmp.Or(f.schema.Title, f.name), 100)
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**", strings.ReplaceAll(title, "*", ""))
	if n > 1 {
		fmt.Fprintf(&b, " (%d of %d)", i+1, n)
	}
	if f.schema.Description != "" {
		b.WriteString(": “" + oneLine(f.schema.Description, 300) + "”")
	}
	if wants := f.wants(); wants != "" {
		b.WriteString("\n" + wants)
	}
	b.WriteString("\n")
	if f.preset != nil {
		fmt.Fprintf(&b, "`%s` stands for “%s”. ", wordDefault, f.show(f.preset))
	}
	if !f.required {
		fmt.Fprintf(&b, "`%s` leaves it out. ", wordSkip)
	}
	fmt.Fprintf(&b, "`%s` refuses.", wordDecline)
	return b.String()
}
