package prompt

import (
	"slices"
	"strings"

	"gateway/agent/llm"
	"gateway/memory"
	"gateway/session"
	"gateway/store/plaintext"
)

// added matches what [Recalled] and [NamedSkill] append to messages. [Escape] makes sure
// that no text of a person matches.
var added = plaintext.Pattern(`(?s)\n\n\[the skill [^\]\n]*, named by the user\]\n.*?` +
	`\n\[end of the skill\]|\n\n\[what you remember, for this message\]\n.*?` +
	`\n\[end of what you remember\]`)

// WithoutRecalled returns entries without the facts and skills that were appended for the model.
// Searches and summaries must not treat these as something that a person said.
func WithoutRecalled(entries []session.Entry) []session.Entry {
	list := slices.Clone(entries)
	for i := range list {
		if m := &list[i].Message; m.Role == llm.User {
			m.Text = added().ReplaceAllString(m.Text, "")
		}
	}
	return list
}

// Recalled returns the text that is appended to a message for which facts were recalled.
func Recalled(facts []memory.Fact) string {
	return "\n\n[what you remember, for this message]\n" +
		strings.TrimSpace(Escape(memory.Render(facts))) + "\n[end of what you remember]"
}

// NamedSkill returns the text that is appended to a message that names a skill.
func NamedSkill(skill, body string) string {
	return "\n\n[the skill " + Name(skill, "without a name") + ", named by the user]\n" +
		Escape(body) + "\n[end of the skill]"
}

// Unseen returns the facts that are not in the newest entries of a transcript. It checks
// at most size bytes of entries.
func Unseen(facts []memory.Fact, transcript []session.Entry, size int) (list []memory.Fact) {
	near := newest(transcript, size)
	for _, f := range facts {
		if line := f.String(); !slices.ContainsFunc(near, func(e session.Entry) bool {
			return strings.Contains(e.Message.Text, line)
		}) {
			list = append(list, f)
		}
	}
	return list
}

// newest returns the last entries with at most size bytes.
func newest(list []session.Entry, size int) []session.Entry {
	i := len(list)
	for i > 0 && size >= list[i-1].Size {
		i--
		size -= list[i].Size
	}
	return list[i:]
}
