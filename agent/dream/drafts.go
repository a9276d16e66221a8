package dream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gateway/store/plainjson"
	"gateway/store/plaintext"
)

// drafts are copies of the documents. A run edits only the copies, not the files.
type drafts struct {
	byName map[string]*draft // by document name
	limit  int               // the size of a document, in bytes
	day    string            // today

	allowed []string // the new skills named by the first phase
	exist   []string // the existing skills
	skills  []file   // new skills
	edited  bool     // something was changed, even if it was changed back
}

// draft is the copy of a document. Its texts have LF line ends.
type draft struct {
	file    file   // as read; New and Text are not set
	base    string // original text
	text    string // current text
	problem string // why it can't be changed, or ""
	bom     bool
	crlf    bool // all lines of the file end in CRLF
}

const byteOrderMark = "\uFEFF"

// openDrafts reads the documents. A document that can't be edited stays unchanged, and the
// model is told why.
func (r *run) openDrafts(ctx context.Context) *drafts {
	d := &drafts{byName: make(map[string]*draft), limit: r.opts.MaxDocument,
		day: r.deps.Now().In(r.opts.Zone).Format(time.DateOnly)}
	for _, name := range documents {
		text, hash, err := r.deps.Documents.Read(r.scope, name)
		s := newDraft(name, text, hash)
		switch {
		case err != nil:
			r.deps.Logger.WarnContext(ctx, "dream can't read a document", "scope", r.scope,
				"document", name, "err", err)
			s.problem = "it can't be read"
		case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
			s.problem = "it is not text"
		case len(text) > 2*r.opts.MaxDocument:
			s.problem = fmt.Sprintf("it has %d bytes, somebody must shorten it by hand", len(text))
		}
		d.byName[name] = s
	}
	for _, f := range r.state.Findings {
		if f.Skill != "" {
			d.allowed = append(d.allowed, f.Skill)
		}
	}
	d.exist = r.deps.Skills(r.scope)
	return d
}

func newDraft(name, text, hash string) *draft {
	s := &draft{file: file{Name: name, Base: text, Hash: hash}}
	text, s.bom = strings.CutPrefix(text, byteOrderMark)
	n := strings.Count(text, "\r\n")
	if s.crlf = n > 0 && n == strings.Count(text, "\n"); s.crlf {
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}
	s.base, s.text = text, text
	return s
}

// plan returns the files to write.
func (d *drafts) plan() []file {
	var list []file
	for _, name := range documents {
		s := d.byName[name]
		if s.text == s.base {
			continue
		}
		f := s.file
		if f.Text = s.text; s.crlf {
			f.Text = strings.ReplaceAll(f.Text, "\n", "\r\n")
		}
		if s.bom {
			f.Text = byteOrderMark + f.Text
		}
		list = append(list, f)
	}
	return append(list, d.skills...)
}

// editArgs are the arguments of edit_document.
type editArgs struct {
	Name string  `json:"name"`
	Old  *string `json:"old"`
	New  *string `json:"new"`
}

// edit replaces a part of a document, or adds to it. The model reads its error.
func (d *drafts) edit(a editArgs) error {
	s := d.byName[documentName(a.Name)]
	switch {
	case s == nil:
		return fmt.Errorf("there is no document %q: want one of %s", plaintext.Cut(a.Name, 80),
			strings.Join(documents, ", "))
	case s.problem != "":
		return fmt.Errorf("%s can't be changed: %s", s.file.Name, s.problem)
	case a.Old == nil || a.New == nil:
		return errors.New(`both "old" and "new" are needed: "old" is "" to add text, ` +
			`"new" is "" to remove it`)
	}
	old, text := lineEnds.Replace(*a.Old), clean(*a.New)
	if imitatesPrompt(text) {
		return errors.New("text in brackets that looks like the gateway's own is refused: say it " +
			"in other words")
	}
	var changed string
	var err error
	switch {
	case strings.TrimSpace(old) == "" && isTable(text):
		changed, err = appended(s.text, text)
	case strings.TrimSpace(old) == "":
		changed, err = appended(s.text, unframed(text))
	case strings.Contains(s.text, old): // the bars are a part of the document
		changed, err = s.replaced(old, text)
	default:
		changed, err = s.replaced(unframed(old), unframed(text))
	}
	if err == nil {
		err = s.check(changed, d.limit)
	}
	if err != nil {
		return err
	}
	s.text, d.edited = changed, true
	return nil
}

// documentName returns the name of a document, even if the model has written a path.
func documentName(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimPrefix(strings.TrimPrefix(s, "./"), "memory/")
}

// isTable reports whether all lines of text end with a bar, as in a Markdown table.
func isTable(text string) bool {
	return !slices.ContainsFunc(contentLines(text), func(line string) bool {
		return !strings.HasSuffix(line, "|")
	})
}

// replaced returns the document with old replaced by text. old must occur exactly once.
func (s *draft) replaced(old, text string) (string, error) {
	switch n := strings.Count(s.text, old); {
	case n == 0:
		return "", fmt.Errorf(`"old" does not stand in %s: copy it exactly, without the bars`,
			s.file.Name)
	case n > 1:
		return "", fmt.Errorf(`"old" stands %d times in %s: take more of the text around it`,
			n, s.file.Name)
	case old == text:
		return "", errors.New(`"old" and "new" are the same`)
	}
	at := strings.Index(s.text, old)
	before, after := s.text[:at], s.text[at+len(old):]
	if text == "" && (before == "" || strings.HasSuffix(before, "\n")) &&
		!strings.HasSuffix(old, "\n") {
		after = strings.TrimPrefix(after, "\n") // remove the line end of whole lines, too
	}
	return before + text + after, nil
}

// smallRewrite is the number of lines that may be reworded in any document.
const smallRewrite = 3

// check returns an error if the document may not be changed to text.
func (s *draft) check(text string, limit int) error {
	switch {
	case len(text) > limit && len(text) >= len(s.text):
		return fmt.Errorf("%s may have %d bytes and would have %d: shorten something else first",
			s.file.Name, limit, len(text))
	case len(s.base) > limit: // it must become shorter, but keep some text
		if len(text) < limit/4 {
			return fmt.Errorf("that would leave %d bytes of %s: keep more of it", len(text), s.file.Name)
		}
		return nil
	}
	base, now := contentLines(s.base), contentLines(text)
	if 2*len(now) < len(base) {
		return fmt.Errorf("%s had %d lines and would have %d: no more than half of them may go "+
			"at a time. Keep what is least out of date", s.file.Name, len(base), len(now))
	}
	if lost := len(difference(base, now)); lost > max(len(base)/2, smallRewrite) {
		return fmt.Errorf("%d of the %d lines of %s would be other ones: no document is rewritten, "+
			"only what has changed", lost, len(base), s.file.Name)
	}
	return nil
}

// contentLines returns the non-blank lines of text, trimmed.
func contentLines(text string) []string {
	var list []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}

// difference returns the lines of a that are not in b, as often as they are missing.
func difference(a, b []string) []string {
	count := make(map[string]int, len(b))
	for _, line := range b {
		count[line]++
	}
	var list []string
	for _, line := range a {
		if count[line]--; count[line] < 0 {
			list = append(list, line)
		}
	}
	return list
}

// skillArgs are the arguments of write_skill.
type skillArgs struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Body        string `json:"body"`
}

// Limits of a new skill, in bytes.
const (
	maxSkillFile        = 8 << 10
	maxSkillDescription = 1_024
)

// write drafts a new skill. The model reads its error.
func (d *drafts) write(a skillArgs) error {
	description, body := oneLine(a.Description), stripFrontMatter(strings.TrimSpace(clean(a.Body)))
	name := "skills/" + a.Name + "/SKILL.md" // relative to the scope's folder
	switch {
	case !slices.Contains(d.allowed, a.Name):
		return fmt.Errorf("no [SKILL] %q is among the changes to make", plaintext.Cut(a.Name, 80))
	case slices.Contains(d.exist, a.Name):
		return errors.New("there is such a skill already: leave it as it is")
	case slices.ContainsFunc(d.skills, func(f file) bool { return f.Name == name }):
		return errors.New("it is written already")
	case len(d.skills) >= maxSkills:
		return fmt.Errorf("no more than %d new skills at a time", maxSkills)
	case description == "" || body == "":
		return errors.New(`both "description" and "body" are needed`)
	case len(description) > maxSkillDescription:
		return fmt.Errorf("the description has %d bytes: no more than %d", len(description),
			maxSkillDescription)
	case imitatesPrompt(description) || imitatesPrompt(body):
		return errors.New("text in brackets that looks like the gateway's own is refused: say it " +
			"in other words")
	}
	text := skillText(a.Name, description, body, d.day)
	if len(text) > maxSkillFile {
		return fmt.Errorf("the skill has %d bytes: no more than %d", len(text), maxSkillFile)
	}
	d.skills = append(d.skills, file{Name: name, New: true, Text: text})
	d.edited = true
	return nil
}

// skillText returns the file of a skill. Its metadata says that Dream found it.
func skillText(name, description, body, day string) string {
	return "---\nname: " + name + "\ndescription: " + plainjson.Text(description) +
		"\nmetadata:\n  gateway:\n    found: true\n    found_on: " + plainjson.Text(day) +
		"\n---\n\n" + body + "\n"
}

// stripFrontMatter returns the body of a skill without front matter written by the model.
func stripFrontMatter(body string) string {
	rest, ok := strings.CutPrefix(body, "---\n")
	if !ok {
		return body
	}
	_, after, ok := strings.Cut(rest, "\n---")
	if !ok {
		return body
	}
	return strings.TrimSpace(strings.TrimLeft(after, "-"))
}
