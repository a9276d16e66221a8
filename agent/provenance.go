package agent

import (
	"fmt"
	"slices"
	"strings"

	"gateway/agent/llm"
	"gateway/agent/policy"
	"gateway/agent/prompt"
	"gateway/agent/tool"
	"gateway/bus"
)

// A provenance names the sources of a turn's messages that may give it no orders. The model may be
// following one of them: so a call with a lasting effect, or one that the least of their authors
// could not have made, needs an approval.
type provenance struct {
	sources []string // such as "the page https://…", the first ones
	least   bus.Role // of those who were overheard; "" if nobody was
}

// maxSources is how many sources a request names.
const maxSources = 3

// recall adds messages to the turn's history.
func (t *turn) recall(messages ...llm.Message) {
	t.history = append(t.history, messages...)
	t.addSources(messages)
}

// addSources adds the sources of messages to the turn's provenance.
func (t *turn) addSources(messages []llm.Message) {
	var now provenance
	if before := t.provenance.Load(); before != nil {
		now = provenance{slices.Clone(before.sources), before.least}
	}
	for _, m := range messages {
		if m.Foreign != "" && len(now.sources) < maxSources && !slices.Contains(now.sources, m.Foreign) {
			now.sources = append(now.sources, m.Foreign)
		}
		if r := bus.Role(m.Rights); r.Valid() && (now.least == "" || now.least.AtLeast(r)) {
			now.least = r
		}
	}
	if len(now.sources) > 0 || now.least != "" {
		t.provenance.Store(&now)
	}
}

// foreign names what others have written into the turn; "" if nobody has.
func (t *turn) foreign() string {
	if o := t.provenance.Load(); o != nil {
		return strings.Join(o.sources, ", ")
	}
	return ""
}

// suspicion returns why a call that the rules allow is asked about all the same, or "".
func (t *turn) suspicion(found tool.Tool, c tool.Call) string {
	o := t.provenance.Load()
	if o == nil {
		return ""
	}
	what := ""
	switch {
	case found.Lasts != nil && found.Lasts(c):
		what = "What it writes lasts"
	case o.least != "" && !o.least.AtLeast(t.role) && !t.mayUse(o.least, found, c):
		what = fmt.Sprintf("Somebody who is %s only may not have me do it", article(o.least))
	default:
		return ""
	}
	quoted := make([]string, len(o.sources))
	for i, s := range o.sources {
		quoted[i] = strings.ReplaceAll(prompt.SourceName(s), "`", "'")
	}
	return fmt.Sprintf("%s, and this turn has read `%s`, which may have told me to.", what,
		strings.Join(quoted, "`, `"))
}

// mayUse reports whether somebody of a role could have the turn make a call without an approval.
func (t *turn) mayUse(r bus.Role, found tool.Tool, c tool.Call) bool {
	c.Role = r
	return r.AtLeast(found.Least) && t.rule(r, found, c) == policy.Allow
}
