package skills

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"gateway/store/plaintext"
)

// Limits of the skills' part of each prompt, in bytes.
const (
	maxActive  = 64 << 10
	maxSummary = 24 << 10
	maxNames   = 4 << 10 // of maxSummary
)

// Prompt returns the prompt's parts about the skills visible to a scope. As long as
// nothing changes, it returns identical texts. A part without content is "".
//
// active is the text of the skills that are always part of the prompt. summary lists the
// others that the model may read, as XML of at most 24 KB: if there are many, descriptions
// are shortened, and the last skills may only be named.
//
// Skills for which hidden returns true are left out; a nil hidden hides none. The texts include
// all changes made before the mark, and perhaps later ones.
func (l *Library) Prompt(
	scope string, since Mark, hidden func(name string) bool,
) (active, summary string) {
	v := l.view(scope, since)
	if hidden == nil {
		return v.active, v.summary
	}
	var visible []cachedSkill
	for _, k := range v.skills {
		if !hidden(k.skill.Name) {
			// renderActive decides this anew, because with fewer skills others may fit.
			k.inlined = false
			visible = append(visible, k)
		}
	}
	return renderActive(visible), renderSummary(visible)
}

// HiddenFolders returns the folders, as tools call them, of the skills visible to a scope for which
// hidden returns true, and of such built-in skills that a shared one replaces. A nil hidden hides
// none.
func (l *Library) HiddenFolders(
	scope string, since Mark, hidden func(name string) bool,
) (folders []string) {
	if hidden == nil {
		return nil
	}
	for _, k := range l.view(scope, since).skills {
		if hidden(k.skill.Name) {
			folders = append(folders, path.Dir(k.skill.Location))
		}
	}
	for _, k := range l.builtin() {
		if hidden(k.skill.Name) {
			folders = append(folders, path.Join(builtinFolder, k.skill.Folder))
		}
	}
	return folders
}

// renderActive returns the text of the active skills and marks the included ones.
func renderActive(skills []cachedSkill) string {
	var b strings.Builder
	left := 0
	for i := range skills {
		k := &skills[i]
		if !k.skill.Always || !k.skill.Available() || k.text == "" {
			continue
		}
		if b.Len()+len(k.text) > maxActive {
			left++
			continue
		}
		if k.inlined = true; b.Len() > 0 {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "## Skill: %s\n\n%s", k.skill.Name, k.text)
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n\n[%d more skills are meant to be always active. They are only listed "+
			"below: together they are too long.]", left)
	}
	return strings.TrimSpace(b.String())
}

// renderSummary returns the list of the skills that the model may read. If it is too long, it is
// made again with shorter descriptions, since a skill without a description is better than none.
func renderSummary(skills []cachedSkill) string {
	var list []Skill
	for _, b := range skills {
		if !b.inlined && !b.skill.Disabled && !b.skill.Manual {
			list = append(list, b.skill)
		}
	}
	if len(list) == 0 {
		return ""
	}
	for _, most := range []int{maxDescription, 256} {
		if text, left := summarize(list, most, maxSummary); len(left) == 0 {
			return text
		}
	}
	text, left := summarize(list, 80, maxSummary-maxNames)
	if len(left) == 0 {
		return text
	}
	return text + "\n" + nameList(left)
}

// summarize lists skills with at most most characters of description each, in at most size
// bytes. It returns the skills that don't fit.
func summarize(list []Skill, most, size int) (text string, left []Skill) {
	const end = "</skills>"
	var b strings.Builder
	b.WriteString("<skills>\n")
	for i, s := range list {
		entry := element(s, most)
		if b.Len()+len(entry)+len(end) > size {
			left = list[i:]
			break
		}
		b.WriteString(entry)
	}
	b.WriteString(end)
	return b.String(), left
}

// nameList returns the names of skills that don't fit into the list.
func nameList(left []Skill) string {
	const reserve = 200 // bytes for the text around the names
	var known []string
	size := reserve
	for _, s := range left {
		if size += len(escape(s.Name)) + 2; s.Available() && size <= maxNames {
			known = append(known, escape(s.Name))
		}
	}
	return fmt.Sprintf("%d more skills are left out. list_dir of %s, %s and %s shows all. "+
		"Among them: %s.", len(left), skillsFolder, builtinFolder, foundFolder,
		strings.Join(known, ", "))
}

// element returns a skill as XML, on one line.
func element(s Skill, most int) string {
	var b strings.Builder
	attribute := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, ` %s="%s"`, name, escape(text))
		}
	}
	b.WriteString("<skill")
	attribute("name", s.Name)
	attribute("location", plaintext.OneLine(s.Location))
	if !s.Available() {
		attribute("available", "false")
	}
	attribute("needs", strings.Join(s.Requires.Skills, ", "))
	attribute("missing", strings.Join(s.Missing, "; "))
	attribute("problem", s.Problem)
	fmt.Fprintf(&b, ">%s</skill>\n", escape(plaintext.Shorten(s.Description, most)))
	return b.String()
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

func escape(s string) string { return escaper.Replace(s) }

// Body returns the current text of a skill of [Library.List] without its front matter. A
// long text is cut and gets a notice.
func (l *Library) Body(s Skill) (string, error) {
	if s.Problem != "" {
		return "", fmt.Errorf("the skill %s can't be used: %s", s.Name, s.Problem)
	}
	data, err := l.read(s)
	if err != nil {
		return "", fmt.Errorf("the skill %s can't be used: %s", s.Name, reason(err))
	}
	d := parse(data)
	if d.Problem != "" {
		return "", fmt.Errorf("the skill %s can't be used: %s", s.Name, d.Problem)
	}
	return cut(d.body, &s), nil
}

// read returns the content of a skill's file.
func (l *Library) read(s Skill) ([]byte, error) {
	if s.Source == Builtin {
		return builtins.ReadFile(path.Join("builtin", s.Folder, s.file))
	}
	folder, err := l.open(s)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return readText(folder, filepath.Join(s.Folder, s.file))
}

// open opens the folder of skills that contains a skill.
func (l *Library) open(s Skill) (*os.Root, error) {
	if (s.Source == Found) != (s.Scope != "") {
		return nil, fs.ErrNotExist
	}
	root, name, ok := l.place(s.Scope)
	if !ok {
		return nil, fs.ErrNotExist
	}
	folder, _, err := openSkills(root, name)
	return folder, err
}

// cut returns the beginning of a skill's text, with a notice if the text was cut.
func cut(body string, s *Skill) string {
	if len(body) <= maxBody {
		return body
	}
	// The cut is at the end of a line, unless that would lose more than half.
	end := strings.LastIndexByte(body[:maxBody], '\n')
	if end < maxBody/2 {
		end = maxBody
	}
	return strings.ToValidUTF8(body[:end], "") +
		fmt.Sprintf("\n\n[The rest of the skill %s is left out: it is too long.]", s.Name)
}
