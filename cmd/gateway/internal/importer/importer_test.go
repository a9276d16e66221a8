package importer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/bus/bustest"
	"gateway/channels/gate"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/memory/version"
	"gateway/session"
	"gateway/store"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var named = bustest.Session

// now is the current time in all tests.
var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// A fixture is a gateway and the home of another agent, which is imported into the gateway.
type fixture struct {
	t      *testing.T
	home   string // of the other agent
	here   string
	target Target
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	d := &fixture{t: t, home: t.TempDir(), here: t.TempDir()}
	db, err := store.Open(t.Context(), filepath.Join(d.here, "gateway.db"), []store.Migration{
		bus.Migration, session.Migration, gate.Migration, memory.Migration,
		version.Migration, schedule.Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	shared, scopes := d.folder("shared"), d.folder("memory")
	d.target = Target{
		DB: db, Memory: memory.New(db, scopes, nil),
		Documents: document.New(shared, scopes, nil),
		Jobs:      schedule.Store{MaxJobs: -1, Location: time.UTC},
		Scope:     "person-1", Location: time.UTC, Now: now,
		Directory: Directory{
			People: []gate.Person{{ID: 1, Name: "Anna", Role: bus.Owner, Account: "telegram",
				Sender: "42"}},
			Owner: Owner{Person: 1, Chat: bus.Address{Account: "telegram", Chat: "42"},
				Sender: bus.Sender{ID: "42", Name: "Anna"}},
			Account: func(platform string) string { return platform },
		},
	}
	versions := version.New(db, nil)
	d.target.History = func(scope memory.Scope) *version.Tree {
		if scope == "" {
			return versions.Tree("shared", shared.Name(), document.IsVersioned)
		}
		return versions.Tree(string(scope), filepath.Join(scopes.Name(), string(scope)),
			document.IsVersioned)
	}
	return d
}

func (d *fixture) folder(name string) *os.Root {
	dir := filepath.Join(d.here, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		d.t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { root.Close() })
	return root
}

// write writes files into the other home. The arguments are names and contents in turn.
func (d *fixture) write(files ...string) {
	d.t.Helper()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(d.home, filepath.FromSlash(files[i]))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			d.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o600); err != nil {
			d.t.Fatal(err)
		}
	}
}

// run imports the home and returns one line for each item.
func (d *fixture) run(kind Kind, dry bool) []string {
	d.t.Helper()
	s, err := Open(kind, d.home)
	if err != nil {
		d.t.Fatal(err)
	}
	defer s.Close()
	items, err := s.Import(d.t.Context(), d.target, dry)
	if err != nil {
		d.t.Fatal(err)
	}
	var list []string
	for _, i := range items {
		list = append(list, strings.TrimRight(fmt.Sprintf("%s %s %s > %s: %s", i.State, i.Kind,
			i.From, i.To, i.Text), ": >"))
	}
	return list
}

// want runs a dry run and two imports of a home. The dry run must report what the first import
// does, and the second import must import nothing.
func (d *fixture) want(kind Kind, want ...string) {
	d.t.Helper()
	before := d.tree()
	dry := d.run(kind, true)
	if after := d.tree(); !slices.Equal(after, before) {
		d.t.Errorf("a dry run changed\n%q\nto\n%q", before, after)
	}
	got := d.run(kind, false)
	if !slices.Equal(got, dry) {
		d.t.Errorf("the import said\n%s\nand the dry run\n%s", strings.Join(got, "\n"),
			strings.Join(dry, "\n"))
	}
	if !slices.Equal(got, want) {
		d.t.Errorf("the import said\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, line := range d.run(kind, false) {
		if strings.HasPrefix(line, "new ") {
			d.t.Errorf("imported again: %s", line)
		}
	}
}

// tree lists the files of the gateway, except those of the database.
func (d *fixture) tree() (list []string) {
	err := filepath.WalkDir(d.here, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.Contains(path, "gateway.db") {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return list
}

func (d *fixture) file(name string) string {
	d.t.Helper()
	text, err := os.ReadFile(filepath.Join(d.here, filepath.FromSlash(name)))
	if err != nil {
		d.t.Fatal(err)
	}
	return string(text)
}

// transcript returns one line for each message of a session, from its start on.
func (d *fixture) transcript(key session.Key) []string {
	d.t.Helper()
	t, err := session.ReadTranscript(d.target.DB.Read(d.t.Context()), key, 1<<30)
	if err != nil {
		d.t.Fatal(err)
	}
	var list []string
	for _, e := range t.Entries {
		text := string(e.Message.Role) + " " + e.Message.Text
		for _, c := range e.Message.ToolCalls {
			text += " " + c.Name + c.Arguments
		}
		list = append(list, e.Time.UTC().Format("15:04 ")+text)
	}
	return list
}

const day = "2026-02-16T"

// TestNanobot imports a home of the newest nanobot, with everything in the workspace.
func TestNanobot(t *testing.T) {
	d := newFixture(t)
	d.write(
		"config.json", `{"agents":{"defaults":{"workspace":"~/.nanobot/workspace"}}}`,
		"workspace/AGENTS.md", "Be kind.",
		"workspace/SOUL.md", " \n",
		"workspace/USER.md", "Anna likes tea.",
		"workspace/HEARTBEAT.md", "- [ ] water the plants",
		"workspace/memory/MEMORY.md", "The dog is called Bello.\r\n",
		"workspace/memory/history.jsonl", "{\"cursor\":1,\"timestamp\":\"2026-02-16 09:00\","+
			"\"content\":\"Anna bought a bike.\",\"session_key\":\"telegram:42\"}\r\n"+
			`{"cursor":2,"timestamp":"2026-02-17 09:00","content":"It was stolen."}`+"\n",
		"workspace/memory/.dream_cursor", "1\n",
		"workspace/sessions/telegram_42.jsonl", `{"_type":"metadata","key":"telegram:42",`+
			`"created_at":"`+day+`10:00:00.123456","updated_at":"`+day+`11:00:00","metadata":{},`+
			`"last_consolidated":2}`+"\n"+
			`{"role":"user","content":"hello","timestamp":"`+day+`10:00:00"}`+"\n"+
			`{"role":"assistant","content":"hi","timestamp":"`+day+`10:00:01.5"}`+"\n"+
			`{"role":"system","content":"be brief"}`+"\n"+
			`{"role":"user","content":[{"type":"text","text":"what is this?"},`+
			`{"type":"image_url"}],"timestamp":"`+day+`10:05:00"}`+"\n"+
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",`+
			`"function":{"name":"read_file","arguments":"{\"path\":\"a\"}"}}],"timestamp":"`+
			day+`10:05:02"}`+"\n"+
			`{"role":"tool","tool_call_id":"c1","name":"read_file","content":"text"}`+"\n"+
			`{"role":"assistant","content":"A picture.","reasoning_content":"hm","timestamp":"`+
			day+`10:06:00"}`+"\n",
		"workspace/cron/jobs.json", `{"version":1,"jobs":[
			{"id":"a","name":"Tee  ☕","enabled":true,"schedule":{"kind":"cron","expr":"0 9 * * *",
			 "tz":"Europe/Berlin"},"payload":{"kind":"agent_turn","message":"Make tea",
			 "channel":"telegram","to":"42"},"createdAtMs":1770000000000},
			{"id":"b","name":"old","schedule":{"kind":"at","atMs":1770000000000},
			 "payload":{"message":"too late","channel":"telegram","to":"42"}},
			{"id":"c","name":"often","enabled":false,"schedule":{"kind":"every","everyMs":3600000},
			 "payload":{"message":"look","deliver":true,"channel":"telegram","to":"-100"},
			 "createdAtMs":1770000000000},
			{"id":"d","name":"odd","schedule":{"kind":"moon"},"payload":{"message":"howl"}},
			{"id":"e","name":"once","schedule":{"kind":"at","at_ms":1900000000000},
			 "payload":{"message":"later","session_key":"telegram:42"}},
			{"id":"f","name":"run","schedule":{"kind":"every","everyMs":3600000},
			 "payload":{"message":"x","command":"rm -rf /"}},
			{"id":"g","name":"zone","schedule":{"kind":"cron","expr":"0 9 * * *","tz":"Mars/Base"},
			 "payload":{"message":"x"}}]}`,
	)
	d.want(Nanobot,
		"new document workspace/memory/MEMORY.md > person-1/MEMORY.md: 26 bytes",
		"new document workspace/USER.md > person-1/USER.md: 15 bytes",
		"new document workspace/HEARTBEAT.md > person-1/HEARTBEAT.md: 22 bytes",
		"new document workspace/AGENTS.md > shared/AGENTS.md: 8 bytes",
		"left document workspace/SOUL.md > : it is empty",
		"new history workspace/memory/history.jsonl > person-1/history.jsonl: 2 entries of 2",
		"new session workspace/sessions/telegram_42.jsonl > telegram/42: 6 messages, 1 system, "+
			"empty or damaged messages left out",
		"new job workspace/cron/jobs.json, job 1 Tee ☕ > telegram/42: "+d.when("0 9 * * *"),
		"left job workspace/cron/jobs.json, job 2 old > : its time was 2026-02-02 02:40",
		"new job workspace/cron/jobs.json, job 3 often > telegram/-100: "+d.every()+", paused",
		"left job workspace/cron/jobs.json, job 4 odd > : the gateway has no schedules of "+
			`the kind "moon"`,
		"new job workspace/cron/jobs.json, job 5 once > telegram/42: "+d.at(),
		"left job workspace/cron/jobs.json, job 6 run > : it runs a command, not the agent",
		`left job workspace/cron/jobs.json, job 7 zone > : "Mars/Base" is not a time zone`,
	)
	if got := d.file("memory/person-1/MEMORY.md"); got != "The dog is called Bello.\r\n" {
		t.Errorf("MEMORY.md is %q", got)
	}
	want := []string{"10:05 user what is this?\n[image]",
		`10:05 assistant  read_file{"path":"a"}`, "10:05 tool text", "10:06 assistant A picture."}
	if got := d.transcript(named("telegram/42")); !slices.Equal(got, want) {
		t.Errorf("the transcript is %q, want %q", got, want)
	}
	d.wantHistory(1, "09:00 telegram/42 Anna bought a bike.", "09:00  It was stolen.")
	hits, err := d.target.Memory.In("person-1").SearchHistory(d.target.DB.Read(t.Context()),
		"hello", memory.HistoryOptions{})
	if err != nil || len(hits) != 1 {
		t.Errorf("a search for what the prompt does not hold found %v, %v", hits, err)
	}
	d.wantJobs("Tee ☕ telegram/42 person-1 42 active",
		"often telegram/-100 chat-telegram+-100 42 paused",
		"once telegram/42 person-1 42 active")
}

func (d *fixture) when(expr string) string {
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		d.t.Fatal(err)
	}
	w, err := schedule.ParseCron(expr, loc)
	if err != nil {
		d.t.Fatal(err)
	}
	return w.String()
}

func (d *fixture) every() string {
	w, err := schedule.ParseEvery("1h", time.UnixMilli(1770000000000), 0)
	if err != nil {
		d.t.Fatal(err)
	}
	return w.String()
}

func (d *fixture) at() string {
	w, err := schedule.ParseAt(time.UnixMilli(1900000000000).Format(time.RFC3339), now, time.UTC)
	if err != nil {
		d.t.Fatal(err)
	}
	return w.String()
}

// wantHistory checks the history of the person, and the entry up to which Dream need not read it.
func (d *fixture) wantHistory(dreamed int64, want ...string) {
	d.t.Helper()
	space := d.target.Memory.In("person-1")
	q := d.target.DB.Read(d.t.Context())
	list, err := space.Entries(q, 0, 100)
	if err != nil {
		d.t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, e.Time.UTC().Format("15:04 ")+e.Session+" "+e.Text)
	}
	if !slices.Equal(got, want) {
		d.t.Errorf("the history is %q, want %q", got, want)
	}
	if n, err := space.Dreamed(q); err != nil || n != dreamed {
		d.t.Errorf("Dream has read up to %d, %v, want %d", n, err, dreamed)
	}
}

func (d *fixture) wantJobs(want ...string) {
	d.t.Helper()
	list, err := schedule.List(d.target.DB.Read(d.t.Context()), schedule.Filter{Over: true})
	if err != nil {
		d.t.Fatal(err)
	}
	var got []string
	for _, j := range list {
		got = append(got, fmt.Sprintf("%s %s %s %s %s", j.Name, j.To, j.Scope, j.Sender.ID,
			j.State))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		d.t.Errorf("the jobs are %q, want %q", got, want)
	}
}

// TestOldNanobot imports a home of the first nanobot: sessions in the home and without keys,
// HISTORY.md, and notes of days.
func TestOldNanobot(t *testing.T) {
	d := newFixture(t)
	d.write(
		"config.json", `{}`,
		"workspace/memory/HISTORY.md", "# History\n\n[2026-02-16 08:00] Anna moved\nto Rome.\n\n"+
			"It rained.\n\n[2026-02-17 09:30] [RAW] More.\n\n",
		"workspace/memory/2026-02-15.md", "A quiet day.",
		"sessions/telegram_42.jsonl", `{"_type":"metadata","created_at":"2026-02-03T10:00:00",`+
			`"updated_at":"2026-02-03T12:00:00","metadata":{}}`+"\n"+
			`{"role":"user","content":"Hello","timestamp":"2026-02-03T10:00:00"}`+"\n",
		"sessions/telegram_-100:topic:7.jsonl", `{"role":"user","content":"no head"}`+"\n",
		"sessions/feishu_9.jsonl", `{"role":"user","content":"x"}`+"\n",
		"sessions/heartbeat.jsonl", `{"role":"user","content":"x"}`+"\n",
		"cron/jobs.json", `[{"name":"","schedule":{"kind":"every","every_ms":3600000},`+
			`"payload":{"message":"tick"},"created_at_ms":1770000000000}]`,
	)
	d.want(Nanobot,
		"new history workspace/memory/HISTORY.md > person-1/history.jsonl: 2 entries of 2",
		"new history workspace/memory/2026-02-15.md > person-1/history.jsonl: 1 entries of 1",
		`left session sessions/feishu_9.jsonl > : the gateway has no channel "feishu"`,
		`left session sessions/heartbeat.jsonl > : "heartbeat" is not the key of a `+
			"chat: choose a conversation with --as",
		"new session sessions/telegram_-100:topic:7.jsonl > telegram/-100/7: 1 messages",
		"new session sessions/telegram_42.jsonl > telegram/42: 1 messages",
		"new job cron/jobs.json, job 1 tick > telegram/42: "+d.every(),
	)
	d.wantHistory(3, "08:00  [2026-02-16 08:00] Anna moved\nto Rome.\n\nIt rained.",
		"09:30  [2026-02-17 09:30] [RAW] More.", "00:00  A quiet day.")
}

// TestNanobotByWorkspace imports a home of nanobot since August 2026, which has a folder of
// sessions for each workspace. Their names are the encoded keys. Later ones are in a database.
func TestNanobotByWorkspace(t *testing.T) {
	d := newFixture(t)
	const dir = "sessions/0123456789abcdef0123456789abcdef/"
	d.write("config.json", `{}`, dir+".workspace", "/home/ann/.nanobot/workspace\n",
		dir+"dGVsZWdyYW06NDI.jsonl", `{"_type":"metadata","key":"telegram:42",`+
			`"created_at":"2026-08-20T10:00:00","updated_at":"2026-08-20T12:00:00"}`+"\n"+
			`{"role":"user","content":"Hello","timestamp":"2026-08-20T10:00:00"}`+"\n",
		dir+"sessions.sqlite3", "SQLite", "sessions/other/telegram_43.jsonl", "x")
	d.want(Nanobot,
		"new session "+dir+"dGVsZWdyYW06NDI.jsonl > telegram/42: 1 messages",
		"left session "+dir+"sessions.sqlite3 > : a newer nanobot keeps conversations in this "+
			"database: its command sessions export-jsonl writes them as files, which the import reads")
}

// TestWorkspaceElsewhere imports homes whose settings name a workspace. If it is not in the home,
// the import says where the documents are.
func TestWorkspaceElsewhere(t *testing.T) {
	const left = " > : the workspace with the documents is not in this home: import that folder, too"
	for dir, want := range map[string][]string{
		"~/notes":                {"left document ~/notes" + left},
		`C:\\Users\\Ann\\notes`:  {`left document C:\Users\Ann\notes` + left},
		"/home/ann/x/workspace/": {"new document workspace/SOUL.md > shared/SOUL.md: 9 bytes"},
		"":                       {"new document workspace/SOUL.md > shared/SOUL.md: 9 bytes"},
	} {
		for _, kind := range []Kind{Nanobot, PicoClaw, OpenClaw} {
			d := newFixture(t)
			settings := `{"agents":{"defaults":{"workspace":"` + dir + `"}}}`
			d.write("config.json", settings, "openclaw.json", settings)
			if strings.HasPrefix(want[0], "new") {
				d.write("workspace/SOUL.md", "Be quick.")
			}
			d.want(kind, want...)
		}
	}
}

func TestPicoClaw(t *testing.T) {
	d := newFixture(t)
	d.write(
		"config.json", `{"version":2,"agents":{"defaults":{"model_name":"gpt"}}}`,
		"workspace/AGENT.md", "Be quick.",
		"workspace/IDENTITY.md", "I am Pico.",
		"workspace/memory/MEMORY.md", "Has a cat.",
		"workspace/memory/202602/20260216.md", "Wrote a poem.",
		"workspace/sessions/telegram_42.json", `{"key":"telegram:42","messages":[]}`,
		"workspace/sessions/agent_main_telegram_group_-100.jsonl", `{"role":"user","content":"a"}`+
			"\n"+`{"role":"assistant","content":"b"}`+"\n"+`{"role":"user","content":"c"}`+"\n",
		"workspace/sessions/agent_main_telegram_group_-100.meta.json",
		`{"key":"agent:main:telegram:group:-100/5","summary":"Notes.","skip":2,"count":3,`+
			`"created_at":"2026-02-16T10:00:00Z","updated_at":"2026-02-16T10:00:00Z"}`,
		"workspace/sessions/agent_main_main.jsonl", `{"role":"user","content":"x"}`,
		"workspace/sessions/agent_main_main.meta.json", `{"key":"agent:main:main"}`,
		"workspace/cron/jobs.json", `{"version":1,"jobs":[{"id":"1","name":"news","enabled":true,
			"schedule":{"kind":"cron","expr":"bad"},"payload":{"kind":"agent_turn","message":"news",
			"deliver":true,"channel":"discord","to":"77"}}]}`,
	)
	_, cronErr := schedule.ParseCron("bad", time.UTC)
	d.want(PicoClaw,
		"new document workspace/memory/MEMORY.md > person-1/MEMORY.md: 10 bytes",
		"new document workspace/AGENT.md > shared/AGENTS.md: 9 bytes",
		"new document workspace/IDENTITY.md > shared/IDENTITY.md: 10 bytes",
		"new history workspace/memory/202602/20260216.md > person-1/history.jsonl: 1 entries of 1",
		`left session workspace/sessions/agent_main_main.jsonl > : "agent:main:main" is not the `+
			"key of a chat: choose a conversation with --as",
		"new session workspace/sessions/agent_main_telegram_group_-100.jsonl > telegram/-100/5: "+
			"3 messages",
		"left session workspace/sessions/telegram_42.json > : an old version of PicoClaw wrote "+
			"it: start a newer one, which converts it to .jsonl",
		"left job workspace/cron/jobs.json, job 1 news > : "+cronErr.Error(),
	)
	if got := d.transcript(named("telegram/-100/5")); !slices.Equal(got, []string{"10:00 user c"}) {
		t.Errorf("the prompt holds %q", got)
	}
	s, err := session.ReadSummary(d.target.DB.Read(t.Context()), named("telegram/-100/5"))
	if err != nil || s.Text != "Notes." || s.Scope != "chat-telegram+-100" {
		t.Errorf("the summary is %+v, %v", s, err)
	}
}

// Documents that a person has written here stay, and damaged files don't stop the rest of the
// import.
func TestOddHome(t *testing.T) {
	d := newFixture(t)
	if err := d.target.Documents.WriteTemplates(); err != nil {
		t.Fatal(err)
	}
	if err := d.target.Documents.Create("person-1", document.User, "Mine."); err != nil {
		t.Fatal(err)
	}
	d.write(
		"workspace/USER.md", "Theirs.",
		"workspace/SOUL.md", "A soul.", // our document is an untouched template
		"workspace/TOOLS.md", "bad \xff utf-8",
		"workspace/AGENTS.md", strings.Repeat("x", maxDocument+1),
		"workspace/memory/history.jsonl", "{\"cursor\":1,\"timestamp\":\"2026-02-16 09:00\","+
			"\"content\":\"a\"}\n{broken\n",
		"workspace/sessions/telegram_1.jsonl", `{"_type":"metadata","key":"telegram:1"}`+"\n"+
			`{"role":"user","content":"x"}`+"\n"+`{"role":"user","content":`+"\n",
		"workspace/sessions/telegram_2.jsonl", `{"_type":"metadata","key":"telegram:2"}`+"\r\n"+
			`{"role":"user","content":"fine"}`+"\r\n",
		"workspace/sessions/telegram_3.jsonl", `{"_type":"metadata","key":"telegram:3"}`+"\n",
		"workspace/sessions/list.jsonl", "[]\n",
		"workspace/cron/jobs.json", "{}",
		"secret.txt", "outside",
	)
	outside := filepath.Join(t.TempDir(), "outside.md")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"HEARTBEAT.md", "sessions/a.jsonl"} {
		if err := os.Symlink(outside, filepath.Join(d.home, "workspace", name)); err != nil {
			t.Fatal(err)
		}
	}
	got := d.run(Nanobot, false)
	for _, want := range []string{
		"new document workspace/USER.md > person-1/USER.imported.md: 7 bytes; your document stays",
		"failed document workspace/HEARTBEAT.md > : it is, or lies behind, a link",
		"failed document workspace/AGENTS.md > : it has more than 1048576 bytes",
		"new document workspace/SOUL.md > shared/SOUL.md: 7 bytes",
		"failed document workspace/TOOLS.md > : document: save TOOLS.md: it is not text in UTF-8",
		"new history workspace/memory/history.jsonl > person-1/history.jsonl: 1 entries of 1, 1 damaged",
		"failed session workspace/sessions/a.jsonl > : it is, or lies behind, a link",
		"failed session workspace/sessions/list.jsonl > : line 1: it does not begin like",
		"new session workspace/sessions/telegram_1.jsonl > telegram/1: 1 messages, 1 system, empty",
		"new session workspace/sessions/telegram_2.jsonl > telegram/2: 1 messages",
		"left session workspace/sessions/telegram_3.jsonl > : it has no messages",
		"failed job workspace/cron/jobs.json > : it has no jobs",
	} {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("nothing was said like %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
	if len(got) != 12 {
		t.Errorf("%d items, want 12:\n%s", len(got), strings.Join(got, "\n"))
	}
	if text := d.file("memory/person-1/USER.md"); text != "Mine." {
		t.Errorf("USER.md is %q", text)
	}
	d.wantHistory(0, "09:00  a")
	keys, err := session.Keys(d.target.DB.Read(t.Context()))
	if err != nil || !slices.Equal(keys, []session.Key{named("telegram/1"), named("telegram/2")}) {
		t.Errorf("there are the sessions %v, %v", keys, err)
	}
	for _, path := range d.tree() {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "secret") {
			t.Errorf("what a link leads to is in %s", path)
		}
	}
}

// A job or a session that is not an object, as written by hand, does not cost the others.
func TestOddEntries(t *testing.T) {
	d := newFixture(t)
	d.write("cron/jobs.json", `{"jobs":[5,`+
		`{"payload":{"message":"tea","channel":"telegram","to":"42"},`+
		`"schedule":{"kind":"cron","expr":"0 9 * * *","tz":"Europe/Berlin"}},"x"]}`,
		"config.json", "{}")
	want := []string{"failed job cron/jobs.json, job 1 > : want a JSON object",
		"new job cron/jobs.json, job 2 tea > telegram/42: " + d.when("0 9 * * *"),
		"failed job cron/jobs.json, job 3 > : want a JSON object"}
	if got := d.run(Nanobot, false); !slices.Equal(got, want) {
		t.Errorf("nanobot: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	d = newFixture(t)
	d.write("openclaw.json", "{}", "agents/main/sessions/sessions.json",
		`{"agent:main:a":7,"agent:main:telegram:direct:42":{"sessionId":"b"}}`,
		"agents/main/sessions/b.jsonl", `{"type":"session","id":"b"}`+"\n"+
			`{"type":"message","id":"1","message":{"role":"user","content":"hi"}}`+"\n")
	want = []string{
		"failed session agents/main/sessions/sessions.json > : agent:main:a: want an object",
		"new session agents/main/sessions/b.jsonl > telegram/42: 1 messages"}
	if got := d.run(OpenClaw, false); !slices.Equal(got, want) {
		t.Errorf("openclaw: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, files := range map[string][]string{
		"empty":  nil,
		"broken": {"config.json", "{"},
		"list":   {"config.json", "[]"},
	} {
		d := newFixture(t)
		d.write(files...)
		if s, err := Open(Nanobot, d.home); err == nil {
			t.Errorf("%s: Open = %v, want an error", name, s)
		}
	}
	if _, err := Open(Nanobot, filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a home that isn't there was opened")
	}
}

// A workspace without a home around it can be imported, too.
func TestBareWorkspace(t *testing.T) {
	d := newFixture(t)
	d.write("SOUL.md", "A soul.", "sessions/telegram_42.jsonl", `{"role":"user","content":"x"}`)
	d.want(PicoClaw,
		"new document SOUL.md > shared/SOUL.md: 7 bytes",
		"new session sessions/telegram_42.jsonl > telegram/42: 1 messages",
	)
}
