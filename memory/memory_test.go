package memory

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/store"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// start is the time at which the clock of a fixture begins.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A fixture is a memory on disk with a clock that the test sets.
type fixture struct {
	testing.TB
	*Memory
	db  *store.DB
	dir string // the folder of the database and the memory
	now time.Time
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{TB: t, dir: t.TempDir(), now: start}
	db, err := store.Open(t.Context(), filepath.Join(f.dir, "m.db"), []store.Migration{Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(filepath.Join(f.dir, "memory"), 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(filepath.Join(f.dir, "memory"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	f.db = db
	f.Memory = New(db, root, &Options{Now: func() time.Time { return f.now }})
	return f
}

func (f *fixture) q() store.Queryer { return f.db.Read(f.Context()) }

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// tx runs fn in a transaction that is rolled back, and then in one that is committed.
func (f *fixture) tx(fn func(tx *store.Tx) error) {
	f.Helper()
	undo := errors.New("undo")
	for _, end := range []error{undo, nil} {
		err := f.db.Tx(f.Context(), func(tx *store.Tx) error {
			if err := fn(tx); err != nil {
				return err
			}
			return end
		})
		if !errors.Is(err, end) {
			f.Fatal(err)
		}
	}
}

// once runs fn in one transaction only, for a long fn.
func (f *fixture) once(fn func(tx *store.Tx) error) {
	f.Helper()
	f.ok(f.db.Tx(f.Context(), fn))
}

func (f *fixture) set(s Scope, facts ...Fact) {
	f.Helper()
	f.tx(func(tx *store.Tx) error {
		for _, fact := range facts {
			if err := f.In(s).Set(tx, fact); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *fixture) add(s Scope, texts ...string) {
	f.Helper()
	f.tx(func(tx *store.Tx) error { return f.append(tx, s, texts...) })
}

func (f *fixture) append(tx *store.Tx, s Scope, texts ...string) error {
	for _, text := range texts {
		if _, err := f.In(s).Append(tx, Entry{Session: "test/1", Text: text}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fixture) archive(s Scope, list ...Message) {
	f.Helper()
	f.tx(func(tx *store.Tx) error { return f.In(s).Archive(tx, list) })
}

func (f *fixture) entries(s Scope) []Entry {
	f.Helper()
	list, err := f.In(s).Entries(f.q(), 0, 1e6)
	f.ok(err)
	return list
}

// texts returns the entries as "cursor text".
func (f *fixture) texts(s Scope) (list []string) {
	f.Helper()
	for _, e := range f.entries(s) {
		list = append(list, fmt.Sprintf("%d %s", e.Cursor, e.Text))
	}
	return list
}

// found returns the results of a search: the keys of facts and the texts of entries.
func (f *fixture) found(s Scope, query string) (list []string) {
	f.Helper()
	hits, err := f.In(s).Search(f.q(), query, 100)
	f.ok(err)
	for _, h := range hits {
		list = append(list, h.Fact.Key+h.Excerpt)
	}
	return list
}

func (f *fixture) file(s Scope) string {
	f.Helper()
	data, err := os.ReadFile(f.path(s))
	f.ok(err)
	return string(data)
}

func (f *fixture) path(s Scope) string {
	return filepath.Join(f.dir, "memory", string(s), HistoryFile)
}

func (f *fixture) write(s Scope, text string) {
	f.Helper()
	f.ok(os.MkdirAll(filepath.Dir(f.path(s)), 0o700))
	f.ok(os.WriteFile(f.path(s), []byte(text), 0o600))
}

// words returns the number of words in the index.
func (f *fixture) words() (n int) {
	f.Helper()
	f.tx(func(tx *store.Tx) error {
		_, err := tx.Exec("CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary " +
			"USING fts5vocab('main', 'memory_index', 'row')")
		if err != nil {
			return err
		}
		return tx.QueryRow("SELECT count(*) FROM temp.vocabulary").Scan(&n)
	})
	return n
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%s: got %+v\nwant %+v", what, got, want)
	}
}

const (
	anna = Scope("person-1")
	bert = Scope("person-2")
	room = Scope("chat-telegram+-42")
)

// Every operation refuses an invalid name of a scope, above all an empty one.
func TestNoScope(t *testing.T) {
	f := newFixture(t)
	for _, s := range []Scope{"", "person-0", "person-1/../person-2", "%", "PERSON-1"} {
		space, q := f.In(s), f.q()
		var errs []error
		add := func(err error) { errs = append(errs, err) }
		err := f.db.Tx(t.Context(), func(tx *store.Tx) error {
			add(space.Set(tx, Fact{Key: "a", Value: "b"}))
			_, err := space.Forget(tx, "a")
			add(err)
			_, err = space.Pin(tx, "a", true)
			add(err)
			add(space.MarkUsed(tx, "a"))
			_, err = space.Append(tx, Entry{Text: "a"})
			add(err)
			add(space.SetDreamed(tx, 1))
			add(space.Archive(tx, []Message{{ID: 1, Text: "a"}}))
			add(space.Erase(tx))
			add(f.Merge(tx, s, anna))
			return nil
		})
		f.ok(err)
		_, _, err = space.Fact(q, "a")
		add(err)
		_, err = space.Facts(q, "", 1)
		add(err)
		_, err = space.Categories(q)
		add(err)
		_, err = space.Contents(q)
		add(err)
		_, _, err = space.Always(q, 1)
		add(err)
		_, err = space.Relevant(q, "a", 1, 100)
		add(err)
		_, err = space.Search(q, "a", 1)
		add(err)
		_, err = space.SearchHistory(q, "a", HistoryOptions{})
		add(err)
		_, err = space.Entries(q, 0, 1)
		add(err)
		_, err = space.Newest(q, 0, 1)
		add(err)
		_, err = space.Last(q)
		add(err)
		_, err = space.Dreamed(q)
		add(err)
		_, err = f.Rebuild(t.Context(), s)
		add(err)
		add(f.Sync(t.Context(), s))
		add(f.EraseFiles(t.Context(), s))
		add(f.Export(t.Context(), s, new(bytes.Buffer)))
		for i, err := range errs {
			if err == nil {
				t.Errorf("operation %d worked with the scope %q", i, s)
			}
		}
	}
}

// Three scopes have the same words. No result of one scope contains a text of another one.
func TestIsolation(t *testing.T) {
	f := newFixture(t)
	scopes := []Scope{anna, bert, room}
	for i, s := range scopes {
		mark := fmt.Sprintf("mark%d", i)
		f.set(s, Fact{Key: "code of the door", Value: "door code " + mark, Category: mark, Pinned: true},
			Fact{Key: "other " + mark, Value: "door " + mark, Category: "c"})
		f.add(s, "the door code is "+mark, "会议 door "+mark)
		f.archive(s, Message{ID: int64(i + 1), Speaker: "user", Session: "test/1",
			Text: "my door " + mark})
		f.ok(f.Sync(t.Context(), s))
	}
	for i, s := range scopes {
		var all bytes.Buffer
		show := func(v any, err error) {
			t.Helper()
			f.ok(err)
			text := fmt.Sprintf("%+v", v)
			if !strings.Contains(text, fmt.Sprintf("mark%d", i)) {
				t.Errorf("%s: %q lacks what belongs to it", s, text)
			}
			all.WriteString(text)
		}
		space, q := f.In(s), f.q()
		fact, _, err := space.Fact(q, "code of the door")
		show(fact, err)
		show(space.Facts(q, "", 100))
		show(space.Categories(q))
		pinned, news, err := space.Always(q, 100)
		show(pinned, err)
		show(news, err)
		show(space.Relevant(q, "the door code", 10, 2000))
		for _, query := range []string{"door code", "doo*", "mark0 mark1 mark2 door", "会议", "会"} {
			show(space.Search(q, query, 100))
			show(space.SearchHistory(q, query+" door", HistoryOptions{Session: "test/1"}))
		}
		show(space.Entries(q, 0, 100))
		show(space.Newest(q, 0, 100))
		var export bytes.Buffer
		f.ok(f.Export(t.Context(), s, &export))
		show(export.String(), nil)
		show(f.file(s), nil)
		for j := range scopes {
			if j != i && strings.Contains(all.String(), fmt.Sprintf("mark%d", j)) {
				t.Errorf("%s shows what belongs to %s:\n%s", s, scopes[j], all.String())
			}
		}
	}
	infos, err := f.Scopes(f.q())
	f.ok(err)
	if len(infos) != 3 || infos[0].Scope != room || infos[1].Facts != 2 || infos[1].Messages != 1 ||
		infos[1].Last != 2 || infos[1].Synced != 2 {
		t.Errorf("scopes are %+v", infos)
	}
}

// Nothing of an erased scope is left in the tables, the index or the folder. The other scopes are
// unchanged.
func TestErase(t *testing.T) {
	f := newFixture(t)
	f.ok(f.db.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec("PRAGMA secure_delete = 1") // otherwise, free pages keep their old content
		return err
	}))
	f.set(bert, Fact{Key: "keep", Value: "this"})
	f.add(bert, "something else")
	f.ok(f.Sync(t.Context(), bert))
	words := f.words()
	secret := []string{"swordfish", "zanzibar", "quetzal"}
	f.set(anna, Fact{Key: "secret", Value: secret[0]}, Fact{Key: "gone", Value: secret[0]})
	f.add(anna, "the word "+secret[1])
	f.archive(anna, Message{ID: 7, Text: "and " + secret[2]})
	f.ok(f.Sync(t.Context(), anna))
	f.tx(func(tx *store.Tx) error {
		_, err := f.In(anna).Forget(tx, "gone")
		return errors.Join(err, f.In(anna).Erase(tx))
	})
	f.ok(f.FinishDetached(t.Context()))
	if got := f.words(); got != words {
		t.Errorf("the index has %d words, want %d as before", got, words)
	}
	f.ok(f.EraseFiles(t.Context(), anna))
	same(t, "of the other", f.found(bert, "keep something"), []string{"keep", "something else"})
	f.tx(func(tx *store.Tx) error { return f.In(room).Erase(tx) }) // this scope does not exist
	f.ok(f.SyncAll(t.Context()))
	infos, err := f.Scopes(f.q())
	f.ok(err)
	if len(infos) != 1 {
		t.Errorf("scopes are %+v, want one", infos)
	}
	f.ok(f.db.Close()) // moves the write-ahead log into the database
	err = filepath.WalkDir(f.dir, func(name string, d os.DirEntry, err error) error {
		if strings.Contains(name, string(anna)) {
			t.Errorf("%s is left", name)
		}
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		for _, word := range append(secret, string(anna)) {
			if bytes.Contains(data, []byte(word)) {
				t.Errorf("%s contains %s", name, word)
			}
		}
		return err
	})
	f.ok(err)
}

// A scope that is erased while its file is imported stays erased, also if it has begun anew.
func TestEraseDuringRebuild(t *testing.T) {
	f := newFixture(t)
	f.add(anna, "the first one")
	for _, begins := range []bool{false, true} {
		r := rebuild{m: f.Memory, s: anna, space: f.In(anna)}
		st, err := r.space.state(f.q())
		f.ok(err)
		r.number = st.number
		r.entries = map[int64]Entry{9: {Cursor: 9, Time: f.now, Text: "zanzibar"}}
		f.tx(func(tx *store.Tx) error { return f.In(anna).Erase(tx) })
		if begins {
			f.add(anna, "something else")
		}
		if err := r.compare(t.Context(), 1); err == nil {
			t.Errorf("the erased file was imported; the scope has begun anew: %t", begins)
		}
		f.ok(f.FinishDetached(t.Context()))
		var n int
		f.ok(f.q().QueryRow("SELECT count(*) FROM memory_entries WHERE text = 'zanzibar'").Scan(&n))
		if n != 0 {
			t.Errorf("%d erased entries are left; the scope has begun anew: %t", n, begins)
		}
	}
}

// Nothing is left of an erased scope with many rows. Later removals in other scopes are as
// thorough.
func TestEraseMany(t *testing.T) {
	f := newFixture(t)
	f.ok(f.db.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec("PRAGMA secure_delete = 1")
		return err
	}))
	f.add(bert, "keep this", "and quetzal")
	words := f.words()
	var texts []string
	for i := range 300 {
		texts = append(texts, fmt.Sprintf("the word swordfish%d and zanzibar", i))
	}
	f.add(room, texts...)
	f.tx(func(tx *store.Tx) error { return f.Merge(tx, room, anna) })
	f.tx(func(tx *store.Tx) error { return f.In(anna).Erase(tx) })
	f.ok(f.FinishDetached(t.Context()))
	same(t, "words", f.words(), words)
	f.tx(func(tx *store.Tx) error { return f.In(bert).remove(tx, []int64{2}) })
	same(t, "found", f.found(bert, "keep this"), []string{"keep this"})
	f.ok(f.db.Close())
	data, err := os.ReadFile(filepath.Join(f.dir, "m.db"))
	f.ok(err)
	for _, word := range []string{"swordfish", "zanzibar", "quetzal"} {
		if bytes.Contains(data, []byte(word)) {
			t.Errorf("the database contains %s", word)
		}
	}
}

// If the process ends between Erase and EraseFiles, a later sync removes the old file's lines.
// Nothing of them gets into the scope's new file.
func TestEraseInterrupted(t *testing.T) {
	for name, end := range map[string]func(f *fixture) error{
		"start": func(f *fixture) error { return f.SyncAll(f.Context()) },
		"turn":  func(f *fixture) error { return f.Sync(f.Context(), anna) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.add(anna, "one", "two", "three")
			f.ok(f.Sync(t.Context(), anna))
			f.tx(func(tx *store.Tx) error { return f.In(anna).Erase(tx) })
			f.add(anna, "four")
			f.ok(end(f))
			if got := f.file(anna); strings.Count(got, "\n") != 1 || !strings.Contains(got, "four") {
				t.Errorf("the file is\n%s", got)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	f := newFixture(t)
	at := func(d time.Duration) time.Time { return start.Add(d * time.Second) }
	f.set(anna, Fact{Key: "dog", Value: "Bello", Created: at(1)}, Fact{Key: "car", Value: "red",
		Created: at(5)}, Fact{Key: "dog (2)", Value: "Rex"})
	f.set(bert, Fact{Key: "Dog", Value: "Wuff", Created: at(3)}, Fact{Key: "Car", Value: "blue",
		Created: at(2)}, Fact{Key: "cat", Value: "Mimi"})
	f.add(anna, "first of anna")
	f.tx(func(tx *store.Tx) error {
		for i, d := range []time.Duration{5, 3, 4} {
			_, err := f.In(bert).Append(tx, Entry{Time: at(d), Text: fmt.Sprint("of bert ", i)})
			if err != nil {
				return err
			}
		}
		return f.In(bert).SetDreamed(tx, 3)
	})
	f.archive(anna, Message{ID: 1, Text: "message one"}, Message{ID: 2, Text: "message two"})
	f.archive(bert, Message{ID: 2, Text: "message two"}, Message{ID: 3, Text: "message three"})
	f.ok(f.Sync(t.Context(), anna))
	f.ok(f.Sync(t.Context(), bert))
	f.tx(func(tx *store.Tx) error { return f.Merge(tx, bert, anna) })
	f.add(bert, "a new one")
	f.ok(f.FinishDetached(t.Context()))
	f.ok(f.MergeFiles(t.Context(), bert, anna))

	facts, err := f.In(anna).Facts(f.q(), "", 100)
	f.ok(err)
	var got []string
	for _, fact := range facts {
		got = append(got, fact.Key+"="+fact.Value)
	}
	slices.Sort(got)
	same(t, "facts", got, []string{"Car (2)=blue", "Dog=Wuff", "car=red", "cat=Mimi", "dog (2)=Rex",
		"dog (3)=Bello"})
	same(t, "entries", f.texts(anna),
		[]string{"1 first of anna", "2 of bert 1", "3 of bert 2", "4 of bert 0"})
	same(t, "lines", strings.Count(f.file(anna), "\n"), 4)
	same(t, "lines of the other", strings.Count(f.file(bert), "\n"), 1)
	same(t, "found", f.found(anna, "Wuff"), []string{"Dog"})
	same(t, "found", f.found(anna, "Bello"), []string{"dog (3)"})
	same(t, "found in the other", f.found(bert, "Wuff bert new"), []string{"a new one"})
	hits, err := f.In(anna).SearchHistory(f.q(), "message", HistoryOptions{})
	f.ok(err)
	same(t, "messages found", len(hits), 3)
	dreamed, err := f.In(anna).Dreamed(f.q())
	f.ok(err)
	same(t, "dreamed", dreamed, 0)
	f.tx(func(tx *store.Tx) error {
		return errors.Join(f.In(anna).SetDreamed(tx, 4), f.In(bert).SetDreamed(tx, 1),
			f.Merge(tx, bert, anna))
	})
	f.ok(f.FinishDetached(t.Context()))
	if dreamed, err = f.In(anna).Dreamed(f.q()); err != nil || dreamed != 5 {
		t.Errorf("after all was dreamed of, it is so up to %d, %v, want 5", dreamed, err)
	}
	err = f.db.Tx(t.Context(), func(tx *store.Tx) error { return f.Merge(tx, anna, anna) })
	if err == nil {
		t.Error("a scope was merged into itself")
	}
}

// The facts of a person with a large memory move after the transaction that merges, as the other
// rows do.
func TestMergeLater(t *testing.T) {
	f := newFixture(t)
	f.set(anna, Fact{Key: "dog", Value: "Bello", Created: start})
	var want []string
	for i := range 2 * pageSize {
		key := fmt.Sprint("key ", i)
		f.set(bert, Fact{Key: key, Value: "Wuff"})
		want = append(want, key)
	}
	f.set(bert, Fact{Key: "dog", Value: "Wuff", Created: start.Add(time.Second)})
	f.archive(bert, Message{ID: 3, Text: "message three"})
	f.tx(func(tx *store.Tx) error {
		old, err := f.In(bert).state(tx)
		return errors.Join(err, detach(tx, old, anna)) // no time was left
	})
	f.ok(f.FinishDetached(t.Context()))
	facts, err := f.In(anna).Facts(f.q(), "", MaxFacts)
	f.ok(err)
	var got []string
	for _, fact := range facts {
		got = append(got, fact.Key)
	}
	want = append(want, "dog", "dog (2)")
	slices.Sort(got)
	slices.Sort(want)
	same(t, "facts", got, want)
	same(t, "found", len(f.found(anna, "Wuff")), 100) // the most that a search returns
	same(t, "found in the other", f.found(bert, "Wuff"), []string{})
}

func TestExport(t *testing.T) {
	f := newFixture(t)
	f.set(anna, Fact{Key: "dog", Value: "<Bello>"})
	f.add(anna, "one", "two")
	var b bytes.Buffer
	f.ok(f.Export(t.Context(), anna, &b))
	const rest = `"time":"2026-03-01T12:00:00Z","scope":"person-1","session":"test/1","text":`
	same(t, "export", b.String(), `{"export":"memory","scope":"person-1","time":"2026-03-01T12:00:00Z"}
{"fact":{"key":"dog","value":"<Bello>","importance":3,"created":"2026-03-01T12:00:00Z",`+
		`"used":"2026-03-01T12:00:00Z"}}
{"entry":{"cursor":1,`+rest+`"one"}}
{"entry":{"cursor":2,`+rest+`"two"}}
`)
}

// The rows of an erased or merged scope are not found in the old scope, even before they are
// deleted or moved. If the index is rebuilt meanwhile, it keeps no rows that will be deleted.
func TestSettle(t *testing.T) {
	f := newFixture(t)
	f.add(bert, "kept zanzibar")
	words := f.words()
	var texts []string
	for i := range 300 {
		texts = append(texts, fmt.Sprint("zanzibar ", i))
	}
	f.add(anna, texts...)
	f.add(room, texts[:50]...)
	f.tx(func(tx *store.Tx) error {
		return errors.Join(f.In(anna).Erase(tx), f.Merge(tx, room, bert))
	})
	same(t, "found", f.found(anna, "zanzibar"), []string{})
	f.ok(f.Reindex(t.Context()))
	f.add(anna, "a new life with zanzibar")
	f.tx(func(tx *store.Tx) error { return f.In(bert).Erase(tx) }) // with the rows that move there
	f.ok(f.FinishDetached(t.Context()))
	same(t, "found after that", f.found(anna, "zanzibar"), []string{"a new life with zanzibar"})
	f.tx(func(tx *store.Tx) error { return f.In(anna).Erase(tx) })
	f.ok(f.FinishDetached(t.Context()))
	f.add(bert, "kept zanzibar")
	same(t, "words", f.words(), words)
}
