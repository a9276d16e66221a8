package export

import (
	"bytes"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"gateway/agent/background"
	"gateway/bus"
	"gateway/memory"
	"gateway/store"
	"gateway/store/plantest"
)

// files is a Target in memory.
type files map[string]*bytes.Buffer

func (f files) Create(name string) (io.Writer, error) {
	f[name] = new(bytes.Buffer)
	return f[name], nil
}

func (files) Room() int64 { return math.MaxInt64 }

// An export finds a person's messages in groups by an index, and reads the outbox once for all
// groups. It sorts the messages that have the numbers of linked people.
func TestGroupsByIndex(t *testing.T) {
	db, err := store.Open(t.Context(), t.TempDir()+"/g.db", []store.Migration{bus.Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	now := time.UnixMilli(1_000_000)
	err = db.Tx(t.Context(), func(tx *store.Tx) error {
		inbox, outbox := bus.NewInbox(), bus.NewOutbox()
		for i, m := range []bus.InboundMessage{
			{From: bus.Address{Account: "tg", Chat: "1"}, Person: 3, Group: true, Text: "one"},
			{From: bus.Address{Account: "tg", Chat: "1"}, Person: 4, Group: true, Text: "two"},
			{From: bus.Address{Account: "tg", Chat: "1"}, Person: 5, Group: true, Text: "no"},
			{From: bus.Address{Account: "tg", Chat: "1"}, Person: 3, Group: true, Text: "three"},
			{From: bus.Address{Account: "tg", Chat: "2"}, Person: 3, Group: true, Text: "four"},
			{From: bus.Address{Account: "tg", Chat: "3"}, Person: 3, Text: "alone"},
		} {
			m.ID = strconv.Itoa(i)
			if _, err := inbox.Put(tx, m, now); err != nil {
				return err
			}
			out := bus.OutboundMessage{To: m.From, Text: "to " + m.Text, Answers: []string{m.ID}}
			if err := outbox.Put(tx, out, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &plantest.Plans{Queryer: db.Read(t.Context()), T: t}
	to := make(files)
	r := &run{Exporter: &Exporter{Zone: time.UTC}, to: to, read: p, clean: strings.NewReplacer(),
		owned: background.Erasure{Person: 4, Scopes: []memory.Scope{"person-4", "person-3"}}}
	if err := r.groups(t.Context()); err != nil {
		t.Fatal(err)
	}
	passes := 0
	for _, plan := range p.Seen {
		switch {
		case strings.Contains(plan, " outbox"):
			passes++
		case strings.Contains(plan, "(account=? AND chat=? AND message>? AND message<?)"): // repeated ids
		case !strings.Contains(plan, "INDEX inbox_person (person=? AND shared=?"):
			t.Errorf("the plan is %q, want the index inbox_person", plan)
		}
	}
	if passes != 1 {
		t.Errorf("the outbox was read %d times, want once", passes)
	}
	for name, want := range map[string][]string{
		"groups/" + FileName("tg/1") + ".md": {"one", "to one", "two", "to two", "three", "to three"},
		"groups/" + FileName("tg/2") + ".md": {"four", "to four"},
	} {
		if to[name] == nil {
			t.Errorf("there is no file %s", name)
			continue
		}
		var got []string
		for line := range strings.Lines(to[name].String()) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line[0] != '*' {
				got = append(got, line)
			}
		}
		if strings.Join(got, ",") != strings.Join(want, ",") {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	if len(to) != 4 {
		t.Errorf("there are %d files, want 4", len(to))
	}
	p.Seen = nil
	err = r.pages(table{name: "inbox", where: ofPlace}, []any{"tg", "1"},
		func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(p.Seen[0], "COVERING INDEX sqlite_autoindex_inbox_1 (account=? AND chat=?)") {
		t.Errorf("the plan of a page is %q, want one that finds its rows by an index", p.Seen[0])
	}
}

// When an account has become another bot, its platform can give an id again. Then nobody knows whom
// the answers to that id answer, so that nobody gets them.
func TestAnswersToRepeatedID(t *testing.T) {
	db, err := store.Open(t.Context(), t.TempDir()+"/g.db", []store.Migration{bus.Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	group := bus.Address{Account: "tg", Chat: "1"}
	err = db.Tx(t.Context(), func(tx *store.Tx) error {
		inbox, outbox, now := bus.NewInbox(), bus.NewOutbox(), time.UnixMilli(1_000_000)
		for person := int64(1); person <= 2; person++ {
			for _, id := range []string{"5", strconv.FormatInt(5+person, 10)} {
				m := bus.InboundMessage{ID: id, From: group, Person: person, Group: true, Text: "hi"}
				stored, err := inbox.Put(tx, m, now)
				if err != nil || !stored {
					t.Errorf("message %s of person %d is stored: %t, %v", id, person, stored, err)
				}
				err = outbox.Put(tx, bus.OutboundMessage{To: group, Answers: []string{id},
					Text: "answer to " + id + " of " + strconv.FormatInt(person, 10)}, now)
				if err != nil {
					return err
				}
			}
			if err := bus.ReplaceAccount(tx, "tg"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for person, want := range map[int64]string{1: "answer to 6 of 1", 2: "answer to 7 of 2"} {
		to := make(files)
		r := &run{Exporter: &Exporter{Zone: time.UTC}, to: to, read: db.Read(t.Context()),
			clean: strings.NewReplacer(), owned: background.Erasure{Person: person}}
		if err := r.groups(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := to["groups/"+FileName(group.String())+".md"].String()
		if !strings.Contains(got, want) || strings.Count(got, "answer to") != 1 ||
			len(r.leftOut) != 1 || !strings.HasPrefix(r.leftOut[0], "2 answers") {
			t.Errorf("person %d gets %q and leaves out %q, want %q and 2 answers", person, got,
				r.leftOut, want)
		}
	}
}
