package files

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gateway/agent/tool"
	"gateway/bus"
	"gateway/bus/bustest"
	"gateway/memory"
)

// A memoryFixture is a workspace beside the memories of two people, as in a gateway.
type memoryFixture struct {
	t             testing.TB
	home, ws, mem string
	shared        string
	reg           *tool.Registry

	withheld []string // folders of withheld skills
}

const (
	ann = memory.Scope("person-1")
	bob = memory.Scope("person-2")
)

// newMemoryFixture returns a memoryFixture, with more trees if there are any.
func newMemoryFixture(t testing.TB, more ...func(m *memoryFixture) Root) *memoryFixture {
	t.Helper()
	m := &memoryFixture{t: t, home: t.TempDir()}
	m.ws, m.mem = filepath.Join(m.home, "workspace"), filepath.Join(m.home, "memory")
	m.shared = filepath.Join(m.home, "shared")
	writeFile(t, filepath.Join(m.mem, "person-1/USER.md"), "Ann likes tea\n")
	writeFile(t, filepath.Join(m.mem, "person-1/history.jsonl"), "{}\n")
	writeFile(t, filepath.Join(m.mem, "person-2/USER.md"), "hunter2\n")
	writeFile(t, filepath.Join(m.mem, "person-2/MEMORY.md"), "hunter2\n")
	writeFile(t, filepath.Join(m.shared, "AGENTS.md"), "old\n")
	writeFile(t, filepath.Join(m.shared, "skills/x/SKILL.md"), "old\n")
	writeFile(t, filepath.Join(m.ws, "notes/a.md"), "old\n")
	m.link("../memory", "memory")
	builtin := t.TempDir()
	writeFile(t, filepath.Join(builtin, "weather/SKILL.md"), "old\n")
	roots := []Root{{Name: "builtin-skills", Path: builtin, Dir: openRoot(t, builtin)}}
	for _, root := range more {
		roots = append(roots, root(m))
	}
	files := New(Options{Workspace: openRoot(t, m.ws), Path: m.ws, Memory: openRoot(t, m.mem),
		Shared: openRoot(t, m.shared), Roots: roots})
	var err error
	if m.reg, err = tool.NewRegistry(files.Tools()...); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *memoryFixture) link(target, name string) {
	m.t.Helper()
	if err := os.Symlink(target, filepath.Join(m.ws, name)); err != nil {
		m.t.Fatal(err)
	}
}

// use runs a tool for a scope and a role.
func (m *memoryFixture) use(s memory.Scope, r bus.Role, name string, args ...any) (string, error) {
	m.t.Helper()
	got, err := m.result(s, r, name, args...)
	return got.Text, err
}

func (m *memoryFixture) result(
	s memory.Scope, r bus.Role, name string, args ...any,
) (tool.Result, error) {
	m.t.Helper()
	object := make(map[string]any)
	for i := 0; i < len(args); i += 2 {
		object[args[i].(string)] = args[i+1]
	}
	written, err := json.Marshal(object)
	if err != nil {
		m.t.Fatal(err)
	}
	checked, err := m.reg.Arguments(name, string(written))
	if err != nil {
		m.t.Fatal(err)
	}
	tl, err := m.reg.Lookup(name)
	if err != nil {
		m.t.Fatal(err)
	}
	return tl.Run(m.t.Context(), tool.Call{Args: checked, Address: here,
		Session: bustest.Session("x/s"),
		Scope:   s, Role: r, Limits: tool.Limits{Folders: m.withheld}})
}

func (m *memoryFixture) want(path, content string) {
	m.t.Helper()
	got, err := os.ReadFile(filepath.Join(m.home, path))
	if err != nil || string(got) != content {
		m.t.Errorf("%s has %q, %v; want %q", path, got, err, content)
	}
}

func TestMemory(t *testing.T) {
	m := newMemoryFixture(t)
	for _, path := range []string{"memory/USER.md", "./memory//USER.md", "memory/person-1/USER.md",
		m.ws + "/memory/USER.md", m.mem + "/person-1/USER.md"} {
		got, err := m.use(ann, bus.User, "read_file", "path", path)
		if err != nil || !strings.Contains(got, "Ann likes tea") {
			t.Errorf("read_file %s = %q, %v", path, got, err)
		}
	}
	if got, err := m.use(ann, bus.User, "list_dir", "path", "memory"); err != nil ||
		got != "USER.md  14\nhistory.jsonl  3" {
		t.Errorf("list_dir = %q, %v", got, err)
	}
	if got, err := m.use(ann, bus.User, "glob", "pattern", "memory/**"); err != nil ||
		got != "memory/USER.md\nmemory/history.jsonl" {
		t.Errorf("glob = %q, %v", got, err)
	}
	got, err := m.use(ann, bus.User, "grep", "pattern", "likes", "path", "memory")
	if err != nil || got != "memory/USER.md:1:Ann likes tea" {
		t.Errorf("grep = %q, %v", got, err)
	}
	for path, content := range map[string]string{
		"memory/MEMORY.md": "new\n", "memory/skills/tea/SKILL.md": "boil\n",
		"memory/skills/tea/scripts/boil.sh": "boil\n",
	} {
		if _, err := m.use(ann, bus.User, "write_file", "path", path, "content", content); err != nil {
			t.Error(err)
		}
		m.want(strings.Replace(path, "memory/", "memory/person-1/", 1), content)
	}
	wantPrivate(t, filepath.Join(m.mem, "person-1"))
	if _, err := m.use(ann, bus.User, "edit_file", "path", "memory/USER.md",
		"old_text", "tea", "new_text", "coffee"); err != nil {
		t.Error(err)
	}
	m.want("memory/person-1/USER.md", "Ann likes coffee\n")
	if _, err := m.use("chat-tg+1", bus.User, "write_file", "path", "memory/MEMORY.md",
		"content", "x"); err != nil {
		t.Error(err)
	}
	wantPrivate(t, filepath.Join(m.mem, "chat-tg+1"))
}

// wantPrivate fails the test if other users of the machine can read the files in dir.
func wantPrivate(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v, %v", path, info.Mode(), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A memory accepts no files of other kinds, and the tools can't change the history.
func TestMemoryRefuses(t *testing.T) {
	m := newMemoryFixture(t)
	before := snapshot(t, m.mem)
	for _, path := range []string{"memory/history.jsonl", "memory/HISTORY.jsonl", "memory/data.csv",
		"memory/sub/a.md", "memory/skills/a.md", "memory/skills", "memory/.hidden.md",
		"memory/skills/x/.git/config", "memory", "memory/", "memory/person-1", "memory/.templates",
		m.mem + "/person-1/history.jsonl", m.ws + "/memory/history.jsonl"} {
		for _, call := range [][]any{
			{"write_file", "path", path, "content", "x"},
			{"edit_file", "path", path, "old_text", "{}", "new_text", "x"},
			{"apply_patch", "patch", "*** Begin Patch\n*** Delete File: " + path + "\n*** End Patch"},
			{"apply_patch", "patch", "*** Begin Patch\n*** Add File: " + path + "\n+x\n*** End Patch"},
			{"apply_patch", "patch", "*** Begin Patch\n*** Update File: memory/USER.md\n*** Move to: " +
				path + "\n@@\n-Ann likes tea\n+x\n*** End Patch"},
		} {
			if got, err := m.use(ann, bus.Owner, call[0].(string), call[1:]...); err == nil {
				t.Errorf("%v went well: %s", call, got)
			}
		}
	}
	if after := snapshot(t, m.mem); after != before {
		t.Errorf("the memories were %s\nand are %s", before, after)
	}
	_, err := m.use("", bus.Owner, "read_file", "path", "memory/USER.md")
	wantError(t, err, "no memory")
	_, err = m.use("person-3", bus.Owner, "list_dir", "path", "memory")
	wantError(t, err, "nothing has been written to memory yet")
	for _, scope := range []memory.Scope{"..", "person-1/..", "person-2/../person-2", "."} {
		if got, err := m.use(scope, bus.Owner, "read_file", "path", "memory/USER.md"); err == nil {
			t.Errorf("the scope %q reads %q", scope, got)
		}
	}
}

// No spelling of a path and no link lets one scope read or write the files of another. Not even
// their names are shown.
func TestMemoryOfOthers(t *testing.T) {
	m := newMemoryFixture(t)
	for name, target := range map[string]string{
		"l1": "memory", "l2": "memory/person-2", "l3": "../memory/person-2",
		"l4": m.mem + "/person-2", "l5": "memory/person-2/USER.md", "notes/l6": "../memory/person-2",
		"notes/l7": "../l2", "l8": "/proc/self/cwd",
	} {
		m.link(target, name)
	}
	// Even a link that a person has made by hand is not followed.
	for name, target := range map[string]string{
		"person-1/l.md": "../person-2/USER.md", "person-1/skills": "../person-2", "person-4": "person-2",
	} {
		if err := os.Symlink(target, filepath.Join(m.mem, name)); err != nil {
			t.Fatal(err)
		}
	}
	before := snapshot(t, m.mem)
	var paths []string
	for _, dir := range []string{"memory/person-2", "memory/../memory/person-2", "memory/../person-2",
		"memory/./person-2", "memory//person-2", "Memory/person-2", "memory/person-1/../person-2",
		"memory/person-1/../../person-2", m.mem + "/person-2", m.ws + "/memory/person-2",
		m.mem + "/person-1/../person-2", m.ws + "/../memory/person-2", "../memory/person-2",
		"notes/../memory/person-2", "l1/person-2", "l2", "l3", "l4", "notes/l6", "notes/l7",
		"l8/../memory/person-2", "memory/skills", "/proc/self/cwd/memory/person-2",
	} {
		paths = append(paths, dir, dir+"/USER.md", dir+"/new.md")
	}
	paths = append(paths, "l5", "memory/l.md", ".", "memory", "..", m.mem, m.home, "memory/..",
		"person-2")
	for _, role := range []bus.Role{bus.User, bus.Owner} {
		for _, path := range paths {
			for _, call := range [][]any{
				{"read_file", "path", path}, {"list_dir", "path", path},
				{"glob", "pattern", "**", "path", path},
				{"glob", "pattern", "*", "path", path, "entry_type", "any"},
				{"grep", "pattern", ".", "path", path},
				{"write_file", "path", path, "content", "new\n"},
				{"edit_file", "path", path, "old_text", "hunter2", "new_text", "x"},
				{"apply_patch", "patch", "*** Begin Patch\n*** Delete File: " + path + "\n*** End Patch"},
			} {
				// Only the other scope has a file named MEMORY.md.
				got, err := m.use(ann, role, call[0].(string), call[1:]...)
				if strings.Contains(got+fmt.Sprint(err), "hunter2") || strings.Contains(got, "MEMORY.md") {
					t.Errorf("%v shows %q, %v", call, got, err)
				}
			}
		}
	}
	if after := snapshot(t, m.mem); after != before {
		t.Errorf("the memories were %s\nand are %s", before, after)
	}
	_, err := m.use("person-4", bus.User, "read_file", "path", "memory/USER.md")
	wantError(t, err, "link")
}

// Only an admin may write files that are part of everybody's prompt. No path leads around that
// rule.
func TestPromptFiles(t *testing.T) {
	m := newMemoryFixture(t, func(m *memoryFixture) Root {
		return Root{Name: "whole", Path: m.home, Dir: openRoot(t, m.home), Write: true}
	}, func(m *memoryFixture) Root {
		skills := filepath.Join(m.shared, "skills")
		return Root{Name: "some", Path: skills, Dir: openRoot(t, skills), Write: true}
	})
	const beside = "../" + "shared"
	m.link(beside+"/AGENTS.md", "to-agents")
	m.link(beside+"/skills", "to-skills")
	m.link(beside, "here")
	m.link(beside+"/IDENTITY.md", "to-new")
	before := snapshot(t, m.shared) + snapshot(t, m.ws)
	paths := []string{
		"AGENTS.md", "./notes/../AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md",
		"IDENTITY.md", "HEARTBEAT.md", "to-agents", "to-new", "here/AGENTS.md",
		"skills/x/SKILL.md", "skills/y/SKILL.md", "skills/y", "skills",
		"to-skills/x/SKILL.md", "here/skills/x/SKILL.md", m.ws + "/AGENTS.md",
		m.ws + "/skills/x/SKILL.md", "whole/shared/AGENTS.md",
		"whole/shared/skills/x/SKILL.md", "whole/shared/skills/z/a", "some/x/SKILL.md",
		"some/new/SKILL.md", "some/a", m.home + "/shared/AGENTS.md", m.shared + "/new.md",
		m.shared + "/skills/x/SKILL.md", beside + "/AGENTS.md",
	}
	for _, role := range []bus.Role{bus.User, bus.Guest, ""} {
		for _, path := range paths {
			for _, call := range [][]any{
				{"write_file", "path", path, "content", "attack\n"},
				{"edit_file", "path", path, "old_text", "old", "new_text", "attack"},
				{"notebook_edit", "path", path, "cell", "0", "source", "attack"},
				{"apply_patch", "patch", "*** Begin Patch\n*** Delete File: " + path + "\n*** End Patch"},
				{"apply_patch", "patch", "*** Begin Patch\n*** Update File: notes/a.md\n*** Move to: " +
					path + "\n@@\n-old\n+attack\n*** End Patch"},
				{"apply_patch", "patch", "*** Begin Patch\n*** Update File: " + path +
					"\n*** Move to: notes/b.md\n@@\n-old\n+attack\n*** End Patch"},
			} {
				if got, err := m.use(ann, role, call[0].(string), call[1:]...); err == nil {
					t.Errorf("for %q %v went well: %s", role, call, got)
				}
			}
		}
	}
	if after := snapshot(t, m.shared) + snapshot(t, m.ws); after != before {
		t.Errorf("the files were %s\nand are %s", before, after)
	}
	_, err := m.use(ann, bus.User, "write_file", "path", "AGENTS.md", "content", "x")
	wantError(t, err, "admins only", "memory/USER.md")
	for _, path := range []string{"notes/AGENTS.md", "notes/skills/x.md", "skills.md", "README.md",
		"agents.md", "Skills/y/SKILL.md"} {
		if _, err := m.use(ann, bus.User, "write_file", "path", path, "content", "x\n"); err != nil {
			t.Errorf("%s is nobody's prompt: %v", path, err)
		}
	}
	for _, path := range []string{"AGENTS.md", "skills/y/SKILL.md", m.shared + "/IDENTITY.md"} {
		if _, err := m.use(ann, bus.Admin, "write_file", "path", path, "content", "new\n"); err != nil {
			t.Errorf("an admin's %s: %v", path, err)
		}
	}
	m.want("shared/IDENTITY.md", "new\n")
	m.want("shared/skills/y/SKILL.md", "new\n")
	if got, err := m.use(ann, bus.User, "read_file", "path", "AGENTS.md"); err != nil ||
		!strings.Contains(got, "new") {
		t.Errorf("a user reads %q, %v", got, err)
	}
	_, err = m.use(ann, bus.Owner, "write_file", "path", "builtin-skills/weather/SKILL.md",
		"content", "x")
	wantError(t, err, "may only be read")
}

// While a command swaps directories and links all the time, a user's write never changes shared
// files or files of another scope.
func TestPromptSwap(t *testing.T) {
	m := newMemoryFixture(t)
	for _, name := range []string{"d/AGENTS.md", "d/x/SKILL.md", "d/USER.md"} {
		writeFile(t, filepath.Join(m.ws, name), "mine\n")
	}
	before := snapshot(t, m.mem) + snapshot(t, m.shared)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		at := func(name string) string { return filepath.Join(m.ws, name) }
		beside := filepath.Join("..", filepath.Base(m.shared))
		targets := []string{beside, beside + "/skills", "memory/person-2", "../memory/person-2",
			m.shared}
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			// If a step fails because a write interferes, the next round continues.
			_ = os.Rename(at("d"), at("aside"))
			_ = os.Symlink(targets[i%len(targets)], at("d"))
			_ = os.Remove(at("d"))
			_ = os.RemoveAll(at("d"))
			_ = os.Rename(at("aside"), at("d"))
		}
	})
	written := 0
	for i := 0; i < 400 || written == 0; i++ {
		for _, path := range []string{"d/AGENTS.md", "d/x/SKILL.md", "d/USER.md", "d/y/SKILL.md"} {
			_, err := m.use(ann, bus.User, "write_file", "path", path, "content", "attack\n")
			if err == nil {
				written++
			}
		}
	}
	close(stop)
	wg.Wait()
	if after := snapshot(t, m.mem) + snapshot(t, m.shared); after != before {
		t.Errorf("what is not the workspace's was %s\nand is %s", before, after)
	}
}

// For each role, a heartbeat list in the workspace is refused. The error names the file that the
// heartbeat reads.
func TestSharedHeartbeat(t *testing.T) {
	m := newMemoryFixture(t)
	for _, role := range []bus.Role{bus.User, bus.Owner} {
		_, err := m.use(ann, role, "write_file", "path", "HEARTBEAT.md", "content", "- [ ] look\n")
		if err == nil || !strings.Contains(err.Error(), "use memory/HEARTBEAT.md") {
			t.Errorf("for %q the refusal is %v", role, err)
		}
	}
}

// Files in the workspace that have the name of a shared file are never shown.
func TestSharedNames(t *testing.T) {
	m := newMemoryFixture(t)
	writeFile(t, filepath.Join(m.ws, "AGENTS.md"), "impostor\n")
	writeFile(t, filepath.Join(m.ws, "skills/evil/SKILL.md"), "impostor\n")
	for _, call := range [][]any{
		{"read_file", "path", "AGENTS.md"}, {"read_file", "path", m.ws + "/AGENTS.md"},
		{"list_dir", "path", "skills"}, {"grep", "pattern", "imposto."},
		{"grep", "pattern", ".", "path", "skills"}, {"glob", "pattern", "**/*.md"},
	} {
		got, _ := m.use(ann, bus.Owner, call[0].(string), call[1:]...) // an error shows nothing
		if strings.Contains(got, "impostor") || strings.Contains(got, "evil") {
			t.Errorf("%v shows %q", call, got)
		}
	}
	for path, want := range map[string]string{"AGENTS.md": "old", "skills/x/SKILL.md": "old"} {
		if got, err := m.use(ann, bus.User, "read_file", "path", path); err != nil ||
			!strings.Contains(got, want) {
			t.Errorf("%s is %q, %v", path, got, err)
		}
	}
	if got, err := m.use(ann, bus.User, "grep", "pattern", "old", "path", "skills",
		"output_mode", "files_with_matches"); err != nil || !strings.Contains(got, "skills/x/SKILL.md") {
		t.Errorf("grep in skills = %q, %v", got, err)
	}
}

// People see the entry "memory" in the workspace. For the agent, it is the memory of the agent's
// own scope.
func TestMemoryInWorkspace(t *testing.T) {
	m := newMemoryFixture(t)
	for scope, want := range map[memory.Scope]string{
		ann: "AGENTS.md  4\nmemory/\nnotes/\nskills/", bob: "AGENTS.md  4\nmemory/\nnotes/\nskills/",
		"": "AGENTS.md  4\nnotes/\nskills/", "person-3": "AGENTS.md  4\nnotes/\nskills/",
	} {
		if got, err := m.use(scope, bus.User, "list_dir"); err != nil || got != want {
			t.Errorf("list_dir for %q = %q, %v; want %q", scope, got, err, want)
		}
	}
	got, err := m.use(ann, bus.User, "glob", "pattern", "**", "entry_type", "any")
	if err != nil || strings.Contains(got, "memory") {
		t.Errorf("glob = %q, %v", got, err)
	}
}

// HasLastingEffect reports calls that write files on which later turns act. Ticking an item of a
// list is not such a call.
func TestHasLastingEffect(t *testing.T) {
	m := newMemoryFixture(t)
	for _, test := range []struct {
		tool, args string
		want       bool
	}{
		{"write_file", `{"path":"memory/HEARTBEAT.md","content":"x"}`, true},
		{"write_file", `{"path":"./memory/skills/a/SKILL.md","content":"x"}`, true},
		{"write_file", `{"path":"AGENTS.md","content":"x"}`, true},
		{"write_file", `{"path":"notes/../skills/x/SKILL.md","content":"x"}`, true},
		{"write_file", `{"path":"plan.md","content":"x"}`, false},
		{"write_file", `{"path":"memory/MEMORY.md","content":"x","old_text":"a","new_text":"b"}`, true},
		{"edit_file", `{"path":"memory/MEMORY.md","old_text":"a","new_text":"b"}`, true},
		{"edit_file", `{"path":"memory/HEARTBEAT.md","old_text":"- [ ] a","new_text":"- [x] a"}`, false},
		{"edit_file", `{"path":"memory/HEARTBEAT.md","old_text":"- [ ] a","new_text":"- [x] b"}`, true},
		{"apply_patch", `{"patch":"*** Begin Patch\n*** Add File: memory/a.md\n+x\n*** End Patch"}`,
			true},
		{"apply_patch", `{"patch":"*** Begin Patch\n*** Add File: a.md\n+x\n*** End Patch"}`, false},
	} {
		found, err := m.reg.Lookup(test.tool)
		if err != nil {
			t.Fatal(err)
		}
		call := tool.Call{Args: json.RawMessage(test.args), Scope: ann, Role: bus.Admin}
		if got := found.Lasts(call); got != test.want {
			t.Errorf("%s %s lasts: %t, want %t", test.tool, test.args, got, test.want)
		}
	}
}

// The folder of a withheld skill is not shown. Its files can't be read or written, not even
// through a link. Other skills are not affected.
func TestWithheldSkills(t *testing.T) {
	m := newMemoryFixture(t)
	writeFile(t, filepath.Join(m.shared, "skills/secret/SKILL.md"), "hidden word\n")
	writeFile(t, filepath.Join(m.shared, "skills/secrets/SKILL.md"), "open word\n")
	writeFile(t, filepath.Join(m.mem, "person-1/skills/own/SKILL.md"), "hidden word\n")
	if err := os.Symlink("../secret/SKILL.md", filepath.Join(m.shared, "skills/x/link")); err != nil {
		t.Fatal(err)
	}
	m.withheld = []string{"skills/secret", "builtin-skills/weather", "memory/skills/own"}
	for _, path := range []string{"skills/secret/SKILL.md", m.shared + "/skills/secret/SKILL.md",
		"skills/x/../secret/SKILL.md", "skills/SECRET/SKILL.md", "skills/x/link", "skills/secret",
		"builtin-skills/weather/SKILL.md", "memory/skills/own/SKILL.md"} {
		for _, name := range []string{"read_file", "list_dir", "grep", "glob", "write_file"} {
			args := []any{"path", path}
			switch name {
			case "grep", "glob":
				args = append(args, "pattern", "**")
				if name == "grep" {
					args[3] = "."
				}
			case "write_file":
				args = append(args, "content", "x")
			}
			got, err := m.use(ann, bus.Owner, name, args...)
			wantError(t, err, "withheld")
			if got != "" {
				t.Errorf("%s of %s shows %q", name, path, got)
			}
		}
	}
	for _, dir := range []string{".", "skills", "memory", "builtin-skills"} {
		for _, name := range []string{"grep", "glob", "list_dir"} {
			args := []any{"path", dir}
			if name != "list_dir" {
				args = append(args, "pattern", map[string]string{"grep": "word", "glob": "**/*"}[name])
			} else {
				args = append(args, "recursive", true)
			}
			got, err := m.use(ann, bus.User, name, args...)
			if err != nil || strings.Contains(got, "hidden") || strings.Contains(got, "secret/") ||
				strings.Contains(got, "weather") || strings.Contains(got, "own") {
				t.Errorf("%s of %s shows %q, %v", name, dir, got, err)
			}
		}
	}
	got, err := m.use(ann, bus.User, "list_dir", "path", "skills")
	if err != nil || got != "secrets/\nx/" {
		t.Errorf("the skills are %q, %v", got, err)
	}
	if got, err := m.use(ann, bus.User, "read_file", "path", "skills/secrets/SKILL.md"); err != nil ||
		!strings.Contains(got, "open word") {
		t.Errorf("another skill reads as %q, %v", got, err)
	}
}
