package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gateway/agent/background"
	"gateway/agent/llm/openai/openaitest"
	"gateway/agent/tools/shell/sandbox"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/channels/telegram/telegramtest"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// TestIsolation makes three people and a group store secrets in every kind of memory. Then each
// model, which follows all orders, tries to get the secrets of the others. The test checks every
// request and message of the whole run. At the end two of the scopes are linked to one person.
func TestIsolation(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the sandbox needs Linux")
	}
	v := openIsolationWorld(t)
	v.plant()
	v.probe()
	v.checkApart()
	v.checkFound()
	v.link()
	v.checkApart()
	v.checkTogether()
}

// An isolatedScope is one scope: its conversation with the gateway and its own secrets. All its
// messages contain "iam" and its name, so that a request shows to whom it belongs.
type isolatedScope struct {
	name   string
	server *telegramtest.Server
	chat   int64
	user   int64  // the person who writes there
	before string // prefix of their messages
	scope  memory.Scope
	key    session.Key
}

// An isolationWorld is a gateway with two Telegram accounts.
type isolationWorld struct {
	*world
	second *telegramtest.Server // server of the second account, where Ann is "twin"
	all    []*isolatedScope
	linked bool // ann and twin are known to be one person
	probed int  // number of the last request before the probes
	joined int  // number of the last request before the link
}

const (
	carolID     = 9
	twinID      = 70
	secondToken = "654321:SECOND-TOKEN"
)

// A secret is "q7", the name of its owner, and the way in which it was stored. A prefix is not a
// secret.
var (
	secretPattern = regexp.MustCompile(`q7(ann|twin|bob|carol|garden)([a-z]+)`)
	ownPattern    = regexp.MustCompile(`(?:q7|iam)(ann|twin|bob|carol|garden)[a-z]*`)
)

func openIsolationWorld(t *testing.T) *isolationWorld {
	v := &isolationWorld{world: newWorld(t, worldOptions{answer: revealSecrets, sandbox: "auto"}),
		second: telegramtest.New(secondToken, nil)}
	v.model.Keep(10_000)
	t.Cleanup(v.second.Close)
	url, err := v.second.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const account = "access = \"pairing\"\nrate_limit = \"off\"\nstreaming = false\n" +
		"reaction = \"\"\nsender_rate = 0\nowners = [99]\n"
	v.configure(account + fmt.Sprintf("groups = [%d]\n", groupID) +
		fmt.Sprintf("[channels.second]\ntype = \"telegram\"\ntoken = %q\napi_url = %q\n",
			secondToken, url) + account + "[memory]\ndream_every = \"0s\"\n")
	v.telegram.AddUser(telegramtest.User{ID: annID, First: "Ann"})
	v.telegram.AddUser(telegramtest.User{ID: bobID, First: "Bob"})
	v.telegram.AddUser(telegramtest.User{ID: carolID, First: "Carol"})
	v.telegram.AddGroup(groupID, "Garden")
	v.all = []*isolatedScope{
		{name: "ann", server: v.telegram, chat: annID, user: annID},
		{name: "bob", server: v.telegram, chat: bobID, user: bobID},
		{name: "carol", server: v.telegram, chat: carolID, user: carolID},
		{name: "twin", server: v.second, chat: twinID, user: twinID},
		{name: "garden", server: v.telegram, chat: groupID, user: annID, before: "@gateway_bot "},
	}
	v.run()
	v.admit()
	return v
}

// admit approves everybody with their pairing codes, like strangers.
func (v *isolationWorld) admit() {
	v.t.Helper()
	for _, p := range v.all[:4] {
		p.server.Say(p.chat, p.user, "hello")
	}
	v.eventually("pairing codes", func(db *store.DB) bool { return v.count(db, "pairings") == 4 })
	var codes []string
	v.look(func(db *store.DB) {
		list, err := gate.People{}.Pending(db.Read(v.t.Context()), time.Now())
		if err != nil {
			v.t.Fatal(err)
		}
		for _, p := range list {
			codes = append(codes, p.Code)
		}
	})
	for _, code := range codes {
		v.command("people", "approve", code)
	}
	for id, account := range v.people() {
		for _, p := range v.all {
			at := bus.Address{Account: "telegram", Chat: strconv.FormatInt(p.chat, 10)}
			if p.server == v.second {
				at.Account = "second"
			}
			p.key = session.KeyOf(at)
			switch {
			case p.name == "garden":
				p.scope = memory.OfChat(at)
			case account == at.Account+"/"+at.Chat:
				p.scope = memory.OfPerson(id)
			}
		}
	}
}

// people maps the number of each known person to their account and platform id.
func (v *isolationWorld) people() map[int64]string {
	known := make(map[int64]string)
	v.look(func(db *store.DB) {
		list, err := gate.People{}.List(db.Read(v.t.Context()))
		if err != nil {
			v.t.Fatal(err)
		}
		for _, p := range list {
			known[p.ID] = p.Account + "/" + p.Sender
		}
	})
	return known
}

// command runs a command of the gateway while the gateway is running.
func (w *world) command(args ...string) string {
	w.t.Helper()
	path, err := buildBinary()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = w.environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("gateway %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// rest waits until no work is left, including background tasks.
func (w *world) rest() {
	w.t.Helper()
	w.received()
	w.look(func(db *store.DB) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(2 * patience); ; <-tick.C {
			busy := ""
			for _, rows := range []string{"inbox WHERE state <> 'done'",
				"turns WHERE state <> 'done'", "outbox WHERE state <> 'sent'", "chores"} {
				if n := w.count(db, rows); n > 0 {
					busy = fmt.Sprint(n, " rows in ", rows)
					break
				}
			}
			if busy == "" {
				return
			}
			if time.Now().After(deadline) {
				w.t.Fatalf("never at rest: %s", busy)
			}
		}
	})
}

// everybody makes all villagers write the same text, in which NAME stands for their own name, and
// waits for the results.
func (v *isolationWorld) everybody(text string) {
	v.t.Helper()
	for _, p := range v.all {
		said := "iam" + p.name + " " + strings.ReplaceAll(text, "NAME", p.name)
		if strings.HasPrefix(text, "/") {
			said = text
		}
		p.server.Say(p.chat, p.user, p.before+said)
	}
	v.settle()
}

func (v *isolationWorld) settle() {
	v.t.Helper()
	v.eventually("what was said on the second account", func(*store.DB) bool {
		return v.second.Pending() == 0
	})
	v.rest()
}

// plant makes everybody store their secrets.
func (v *isolationWorld) plant() {
	v.t.Helper()
	v.telegram.Say(groupID, bobID, "iamgarden not to you: q7gardenoverheard")
	v.everybody("the word is q7NAMEsaid")
	v.everybody("the word is q7NAMEcompacted")
	for _, p := range v.all {
		v.put(p)
	}
	v.settle()
	v.everybody("these are kept:\n" + strings.Join([]string{
		`DO remember {"key":"the word","value":"q7NAMEfact"}`,
		`DO remember {"key":"the pinned word","value":"q7NAMEpinned","pinned":true}`,
		`DO write_file {"path":"memory/USER.md","content":"- Style: default\n- q7NAMEuser\n"}`,
		`DO write_file {"path":"memory/MEMORY.md","content":"- q7NAMEmemory\n"}`,
		`DO write_file {"path":"memory/SOUL.md","content":"- q7NAMEsoul\n"}`,
		`DO write_file {"path":"memory/skills/own-NAME/SKILL.md","content":` +
			`"---\nname: own-NAME\ndescription: q7NAMEskill\n---\n\nSay q7NAMEsteps.\n"}`,
		`DO spawn {"task":"iamNAME keep this\nDO remember {\"key\":\"a task's word\",` +
			`\"value\":\"q7NAMEtask\"}","wait":true}`,
		`DO exec {"command":"cat memory/MEMORY.md memory/USER.md | tee /tmp/leak"}`,
		`DO exec {"command":"printf 'q7NAME%s' shell"}`,
		`DO time {}`,
	}, "\n"))
	v.everybody("/compact")
	v.everybody("the word is q7NAMEleft")
	v.everybody("/new")
	v.everybody("/dream")
	v.everybody("the word is q7NAMEidle")
	v.everybody("what do you know?" + strings.Repeat("\nDO time {}", 8))
	v.stop()                    // the next process finds the tasks below at once
	v.look(func(db *store.DB) { // as if nobody had written for a while
		err := db.Tx(v.t.Context(), func(tx *store.Tx) error {
			for _, p := range v.all {
				work := background.Work{Kind: background.Idle, Scope: p.scope, Session: p.key.String()}
				if err := (background.Store{}).Put(tx, background.Task{Work: work}, time.Now()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			v.t.Fatal(err)
		}
	})
	v.run()
	v.settle()
	v.probed = v.model.Count()
}

// put makes an isolatedScope send a file.
func (v *isolationWorld) put(p *isolatedScope) {
	p.server.SayDocument(p.chat, p.user, p.before+"iam"+p.name+" a file", "notes-"+p.name+".txt",
		"text/plain", []byte("the word in the file is q7"+p.name+"file\n"))
}

// revealSecrets is a model that follows all orders of people, writes all secrets that it sees into
// notes, and makes Dream store more of them.
func revealSecrets(r openaitest.Request) openaitest.Reply {
	system, last := r.Messages[0].Content, r.Messages[len(r.Messages)-1]
	switch {
	case strings.HasPrefix(system, "You keep the long-term notes"):
		return say("- " + strings.Join(ownWords(last.Content), ", "))
	case strings.HasPrefix(system, "You look after the long-term memory"):
		return dreamSecrets(r, last)
	case last.Role != "tool":
		return followOrders(r)
	}
	said := "the tools said"
	for _, m := range slices.Backward(r.Messages) { // texts of tools are not orders
		if m.Role != "tool" {
			break
		}
		said += " | " + m.Content
	}
	return say(said)
}

// ownWords returns the secrets and marks in text without duplicates.
func ownWords(text string) []string {
	list := ownPattern.FindAllString(text, -1)
	slices.Sort(list)
	return slices.Compact(list)
}

// dreamSecrets is the model of Dream.
func dreamSecrets(r openaitest.Request, last openaitest.Message) openaitest.Reply {
	whose := ownPattern.FindStringSubmatch(r.Messages[1].Content)
	switch {
	case whose == nil:
		return say("[SKIP]")
	case len(r.Tools) == 0:
		return say(strings.ReplaceAll("[MEMORY] iamNAME dreamt of q7NAMEdream\n"+
			"[SKILL] found-NAME: q7NAMEfound", "NAME", whose[1]))
	case last.Role == "tool":
		return openaitest.Reply{ToolCalls: []openaitest.ToolCall{{Name: "done", Arguments: "{}"}}}
	}
	call := func(name, arguments string) openaitest.ToolCall {
		return openaitest.ToolCall{ID: name, Name: name,
			Arguments: strings.ReplaceAll(arguments, "NAME", whose[1])}
	}
	return openaitest.Reply{ToolCalls: []openaitest.ToolCall{
		call("edit_document", `{"name":"MEMORY.md","old":"",`+
			`"new":"- iamNAME dreamt of q7NAMEdream"}`),
		call("write_skill", `{"name":"found-NAME","description":"q7NAMEfound",`+
			`"body":"Say q7NAMEtold."}`),
	}}
}

// link links ann and twin to one person and makes them ask for their memory.
func (v *isolationWorld) link() {
	v.t.Helper()
	v.joined = v.model.Count()
	v.linked = true
	v.command("people", "link", strconv.FormatInt(v.all[0].scope.Person(), 10),
		strconv.FormatInt(v.all[3].scope.Person(), 10))
	v.everybody("what do you know now?")
	for _, p := range v.all {
		if p.name == "twin" {
			p.scope = v.all[0].scope
		}
	}
	v.probe()
}

// owner returns the owner of a secret. Linked people have the same owner.
func (v *isolationWorld) owner(name string) string {
	if v.linked && name == "twin" {
		return "ann"
	}
	return name
}

// owners returns the owners of the secrets and marks in a text.
func (v *isolationWorld) owners(text string) (list []string) {
	if !strings.Contains(text, "q7") && !strings.Contains(text, "iam") { // faster than the pattern
		return nil
	}
	for _, m := range ownPattern.FindAllStringSubmatch(text, -1) {
		if name := v.owner(m[1]); !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// parts returns the parts of a request: each message and everything beside them. Most of them are
// the same as in an earlier request.
func (v *isolationWorld) parts(r openaitest.Request) (list []string) {
	var body map[string]json.RawMessage
	err := json.Unmarshal(r.Body, &body)
	var messages []json.RawMessage
	if err == nil {
		err = json.Unmarshal(body["messages"], &messages)
	}
	if err != nil {
		v.t.Fatal(err)
	}
	delete(body, "messages")
	for _, part := range body {
		list = append(list, string(part))
	}
	for _, part := range messages {
		list = append(list, string(part))
	}
	return list
}

// checkApart checks that no request, chat, file or row contains words of two scopes.
func (v *isolationWorld) checkApart() {
	v.t.Helper()
	known := make(map[string][]string) // owners by part
	for _, r := range v.model.Requests() {
		if r.N <= v.joined && v.linked {
			continue // checked before the link
		}
		whose := "" // each request has at least the mark of its speaker, so the loop misses none
		for _, part := range v.parts(r) {
			owners, ok := known[part]
			if !ok {
				owners = v.owners(part)
				known[part] = owners
			}
			if whose == "" && len(owners) > 0 {
				whose = owners[0]
			}
			if len(owners) > 1 || len(owners) == 1 && owners[0] != whose {
				v.belongs(fmt.Sprint("request ", r.N), whose, part)
			}
		}
		if whose == "" {
			v.t.Errorf("request %d is nobody's: %.500s", r.N, r.Body)
		}
	}
	for _, p := range v.all {
		for _, m := range p.server.History(p.chat) {
			v.belongs(fmt.Sprint("message ", m.ID, " to ", p.name), p.name, m.Text)
			if m.File != nil {
				v.belongs(fmt.Sprint("file ", m.ID, " to ", p.name), p.name, string(m.File.Data))
			}
		}
		v.checkFiles(p)
	}
	v.checkRows()
}

// belongs checks that a text contains only words of one scope.
func (v *isolationWorld) belongs(what, whose, text string) {
	v.t.Helper()
	for _, at := range ownPattern.FindAllStringSubmatchIndex(text, -1) {
		if name := text[at[2]:at[3]]; v.owner(name) != v.owner(whose) {
			v.t.Errorf("%s, which is %s's, has words of %s: %q", what, whose, name,
				text[max(0, at[0]-300):min(len(text), at[1]+100)])
			return
		}
	}
}

// checkFiles checks the files of a scope and their versions.
func (v *isolationWorld) checkFiles(p *isolatedScope) {
	v.t.Helper()
	found := ""
	err := filepath.WalkDir(filepath.Join(v.home, "memory", string(p.scope)),
		func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			v.belongs(path, p.name, string(text))
			found += string(text)
			return err
		})
	if err != nil {
		v.t.Error(err)
	}
	for _, word := range []string{"said", "user", "memory", "soul", "dream", "skill", "found"} {
		if !strings.Contains(found, "q7"+p.name+word) {
			v.t.Errorf("the files of %s lack q7%s%s", p.name, p.name, word)
		}
	}
	if strings.Contains(found, "somebody was here") {
		v.t.Errorf("somebody has changed the files of %s", p.name)
	}
	versions, text := "", ""
	v.look(func(db *store.DB) {
		for range v.query(db, []any{&text}, "SELECT text FROM version_files "+
			"WHERE tree = $1 AND text IS NOT NULL "+
			"UNION ALL SELECT reason FROM versions WHERE tree = $1", string(p.scope)) {
			versions += text + "\n"
		}
	})
	if !strings.Contains(versions, "q7"+p.name+"dream") {
		v.t.Errorf("versions of %s: %.500s", p.name, versions)
	}
	v.belongs("a version of "+string(p.scope), p.name, versions)
}

// checkRows checks the rows of each scope in the database.
func (v *isolationWorld) checkRows() {
	v.t.Helper()
	whose := make(map[string]string)
	for _, p := range v.all {
		whose[string(p.scope)] = p.name
	}
	rows := 0
	v.look(func(db *store.DB) {
		var scope, text string
		for _, query := range []string{
			"SELECT s.name, r.value FROM memory_facts r JOIN memory_scopes s ON s.id = r.scope",
			"SELECT s.name, r.text FROM memory_entries r JOIN memory_scopes s ON s.id = r.scope",
			"SELECT s.name, r.text FROM memory_messages r JOIN memory_scopes s ON s.id = r.scope",
			"SELECT s.scope, m.body FROM messages m JOIN sessions s ON s.key = m.session",
		} {
			for range v.query(db, []any{&scope, &text}, query) {
				v.belongs("a row of "+scope, whose[scope], text)
				rows++
			}
		}
	})
	if rows < 100 {
		v.t.Errorf("looked at %d rows, want at least 100", rows)
	}
}

// places returns where the model saw the secrets of a scope since a request: the system prompt, a
// tool result or the prompt for a skill. Each key is a place and a word.
func (v *isolationWorld) places(whose string, after int) map[string]bool {
	seen, known := make(map[string]bool), make(map[string]bool)
	for _, r := range v.model.Requests() {
		for _, m := range r.Messages {
			if r.N <= after || known[m.Role+m.Content] {
				continue
			}
			known[m.Role+m.Content] = true
			for _, found := range secretPattern.FindAllStringSubmatch(m.Content, -1) {
				if found[1] == whose {
					seen[m.Role+" "+found[2]] = true
				}
			}
		}
	}
	return seen
}

// checkFound checks that everybody found their own secrets in all expected places. Otherwise the
// test would prove nothing.
func (v *isolationWorld) checkFound() {
	v.t.Helper()
	want := []string{
		"system pinned", "system user", "system memory", "system soul", "system dream",
		"system skill", "system found", "system idle",
		"tool fact", "tool task", "tool said", "tool compacted", "tool left", "tool file",
		"tool user", "tool steps", "tool told", "user steps",
	}
	_, err := sandbox.Find(v.t.Context(), sandbox.Options{Mode: "auto"})
	for _, p := range v.all {
		seen := v.places(p.name, v.probed)
		if err != nil {
			v.t.Logf("no command was tried: %v", err)
		} else if !v.places(p.name, 0)["tool shell"] {
			v.t.Errorf("%s: no command was run: their part proves nothing", p.name)
		}
		if p.name == "garden" && !seen["tool overheard"] {
			v.t.Error("garden: nothing was found of what was overheard")
		}
		for _, place := range want {
			if !seen[place] {
				v.t.Errorf("%s: not found: %s", p.name, place)
			}
		}
	}
}

// checkTogether checks that linked people have the memory of both.
func (v *isolationWorld) checkTogether() {
	v.t.Helper()
	seen := make(map[string]bool)
	for _, name := range []string{"ann", "twin"} {
		for place := range v.places(name, v.joined) {
			_, word, _ := strings.Cut(place, " ")
			seen["q7"+name+word] = true
		}
	}
	// Both people have facts with the same key, so only one of each two is kept.
	for _, word := range []string{"said", "compacted", "left", "idle", "file", "user", "memory",
		"soul", "dream", "skill", "found"} {
		for _, name := range []string{"ann", "twin"} {
			if !seen["q7"+name+word] {
				v.t.Errorf("nothing was found of q7%s%s after the link", name, word)
			}
		}
	}
	entries, err := filepath.Glob(filepath.Join(v.home, "memory", "person-*"))
	if err != nil || len(entries) != 3 {
		v.t.Errorf("there are the folders %q (%v), want those of three people", entries, err)
	}
}

// quoteJSON returns s as a string of JSON.
func quoteJSON(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string never fails
	}
	return string(text)
}
