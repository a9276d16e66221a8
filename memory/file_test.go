package memory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gateway/store"
)

func TestSync(t *testing.T) {
	f := newFixture(t)
	f.ok(f.Sync(t.Context(), anna))
	if _, err := os.Stat(f.path(anna)); err == nil {
		t.Error("a scope without entries has a file")
	}
	f.add(anna, "one <b>", "two\nlines", "three")
	f.ok(f.Sync(t.Context(), anna))
	const rest = `"time":"2026-03-01T12:00:00Z","scope":"person-1","session":"test/1","text":`
	want := `{"cursor":1,` + rest + `"one <b>"}
{"cursor":2,` + rest + `"two\nlines"}
{"cursor":3,` + rest + `"three"}
`
	same(t, "file", f.file(anna), want)
	f.ok(f.Sync(t.Context(), anna))
	same(t, "file after another sync", f.file(anna), want)
	f.ok(os.Remove(f.path(anna)))
	f.ok(f.Sync(t.Context(), anna))
	same(t, "file after it was lost", f.file(anna), want)
}

// killed makes the database look as if the process had ended before it noted what it wrote.
func (f *fixture) killed(s Scope, synced int) {
	f.Helper()
	f.once(func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE memory_scopes SET synced = $1 WHERE name = $2", synced, string(s))
		return err
	})
}

// If the process is killed after any byte that it writes, the next sync completes the file.
// Nothing is lost or written twice, and older lines do not change.
func TestSyncAfterKillAtEachByte(t *testing.T) {
	f := newFixture(t)
	f.add(anna, "first, 会议 and \"quotes\"")
	f.ok(f.Sync(t.Context(), anna))
	before := len(f.file(anna))
	f.add(anna, "second\n\u2028line", "third é", "fourth")
	f.ok(f.Sync(t.Context(), anna))
	want := f.file(anna)
	for n := before; n <= len(want); n++ {
		f.write(anna, want[:n])
		f.killed(anna, 1+n%4) // the machine may have lost some of the written lines, too
		for range 2 {
			f.ok(f.Sync(t.Context(), anna))
			if got := f.file(anna); got != want {
				t.Fatalf("after a kill at byte %d the file is\n%s\nwant\n%s", n, got, want)
			}
		}
	}
}

// Text that a person has left at the end of the file stays. New entries are written after it.
func TestSyncAfterHandEdits(t *testing.T) {
	const line1 = `{"cursor":1,"time":"2026-03-01T12:00:00Z","session":"test/1","text":"one"}`
	for name, edited := range map[string]string{
		"no newline at the end": line1,
		"CRLF":                  line1 + "\r\n",
		"a note":                line1 + "\n# remember this\n",
		"half a note":           line1 + "\n# remember thi",
		"a line without cursor": line1 + "\n" + `{"text":"mine"}` + "\n",
		"a mark in front":       "\ufeff" + line1 + "\n",
		"empty lines":           line1 + "\n\n\n",
		"moved":                 `{"cursor":1,"time":"2026-03-01T12:00:00Z","text":"x"}` + "\n{}\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.add(anna, "one")
			f.ok(f.Sync(t.Context(), anna))
			f.write(anna+".tmp", edited) // saves the file as an editor does
			f.ok(os.Rename(f.path(anna+".tmp"), f.path(anna)))
			f.add(anna, "two")
			f.ok(f.Sync(t.Context(), anna))
			if edited[len(edited)-1] != '\n' {
				edited += "\n"
			}
			edited += `{"cursor":2,"time":"2026-03-01T12:00:00Z","scope":"person-1",` +
				`"session":"test/1","text":"two"}` + "\n"
			same(t, "file", f.file(anna), edited)
		})
	}
}

// Entries that an editor has overwritten with an older copy are written again.
func TestSyncAfterStaleCopy(t *testing.T) {
	f := newFixture(t)
	f.add(anna, "one")
	f.ok(f.Sync(t.Context(), anna))
	stale := f.file(anna)
	f.add(anna, "two", "three")
	f.ok(f.Sync(t.Context(), anna))
	want := f.file(anna)
	f.write(anna, stale)
	f.ok(f.Sync(t.Context(), anna))
	same(t, "file", f.file(anna), want)
}

// If the database comes from a backup and is older than the file, no entry of either is lost.
func TestSyncAheadOfTheDatabase(t *testing.T) {
	f := newFixture(t)
	f.add(anna, "one")
	f.ok(f.Sync(t.Context(), anna))
	f.write(anna, f.file(anna)+
		`{"cursor":2,"time":"2026-03-01T12:00:00Z","scope":"person-1","session":"","text":"lost two"}
{"cursor":3,"time":"2026-03-01T12:00:00Z","scope":"person-1","session":"","text":"lost three"}
`)
	f.add(anna, "other two") // before the difference is noticed
	f.ok(f.Sync(t.Context(), anna))
	f.add(anna, "five")
	f.ok(f.Sync(t.Context(), anna))
	r, err := f.Rebuild(t.Context(), anna)
	f.ok(err)
	same(t, "rebuilt", r, RebuildResult{Entries: 5, Added: 2})
	same(t, "entries", f.texts(anna),
		[]string{"1 one", "2 lost two", "3 lost three", "4 other two", "5 five"})
	same(t, "lines", strings.Count(f.file(anna), "\n"), 5)
}

func TestSyncConcurrent(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	const writers, each = 4, 25
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				var cursor int64
				err := f.db.Tx(t.Context(), func(tx *store.Tx) (err error) {
					cursor, err = f.In(anna).Append(tx, Entry{Text: fmt.Sprintf("entry %d of %d", i, w)})
					return err
				})
				if err = errors.Join(err, f.Sync(t.Context(), anna)); err != nil || cursor == 0 {
					t.Errorf("writer %d: cursor %d, %v", w, cursor, err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 5 {
			if _, err := f.Rebuild(t.Context(), anna); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	var want strings.Builder
	entries := f.entries(anna)
	for i, e := range entries {
		if e.Cursor != int64(i+1) {
			t.Fatalf("entry %d has the cursor %d", i, e.Cursor)
		}
		data, err := encode(anna, e)
		f.ok(err)
		want.Write(data)
	}
	same(t, "entries", len(entries), writers*each)
	same(t, "file", f.file(anna), want.String())
}

func TestRebuild(t *testing.T) {
	const head = `{"cursor":%d,"time":"2026-03-01T12:00:00Z","scope":"person-1","session":"test/1",`
	line := func(cursor int, text string) string {
		return fmt.Sprintf(head+`"text":%q}`, cursor, text) + "\n"
	}
	for _, test := range []struct {
		name, file string // {n} is replaced by line n
		want       RebuildResult
		entries    []string
	}{
		{"nothing changed", "{1}{2}{3}", RebuildResult{Entries: 3}, []string{"1 one", "2 two",
			"3 three"}},
		{"changed", "{1}" + line(2, "zwei") + "{3}", RebuildResult{Entries: 3, Changed: 1},
			[]string{"1 one", "2 zwei", "3 three"}},
		{"removed", "{1}{3}", RebuildResult{Entries: 2, Removed: 1}, []string{"1 one", "3 three"}},
		{"removed at the end", "{1}{2}", RebuildResult{Entries: 2, Removed: 1}, []string{"1 one",
			"2 two"}},
		{"all removed", "", RebuildResult{Removed: 3}, nil},
		{"added", "{1}{2}{3}" + `{"text":"mine"}` + "\n", RebuildResult{Entries: 4, Added: 1},
			[]string{"1 one", "2 two", "3 three", "4 mine"}},
		{"added in between, without an end", `{"text":"a"}` + "\n{1}{2}{3}" + `{"text":"b"}`,
			RebuildResult{Entries: 5, Added: 2}, []string{"1 one", "2 two", "3 three", "4 a", "5 b"}},
		{"copied", "{1}{1}{2}{3}", RebuildResult{Entries: 4, Added: 1},
			[]string{"1 one", "2 two", "3 three", "4 one"}},
		{"moved", "{3}{1}{2}", RebuildResult{Entries: 3}, []string{"1 one", "2 two", "3 three"}},
		{"ahead", "{1}{2}{3}" + line(9, "nine"), RebuildResult{Entries: 4, Added: 1},
			[]string{"1 one", "2 two", "3 three", "9 nine"}},
		{"CRLF and a mark",
			"\ufeff" + strings.ReplaceAll(line(1, "one")+line(2, "2"), "\n", "\r\n") + "{3}",
			RebuildResult{Entries: 3, Changed: 1}, []string{"1 one", "2 2", "3 three"}},
		{"bad", "{1}" + `{"cursor":2,"time":"2026` + "\n", RebuildResult{Entries: 2, Removed: 1,
			Bad: []string{"line 2: not a JSON object of an entry: unexpected end of JSON input"}},
			[]string{"1 one", "2 two"}},
		{"bad and nameless", "{1}nonsense\n", RebuildResult{Entries: 3, Bad: []string{
			"line 2: not a JSON object of an entry: invalid character 'o' in literal null (expecting 'u')"}},
			[]string{"1 one", "2 two", "3 three"}},
		{"another's", "{1}{2}{3}" + strings.ReplaceAll(line(4, "x"), "person-1", "person-2"),
			RebuildResult{Entries: 3, Bad: []string{`line 4: belongs to "person-2"`}},
			[]string{"1 one", "2 two", "3 three"}},
		{"no time", "{1}{2}" + `{"cursor":3,"text":"x"}` + "\n",
			RebuildResult{Entries: 3, Bad: []string{"line 3: has no time"}},
			[]string{"1 one", "2 two", "3 three"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			f.add(anna, "one", "two", "three")
			f.add(bert, "of another")
			f.ok(f.Sync(t.Context(), anna))
			text := test.file
			for i, line := range strings.SplitAfter(f.file(anna), "\n") {
				text = strings.ReplaceAll(text, fmt.Sprintf("{%d}", i+1), line)
			}
			f.write(anna, text)
			r, err := f.Rebuild(t.Context(), anna)
			f.ok(err)
			same(t, "rebuilt", r, test.want)
			same(t, "entries", f.texts(anna), test.entries)
			for _, e := range f.entries(anna) {
				same(t, "found", f.found(anna, e.Text)[0], e.Text)
			}
			again, err := f.Rebuild(t.Context(), anna)
			f.ok(err)
			same(t, "rebuilt again", again, RebuildResult{Entries: r.Entries, Bad: r.Bad})
			for _, bad := range strings.SplitAfter(text, "\n")[:min(len(r.Bad), 1)] {
				if !strings.Contains(f.file(anna), bad) {
					t.Errorf("the file lacks %q", bad)
				}
			}
			f.add(anna, "later")
			f.ok(f.Sync(t.Context(), anna))
			if got := f.file(anna); !strings.HasSuffix(got, "\"later\"}\n") {
				t.Errorf("the file goes on as\n%s", got)
			}
			same(t, "entries of another", f.texts(bert), []string{"1 of another"})
		})
	}
}

// An entry that another process adds while the file is compared stays.
func TestRebuildBesideSync(t *testing.T) {
	f := newFixture(t)
	f.add(anna, "one")
	f.ok(f.Sync(t.Context(), anna))
	r := rebuild{m: f.Memory, s: anna, space: f.In(anna)}
	st, err := r.space.state(f.q())
	f.ok(err)
	f.ok(r.read(t.Context(), string(anna)+"/"+HistoryFile))
	f.add(anna, "two")
	f.ok(f.Sync(t.Context(), anna))
	f.ok(r.compare(t.Context(), st.synced))
	same(t, "entries", f.texts(anna), []string{"1 one", "2 two"})
	same(t, "removed", r.Removed, 0)
}

// A line that another process appends while the file is rewritten is not lost.
func TestRebuildBesideAppend(t *testing.T) {
	f := newFixture(t)
	root, err := os.OpenRoot(filepath.Join(f.dir, "memory"))
	f.ok(err)
	defer root.Close()
	done := false
	other := New(f.db, root, &Options{Now: func() time.Time { // Now is called after the file is read
		if !done {
			done = true
			f.add(anna, "two")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := f.Sync(ctx, anna); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the line was appended meanwhile: %v", err)
			}
		}
		return f.now
	}})
	f.add(anna, "one")
	f.ok(f.Sync(t.Context(), anna))
	f.write(anna, f.file(anna)+`{"text":"by hand"}`+"\n")
	for range 2 {
		_, err := other.Rebuild(t.Context(), anna)
		f.ok(err)
		f.ok(f.Sync(t.Context(), anna))
	}
	same(t, "done", done, true)
	texts := f.texts(anna)
	slices.Sort(texts)
	same(t, "entries", texts, []string{"1 one", "2 two", "3 by hand"})
	same(t, "lines", strings.Count(f.file(anna), "\n"), 3)
}

// After any appends, edits and rebuilds, the file and the table agree.
func TestRebuildAgrees(t *testing.T) {
	f := newFixture(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		s := OfPerson(int64(n))
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			texts := rapid.SliceOfN(rapid.StringMatching(`[a-z ü会]{1,9}x`), 0, 4).Draw(rt, "texts")
			f.once(func(tx *store.Tx) error { return f.append(tx, s, texts...) })
			if rapid.Bool().Draw(rt, "sync") {
				f.ok(f.Sync(t.Context(), s))
			}
			f.edit(rt, s)
			if _, err := f.Rebuild(t.Context(), s); err != nil {
				rt.Fatal(err)
			}
		}
		f.agree(rt, s)
	})
}

// edit changes the history file like a person.
func (f *fixture) edit(rt *rapid.T, s Scope) {
	data, err := os.ReadFile(f.path(s))
	if err != nil {
		return
	}
	lines := strings.SplitAfter(string(data), "\n")
	for range rapid.IntRange(0, 3).Draw(rt, "edits") {
		i := rapid.IntRange(0, len(lines)-1).Draw(rt, "line")
		switch rapid.IntRange(0, 4).Draw(rt, "edit") {
		case 0:
			lines[i] = ""
		case 1:
			lines[i] += "{\"text\":\"added\"}\n"
		case 2:
			lines[i] = strings.Replace(lines[i], "x\"}", "y\"}", 1)
		case 3:
			lines[i] += lines[i]
		case 4:
			lines[i], lines[0] = lines[0], lines[i]
		}
	}
	f.write(s, strings.Join(lines, ""))
}

// agree checks that the file of a scope has exactly the entries of the table.
func (f *fixture) agree(rt *rapid.T, s Scope) {
	want := make(map[int64]Entry)
	for _, e := range f.entries(s) {
		want[e.Cursor] = e
	}
	file, err := os.ReadFile(f.path(s))
	if err != nil && len(want) == 0 {
		return
	}
	for line := range strings.Lines(string(file)) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		e, err := decode(s, []byte(line), time.Time{})
		if err != nil {
			rt.Fatalf("line %q: %v", line, err)
		}
		if w := want[e.Cursor]; w.Text != e.Text || !w.Time.Equal(e.Time) {
			rt.Errorf("the file has %+v, the table %+v", e, w)
		}
		delete(want, e.Cursor)
	}
	if len(want) > 0 {
		rt.Errorf("the file lacks %+v", want)
	}
}
