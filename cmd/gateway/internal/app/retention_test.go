package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gateway/agent/budget"
	"gateway/bus/bustest"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/retention"
	"gateway/store"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// An agedDatabase is a database with rows of different ages, sizes and states. The oldest rows come
// first.
type agedDatabase struct {
	*rapid.T
	db   *store.DB
	now  time.Time
	next map[string]int64 // time of the next row by table, Unix milliseconds
}

func (w *agedDatabase) tx(fn func(tx *store.Tx) error) {
	if err := w.db.Tx(w.Context(), fn); err != nil {
		w.Fatal(err)
	}
}

// batch inserts rows of one size into a table. Each row is younger than the one before.
func (w *agedDatabase) batch(table string, insert func(tx *store.Tx, body string, at int64) error) {
	body := strings.Repeat("x", rapid.SampledFrom([]int{10, 300, 2500}).Draw(w.T, table+" size"))
	step := rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Minute, 5 * time.Hour}).
		Draw(w.T, table+" step").Milliseconds()
	n := rapid.IntRange(1, 400).Draw(w.T, table+" rows")
	w.tx(func(tx *store.Tx) error {
		at := w.next[table]
		for range n {
			if err := insert(tx, body, at); err != nil {
				return err
			}
			at = min(at+step, w.now.UnixMilli())
		}
		w.next[table] = at
		return nil
	})
}

// insert returns a function that inserts a row with a text, a time and these other values.
func insert(query string, other ...any) func(tx *store.Tx, body string, at int64) error {
	return func(tx *store.Tx, body string, at int64) error {
		_, err := tx.Exec(query, append([]any{body, at}, other...)...)
		return err
	}
}

// rowKeys are the session keys of people, of a sub-agent, of a job and a hook, and of sub-agents
// of the job and the hook.
var rowKeys = []string{"tg/1", "tg/2", "tg/1#s", "tg/1#@job-1", "tg/2#@hook-x", "tg/2#@hook-x#s",
	"tg/1#@job-1#s"}

const subKeys = "('tg/1#s', 'tg/2#@hook-x#s', 'tg/1#@job-1#s')"

// stock fills the database with random rows.
func (w *agedDatabase) stock() {
	start := w.now.Add(-time.Duration(rapid.IntRange(1, 60).Draw(w.T, "days")) * 24 * time.Hour)
	for _, table := range []string{"inbox", "outbox", "messages"} {
		w.next[table] = start.UnixMilli()
	}
	state := func(list ...string) string { return rapid.SampledFrom(list).Draw(w.T, "state") }
	for range rapid.IntRange(0, 5).Draw(w.T, "batches") {
		w.batch("inbox", insert(`INSERT INTO inbox (account, chat, message, body, received_ms,
			state) VALUES ('tg', '1', lower(hex(randomblob(8))), $1, $2, $3)`,
			state("done", "dropped", "heard", "waiting", "taken")))
		w.batch("outbox", insert(`INSERT INTO outbox (account, chat, body, created_ms, updated_ms,
			state) VALUES ('tg', '1', $1, $2, $2, $3)`,
			state("sent", "dropped", "waiting", "sending", "dead")))
	}
	for i := range rapid.IntRange(0, 6).Draw(w.T, "turns") {
		key, as := rapid.SampledFrom(rowKeys).Draw(w.T, "key"), state("done", "failed", "running")
		w.batch("messages", insert(`INSERT INTO messages (body, created_ms, session, turn)
			VALUES ($1, $2, $3, $4)`, key, i+1))
		w.tx(func(tx *store.Tx) error {
			_, err := tx.Exec(`INSERT INTO turns (session, state, owner, epoch, reply_to, address,
				created_ms, updated_ms) VALUES ($1, $2, 'me', 1, '', '{}', $3, $3)`,
				key, as, w.next["messages"])
			if err == nil && rapid.Bool().Draw(w.T, "leave") {
				_, err = tx.Exec(`INSERT INTO chores (kind, scope, session, ref, due_ms)
					SELECT 'archive', 'person-1', $1, max(id), 0 FROM messages WHERE true
					ON CONFLICT DO NOTHING`, key)
			}
			return err
		})
	}
	w.tx(func(tx *store.Tx) error {
		for _, key := range rowKeys {
			begin := rapid.IntRange(0, 2000).Draw(w.T, "start")
			named := bustest.Session(key)
			_, err := tx.Exec(`INSERT INTO sessions (key, account, chat, thread, title, start,
				job, hook, task, created_ms, updated_ms) SELECT $1, 'tg', '1', '', '', $2, $3,
				$4, $5, 0, COALESCE(max(created_ms), 0) FROM messages WHERE session = $1`, key, begin,
				named.Job, named.Hook, named.Task)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// stays has for each table a condition of the rows that must stay even if the database is too
// large. Rows from before the time $1 are old.
var stays = map[string]string{
	"inbox":  "received_ms >= $1 OR state IN ('waiting', 'taken')",
	"outbox": "updated_ms >= $1 OR state IN ('waiting', 'sending', 'dead')",
	"messages": `created_ms >= $1 OR id > COALESCE((SELECT min(ref) FROM chores), 1e9)
		OR turn IN (SELECT id FROM turns WHERE state = 'running')
		OR id > (SELECT start FROM sessions WHERE key = session) AND (session NOT IN ` + subKeys + `
			OR (SELECT updated_ms FROM sessions WHERE key = session) >= $1
			OR session IN (SELECT session FROM turns WHERE state = 'running'))`,
	"turns": "updated_ms >= $1 OR state = 'running'",
}

// lived is the condition of turns that have messages. These turns stay until their messages are
// removed.
const lived = "EXISTS (SELECT 1 FROM messages m WHERE m.session = turns.session " +
	"AND m.turn <= turns.id)"

// ids returns the ids of the rows of a table that meet a condition, in ascending order.
func (w *agedDatabase) ids(table, condition string, args ...any) (list []int64) {
	rows, err := w.db.Read(w.Context()).Query(
		"SELECT id FROM "+table+" WHERE "+condition+" ORDER BY id", args...)
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			w.Fatal(err)
		}
		list = append(list, id)
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return list
}

// free returns the ids of the rows that may be removed. The newest row always stays.
func (w *agedDatabase) free(table string) []int64 {
	stay := stays[table]
	if table == "turns" {
		stay += " OR " + lived
	}
	return w.ids(table, "id < (SELECT max(id) FROM "+table+") AND NOT ("+stay+")",
		w.now.Add(-minKept).UnixMilli())
}

// TestRetentionBySize verifies, for random databases, that a limit of the size removes no row
// that must stay and no row without need. The oldest rows of a table are removed first.
// Transcripts are removed only after everything that people miss less. In the end the database is
// within the limit, or has no row left that may be removed.
func TestRetentionBySize(t *testing.T) {
	t.Parallel()
	_, tight := retentionRules(new(config.Config), budget.New(nil))
	path := filepath.Join(t.TempDir(), "g.db")
	empty := emptyDatabase(t, path)
	rapid.Check(t, func(rt *rapid.T) {
		if err := os.WriteFile(path, empty, 0o600); err != nil {
			rt.Fatal(err)
		}
		db, err := store.Open(rt.Context(), path, Migrations(), nil)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() {
			if err := db.Close(); err != nil {
				rt.Error(err)
			}
			for _, end := range []string{"", "-wal", "-shm"} {
				_ = os.Remove(path + end) // the next database is made at the same path
			}
		}()
		w := &agedDatabase{T: rt, db: db, now: time.Now(), next: make(map[string]int64)}
		w.stock()
		w.examine(tight)
	})
}

// emptyDatabase returns the content of an empty database, from which the test makes copies.
// Creating the tables takes longer than everything else that the test does with a database.
func emptyDatabase(t *testing.T, path string) []byte {
	t.Helper()
	db, err := store.Open(t.Context(), path, Migrations(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// examine makes one pass of the retention and checks which rows are gone.
func (w *agedDatabase) examine(tight [][]retention.Rule) {
	used := func() int64 {
		n, err := w.db.Used(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		return n
	}
	begin := used()
	most := begin * int64(rapid.IntRange(1, 110).Draw(w.T, "percent")) / 100
	old := w.now.Add(-minKept).UnixMilli()
	must, may := make(map[string][]int64), make(map[string][]int64)
	for table, condition := range stays {
		must[table], may[table] = w.ids(table, condition, old), w.free(table)
	}
	sweeper := retention.New(w.db, nil, &retention.Options{
		Pause: time.Nanosecond, Now: func() time.Time { return w.now }, MaxBytes: most, Tight: tight})
	if err := sweeper.Pass(w.Context()); err != nil {
		w.Fatal(err)
	}
	gone := func(table string) (list []int64) {
		left := make(map[int64]bool)
		for _, id := range w.ids(table, "true") {
			left[id] = true
		}
		for _, id := range must[table] {
			if !left[id] {
				w.Errorf("row %d of %s must stay and is gone", id, table)
			}
		}
		var kept int64
		for _, id := range may[table] {
			switch {
			case !left[id] && kept != 0:
				w.Errorf("row %d of %s is gone before %d, which is older", id, table, kept)
			case !left[id]:
				list = append(list, id)
			default:
				kept = id
			}
		}
		return list
	}
	end := used()
	for table := range stays {
		n, free := len(gone(table)), w.free(table)
		if begin <= most && n > 0 {
			w.Errorf("%d rows of %s are gone without need", n, table)
		}
		if end > most && len(free) > 0 {
			w.Errorf("%d of %d bytes are used, and %d rows of %s could go",
				end, most, len(free), table)
		}
	}
	if len(gone("messages")) > 0 && len(w.free("inbox"))+len(w.free("outbox")) > 0 {
		w.Error("transcripts are gone before messages in and out")
	}
}

// The messages of a closed conversation stay until notes of them were made, no matter how old they
// are: the model may have been unavailable for long, or everything halted.
func TestRetentionOfUnnoted(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "g.db"), Migrations(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(queries ...string) {
		t.Helper()
		err := db.Tx(t.Context(), func(tx *store.Tx) error {
			for _, query := range queries {
				if _, err := tx.Exec(query); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO sessions (key, account, chat, thread, title, start, created_ms, updated_ms)
		VALUES ('tg/1', 'tg', '1', '', '', 2, 0, 0)`,
		`INSERT INTO messages (session, turn, body, created_ms)
		VALUES ('tg/1', 1, '{}', 0), ('tg/1', 1, '{}', 0), ('tg/1', 2, '{}', 0)`,
		`INSERT INTO chores (kind, scope, session, ref, due_ms)
		VALUES ('archive', 'person-1', 'tg/1', 0, 0)`)
	cfg := new(config.Config)
	cfg.Retention.Transcripts = 24 * time.Hour
	rules, _ := retentionRules(cfg, budget.New(nil))
	left := func() (n int) {
		t.Helper()
		err := retention.New(db, rules, &retention.Options{Pause: time.Nanosecond}).Pass(t.Context())
		if err == nil {
			err = db.Read(t.Context()).QueryRow("SELECT count(*) FROM messages").Scan(&n)
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := left(); n != 3 {
		t.Errorf("%d messages are left before there are notes, want 3", n)
	}
	exec("DELETE FROM chores")
	if n := left(); n != 1 {
		t.Errorf("%d messages are left after that, want the one in the prompt", n)
	}
}
