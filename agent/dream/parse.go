package dream

import (
	"fmt"
	"slices"
	"strings"

	"gateway/memory/document"
	"gateway/store/plaintext"
)

// Limits of the findings of the first phase.
const (
	maxFindings = 50
	maxFinding  = 1_000 // bytes per finding
	maxReasons  = 20    // recorded reasons for skipped lines
	maxSkills   = 2     // new skills per run
)

// finding is a change that the first phase has named.
type finding struct {
	Document string `json:"document,omitempty"` // file name; "" for a skill
	Remove   bool   `json:"remove,omitempty"`
	Skill    string `json:"skill,omitempty"` // name of a new skill
	Text     string `json:"text"`            // a fact, a removal with its reason, or a skill's purpose
}

// String returns the finding in the form of the model's answer.
func (f finding) String() string {
	if f.Skill != "" {
		return "[SKILL] " + f.Skill + ": " + f.Text
	}
	tag := strings.TrimSuffix(f.Document, ".md")
	if f.Remove {
		tag += "-REMOVE"
	}
	return "[" + tag + "] " + f.Text
}

// analysis is the parsed answer of the first phase.
type analysis struct {
	findings []finding
	valid    bool     // it has at least one line of the requested form
	skipped  []string // why lines were left out
}

// tagged matches a line that begins with a tag, after any marks of lists, headings, quotes
// or bold text. A bar is not such a mark: there the model repeats a line of its data.
var tagged = plaintext.Pattern("^(?:[\\s>#*+•–_`-]|\\d{1,3}[.)]|\\[[ xX]\\])*" +
	"[\\[【]\\s*([A-Za-z][A-Za-z ._-]{0,30}?)\\s*[\\]】][\\s*_`:：]*(.*)$")

// parse parses the answer of the first phase. skills are the names of existing skills.
func parse(answer string, skills []string) analysis {
	var a analysis
	for line := range strings.SplitSeq(clean(answer), "\n") {
		m := tagged().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		tag := tagName(m[1])
		f, ok := finding{Text: unmarked(m[2])}, true
		switch tag {
		case "SKIP":
			a.valid = true
			continue
		case "SKILL":
			f, ok = skillFinding(f.Text)
		case "USER", "MEMORY", "SOUL":
			f.Document = tag + ".md"
		case "USER-REMOVE", "MEMORY-REMOVE", "SOUL-REMOVE":
			f.Document, f.Remove = strings.TrimSuffix(tag, "-REMOVE")+".md", true
		default:
			if m[1] == strings.ToUpper(m[1]) { // otherwise it is prose or a link
				a.leaveOut(line, "its tag is unknown")
			}
			continue
		}
		if !ok {
			a.leaveOut(line, "it does not name a skill in the form kebab-name: what it is for")
			continue
		}
		a.valid = true
		a.add(f, skills)
	}
	return a
}

// tagName normalises the name of a tag: "user.md remove" becomes USER-REMOVE.
func tagName(s string) string {
	words := strings.FieldsFunc(strings.ToUpper(s), func(r rune) bool {
		return strings.ContainsRune(" ._-", r)
	})
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "MD" }), "-")
}

// add adds f, or records why it was skipped.
func (a *analysis) add(f finding, skills []string) {
	named := 0
	for _, other := range a.findings {
		if other.Skill != "" {
			named++
		}
		if other == f || f.Skill != "" && other.Skill == f.Skill {
			return // a repetition
		}
	}
	switch {
	case f.Text == "":
		a.leaveOut(f.String(), "it says nothing")
	case len(f.Text) > maxFinding:
		a.leaveOut(f.String(), "it is too long for one fact")
	case imitatesPrompt(f.Text):
		a.leaveOut(f.String(), "it looks like something that only the gateway says")
	case f.Skill != "" && slices.Contains(skills, f.Skill):
		a.leaveOut(f.String(), "there is such a skill")
	case f.Skill != "" && named >= maxSkills:
		a.leaveOut(f.String(), fmt.Sprintf("there are %d new skills in this run", maxSkills))
	case len(a.findings) >= maxFindings:
		a.leaveOut(f.String(), fmt.Sprintf("there are %d changes in this run", maxFindings))
	default:
		a.findings = append(a.findings, f)
	}
}

func (a *analysis) leaveOut(line, why string) {
	if len(a.skipped) < maxReasons {
		a.skipped = append(a.skipped, fmt.Sprintf("%q: %s", plaintext.Cut(oneLine(line), 120), why))
	}
}

// unmarked returns text on one line. It removes the closing half of a mark whose opening
// half was before the tag.
func unmarked(text string) string {
	text = oneLine(text)
	for _, mark := range []string{"**", "__", "`"} {
		if strings.Count(text, mark)%2 == 1 {
			text = strings.TrimSpace(strings.TrimSuffix(text, mark))
		}
	}
	return text
}

// skillName matches valid names of skills.
var skillName = plaintext.Pattern(`^[a-z0-9]+(-[a-z0-9]+)*$`)

const maxSkillName = 64

// skillFinding parses "kebab-name: what it is for".
func skillFinding(text string) (finding, bool) {
	name, rest, ok := strings.Cut(strings.Replace(text, "：", ":", 1), ":")
	if !ok {
		return finding{}, false
	}
	name = strings.Trim(strings.ToLower(name), " *`\"'")
	name = strings.NewReplacer(" ", "-", "_", "-").Replace(name)
	if len(name) > maxSkillName || !skillName().MatchString(name) {
		return finding{}, false
	}
	return finding{Skill: name, Text: unmarked(strings.TrimLeft(rest, " *`"))}, true
}

// documents are the documents that a run may change, in the order of the prompt.
var documents = []string{document.User, document.Memory, document.Soul}
