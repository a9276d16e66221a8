package prompt

import (
	"regexp"
	"slices"

	"gateway/agent/llm"
	"gateway/session"
)

// added is what recollect adds to messages. Nothing that people write looks like that: see spoken.
var added = regexp.MustCompile(`(?s)\n\n\[the skill [^\]\n]*, named by the user\]\n.*?` +
	`\n\[end of the skill\]|\n\n\[what you remember, for this message\]\n.*?` +
	`\n\[end of what you remember\]`)

// AsSaid returns what was said in entries, without what was remembered for it: that is no news, and
// neither a search nor notes shall find it as if somebody had said it.
func AsSaid(entries []session.Entry) []session.Entry {
	list := slices.Clone(entries)
	for i := range list {
		if m := &list[i].Message; m.Role == llm.User {
			m.Text = added.ReplaceAllString(m.Text, "")
		}
	}
	return list
}
