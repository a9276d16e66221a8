// Package ask implements the tool "ask", with which the agent asks the person a question
// and suspends the turn until the answer. The suspended turn is in the database, so that
// it survives hours and restarts.
//
// The package owns no state: package question keeps the pending questions.
package ask

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"gateway/agent/tool"
	"gateway/store/plaintext"
)

// Limits of a question.
const (
	maxOptions  = 8
	maxOption   = 40   // characters; buttons are short
	maxQuestion = 2000 // bytes
	defaultWait = time.Hour
	maxWait     = 7 * 24 * time.Hour
	groupWait   = 10 * time.Minute // in a group, where the turn blocks others, too
)

const description = "Asks the user and waits for the answer, 60 minutes by default. Only before " +
	"what can't be undone, or when you can't go on without it; else end your answer with the " +
	"question."

type arguments struct {
	Question string   `json:"question"`
	Options  []string `json:"options,omitempty"`
	Minutes  int      `json:"minutes,omitempty"`
}

// New returns the tool.
func New() tool.Tool {
	return tool.New("ask", description, tool.Idempotent, run)
}

// run checks the question and suspends the turn. In a group the agent waits no longer than
// groupWait, whatever the model asks for.
func run(_ context.Context, c tool.Call, a arguments) (tool.Result, error) {
	wait := tool.Wait{Text: strings.TrimSpace(a.Question), For: defaultWait}
	switch {
	case wait.Text == "":
		return tool.Result{}, errors.New("the question is empty")
	case len(wait.Text) > maxQuestion:
		return tool.Result{}, fmt.Errorf("the question is longer than %d bytes; shorten it", maxQuestion)
	case len(a.Options) > maxOptions:
		return tool.Result{}, fmt.Errorf("%d options are more than %d", len(a.Options), maxOptions)
	case a.Minutes < 0:
		return tool.Result{}, errors.New("minutes must be positive")
	}
	if a.Minutes > 0 {
		wait.For = time.Duration(min(a.Minutes, int(maxWait/time.Minute))) * time.Minute
	}
	if c.Group {
		wait.For = min(wait.For, groupWait)
	}
	for _, option := range a.Options {
		option = plaintext.OneLine(option)
		if n := len([]rune(option)); n == 0 || n > maxOption {
			return tool.Result{}, fmt.Errorf("option %q: want 1 to %d characters", option, maxOption)
		}
		wait.Options = append(wait.Options, option)
	}
	return tool.Result{Wait: &wait}, nil
}
