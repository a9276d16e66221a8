package dream

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gateway/agent/prompt"
	"gateway/memory/document"
)

// The limits of what the first phase may name.
const (
	maxFindings = 50
	maxFinding  = 1_000 // bytes of one
	maxReasons  = 20    // why lines were left out
	maxSkills   = 2     // new ones of a run
)

// A finding is a change that the first phase has named.
type finding struct {
	Document string `json:"document,omitempty"` // the name of a file; "" for a skill
	Remove   bool   `json:"remove,omitempty"`
	Skill    string `json:"skill,omitempty"` // the name of a new one
	Text     string `json:"text"`            // a fact, what to remove and why, what the skill is for
}

// String returns the line by which the model names the finding.
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

// An analysis is what the model's answer to the first phase says.
type analysis struct {
	findings []finding
	valid    bool     // it has a line of the form that was asked for
	skipped  []string // why lines were left out
}

// tagged is a line that begins with a tag, whatever marks of lists, headings, quotes or bold text
// stand before it. A bar is none of them: the model repeats a line of its data.
var tagged = regexp.MustCompile("^(?:[\\s>#*+•–_`-]|\\d{1,3}[.)]|\\[[ xX]\\])*" +
	"[\\[【]\\s*([A-Za-z][A-Za-z ._-]{0,30}?)\\s*[\\]】][\\s*_`:：]*(.*)$")

// parse reads the answer of the first phase. The skills with the given names are there already.
func parse(answer string, skills []string) analysis {
	var a analysis
	for line := range strings.SplitSeq(clean(answer), "\n") {
		m := tagged.FindStringSubmatch(line)
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
			if m[1] == strings.ToUpper(m[1]) { // else it is prose, or a link
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

// tagName returns the name of a tag in the form of the prompt: "user.md remove" is USER-REMOVE.
func tagName(s string) string {
	words := strings.FieldsFunc(strings.ToUpper(s), func(r rune) bool {
		return strings.ContainsRune(" ._-", r)
	})
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "MD" }), "-")
}

// add adds f unless there is a reason against it.
func (a *analysis) add(f finding, skills []string) {
	named := 0
	for _, other := range a.findings {
		if other.Skill != "" {
			named++
		}
		if other == f || f.Skill != "" && other.Skill == f.Skill {
			return // the model repeats itself
		}
	}
	switch {
	case f.Text == "":
		a.leaveOut(f.String(), "it says nothing")
	case len(f.Text) > maxFinding:
		a.leaveOut(f.String(), "it is too long for one fact")
	case posing(f.Text):
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
		a.skipped = append(a.skipped, fmt.Sprintf("%q: %s", prompt.Clip(oneLine(line), 120), why))
	}
}

// unmarked returns text on one line, without the second half of a mark whose first half stood
// before the tag.
func unmarked(text string) string {
	text = oneLine(text)
	for _, mark := range []string{"**", "__", "`"} {
		if strings.Count(text, mark)%2 == 1 {
			text = strings.TrimSpace(strings.TrimSuffix(text, mark))
		}
	}
	return text
}

// skillName is the form of names that skills have.
var skillName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

const maxSkillName = 64

// skillFinding reads "kebab-name: what it is for".
func skillFinding(text string) (finding, bool) {
	name, rest, ok := strings.Cut(strings.Replace(text, "：", ":", 1), ":")
	if !ok {
		return finding{}, false
	}
	name = strings.Trim(strings.ToLower(name), " *`\"'")
	name = strings.NewReplacer(" ", "-", "_", "-").Replace(name)
	if len(name) > maxSkillName || !skillName.MatchString(name) {
		return finding{}, false
	}
	return finding{Skill: name, Text: unmarked(strings.TrimLeft(rest, " *`"))}, true
}

// documents are those that a run may change, in the order of the prompt.
var documents = []string{document.User, document.Memory, document.Soul}
