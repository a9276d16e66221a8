package document

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each template is recognized as a template. Otherwise its text would be in every prompt.
func TestShipped(t *testing.T) {
	for _, name := range SharedNames {
		text, err := templates.ReadFile("templates/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(shipped, mark(string(text))) {
			t.Errorf("add the mark of %s, %s, and leave the old ones there", name, mark(string(text)))
		}
		if len(text) > 1500 {
			t.Errorf("%s has %d bytes", name, len(text))
		}
	}
}

func TestTemplates(t *testing.T) {
	f := newFixture(t, nil)
	at := func(name string) string { return filepath.Join(f.workspace, name) }
	write(t, at(Agents), "Be brief.\n") // an existing document
	if err := f.WriteTemplates(); err != nil {
		t.Fatal(err)
	}
	if got := f.Shared(Agents); got.Template || got.Prompt() != "Be brief." {
		t.Errorf("what was there is %+v", got)
	}
	for _, name := range SharedNames[1:] {
		if got := f.Shared(name); !got.Template || got.Text == "" || got.Prompt() != "" {
			t.Errorf("the template is %+v", got)
		}
	}
	if info, err := os.Stat(at(SkillsFolder)); err != nil || !info.IsDir() {
		t.Errorf("the folder of skills: %v", err)
	}
	// An editor changes only the line ends.
	text, _, err := f.Read("", Soul)
	if err != nil {
		t.Fatal(err)
	}
	write(t, at(Soul), "\ufeff"+strings.ReplaceAll(text, "\n", "\r\n")+"\r\n\r\n")
	if got := f.Shared(Soul); !got.Template {
		t.Errorf("with other line ends the template is %+v", got)
	}
	write(t, at(Soul), text+"- Loves owls.\n")
	if got := f.Shared(Soul); got.Template || !strings.Contains(got.Prompt(), "owls") {
		t.Errorf("filled in it is %+v", got)
	}
	// A file that the owner has removed is not created again, also after a restart.
	if err := errors.Join(os.Remove(at(Tools)), os.Remove(at(SkillsFolder))); err != nil {
		t.Fatal(err)
	}
	again := New(f.Documents.shared, f.Documents.scopes, nil)
	if err := again.WriteTemplates(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{Tools, SkillsFolder} {
		if _, err := os.Lstat(at(name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was made again: %v", name, err)
		}
	}
	if !strings.Contains(f.Shared(Soul).Text, "owls") {
		t.Error("what was filled in is gone")
	}
	wantNoTraces(t, f)
}

// A document that nobody has changed has a default text in the prompt. A person replaces the text
// by editing the file, and turns it off with an empty file. The template of an earlier version is
// replaced by the current one.
func TestDefaults(t *testing.T) {
	f := newFixture(t, nil)
	at := func(name string) string { return filepath.Join(f.workspace, name) }
	prompt := func(name string) string { return f.View("").Shared(name).Prompt() }
	for _, name := range []string{Agents, Soul, Tools} {
		before := prompt(name)
		if before == "" || strings.Contains(before, "<!--") {
			t.Errorf("without a file %s is %q", name, before)
		}
		if err := f.WriteTemplates(); err != nil {
			t.Fatal(err)
		}
		if got := prompt(name); got != before {
			t.Errorf("with its template %s is %q, want %q", name, got, before)
		}
	}
	for _, name := range []string{User, Identity} {
		if got := prompt(name); got != "" {
			t.Errorf("%s is %q, want nothing", name, got)
		}
	}
	write(t, at(Soul), "Be dry.\n")
	write(t, at(Tools), "\n")
	if soul, tools := prompt(Soul), prompt(Tools); soul != "Be dry." || tools != "" {
		t.Errorf("changed they are %q and %q", soul, tools)
	}
	old := "# How the agent is\n\n<!-- Tone and character, for everybody who talks to the agent. As " +
		"soon as you change this file it is part of every prompt. -->\n\n" +
		"- Tone: (for example: warm, short, no flattery)\n- Humour: (for example: dry, rarely)\n" +
		"- When unsure: (for example: says so, and asks one question)\n" +
		"- Values: (for example: honesty before politeness)\n"
	write(t, at(Soul), old)
	if err := f.WriteTemplates(); err != nil {
		t.Fatal(err)
	}
	if got := f.Shared(Soul); !got.Template || strings.Contains(got.Text, "no flattery") {
		t.Errorf("the template of an earlier version became %+v", got)
	}
	if got := f.Doc("person-1", Soul); got.Prompt() != "" {
		t.Errorf("a scope without documents has %+v", got)
	}
	wantNoTraces(t, f)
}

// A shared HEARTBEAT.md is not read. The template that earlier versions created is removed, and a
// list that a person has filled in stays.
func TestRetireHeartbeat(t *testing.T) {
	const old = "# What to look after\n\n<!-- The agent looks at this list from time to time, and " +
		"does what stands here as an open item. Without open items it does nothing, and costs " +
		"nothing. An open item begins with \"- [ ]\" at the start of its line, for instance a box " +
		"with \"water the plants on Fridays\" behind it. -->\n"
	for text, want := range map[string]bool{old: false, old + "- [ ] water\n": true} {
		var log strings.Builder
		f := newFixture(t, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		path := filepath.Join(f.workspace, Heartbeat)
		write(t, path, text)
		if err := f.WriteTemplates(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%q: stays = %t, want %t", text, err == nil, want)
		}
		if told := strings.Contains(log.String(), "HEARTBEAT.md is not read"); told != want {
			t.Errorf("%q: the log says so: %t", text, told)
		}
	}
}

func TestLink(t *testing.T) {
	f := newFixture(t, nil)
	link := filepath.Join(f.workspace, "memory")
	write(t, filepath.Join(f.scopes, string(ann), User), "Ann")
	for range 2 {
		if err := f.Link(f.shared); err != nil {
			t.Fatal(err)
		}
		target, err := os.Readlink(link)
		if want := filepath.Join("..", "memory"); err != nil || target != want {
			t.Errorf("the link leads to %q, %v; want %q", target, err, want)
		}
	}
	got, err := os.ReadFile(filepath.Join(link, string(ann), User))
	if err != nil || string(got) != "Ann" {
		t.Errorf("by the link there is %q, %v", got, err)
	}
	if got, err := f.Documents.shared.ReadFile("memory/person-1/USER.md"); err == nil {
		t.Errorf("within the workspace the link can be followed, to %q", got)
	}
	// A folder that a person has put there stays.
	if err := errors.Join(os.Remove(link), os.Mkdir(link, 0o700), f.Link(f.shared)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || !info.IsDir() {
		t.Errorf("the owner's folder is %v, %v", info, err)
	}
	far := New(openRoot(t, filepath.Join(t.TempDir(), "a", "b")), f.Documents.scopes, nil)
	if err := far.Link(far.shared); err != nil {
		t.Fatal(err)
	}
	if target, err := far.shared.Readlink("memory"); err != nil || !filepath.IsAbs(target) {
		t.Errorf("from afar the link leads to %q, %v", target, err)
	}
}

func TestVersioned(t *testing.T) {
	for rel, want := range map[string]bool{
		User: true, Memory: true, Heartbeat: true, "skills/": true, "skills/x/": true,
		"skills/x/SKILL.md": true, "history.jsonl": false, "notes/": false, "notes/USER.md": false,
		"skillset/x": false, "skills": false,
	} {
		if got := IsVersioned(rel); got != want {
			t.Errorf("Versioned(%q) = %t, want %t", rel, got, want)
		}
	}
}
