package skills

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// The bounds of what is part of each prompt, in bytes.
const (
	maxActive  = 64 << 10
	maxSummary = 24 << 10
)

// Active returns the text of the skills that are always part of a prompt, "" if there are none. It
// is the same text as long as nothing has changed.
func (l *Library) Active(scope string) string {
	var b strings.Builder
	left := 0
	for _, k := range l.list(scope) {
		if !k.active() {
			continue
		}
		if b.Len()+len(k.text) > maxActive {
			left++
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "## Skill: %s\n\n%s", k.skill.Name, k.text)
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n\n[%d more skills are meant to be always active and are left out: "+
			"together they are too long]", left)
	}
	return strings.TrimSpace(b.String())
}

// active reports whether the skill's text is part of the prompt.
func (b *book) active() bool { return b.skill.Always && b.skill.Available() && b.text != "" }

// Summary returns the skills that the model may read, as XML for the prompt; "" if there are none.
// It is the same text as long as nothing has changed, and at most 24 KB: of many skills the
// descriptions are shortened, and of too many the last ones are left out.
func (l *Library) Summary(scope string) string {
	var list []Skill
	for _, b := range l.list(scope) {
		if !b.active() && !b.skill.Disabled && !b.skill.Manual {
			list = append(list, b.skill)
		}
	}
	if len(list) == 0 {
		return ""
	}
	for _, most := range []int{maxDescription, 256} {
		if text, left := summarize(list, most); left == 0 {
			return text
		}
	}
	text, _ := summarize(list, 80)
	return text
}

// summarize lists skills with at most so many characters of description each, and returns how many
// don't fit.
func summarize(list []Skill, most int) (text string, left int) {
	const reserve = 300 // bytes, for what comes last
	var b strings.Builder
	b.WriteString("<skills>\n")
	for i, s := range list {
		entry := element(s, most)
		if b.Len()+len(entry) > maxSummary-reserve {
			left = len(list) - i
			break
		}
		b.WriteString(entry)
	}
	b.WriteString("</skills>")
	if left > 0 {
		fmt.Fprintf(&b, "\n%d more skills are left out here. list_dir of %s, %s and %s lists all.",
			left, workspaceFolder, builtinFolder, foundFolder)
	}
	return b.String(), left
}

// element returns a skill as XML.
func element(s Skill, most int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  <skill available=\"%t\">\n", s.Available())
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "    <%s>%s</%s>\n", name, escape(text), name)
		}
	}
	line("name", s.Name)
	line("description", clip(s.Description, most))
	line("location", oneLine(s.Location))
	line("missing", strings.Join(s.Missing, "; "))
	line("problem", s.Problem)
	b.WriteString("  </skill>\n")
	return b.String()
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func escape(s string) string { return escaper.Replace(s) }

// Body returns the text of a skill of [Library.List] without its front matter, as it is now. A long
// one is cut, with a notice.
func (l *Library) Body(s Skill) (string, error) {
	if s.Problem != "" {
		return "", fmt.Errorf("the skill %s can't be used: %s", s.Name, s.Problem)
	}
	data, err := l.read(s)
	if err != nil {
		return "", fmt.Errorf("the skill %s can't be used: %s", s.Name, reason(err))
	}
	d := parse(data)
	if d.problem != "" {
		return "", fmt.Errorf("the skill %s can't be used: %s", s.Name, d.problem)
	}
	return cut(d.body, &s), nil
}

// read returns the file of a skill.
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

// open opens the folder of skills in which one is.
func (l *Library) open(s Skill) (*os.Root, error) {
	if (s.Source == Found) != (s.Scope != "") {
		return nil, fs.ErrNotExist
	}
	root, name, ok := l.place(s.Scope)
	if !ok {
		return nil, fs.ErrNotExist
	}
	folder, _, err := openShelf(root, name)
	return folder, err
}

// cut returns the beginning of a skill's text, with a notice if it isn't all.
func cut(body string, s *Skill) string {
	if len(body) <= maxBody {
		return body
	}
	end := strings.LastIndexByte(body[:maxBody], '\n')
	if end < maxBody/2 {
		end = maxBody
	}
	return strings.ToValidUTF8(body[:end], "") +
		fmt.Sprintf("\n\n[The rest of the skill %s is left out: it is too long.]", s.Name)
}
