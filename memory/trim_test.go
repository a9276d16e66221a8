package memory

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gateway/store"
)

// Trim removes old entries that Dream has read, with their lines in the file and their words in
// the index. It keeps entries that Dream has not read, messages and lines of people, and other
// scopes.
func TestTrim(t *testing.T) {
	f := newFixture(t)
	const ann, bob = Scope("person-1"), Scope("person-2")
	day := 24 * time.Hour
	for _, s := range []Scope{ann, bob} {
		f.tx(func(tx *store.Tx) error {
			for i := range 200 {
				_, err := f.In(s).Append(tx, Entry{Time: start.Add(-time.Duration(200-i) * day),
					Session: "tg/1", Text: fmt.Sprintf("entry number%d", i+1)})
				if err != nil {
					return err
				}
			}
			return f.In(s).Archive(tx, []Message{
				{ID: 1, Time: start.Add(-100 * day), Session: "tg/1", Speaker: "user", Text: "long ago"},
				{ID: 2, Time: start.Add(-time.Hour), Session: "tg/1", Speaker: "user", Text: "just now"}})
		})
		f.ok(f.Sync(t.Context(), s))
	}
	file := filepath.Join(f.dir, "memory", string(ann), HistoryFile)
	note := func(text string) {
		data, err := os.ReadFile(file)
		f.ok(err)
		f.ok(os.WriteFile(file, append([]byte(text), data...), 0o600))
	}
	note("a person's own line\n")
	want := func(s Scope, entries, first int64, messages string) {
		t.Helper()
		list, err := f.In(s).Entries(f.q(), 0, 500)
		f.ok(err)
		if int64(len(list)) != entries || list[0].Cursor != first {
			t.Fatalf("%s has %d entries from %d, want %d from %d", s, len(list), list[0].Cursor,
				entries, first)
		}
		data, err := os.ReadFile(filepath.Join(f.dir, "memory", string(s), HistoryFile))
		f.ok(err)
		if n := int64(strings.Count(string(data), `"cursor":`)); n != entries {
			t.Errorf("the file of %s has %d entries, want %d", s, n, entries)
		}
		var texts string
		for _, query := range []string{"ago", "now"} {
			found, err := f.In(s).SearchHistory(f.q(), query, HistoryOptions{})
			f.ok(err)
			texts += fmt.Sprint(len(found), " ")
		}
		if texts != messages {
			t.Errorf("%s finds %q, want %q", s, texts, messages)
		}
	}
	f.ok(Trim(t.Context(), f.Memory, ann, start.Add(-50*day))) // Dream has not read any entry
	want(ann, 200, 1, "0 1 ")
	f.tx(func(tx *store.Tx) error { return f.In(ann).SetDreamed(tx, 120) })
	f.ok(trimmer{f.In(ann)}.trimFile(120)) // as if the process had ended here
	f.ok(Trim(t.Context(), f.Memory, ann, start.Add(-50*day)))
	want(ann, 80, 121, "0 1 ")
	f.tx(func(tx *store.Tx) error { return f.In(ann).SetDreamed(tx, 200) })
	f.ok(Trim(t.Context(), f.Memory, ann, start.Add(-50*day)))
	want(ann, 50, 151, "0 1 ")
	want(bob, 200, 1, "1 1 ")
	data, err := os.ReadFile(file)
	f.ok(err)
	if !strings.HasPrefix(string(data), "a person's own line\n") {
		t.Errorf("the file begins with %.60q, want the person's own line", data)
	}
	f.ok(Trim(t.Context(), f.Memory, ann, start.Add(day))) // removes all entries
	f.tx(func(tx *store.Tx) error {
		cursor, err := f.In(ann).Append(tx, Entry{Session: "tg/1", Text: "the next"})
		if err == nil && cursor != 201 {
			t.Errorf("the next entry has the cursor %d, want 201", cursor)
		}
		return err
	})
	f.ok(f.Sync(t.Context(), ann))
	want(ann, 1, 201, "0 0 ")
}
