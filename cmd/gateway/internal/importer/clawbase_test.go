package importer

import (
	"database/sql"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gateway/session"
)

// The tables that the import reads in OpenClaw's databases, as of July and of September 2026.
const (
	clawTablesJuly = `
CREATE TABLE sessions (session_id TEXT NOT NULL PRIMARY KEY, session_key TEXT NOT NULL);
CREATE TABLE session_entries (session_key TEXT NOT NULL PRIMARY KEY, session_id TEXT NOT NULL,
	entry_json TEXT NOT NULL, updated_at INTEGER NOT NULL,
	FOREIGN KEY (session_id) REFERENCES sessions(session_id) ON DELETE CASCADE);
CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL,
	event_json TEXT NOT NULL, created_at INTEGER NOT NULL, PRIMARY KEY (session_id, seq),
	FOREIGN KEY (session_id) REFERENCES sessions(session_id) ON DELETE CASCADE);
CREATE VIEW "index" AS SELECT session_key, session_id AS id FROM session_entries;
CREATE TRIGGER added INSTEAD OF INSERT ON "index" BEGIN
	INSERT OR IGNORE INTO sessions VALUES (NEW.id, NEW.session_key);
	INSERT INTO session_entries VALUES (NEW.session_key, NEW.id, '{}', 1);
END;
CREATE VIEW former AS SELECT session_key, session_id AS id FROM sessions;
CREATE TRIGGER ended INSTEAD OF INSERT ON former BEGIN
	INSERT INTO sessions VALUES (NEW.id, NEW.session_key);
	UPDATE session_entries SET entry_json = '{"usageFamilySessionIds":["in a file",7]}';
END;`
	clawTablesSeptember = `
CREATE TABLE session_nodes (session_key TEXT NOT NULL PRIMARY KEY,
	current_session_id TEXT NOT NULL, entry_json TEXT NOT NULL,
	entry_valid INTEGER NOT NULL DEFAULT 0, updated_at INTEGER NOT NULL) STRICT;
CREATE TABLE session_windows (session_id TEXT NOT NULL PRIMARY KEY,
	session_key TEXT NOT NULL REFERENCES session_nodes(session_key) ON DELETE CASCADE) STRICT;
CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL,
	event_json TEXT NOT NULL, created_at INTEGER NOT NULL, PRIMARY KEY (session_id, seq),
	FOREIGN KEY (session_id) REFERENCES "session_windows"(session_id) ON DELETE CASCADE) STRICT;
CREATE VIRTUAL TABLE session_transcript_fts USING fts5(text, session_id UNINDEXED);
CREATE VIEW "index" AS SELECT session_key, current_session_id AS id FROM session_nodes;
CREATE TRIGGER added INSTEAD OF INSERT ON "index" BEGIN
	INSERT INTO session_nodes VALUES (NEW.session_key, NEW.id, '{}', 1, 1);
	INSERT OR IGNORE INTO session_windows VALUES (NEW.id, NEW.session_key);
END;
CREATE VIEW former AS SELECT session_key, session_id AS id FROM session_windows;
CREATE TRIGGER ended INSTEAD OF INSERT ON former BEGIN
	INSERT INTO session_windows VALUES (NEW.id, NEW.session_key);
	UPDATE session_nodes SET entry_json = '{"usageFamilySessionIds":["in a file",7]}';
END;`
)

// base makes a database as OpenClaw leaves it when it is killed: the newest writes are still in
// the write-ahead log. The key of a session that was reset begins with "old ".
func (d *fixture) base(name, tables string, sessions map[string]string) {
	d.t.Helper()
	do := d.openBase(name)
	do(tables)
	for _, key := range slices.Sorted(maps.Keys(sessions)) { // sessions that were reset come last
		text, id := sessions[key], "id of "+key
		if key, old := strings.CutPrefix(key, "old "); old {
			do(`INSERT INTO former VALUES ($1, $2)`, key, id)
		} else {
			do(`INSERT INTO "index" VALUES ($1, $2)`, key, id)
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		for i := len(lines) - 1; i >= 0; i-- { // seq gives the order, not the place in the table
			do("INSERT INTO transcript_events VALUES ($1, $2, $3, 1)", id, i, lines[i])
		}
	}
}

// openBase makes an empty database and returns a function that changes it.
func (d *fixture) openBase(name string) (do func(query string, args ...any)) {
	d.t.Helper()
	path := filepath.Join(d.home, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		d.t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		d.t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	d.t.Cleanup(func() {
		if err := db.Close(); err != nil {
			d.t.Error(err)
		}
	})
	do = func(query string, args ...any) {
		if _, err := db.ExecContext(d.t.Context(), query, args...); err != nil {
			d.t.Fatalf("%s: %v", query, err)
		}
	}
	do("PRAGMA journal_mode = WAL")
	do("PRAGMA wal_autocheckpoint = 0")
	return do
}

// prompt returns the messages in the prompt of a conversation.
func (d *fixture) prompt(key string) string {
	d.t.Helper()
	got, err := session.ReadTranscript(d.target.DB.Read(d.t.Context()), named(key), 1<<20)
	if err != nil {
		d.t.Fatal(err)
	}
	var lines []string
	for _, e := range got.Entries {
		lines = append(lines, string(e.Message.Role)+": "+e.Message.Text)
	}
	return strings.Join(lines, "|")
}

// TestOpenClawDatabase checks the import of conversations from the databases of two versions of
// OpenClaw, and from files that an older version has left beside the database.
func TestOpenClawDatabase(t *testing.T) {
	for _, tables := range []string{clawTablesJuly, clawTablesSeptember} {
		d := newFixture(t)
		const base = "agents/main/agent/openclaw-agent.sqlite"
		d.write(
			"openclaw.json", "{}",
			"agents/main/sessions/sessions.json", `{"agent:main:main":{"sessionId":"old"},
				"agent:main:telegram:direct:43":{"sessionId":"old"}}`,
			"agents/main/sessions/old.jsonl", clawTranscript("from the old file"))
		d.base(base, tables, map[string]string{
			"agent:main:main":                clawTranscript("from the database"),
			"agent:main:telegram:group:-100": `{"type":"session"}`, // it has no messages
			"agent:main:cron:1":              clawTranscript("a job"),
		})
		before := d.listHome()
		d.want(OpenClaw,
			"left session "+base+": agent:main:cron:1 > : it belongs to a sub-agent, a job or "+
				"several chats, not to one chat",
			"new session "+base+": agent:main:main > telegram/42: 5 messages",
			"left session "+base+": agent:main:telegram:group:-100 > : it has no messages",
			"new session agents/main/sessions/old.jsonl > telegram/43: 5 messages",
		)
		want := "assistant: It is seven.|user: from the database\n[image]"
		if got := d.prompt("telegram/42"); got != want {
			t.Errorf("the prompt has %q, want %q", got, want)
		}
		if after := d.listHome(); after != before {
			t.Errorf("the import made of the home\n%s\n%s", before, after)
		}
	}
}

// TestOpenClawOldDatabase checks the import of sessions that were reset. Their lines are still in
// the database or in a file.
func TestOpenClawOldDatabase(t *testing.T) {
	for _, tables := range []string{clawTablesJuly, clawTablesSeptember} {
		d := newFixture(t)
		const base = "agents/main/agent/openclaw-agent.sqlite"
		const file = "agents/main/sessions/in a file.jsonl.reset.2026-07-01T08-00-00.000Z"
		d.write(file, strings.ReplaceAll(clawTranscript("file"), "2026-11", "2026-06"))
		d.base(base, tables, map[string]string{
			"agent:main:main":     clawTranscript("now"),
			"old agent:main:main": strings.ReplaceAll(clawTranscript("before"), "2026-11", "2026-10"),
		})
		d.want(OpenClaw,
			"new session "+file+" > telegram/42: 5 messages, an old conversation",
			"new session "+base+": agent:main:main, session id of old agent:main:main > telegram/42: "+
				"5 messages, an old conversation",
			"new session "+base+": agent:main:main > telegram/42: 5 messages",
		)
		const want = "assistant: It is seven.|user: now\n[image]"
		if got := d.prompt("telegram/42"); got != want {
			t.Errorf("the prompt has %q, want %q", got, want)
		}
	}
}

// The tables with the jobs, as of June and of September 2026.
const (
	clawJobsJune = `CREATE TABLE cron_jobs (store_key TEXT NOT NULL, job_id TEXT NOT NULL,
		name TEXT NOT NULL, enabled INTEGER NOT NULL, schedule_kind TEXT NOT NULL DEFAULT '',
		payload_kind TEXT NOT NULL DEFAULT '', job_json TEXT NOT NULL,
		state_json TEXT NOT NULL DEFAULT '{}', sort_order INTEGER NOT NULL DEFAULT 0,
		updated_at INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (store_key, job_id))`
	clawJobsSeptember = `CREATE TABLE cron_jobs (store_key TEXT NOT NULL, job_id TEXT NOT NULL,
		declaration_key TEXT, name TEXT NOT NULL, enabled INTEGER NOT NULL, agent_id TEXT,
		payload_kind TEXT NOT NULL DEFAULT '', job_json TEXT NOT NULL,
		state_json TEXT NOT NULL DEFAULT '{}', sort_order INTEGER NOT NULL DEFAULT 0,
		updated_at INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (store_key, job_id)) STRICT`
)

// TestOpenClawJobs checks the import of jobs from the databases of two versions of OpenClaw, and
// from a file that was not moved into the database.
func TestOpenClawJobs(t *testing.T) {
	for _, table := range []string{clawJobsJune, clawJobsSeptember} {
		d := newFixture(t)
		const tea = `"schedule":{"kind":"cron","expr":"0 9 * * *","tz":"UTC","staggerMs":0},
			"payload":{"kind":"agentTurn","message":"Make tea"},
			"delivery":{"mode":"announce","channel":"telegram","to":"42"},"state":{}`
		d.write("openclaw.json", "{}", "cron/jobs.json", `{"version":1,"jobs":[
			{"name":"tea","enabled":true,`+tea+`},{"name":"more tea","enabled":true,`+tea+`}]}`)
		do := d.openBase(clawState)
		do(table)
		for i, job := range []string{`{"name":"tea","enabled":true,` + tea + `}`,
			`{"name":"off","enabled":true,` + tea + `}`,
			`{"name":"topic","enabled":true,"schedule":{"kind":"every","everyMs":3600000,"anchorMs":1},
				"payload":{"kind":"agentTurn","message":"look"},"createdAtMs":1770000000000,
				"delivery":{"mode":"announce","channel":"telegram","to":"-100","threadId":7}}`,
			`{"name":"once","schedule":{"kind":"at","at":"2030-03-17T17:46:40.000Z"},
				"payload":{"kind":"systemEvent","text":"later"},"sessionTarget":"main"}`,
			`{"name":"beat","schedule":{"kind":"every","everyMs":3600000},
				"payload":{"kind":"heartbeat"}}`,
			`damaged`,
		} {
			enabled := 1
			if i == 1 {
				enabled = 0
			}
			do(`INSERT INTO cron_jobs (store_key, job_id, name, enabled, job_json, sort_order)
				VALUES ('/home/ann/.openclaw/cron/jobs.json', $1, '', $2, $3, $4)`,
				fmt.Sprint(9-i), enabled, job, i)
		}
		at := "at 0 9 * * * (UTC)"
		d.want(OpenClaw,
			"new job "+clawState+", job 1 tea > telegram/42: "+at,
			"new job "+clawState+", job 2 off > telegram/42: "+at+", paused",
			"new job "+clawState+", job 3 topic > telegram/-100/7: "+d.every(),
			"new job "+clawState+", job 4 once > telegram/42: "+d.at(),
			"left job "+clawState+`, job 5 beat > : the gateway has no jobs of the kind "heartbeat"`,
			"failed job "+clawState+", job 6 > : want a JSON object",
			"same job cron/jobs.json, job 1 tea > telegram/42: "+at,
			"new job cron/jobs.json, job 2 more tea > telegram/42: "+at,
		)
	}
}

// listHome lists the files of the home and their sizes.
func (d *fixture) listHome() string {
	d.t.Helper()
	var b strings.Builder
	err := filepath.Walk(d.home, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			fmt.Fprintln(&b, path, info.Size())
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return b.String()
}

// TestOpenClawTree checks which entries of a session belong to the prompt. Sessions have marks,
// side entries, entries without a parent and resets.
func TestOpenClawTree(t *testing.T) {
	say := func(id, rest string) string {
		return fmt.Sprintf(`{"type":"message","id":%q,"timestamp":1785571200000%s,"message":`+
			`{"role":"user","content":%q}}`, id, rest, id)
	}
	for name, tt := range map[string]struct {
		lines []string
		want  string
	}{
		"no parents": {[]string{say("a", ""), say("b", "")}, "user: a|user: b"},
		"after a mark": {[]string{say("a", `,"parentId":null`), say("b", `,"parentId":"a"`),
			`{"type":"leaf","id":"m","parentId":"b","targetId":"a"}`, say("c", `,"parentId":"m"`)},
			"user: a|user: c"},
		"an unknown mark": {[]string{say("a", `,"parentId":null`),
			`{"type":"leaf","id":"m","parentId":"a","targetId":"x"}`}, "user: a"},
		"beside": {[]string{say("a", `,"parentId":null`),
			say("b", `,"parentId":"a","appendMode":"side"`)}, "user: a"},
		"reset": {[]string{say("a", `,"parentId":null`), `{"type":"reset","id":"r","parentId":"a"}`,
			say("b", `,"parentId":"r"`)}, "user: b"},
		"reset that keeps": {[]string{say("a", `,"parentId":null`), say("b", `,"parentId":"a"`),
			`{"type":"reset","id":"r","parentId":"b","firstKeptEntryId":"b"}`,
			say("c", `,"parentId":"r"`)}, "user: b|user: c"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFixture(t)
			d.base("agents/main/agent/openclaw-agent.sqlite", clawTablesSeptember,
				map[string]string{"agent:main:main": strings.Join(tt.lines, "\n")})
			d.run(OpenClaw, false)
			if got := d.prompt("telegram/42"); got != tt.want {
				t.Errorf("the prompt has %q, want %q", got, tt.want)
			}
		})
	}
}

// TestOpenClawHostileDatabase checks that the import evaluates no views or computed columns of a
// hostile database, and that a damaged database does not stop the import.
func TestOpenClawHostileDatabase(t *testing.T) {
	const base = "agents/main/agent/openclaw-agent.sqlite"
	const endless = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
		SELECT 'agent:main:main' AS session_key, 'x' AS current_session_id, 'x' AS session_id,
		i AS seq, '{}' AS event_json FROM n`
	const events = `CREATE TABLE transcript_events (session_id TEXT, seq INTEGER, event_json TEXT);`
	for name, tt := range map[string]struct{ tables, want string }{
		"endless index": {events + "CREATE VIEW session_nodes AS " + endless,
			"its list of sessions has an unknown form"},
		"endless lines": {"CREATE VIEW transcript_events AS " + endless, ""},
		"computed lines": {`CREATE TABLE transcript_events (session_id TEXT, seq INTEGER,
			event_json TEXT AS (hex(zeroblob(500000000))))`, ""},
		"virtual": {"CREATE VIRTUAL TABLE transcript_events USING fts5(session_id, seq, event_json)",
			""},
		"nothing": {"CREATE TABLE auth_profile_store (store_key TEXT)", ""},
		"no JSON": {events + `CREATE TABLE session_nodes (session_key TEXT, current_session_id TEXT);
			INSERT INTO session_nodes VALUES ('agent:main:main', 's');
			INSERT INTO transcript_events VALUES ('s', 0, '{')`,
			"its lines: unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFixture(t)
			d.base(base, tt.tables, nil)
			got := strings.Join(d.run(OpenClaw, false), "\n")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("the import said %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("journal", func(t *testing.T) {
		d := newFixture(t)
		d.write(base, "SQLite", base+"-journal", "a change")
		if got := d.run(OpenClaw, false); len(got) != 1 ||
			!strings.Contains(got[0], "OpenClaw has not finished a change of the database") {
			t.Errorf("the import said %q", got)
		}
	})
}
