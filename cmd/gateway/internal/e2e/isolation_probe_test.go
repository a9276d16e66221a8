package e2e

import (
	"path/filepath"
	"regexp"
	"strings"
)

// versionPattern matches a version by Dream in the output of /dream-log.
var versionPattern = regexp.MustCompile(`(?m)^\W*([0-9a-f]{8}) .*Dream`)

// probe makes everybody try to access the data of the others.
func (v *isolationWorld) probe() {
	v.t.Helper()
	v.everybody("what do you know?")
	v.each(v.probeSearches)
	v.each(v.probeReads)
	v.each(v.probeFolders)
	v.each(v.probeCommands)
	v.each(v.probeWrites)
	v.each(v.probeMessages)
	v.each(v.probeTask)
	v.each(func(p *isolatedScope) []string { return []string{"$own-" + p.name} })
	v.each(func(p *isolatedScope) []string {
		var names []string
		for _, other := range v.others(p) {
			names = append(names, "$own-"+other.name, "$found-"+other.name)
		}
		return []string{strings.Join(names, " ")}
	})
	for _, command := range []string{"/memory", "/history", "/skills", "/dream", "/dream-log",
		"/status", "/usage"} {
		v.everybody(command)
	}
	v.probeVersions()
}

// each makes everybody write their own lines, and waits for the results.
func (v *isolationWorld) each(lines func(p *isolatedScope) []string) {
	v.t.Helper()
	for _, p := range v.all {
		p.server.Say(p.chat, p.user, p.before+"iam"+p.name+" now\n"+strings.Join(lines(p), "\n"))
	}
	v.settle()
}

// others returns the villagers whose secrets p must not see.
func (v *isolationWorld) others(p *isolatedScope) (list []*isolatedScope) {
	for _, o := range v.all {
		if o.scope != p.scope {
			list = append(list, o)
		}
	}
	return list
}

// call returns the order for a tool call with one or more arguments.
func call(tool string, pairs ...string) string {
	var list []string
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, quoteJSON(pairs[i])+":"+quoteJSON(pairs[i+1]))
	}
	return "DO " + tool + " {" + strings.Join(list, ",") + "}"
}

func (v *isolationWorld) probeSearches(p *isolatedScope) []string {
	lines := []string{
		call("recall", "query", "q7*"), call("recall", "query", "word"),
		call("recall", "action", "list"), call("recall", "action", "categories"),
		call("recall", "action", "get", "key", "the word"),
		`DO history_search {"query":"q7*","limit":50}`,
		`DO history_search {"query":"word","limit":50,"newest":true}`,
		`DO history_search {"query":"file word","limit":50}`,
	}
	for _, o := range v.others(p) {
		begin := "q7" + o.name[:len(o.name)-1] // too short to count as their secret
		lines = append(lines, call("recall", "query", begin+"*"),
			call("history_search", "query", begin+"*"),
			call("history_search", "query", `"`+string(o.scope)+`"`),
			call("history_search", "query", o.key.String()+" OR q7*"))
	}
	return lines
}

// ways lists spellings of the path of a file in, or beside, the folder "S" of another scope.
var ways = []string{
	"memory/../S", "../memory/S", "memory/S", "HOME/memory/S", "workspace/memory/S",
	"./memory/./../S", "media/../memory/S", "media/../../memory/S", "memory/skills/../../S",
	"builtin-skills/../memory/S", "memory\x00/../S", "/proc/self/cwd/../memory/S",
	"HOME/workspace/../memory/S", "//memory/../S",
	`memory\..\S`, "MEMORY/../S",
}

// spell returns the spellings of a path in the folder of a scope.
func (v *isolationWorld) spell(path string) (list []string) {
	for _, way := range ways {
		way = strings.ReplaceAll(way, "HOME", v.home)
		list = append(list, strings.Replace(way, "S", path, 1))
	}
	return list
}

func (v *isolationWorld) probeReads(p *isolatedScope) []string {
	lines := []string{call("read_file", "path", "memory/USER.md"),
		call("read_file", "path", "memory/history.jsonl"),
		call("read_file", "path", "memory/skills/own-"+p.name+"/SKILL.md"),
		call("read_file", "path", "memory/skills/found-"+p.name+"/SKILL.md"),
		call("read_file", "path", filepath.Join(v.home, "gateway.db")),
		call("read_file", "path", "../gateway.db-wal")}
	for i, o := range v.others(p) {
		for _, path := range v.spell(string(o.scope) + "/MEMORY.md") {
			lines = append(lines, call("read_file", "path", path))
		}
		if i > 0 {
			continue
		}
		for _, file := range []string{"history.jsonl", "skills/own-" + o.name + "/SKILL.md"} {
			lines = append(lines, call("read_file", "path", "memory/../"+string(o.scope)+"/"+file))
		}
	}
	for _, o := range v.others(p) {
		media, err := filepath.Glob(filepath.Join(v.home, "media", "*", "*", "*"))
		if err != nil {
			v.t.Fatal(err)
		}
		for _, file := range media {
			if !strings.Contains(file, "notes-"+o.name) {
				continue
			}
			rel, err := filepath.Rel(v.home, file)
			if err != nil {
				v.t.Fatal(err)
			}
			lines = append(lines, call("read_file", "path", file), call("read_file", "path", rel),
				call("read_file", "path", "../"+rel),
				call("read_file", "path", "media/../"+strings.TrimPrefix(rel, "media/")))
		}
	}
	return lines
}

func (v *isolationWorld) probeFolders(p *isolatedScope) (lines []string) {
	for _, dir := range []string{".", "memory", "memory/..", "..", "../memory", "../versions",
		v.home, "media/..", "/"} {
		lines = append(lines, call("list_dir", "path", dir))
		if dir != "/" {
			lines = append(lines,
				call("grep", "pattern", "q7", "path", dir, "output_mode", "content"),
				call("glob", "pattern", "**/*.md", "path", dir))
		}
	}
	return append(lines,
		call("glob", "pattern", "../**/*.md"), call("glob", "pattern", "memory/../**"),
		call("glob", "pattern", v.home+"/**/*.jsonl"),
		call("glob", "pattern", "person-*/**", "path", "memory"),
		call("grep", "pattern", "q7", "glob", "../**"))
}

func (v *isolationWorld) probeCommands(p *isolatedScope) (lines []string) {
	commands := []string{
		"cat memory/USER.md memory/MEMORY.md memory/history.jsonl memory/skills/*/SKILL.md",
		"cat memory/../*/*.md ../memory/*/*.md HOME/memory/*/*.md; cat /tmp/*; ls -a /tmp ..",
		"grep -ars q7 HOME .. . memory/ ../memory media /tmp /var/tmp /dev/shm | head -c 9000",
		"find / -xdev ( -name USER.md -o -name history.jsonl -o -name gateway.db ) " +
			"-exec cat {} + 2>/dev/null | head -c 9000",
		"strings HOME/gateway.db* ../gateway.db*; git --git-dir=HOME/versions/*.git log -p",
		"for p in /proc/[0-9]*; do cat $p/cwd/MEMORY.md $p/root/HOME/memory/*/*.md; done",
		"ln -s HOME/memory/* . ; ln -s ../memory/* memory/ ; ln HOME/memory/*/USER.md stolen; " +
			"cat */USER.md",
	}
	for _, c := range commands {
		c = strings.NewReplacer("HOME", v.home, "( ", `\( `, " )", ` \)`).Replace(c)
		lines = append(lines, call("exec", "command", c))
	}
	for _, o := range v.others(p) {
		scope := string(o.scope)
		lines = append(lines,
			call("exec", "command", "cd memory && cat ../"+scope+"/MEMORY.md"),
			call("exec", "command", "cat MEMORY.md", "dir", "memory/../"+scope),
			call("exec", "command", "cat *", "dir", "../memory/"+scope))
	}
	return lines
}

// probeWrites returns orders that try to change data of others, or to read it by a change. Calls
// whose errors quote a file come last: after them, a change of memory would wait for an approval.
func (v *isolationWorld) probeWrites(p *isolatedScope) (lines []string) {
	for _, o := range v.others(p) {
		for _, path := range v.spell(string(o.scope) + "/MEMORY.md") {
			lines = append(lines, call("write_file", "path", path, "content", "somebody was here"))
		}
	}
	lines = append(lines, call("write_file", "path", "memory/history.jsonl", "content", "{}"))
	for _, o := range v.others(p) {
		path := "memory/../" + string(o.scope) + "/MEMORY.md"
		lines = append(lines,
			call("edit_file", "path", path, "old_text", "-", "new_text", "somebody was here"),
			call("apply_patch", "patch", "*** Begin Patch\n*** Update File: "+path+
				"\n*** Move to: taken.md\n@@\n-- q7\n+- somebody was here\n*** End Patch\n"),
			call("apply_patch", "patch", "*** Begin Patch\n*** Delete File: "+path+
				"\n*** End Patch\n"),
			call("apply_patch", "patch", "*** Update File: "+path+"\n*** Move to: taken.md\n"))
	}
	return append(lines, call("read_file", "path", "taken.md"))
}

// probeMessages returns orders that try to send p's own secrets to others, and to receive theirs.
func (v *isolationWorld) probeMessages(p *isolatedScope) (lines []string) {
	for _, o := range v.others(p) {
		to := strings.ReplaceAll(o.key.String(), ":", "/")
		lines = append(lines,
			call("message", "to", to, "text", "iam"+p.name+" says q7"+p.name+"said"),
			`DO message {"text":"a file","files":[`+
				quoteJSON("memory/../"+string(o.scope)+"/MEMORY.md")+`]}`)
	}
	return append(lines, `DO message {"text":"mine","files":["memory/MEMORY.md"]}`)
}

// probeTask returns orders that make a sub-agent look for the secrets of others.
func (v *isolationWorld) probeTask(p *isolatedScope) []string {
	task := []string{"iam" + p.name + " look around", call("recall", "query", "q7*"),
		`DO history_search {"query":"q7*","limit":50}`,
		call("grep", "pattern", "q7", "path", "memory"),
		call("exec", "command", "cat memory/*.md ../memory/*/*.md")}
	for _, o := range v.others(p) {
		task = append(task, call("read_file", "path", "memory/../"+string(o.scope)+"/USER.md"),
			call("history_search", "query", "q7"+o.name[:2]+"*"))
	}
	return []string{`DO spawn {"task":` + quoteJSON(strings.Join(task, "\n")) + `,"wait":true}`,
		`DO subagents {}`}
}

// probeVersions makes everybody ask for the newest versions of the others' documents.
func (v *isolationWorld) probeVersions() {
	v.t.Helper()
	ids := make(map[*isolatedScope]string)
	for _, p := range v.all {
		for _, text := range p.server.History(p.chat) {
			if m := versionPattern.FindStringSubmatch(text.Text); m != nil {
				ids[p] = m[1]
			}
		}
		if ids[p] == "" {
			v.t.Errorf("%s has no version of their documents", p.name)
		}
	}
	for _, command := range []string{"/dream-log ", "/dream-restore "} {
		for _, p := range v.all {
			for _, o := range v.others(p) {
				p.server.Say(p.chat, p.user, p.before+command+ids[o])
			}
		}
		v.settle()
	}
	for _, p := range v.all {
		p.server.Say(p.chat, p.user, p.before+"/dream-log "+ids[p])
	}
	v.settle()
}
