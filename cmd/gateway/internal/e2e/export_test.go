//go:build unix

package e2e

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/export"
	"gateway/channels/telegram/telegramtest"
	"gateway/memory"
	"gateway/store"
)

// notExported lists the tables that are not in an export, with the reasons. A new table must be
// either here or in an export.
var notExported = map[string]string{
	"accounts":         "of the gateway",
	"bots":             "of the gateway",
	"changes":          "of the gateway",
	"halts":            "of the gateway",
	"leases":           "of the gateway",
	"lives":            "of the gateway",
	"schema":           "of the gateway",
	"hook_signatures":  "hashes of posts of other programs",
	"usage_turns":      "sums without a person",
	"usage_ratios":     "of models",
	"predecessors":     "of the gateway",
	"previews":         "ids of messages that are being written",
	"restarts":         "where the gateway says that it is back",
	"denied":           "strangers whom an owner keeps out; erasing leaves them",
	"known_groups":     "groups",
	"session_rests":    "what is being erased",
	"memory_rests":     "what is being erased",
	"memory_leftovers": "what is being erased",
}

// A row is a row of the database: values by column.
type row map[string]any

// rowsOf returns all rows of all tables by table and primary key.
func (w *world) rowsOf(db *store.DB) map[string]map[string]row {
	w.t.Helper()
	all := make(map[string]map[string]row)
	var name string
	var names []string
	for range w.query(db, []any{&name}, `SELECT name FROM sqlite_master WHERE type = 'table'
		AND name NOT LIKE 'sqlite%' AND name NOT LIKE 'memory_index%'`) {
		names = append(names, name)
	}
	for _, table := range names {
		all[table] = make(map[string]row)
		var key []string
		var column string
		for range w.query(db, []any{&column}, "SELECT name FROM pragma_table_info('"+table+
			"') WHERE pk > 0") {
			key = append(key, column)
		}
		rows, err := db.Read(w.t.Context()).Query("SELECT * FROM " + table)
		if err != nil {
			w.t.Fatal(err)
		}
		columns, err := rows.Columns()
		if err != nil {
			w.t.Fatal(err)
		}
		for rows.Next() {
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				w.t.Fatal(err)
			}
			r := make(row)
			for i, c := range columns {
				r[c] = values[i]
			}
			id := ""
			for _, k := range key {
				id += fmt.Sprintf("%v|", r[k])
			}
			all[table][id] = r
		}
		if err := rows.Close(); err != nil {
			w.t.Fatal(err)
		}
	}
	return all
}

// filesIn returns the content of the files in a folder by their paths.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// unzip returns the content of the files in an archive by their paths.
func unzip(t *testing.T, data []byte) map[string]string {
	t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatalf("%v: %.200q", err, data)
	}
	files := make(map[string]string)
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(content)
	}
	return files
}

// isIn reports whether an export contains a row.
func (r row) isIn(table string, files map[string]string) bool {
	if table == "messages" {
		var m struct{ Text string }
		body, _ := r["body"].(string)
		if json.Unmarshal([]byte(body), &m) != nil {
			return false
		}
		text, _ := json.Marshal(m.Text)
		return slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(name string) bool {
			return strings.HasPrefix(name, "conversations/") && strings.HasSuffix(name, ".jsonl") &&
				strings.Contains(files[name], string(text))
		})
	}
	for line := range strings.Lines(files["data/"+table+".jsonl"]) {
		var got map[string]any
		dec := json.NewDecoder(strings.NewReader(line))
		dec.UseNumber()
		if dec.Decode(&got) == nil && r.equals(got) {
			return true
		}
	}
	return false
}

// equals compares the columns that an exported line has, except times and JSON.
func (r row) equals(line map[string]any) bool {
	compared := 0
	for column, want := range r {
		if b, ok := want.([]byte); ok {
			want = string(b)
		}
		if text, ok := want.(string); ok {
			want = strings.ReplaceAll(text, secretKey, "[withheld]")
		}
		got, ok := line[column]
		if !ok {
			continue // omitted, or a time
		}
		switch got.(type) {
		case map[string]any, []any:
			continue
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return false
		}
		compared++
	}
	return compared > 0
}

// An exported is a gateway that stores data about Ann, of every kind that a gateway can have.
type exported struct {
	*world
	t      *testing.T
	person int64
	memory *memory.Memory
}

// fill makes Ann and Bob use the gateway, and adds rows that are rare.
func (x *exported) fill() {
	x.t.Helper()
	x.telegram.AddUser(telegramtest.User{ID: annID, First: "Ann"})
	x.telegram.AddUser(telegramtest.User{ID: bobID, First: "Bob"})
	x.telegram.AddGroup(groupID, "Garden")
	for _, user := range []int64{annID, bobID} {
		code := docPairing.FindStringSubmatch(x.reply(user, "hello"))
		if code == nil {
			x.t.Fatalf("%d got no code: %q", user, x.texts(user))
		}
		if out, err := x.gateway("people", "approve", code[1]); err != nil {
			x.t.Fatalf("approve: %v\n%s", err, out)
		}
		x.await("a welcome", func() bool { return has(x.texts(user), "Welcome") })
		x.wantReply(user, "my word is plum", "my word is plum")
	}
	x.wantReply(annID, "/timezone Europe/Berlin", "Europe/Berlin")
	x.wantReply(annID, "/remind in 20h water the roses", "remind")
	x.wantReply(annID, `DO remember {"key":"rose","value":"likes red ones"}`, "the tools said")
	x.wantReply(annID, `DO write_file {"path":"memory/MEMORY.md","content":"Ann grows tulips."}`,
		"the tools said")
	before := len(x.texts(annID))
	x.telegram.SayDocument(annID, annID, "my list", "list.txt", "text/plain", []byte("seeds: basil"))
	x.await("an answer about the file", func() bool { return len(x.texts(annID)) > before })
	x.telegram.Say(groupID, bobID, "the bird is a secret of Bob's") // not for the bot
	x.telegram.Say(groupID, bobID, "@gateway_bot Bob says heron")
	x.await("an answer to Bob", func() bool { return has(x.texts(groupID), "heron") })
	x.telegram.Say(groupID, annID, "@gateway_bot Ann says finch")
	x.await("an answer to Ann", func() bool { return has(x.texts(groupID), "finch") })
	x.settled()
	x.look(func(db *store.DB) {
		for range x.query(db, []any{&x.person}, "SELECT id FROM people JOIN identities "+
			"ON person = id WHERE sender = $1", fmt.Sprint(annID)) {
		}
		x.memory = memory.New(db, nil, nil)
		err := db.Tx(x.t.Context(), func(tx *store.Tx) error { return x.rare(tx) })
		if err != nil {
			x.t.Fatal(err)
		}
	})
}

// settled waits until the gateway has nothing to do.
func (x *exported) settled() {
	x.t.Helper()
	x.eventually("the gateway to rest", func(db *store.DB) bool {
		return x.count(db, "outbox WHERE state <> 'sent'") == 0 &&
			x.count(db, "inbox WHERE state IN ('waiting', 'taken')") == 0 &&
			x.count(db, "chores WHERE due_ms < 9e15") == 0
	})
}

// rare adds rows that exist only in rare situations.
func (x *exported) rare(tx *store.Tx) error {
	scope, session := fmt.Sprintf("person-%d", x.person), fmt.Sprintf("telegram/%d", annID)
	for _, query := range []string{
		fmt.Sprintf("INSERT INTO pairings VALUES ('SECRETCO', 'telegram', 'x', 'Annie', '%d', 9e15)",
			annID),
		fmt.Sprintf("INSERT INTO places VALUES ('telegram', '%d', 'cursor')", annID),
		fmt.Sprintf("INSERT INTO notices VALUES ('telegram', '%d', 5)", annID),
		fmt.Sprintf("INSERT INTO moves VALUES ('telegram', '%d', 'earlier')", annID),
		"INSERT INTO questions (code, state, session, turn, call, body, expires_ms) VALUES " +
			"('SECRETQU', 'refused', '" + session + "', 1, 'c', '{\"kind\":\"approve\"}', 5)",
		"INSERT INTO runs (job, due_ms, state, said) SELECT id, 5, 'done', 'I told her' FROM jobs",
		"INSERT INTO chores (kind, scope, session, ref, due_ms) VALUES ('later', '" + scope +
			"', '', 1, 9e15)",
	} {
		if _, err := tx.Exec(query); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	space := x.memory.In(memory.Scope(scope)) // adds its rows to the index, too
	_, err := space.Append(tx, memory.Entry{Time: time.UnixMilli(5), Session: session,
		Text: "Ann spoke of her garden. The key was " + secretKey + "."})
	if err != nil {
		return err
	}
	return space.Archive(tx, []memory.Message{{ID: 99, Time: time.UnixMilli(5), Session: session,
		Speaker: "user", Text: "an archived word"}})
}

// TestExportMirrorsErasure checks that the export of a person contains everything that /forget me
// removes, so that no new table is missed. The export contains no words of other people and no
// secrets.
func TestExportMirrorsErasure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: answerConversations})
	w.set("[models.fake]", fmt.Sprintf("[models.fake]\nkey = %q", secretKey))
	w.configure("rate_limit = \"off\"\nstreaming = false\nsender_rate = 0\n" +
		fmt.Sprintf("groups = [%d]", groupID))
	x := &exported{world: w, t: t}
	p := w.start()
	p.ready()
	x.fill()
	x.settled()
	var before map[string]map[string]row
	w.look(func(db *store.DB) { before = w.rowsOf(db) })
	for table := range before {
		if !slices.Contains(export.Tables(), table) && notExported[table] == "" {
			t.Errorf("table %s is neither in an export nor among those that are not", table)
		}
	}
	dir := filepath.Join(t.TempDir(), "ann")
	who := fmt.Sprint(x.person)
	if out, err := w.gateway("export", who, dir); err != nil {
		t.Fatalf("export: %v\n%s", err, out)
	}
	files := filesIn(t, dir)
	x.check(files)
	if out, err := w.gateway("export", who, dir); err == nil || !strings.Contains(out, "has files") {
		t.Errorf("a second export into the folder: %v, %s", err, out)
	}
	for arg, want := range map[string]string{
		"99": "there is no person 99", "Ann": "not a person", "shared": "not a person",
	} {
		if out, err := w.gateway("export", arg, dir+arg); err == nil || !strings.Contains(out, want) {
			t.Errorf("export %s: %v, %s, want %s", arg, err, out, want)
		}
	}
	w.wantReply(annID, "/forget me now", "forgotten")
	w.eventually("all is forgotten", func(db *store.DB) bool {
		return w.count(db, "chores WHERE kind = 'erase'") == 0
	})
	gone := make(map[string]int)
	w.look(func(db *store.DB) {
		after := w.rowsOf(db)
		for table, rows := range before {
			for key, r := range rows {
				if _, still := after[table][key]; still {
					continue
				}
				gone[table]++
				if !r.isIn(table, files) {
					t.Errorf("%s: the erased row %v is not in the export", table, r)
				}
			}
		}
	})
	for _, table := range export.Tables() {
		// Audits stay without the person. The earlier ids of groups stay because policies need them.
		if gone[table] == 0 && table != "audits" && table != "moves" {
			t.Errorf("nothing was erased from %s: the test proves nothing about it", table)
		}
	}
	p.kill()
	out, err := w.gateway("export", who, "-")
	if err == nil || !strings.Contains(out, "there is no person") {
		t.Errorf("the export of a forgotten person: %v, %s", err, out)
	}
	// Bob's data still exists. No gateway is running now.
	var bob int64
	w.look(func(db *store.DB) {
		for range w.query(db, []any{&bob}, "SELECT id FROM people") {
		}
	})
	if out, err = w.gateway("export", fmt.Sprint(bob), "-"); err != nil {
		t.Fatalf("export: %v\n%s", err, out)
	}
	files = unzip(t, []byte(out))
	all := strings.Join(slices.Collect(maps.Values(files)), "\n")
	for word, want := range map[string]bool{"heron": true, "finch": false} {
		if strings.Contains(all, word) != want {
			t.Errorf("Bob's export has %q: %v, want %v", word, !want, want)
		}
	}
}

// check checks the files of Ann's export.
func (x *exported) check(files map[string]string) {
	x.t.Helper()
	all := strings.Join(slices.Collect(maps.Values(files)), "\n")
	for _, want := range []string{"my word is plum", "water the roses", "likes red ones",
		"Ann grows tulips.", "seeds: basil", "Ann says finch", "finch\n\n**Assistant**\n\nyou said ",
		"an archived word", "The key was [withheld].", "# What is stored about you",
		`"name":"Ann"`, `"role":"owner"`} {
		if !strings.Contains(all, want) {
			x.t.Errorf("the export lacks %q", want)
		}
	}
	for _, never := range []string{secretKey, testToken, "SECRETCO", "SECRETQU", "heron", "the bird"} {
		for name, text := range files {
			if strings.Contains(text, never) {
				x.t.Errorf("%s has %q", name, never)
			}
		}
	}
	names := slices.Sorted(maps.Keys(files))
	for _, want := range []string{
		"README.md", "conversations/telegram_7-", "groups/", "files/telegram/7/",
		fmt.Sprintf("memory/person-%d/MEMORY.md", x.person), "data/people.jsonl",
	} {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, want) }) {
			x.t.Errorf("there is no %s among %q", want, names)
		}
	}
}

// TestExportKill checks that /export sends one archive on each platform, even if the gateway is
// killed twice while it makes the archive. Only an archive whose call was under way at a kill comes
// twice on Telegram, which has no way to tell. A second export within the hour and an export in a
// group are refused.
func TestExportKill(t *testing.T) {
	t.Parallel()
	w, platforms := joinPlatforms(t, "", repeat)
	p := w.start()
	p.ready()
	w.onAll(platforms, func(s *scene) { s.ask("my word is plum", "my word is plum") })
	p.kill()
	p = w.start("GATEWAY_FAULT=chored:1")
	p.ready()
	for _, platform := range platforms {
		platform.say("/export")
	}
	until(t, "the end of the gateway", p.done)
	second := w.start("GATEWAY_FAULT=chored:1")
	until(t, "the end of the gateway", second.done)
	p = w.start()
	p.ready()
	w.onAll(platforms, func(s *scene) {
		s.hear("Here is everything")
		s.ask("/export", "less than an hour ago")
		s.rows(0, "outbox WHERE state IN ('waiting', 'sending')")
		most := 1
		if s.name == "telegram" {
			const again = "message may have been delivered; sending it again"
			most += second.logged(again) + p.logged(again)
		}
		if n := s.files(); n < 1 || n > most {
			s.t.Errorf("%s: Ann has %d files, want 1 to %d: %q", s.name, n, most, s.direct())
		}
	})
	w.telegram.Say(groupID, annID, "/export@gateway_bot")
	w.await("a refusal", func() bool { return has(w.texts(groupID), "our direct chat") })
	for _, m := range w.telegram.History(annID) {
		if m.File == nil {
			continue
		}
		files := unzip(t, m.File.Data)
		if !strings.Contains(files["data/inbox.jsonl"], "my word is plum") ||
			!strings.Contains(files["README.md"], time.Now().UTC().Format("2006")) {
			t.Errorf("the archive has %q", slices.Sorted(maps.Keys(files)))
		}
	}
}

// TestForgetAfterLink checks the data of somebody who was linked to another person and has not
// written since then. The export of the other person contains this data, and /forget me of the
// other person removes it.
func TestForgetAfterLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: answerConversations})
	w.configure("rate_limit = \"off\"\nstreaming = false\nsender_rate = 0\n" +
		fmt.Sprintf("groups = [%d]", groupID))
	x := &exported{world: w, t: t}
	p := w.start()
	p.ready()
	x.fill()
	w.wantReply(bobID, `DO write_file {"path":"memory/MEMORY.md","content":"Bob grows quinces."}`,
		"the tools said")
	w.wantReply(bobID, "/remind in 20h pick the quinces", "remind")
	x.settled()
	var bob int64
	w.look(func(db *store.DB) {
		for range w.query(db, []any{&bob}, "SELECT id FROM people JOIN identities ON person = id "+
			"WHERE sender = $1", fmt.Sprint(bobID)) {
		}
	})
	ann, former := fmt.Sprint(x.person), fmt.Sprint(bob)
	if out, err := w.gateway("people", "link", ann, former); err != nil {
		t.Fatalf("link: %v\n%s", err, out)
	}
	p.kill()
	p = w.start()
	p.ready()
	dir := filepath.Join(t.TempDir(), "ann")
	if out, err := w.gateway("export", ann, dir); err != nil {
		t.Fatalf("export: %v\n%s", err, out)
	}
	files := filesIn(t, dir)
	for prefix, text := range map[string]string{
		fmt.Sprintf("conversations/telegram_%d-", bobID): "my word is plum",
		fmt.Sprintf("memory/person-%d/MEMORY.md", bob):   "quinces",
		"data/jobs.jsonl": "pick the quinces", "groups/": "heron",
	} {
		found := false
		for name, content := range files {
			found = found || strings.HasPrefix(name, prefix) && strings.Contains(content, text)
		}
		if !found {
			t.Errorf("%q is not in %s; there are %q", text, prefix, slices.Sorted(maps.Keys(files)))
		}
	}
	w.wantReply(annID, "/forget me now", "forgotten")
	w.eventually("all is forgotten", func(db *store.DB) bool {
		return w.count(db, "chores WHERE kind = 'erase'") == 0
	})
	w.look(func(db *store.DB) {
		for _, rows := range []string{
			"sessions WHERE chat = '" + fmt.Sprint(bobID) + "'",
			"inbox WHERE chat = '" + fmt.Sprint(bobID) + "'", "jobs WHERE person = " + former,
			"identities", "usage WHERE kind = 'person'",
			"memory_scopes WHERE name = 'person-" + former + "'",
		} {
			if n := w.count(db, rows); n != 0 {
				t.Errorf("%d rows are left in %s", n, rows)
			}
		}
	})
	if _, err := os.Lstat(filepath.Join(w.home, "memory", "person-"+former)); err == nil {
		t.Error("the folder of the linked person is left")
	}
	p.kill()
}
