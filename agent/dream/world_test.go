package dream

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/memory/version"
	"gateway/store"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

type scope = memory.Scope

const ann, bob = scope("person-1"), scope("person-2")

// A world is a database, folders and versions. Each run in it is a new process.
type world struct {
	t        *testing.T
	db       *store.DB
	memory   *memory.Memory
	dir      string // the parent folder of the scopes
	store    *version.Store
	files    *document.Documents
	skills   []string
	model    *llmtest.Model
	opts     Options
	state    map[scope][]byte
	now      time.Time
	requests int // the number of requests of the first phase

	end *processEnd
}

func newWorld(t *testing.T, answer func(llm.Request) llmtest.Step) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), state: make(map[scope][]byte), end: &processEnd{},
		now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	migrations := []store.Migration{memory.Migration, version.Migration}
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "g.db"), migrations, nil)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(db.Close(), root.Close()); err != nil {
			t.Error(err)
		}
	})
	clock := func() time.Time { return w.now }
	w.db = db
	w.memory = memory.New(db, root, &memory.Options{Now: clock})
	w.files = document.New(nil, root, &document.Options{Now: clock})
	w.store = version.New(db, &version.Options{Now: clock})
	w.model = llmtest.Func("test", answer)
	return w
}

// tree returns the versions of a scope.
func (w *world) tree(s scope) *version.Tree {
	dir := filepath.Join(w.dir, string(s))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	return w.store.Tree(string(s), dir, document.IsVersioned)
}

// live adds entries to the history of a scope.
func (w *world) live(s scope, texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		err := w.db.Tx(w.t.Context(), func(tx *store.Tx) error {
			_, err := w.memory.In(s).Append(tx, memory.Entry{
				Time: w.now.Add(-time.Hour), Session: "telegram/5", Text: text})
			return err
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// put writes a file of a scope as an editor does.
func (w *world) put(s scope, name, text string) {
	w.t.Helper()
	file := filepath.Join(w.dir, string(s), name)
	err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700),
		os.WriteFile(file+".swp", []byte(text), 0o600), os.Rename(file+".swp", file))
	if err != nil {
		w.t.Fatal(err)
	}
}

// erase removes a file of a scope.
func (w *world) erase(s scope, name string) {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.dir, string(s), name)); err != nil {
		w.t.Fatal(err)
	}
}

// forget removes the history, the files and the versions of a scope.
func (w *world) forget(s scope) {
	w.t.Helper()
	err := errors.Join(w.db.Tx(w.t.Context(), func(tx *store.Tx) error {
		return w.memory.In(s).Erase(tx)
	}), os.RemoveAll(filepath.Join(w.dir, string(s))), w.tree(s).Remove(w.t.Context()))
	if err != nil {
		w.t.Fatal(err)
	}
}

// get returns a file of a scope, or "" if it does not exist.
func (w *world) get(s scope, name string) string {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.dir, string(s), name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	return string(b)
}

// want checks the content of a file.
func (w *world) want(s scope, name, text string) {
	w.t.Helper()
	if got := w.get(s, name); got != text {
		w.t.Errorf("%s of %s:\n got %q\nwant %q", name, s, got, text)
	}
}

// everything returns the names and contents of all files of a scope.
func (w *world) everything(s scope) string {
	w.t.Helper()
	var b strings.Builder
	root := os.DirFS(w.dir)
	err := fs.WalkDir(root, string(s), func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, name)
		b.WriteString(path.Base(name) + "\n" + string(text))
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return b.String()
}

// dreamed returns the cursor of a scope.
func (w *world) dreamed(s scope) int64 {
	w.t.Helper()
	n, err := w.memory.In(s).Dreamed(w.db.Read(w.t.Context()))
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// commits returns the authors of the versions of a scope, the oldest first.
func (w *world) commits(s scope) []string {
	w.t.Helper()
	list, err := w.tree(s).Log(w.t.Context(), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	var authors []string
	for _, v := range list {
		authors = append(authors, v.Author)
	}
	slices.Reverse(authors)
	return authors
}

// run runs a scope once, as one process.
func (w *world) run(s scope) (Report, error) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	w.end.kill = cancel
	d := New(Deps{
		DB: w.db,
		History: func(s scope) History {
			return faultyHistory{w.memory.In(s), w.end}
		},
		Documents: faultyDocuments{w.files, w.end},
		Versions: func(s scope) Versions {
			return faultyVersions{w.tree(s), w.end}
		},
		Skills: func(scope) []string { return w.skills },
		Ask:    w.ask,
		Now:    func() time.Time { return w.now },
	}, &w.opts)
	return d.Run(ctx, s, w.state[s], func(_ context.Context, state []byte) error {
		return w.end.do("save", func() error {
			if !json.Valid(state) {
				w.t.Errorf("saved state %q is no JSON", state)
			}
			w.state[s] = slices.Clone(state)
			return nil
		})
	})
}

func (w *world) ask(ctx context.Context, req llm.Request) (*llm.Response, error) {
	var resp *llm.Response
	err := w.end.do("ask", func() error {
		if len(req.Tools) == 0 {
			w.requests++
		}
		for ev, err := range w.model.Stream(ctx, req) {
			if err != nil {
				return err
			}
			resp = ev.Response
		}
		return nil
	})
	return resp, err
}

// mustRun runs a scope and fails the test if that fails.
func (w *world) mustRun(s scope) Report {
	w.t.Helper()
	report, err := w.run(s)
	if err != nil {
		w.t.Fatalf("Run: %v", err)
	}
	w.state[s] = nil
	return report
}

// A processEnd ends a process before or after its nth step.
type processEnd struct {
	mu    sync.Mutex
	at    int  // the step at which the process ends, from 1; 0: never
	after bool // it ends once the step is done

	steps  int
	last   string // the name of the last step
	dead   bool
	kill   func()
	before func(step int, name string) // called at each step
}

var errKilled = errors.New("killed")

// do does a step unless the process has ended.
func (f *processEnd) do(name string, step func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return errKilled
	}
	f.steps++
	f.last = name
	if f.before != nil {
		f.before(f.steps, name)
	}
	if f.steps != f.at {
		return step()
	}
	f.dead = true
	if f.after {
		if err := step(); err != nil {
			return err
		}
	}
	f.kill()
	return errKilled
}

type faultyHistory struct {
	History
	f *processEnd
}

func (h faultyHistory) SetDreamed(tx *store.Tx, n int64) error {
	return h.f.do("cursor", func() error { return h.History.SetDreamed(tx, n) })
}

type faultyDocuments struct {
	Documents
	f *processEnd
}

func (d faultyDocuments) Save(s scope, name, text, base string) error {
	return d.f.do("write "+name, func() error { return d.Documents.Save(s, name, text, base) })
}

func (d faultyDocuments) Create(s scope, name, text string) error {
	return d.f.do("create "+name, func() error { return d.Documents.Create(s, name, text) })
}

type faultyVersions struct {
	Versions
	f *processEnd
}

func (v faultyVersions) Commit(
	ctx context.Context, c version.Change,
) (made version.Version, err error) {
	err = v.f.do("commit", func() error {
		made, err = v.Versions.Commit(ctx, c)
		return err
	})
	return made, err
}

func (v faultyVersions) Has(ctx context.Context, id string) (has bool, err error) {
	err = v.f.do("has", func() error {
		has, err = v.Versions.Has(ctx, id)
		return err
	})
	return has, err
}
