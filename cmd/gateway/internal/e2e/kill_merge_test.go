//go:build unix

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/background"
	"gateway/channels/gate"
	"gateway/memory"
	"gateway/memory/document"
	docversion "gateway/memory/version"
	"gateway/store"
)

// TestKillMerge kills the gateway at random moments and between any two steps while it merges two
// linked people who already have data. At the end one of them has the data of both, without
// duplicates, and nothing of the other one is left.
func TestKillMerge(t *testing.T) {
	t.Parallel()
	t.Run("random", func(t *testing.T) {
		t.Parallel()
		m := newMergeTrial(t, 4)
		for round := range often(12) {
			p := m.start()
			p.ready()
			if pair := round / 2; round%2 == 0 && pair < m.pairs {
				m.speak(pair)
			}
			m.killAfter(p, time.Duration(m.rand.IntN(150))*time.Millisecond)
		}
		m.settle()
	})
	for point, most := range map[string]int{"begun": 1, "merging": 7, "chored": 1} {
		for n := 1; n <= most; n++ {
			t.Run(fmt.Sprintf("%s/%d", point, n), func(t *testing.T) {
				t.Parallel()
				m := newMergeTrial(t, 1)
				at := fmt.Sprintf("GATEWAY_FAULT=%s:%d", point, n)
				p := m.start(at)
				m.speak(0)
				m.endsItself(p)
				if point != "begun" { // "begun" comes only once
					m.endsItself(m.start(at))
				}
				m.settle()
			})
		}
	}
}

// A mergeTrial is a world with pairs of people. Each pair is linked before the gateway knows it.
// Pair n has the people 2n+1 and 2n+2, whose numbers are also their Telegram ids.
type mergeTrial struct {
	*world
	t      *testing.T
	ledger *ledger
	rand   *rand.Rand
	pairs  int
	kills  int
}

func newMergeTrial(t *testing.T, pairs int) *mergeTrial {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	m := &mergeTrial{t: t, ledger: newLedger(), rand: rand.New(rand.NewPCG(seed, 0)), pairs: pairs}
	m.world = newWorld(t, worldOptions{answer: m.ledger.answer, onSend: m.ledger.onSend,
		agent: "waiting = 1000\n[memory]\ndream_every = \"0s\""})
	p := m.start() // creates the database
	p.ready()
	p.stop()
	m.look(func(db *store.DB) {
		err := db.Tx(t.Context(), func(tx *store.Tx) error {
			for id := range int64(2 * pairs) {
				if err := meet(tx, id+1); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	p = m.start()
	p.ready()
	for id := range int64(2 * pairs) { // each has a conversation with its own memory
		m.telegram.Say(id+1, id+1, m.ledger.next(id+1, 0))
	}
	m.ledger.await(t, 0, p.done)
	p.stop()
	m.look(func(db *store.DB) {
		for id := range int64(2 * pairs) {
			m.furnish(db, id+1)
		}
		err := db.Tx(t.Context(), func(tx *store.Tx) error {
			for n := range int64(pairs) {
				if err := (gate.People{}).Link(tx, 2*n+1, 2*n+2); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	return m
}

// meet adds a person whose number is also their Telegram id.
func meet(tx *store.Tx, id int64) error {
	_, err := tx.Exec("INSERT INTO people (id, name, role, created_ms) "+
		"VALUES ($1, 'P', 'user', 0)", id)
	if err == nil {
		_, err = tx.Exec("INSERT INTO identities (account, sender, person) "+
			"VALUES ('telegram', $1, $2)", fmt.Sprint(id), id)
	}
	return err
}

// entriesOf is the number of history entries per person.
const entriesOf = 20

// furnish adds facts, history, archived messages, documents, a skill and versions of a person.
func (m *mergeTrial) furnish(db *store.DB, id int64) {
	m.t.Helper()
	scope := memory.OfPerson(id)
	folder := filepath.Join(m.home, "memory", string(scope))
	root, err := os.OpenRoot(filepath.Join(m.home, "memory"))
	if err != nil {
		m.t.Fatal(err)
	}
	defer root.Close()
	mem := memory.New(db, root, nil)
	space := mem.In(scope)
	err = db.Tx(m.t.Context(), func(tx *store.Tx) error {
		for _, key := range []string{"colour", fmt.Sprintf("own%d", id)} {
			f := memory.Fact{Key: key, Value: fmt.Sprintf("fact%d of %s", id, key),
				Created: time.UnixMilli(1000 * id)}
			if err := space.Set(tx, f); err != nil {
				return err
			}
		}
		for n := range entriesOf {
			e := memory.Entry{Time: time.UnixMilli(int64(1000*n) + id), Session: "s",
				Text: fmt.Sprintf("entry%dx%d", id, n)}
			if _, err := space.Append(tx, e); err != nil {
				return err
			}
		}
		if err := space.SetDreamed(tx, entriesOf); err != nil {
			return err
		}
		return space.Archive(tx, []memory.Message{{ID: 1_000_000 + id, Session: "s",
			Speaker: "user", Text: fmt.Sprintf("archived%d", id)}})
	})
	if err == nil {
		err = mem.Sync(m.t.Context(), scope)
	}
	for _, name := range []string{document.Memory, document.User,
		fmt.Sprintf("skills/skill%d/SKILL.md", id)} {
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), m.document(id, name), 0o600)
		}
	}
	if err == nil {
		_, err = m.tree(db, scope).Commit(m.t.Context(), docversion.Change{Author: "the agent",
			Reason: "Furnished."})
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// document returns the content of a person's document.
func (m *mergeTrial) document(id int64, name string) []byte {
	if strings.HasSuffix(name, "SKILL.md") {
		const skill = "---\nname: skill%d\ndescription: what person%d does\n---\nDo it.\n"
		return fmt.Appendf(nil, skill, id, id)
	}
	return fmt.Appendf(nil, "# About\n\n- line of person%d in %s\n", id, name)
}

func (m *mergeTrial) tree(db *store.DB, s memory.Scope) *docversion.Tree {
	return docversion.New(db, nil).Tree(string(s),
		filepath.Join(m.home, "memory", string(s)), document.IsVersioned)
}

// speak makes the second person of a pair write, so that the gateway learns about the link.
func (m *mergeTrial) speak(pair int) {
	id := int64(2*pair + 2)
	m.telegram.Say(id, id, m.ledger.next(id, 0))
}

// killAfter kills p after a duration.
func (m *mergeTrial) killAfter(p *process, d time.Duration) {
	m.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.done:
		m.t.Fatalf("the gateway has ended by itself\n%s", p.newest())
	}
	p.kill()
	m.kills++
	m.relieve()
}

// endsItself waits until p dies at its fault point.
func (m *mergeTrial) endsItself(p *process) {
	m.t.Helper()
	if code := p.exited(patience); code != -1 {
		m.t.Fatalf("the gateway ended with code %d\n%s", code, p.newest())
	}
	m.kills++
}

// settle runs a last process until all work is done, and checks the results.
func (m *mergeTrial) settle() {
	m.t.Helper()
	p := m.start()
	p.ready()
	if m.ledger.said[int64(2*m.pairs)] == 1 { // its second person has not written since the link
		m.speak(m.pairs - 1)
	}
	m.ledger.await(m.t, 0, p.done)
	m.eventually("nothing to be merged", func(db *store.DB) bool {
		return m.count(db, "chores WHERE kind = '"+string(background.Merge)+"'") == 0 &&
			m.count(db, "outbox WHERE state <> 'sent'") == 0
	})
	p.stop()
	if m.kills == 0 {
		m.t.Error("there were no kills: the test proves nothing")
	}
	m.look(func(db *store.DB) {
		for n := range int64(m.pairs) {
			m.checkFacts(db, 2*n+1, 2*n+2)
			m.checkHistory(db, 2*n+1, 2*n+2)
			m.checkFiles(db, 2*n+1, 2*n+2)
			m.checkGone(db, 2*n+2)
		}
		for id, said := range m.ledger.said {
			if n := m.count(db, fmt.Sprintf("outbox WHERE chat = '%d'", id)); n != said {
				m.t.Errorf("person %d has said %d things and had %d answers", id, said, n)
			}
		}
	})
}

// checkFacts checks that a has the facts of both. If both have a fact with the same key, b's
// newer fact keeps the key and a's fact gets another one.
func (m *mergeTrial) checkFacts(db *store.DB, a, b int64) {
	m.t.Helper()
	space, read := memory.New(db, nil, nil).In(memory.OfPerson(a)), db.Read(m.t.Context())
	facts, err := space.Facts(read, "", 100)
	if err != nil {
		m.t.Fatal(err)
	}
	got := make(map[string]string)
	for _, f := range facts {
		got[f.Key] = f.Value
	}
	for key, want := range map[string]string{
		"colour":                 fmt.Sprintf("fact%d of colour", b),
		"colour (2)":             fmt.Sprintf("fact%d of colour", a),
		fmt.Sprintf("own%d", a):  fmt.Sprintf("fact%d of own%d", a, a),
		fmt.Sprintf("own%d", b):  fmt.Sprintf("fact%d of own%d", b, b),
		fmt.Sprintf("none%d", b): "",
	} {
		if got[key] != want {
			m.t.Errorf("the fact %q of person %d is %q, want %q", key, a, got[key], want)
		}
	}
	if len(facts) != 4 {
		m.t.Errorf("person %d has %d facts, want 4: %v", a, len(facts), got)
	}
}

// checkHistory checks that a has the entries of both, a's first, in the table, the file and the
// index. a must also have the archived messages of both.
func (m *mergeTrial) checkHistory(db *store.DB, a, b int64) {
	m.t.Helper()
	space, read := memory.New(db, nil, nil).In(memory.OfPerson(a)), db.Read(m.t.Context())
	entries, err := space.Entries(read, 0, 1000)
	if err != nil {
		m.t.Fatal(err)
	}
	var got, want []string
	for _, id := range []int64{a, b} {
		for n := range entriesOf {
			want = append(want, fmt.Sprintf("entry%dx%d", id, n))
		}
	}
	for i, e := range entries {
		got = append(got, e.Text)
		if e.Cursor != int64(i+1) {
			m.t.Errorf("entry %d of person %d has the cursor %d", i+1, a, e.Cursor)
		}
	}
	if !slices.Equal(got, want) {
		m.t.Errorf("person %d has the entries %q, want %q", a, got, want)
	}
	(&memoryTrial{world: m.world, t: m.t}).checkFile(memory.OfPerson(a), entries)
	if dreamed, err := space.Dreamed(read); err != nil || dreamed != 2*entriesOf {
		m.t.Errorf("Dream has read %d entries of person %d, %v; want all %d", dreamed, a, err,
			2*entriesOf)
	}
	for _, word := range append(want, fmt.Sprintf("archived%d", a), fmt.Sprintf("archived%d", b)) {
		hits, err := space.SearchHistory(read, word, memory.HistoryOptions{})
		if err != nil || len(hits) != 1 {
			m.t.Errorf("%q is found as %+v of person %d, %v; want it once", word, hits, a, err)
		}
	}
	for _, id := range []int64{a, b} {
		word := fmt.Sprintf("own%d", id)
		if hits, err := space.Search(read, word, 10); err != nil || len(hits) != 1 {
			m.t.Errorf("%q is found as %+v of person %d, %v; want it once", word, hits, a, err)
		}
	}
}

// checkFiles checks that the documents of a contain the lines of both once, that the skills of
// both exist, and that one version describes the merge.
func (m *mergeTrial) checkFiles(db *store.DB, a, b int64) {
	m.t.Helper()
	folder := filepath.Join(m.home, "memory", string(memory.OfPerson(a)))
	for _, name := range []string{document.Memory, document.User} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			m.t.Error(err)
		}
		for _, id := range []int64{a, b} {
			line := fmt.Sprintf("- line of person%d in %s\n", id, name)
			if n := strings.Count(string(text), line); n != 1 {
				m.t.Errorf("%s of person %d has %q %d times, want once:\n%s", name, a, line, n,
					text)
			}
		}
	}
	for _, id := range []int64{a, b} {
		name := fmt.Sprintf("skills/skill%d/SKILL.md", id)
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || string(text) != string(m.document(id, name)) {
			m.t.Errorf("%s of person %d is %q, %v; want it as it was", name, a, text, err)
		}
	}
	list, err := m.tree(db, memory.OfPerson(a)).Log(m.t.Context(), 100)
	if err != nil {
		m.t.Fatal(err)
	}
	told := 0
	for _, v := range list {
		if strings.HasPrefix(v.Reason, "Merged with person-"+fmt.Sprint(b)+",") {
			told++
		}
	}
	if told != 1 || len(list) != 2 {
		m.t.Errorf("person %d has the versions %+v, want the first one and that of the merge", a,
			list)
	}
}

// checkGone checks that no data of b is left.
func (m *mergeTrial) checkGone(db *store.DB, b int64) {
	m.t.Helper()
	scope := string(memory.OfPerson(b))
	for _, rows := range []string{
		"memory_scopes WHERE name = '" + scope + "'", "memory_leftovers",
		"sessions WHERE scope = '" + scope + "'", "chores WHERE scope = '" + scope + "'",
		"versions WHERE tree = '" + scope + "'", "version_files WHERE tree = '" + scope + "'",
		"memory_entries WHERE scope NOT IN (SELECT id FROM memory_scopes)",
		"memory_facts WHERE scope NOT IN (SELECT id FROM memory_scopes)",
		"memory_messages WHERE scope NOT IN (SELECT id FROM memory_scopes)",
	} {
		if n := m.count(db, rows); n != 0 {
			m.t.Errorf("there are %d rows of %s, want none", n, rows)
		}
	}
	if _, err := os.Stat(filepath.Join(m.home, "memory", scope)); !os.IsNotExist(err) {
		m.t.Errorf("the documents of person %d are left, %v", b, err)
	}
}
