package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gateway/store"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var notes = store.Migration{Package: "notes", Steps: []string{
	"CREATE TABLE notes (id IDENTITY PRIMARY KEY, text TEXT NOT NULL);"}}

// A home is a data directory with a database and the other parts of a backup.
type home struct {
	t   *testing.T
	dir string
}

func newHome(t *testing.T) home { return home{t, t.TempDir()} }

// fill puts data of each kind into h.
func (h home) fill() home {
	h.t.Helper()
	h.note("first")
	for name, text := range map[string]string{
		"memory/person-1/MEMORY.md": "likes tea", "versions/person-1.git/refs/heads/main": "abc",
		"versions/person-1.lock": "", "media/tg/7/photo.jpg": strings.Repeat("x", 300_000),
		"media/tg/7/half.part": "half", "workspace/run.sh": "#!/bin/sh\n", "skills.json": "{}",
		"workspace/.gateway-ABC.tmp": "half", "workspace/.gateway-notes/todo.md": "mine",
	} {
		h.write(name, text)
	}
	h.mkdir("versions/person-1.git/objects")
	if err := os.Chmod(h.path("workspace/run.sh"), 0o755); err != nil {
		h.t.Fatal(err)
	}
	old := time.Now().Add(-100 * time.Hour).Truncate(time.Second)
	if err := os.Chtimes(h.path("media/tg/7/photo.jpg"), old, old); err != nil {
		h.t.Fatal(err)
	}
	return h
}

func (h home) path(name string) string { return filepath.Join(h.dir, filepath.FromSlash(name)) }

func (h home) mkdir(name string) {
	h.t.Helper()
	if err := os.MkdirAll(h.path(name), 0o700); err != nil {
		h.t.Fatal(err)
	}
}

func (h home) write(name, text string) {
	h.t.Helper()
	h.mkdir(filepath.Dir(name))
	if err := os.WriteFile(h.path(name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h home) open() *store.DB {
	h.t.Helper()
	db, err := store.Open(h.t.Context(), h.path("gateway.db"), []store.Migration{notes}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return db
}

func add(text string) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		_, err := tx.Exec("INSERT INTO notes (text) VALUES ($1)", text)
		return err
	}
}

// note adds a row to the database of h.
func (h home) note(text string) {
	h.t.Helper()
	db := h.open()
	if err := errors.Join(db.Tx(h.t.Context(), add(text)), db.Close()); err != nil {
		h.t.Fatal(err)
	}
}

// notes returns the texts of the rows, separated by commas.
func (h home) notes() string {
	h.t.Helper()
	db := h.open()
	defer db.Close()
	var all string
	err := db.Read(h.t.Context()).QueryRow("SELECT COALESCE(group_concat(text), '') " +
		"FROM (SELECT text FROM notes ORDER BY id)").Scan(&all)
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

var kindsByName = map[string]Kind{"gateway.db": Database, "whatsapp-w.db": Database,
	"versions": Folder, "memory": Folder, "skills.json": File, "workspace": Folder,
	"media": Frozen}

func (h home) place(name string) (Part, bool) {
	kind, ok := kindsByName[name]
	return Part{Name: name, Path: h.path(name), Kind: kind}, ok
}

func (h home) parts() []Part {
	var list []Part
	for _, name := range []string{"gateway.db", "versions", "memory", "skills.json", "workspace",
		"media"} {
		p, _ := h.place(name)
		list = append(list, p)
	}
	return list
}

// backup returns an archive of h.
func (h home) backup() []byte {
	h.t.Helper()
	var b bytes.Buffer
	_, err := Write(h.t.Context(), "-", h.parts(), WriteOptions{Version: "1.0", Stream: &b,
		Scratch: h.t.TempDir()})
	if err != nil {
		h.t.Fatal(err)
	}
	return b.Bytes()
}

func (h home) restore(archive []byte, force bool) (*Restored, error) {
	return Restore(h.t.Context(), bytes.NewReader(archive), RestoreOptions{
		Migrations: []store.Migration{notes}, Force: force, Now: time.Now(), Home: h.dir,
		Place: h.place})
}

// files returns the names and modes of all files of h, except databases and locks.
func (h home) files() map[string]string {
	h.t.Helper()
	list := make(map[string]string)
	err := filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(h.dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && !strings.HasSuffix(name, ".lock") && !strings.Contains(name, ".db") {
			list[filepath.ToSlash(name)] = info.Mode().String()
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

// A backup restores everything in another home, except files that were still being written.
func TestRoundTrip(t *testing.T) {
	from, to := newHome(t).fill(), newHome(t)
	done, err := to.restore(from.backup(), false)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := done.Manifest.Schema["notes"], 1; got != want {
		t.Errorf("schema of notes is %d, want %d", got, want)
	}
	if got := to.notes(); got != "first" {
		t.Errorf("the database has %q, want first", got)
	}
	want := from.files()
	delete(want, "media/tg/7/half.part")
	delete(want, "workspace/.gateway-ABC.tmp")
	if got := to.files(); !maps.Equal(got, want) {
		t.Errorf("restored\n%v\nwant\n%v", got, want)
	}
	a, errA := os.Stat(from.path("media/tg/7/photo.jpg"))
	b, errB := os.Stat(to.path("media/tg/7/photo.jpg"))
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if !a.ModTime().Equal(b.ModTime()) || a.Size() != b.Size() {
		t.Errorf("photo is of %s, %d bytes; want %s, %d",
			b.ModTime(), b.Size(), a.ModTime(), a.Size())
	}
}

// A backup file appears only when it is complete. Only its owner can read it. It replaces another
// file only with Force.
func TestFile(t *testing.T) {
	h := newHome(t).fill()
	dir := t.TempDir()
	file := filepath.Join(dir, "b.tar.gz")
	write := func(force bool) error {
		_, err := Write(t.Context(), file, h.parts(), WriteOptions{Force: force})
		return err
	}
	if err := write(false); err != nil {
		t.Fatal(err)
	}
	if err := write(false); !errors.Is(err, ErrExists) {
		t.Errorf("second Write = %v, want %v", err, ErrExists)
	}
	if err := write(true); err != nil {
		t.Errorf("Write with force = %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v; want the archive alone", entries, err)
	}
	info, err := entries[0].Info()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want mode 0600", info.Mode(), err)
	}
}

// A backup, a restore or a sweep removes what an earlier one that was killed has left. It keeps the
// folder of one that still runs.
func TestLeftovers(t *testing.T) {
	archive := newHome(t).fill().backup()
	for prefix, again := range map[string]func(h home) error{
		".gateway-backup-": func(h home) error {
			_, err := Write(t.Context(), h.path("b"), h.parts(), WriteOptions{})
			return err
		},
		".gateway-restore-": func(h home) error {
			_, err := h.restore(archive, true)
			return err
		},
	} {
		t.Run(prefix, func(t *testing.T) { testLeftovers(t, prefix, again) })
	}
}

func testLeftovers(t *testing.T, prefix string, again func(h home) error) {
	h := home{t, filepath.Join(t.TempDir(), "bots [home]")} // not a pattern
	h.mkdir("")
	h.fill()
	dir := h.dir
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"dead", "alive", "of the user"} {
		path := filepath.Join(dir, prefix+name)
		err := os.Mkdir(path, 0o700)
		if err == nil && name == "dead" {
			err = os.WriteFile(filepath.Join(path, lockName), nil, 0o600)
		}
		if err := errors.Join(err, os.Chtimes(path, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	alive := filepath.Join(dir, prefix+"alive")
	unlock, err := store.Lock(filepath.Join(alive, lockName))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unlock() }() // the test is over, so an error does not matter
	if err := os.Chtimes(alive, old, old); err != nil {
		t.Fatal(err)
	}
	if err := again(h); err != nil {
		t.Fatal(err)
	}
	left, err := fs.Glob(os.DirFS(dir), ".gateway-*")
	want := []string{prefix + "alive", prefix + "of the user"}
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("left %v, %v; want %v", left, err, want)
	}
}

// A backup that fails leaves nothing behind.
func TestCancelled(t *testing.T) {
	h := newHome(t).fill()
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	_, err := Write(ctx, filepath.Join(dir, "b"), h.parts(), WriteOptions{
		Copied: func(context.Context, string) error { cancel(); return nil }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Write = %v, want %v", err, context.Canceled)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// The copy of the database has its state at one moment, although somebody writes meanwhile. It
// has everything that was written before the backup began.
func TestWritersBeside(t *testing.T) {
	h := newHome(t).fill()
	db := h.open()
	const before = 50
	for i := range before {
		if err := db.Tx(t.Context(), add(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var written atomic.Int64
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = db.Tx(t.Context(), func(tx *store.Tx) error { // both rows or none
				return errors.Join(add("a")(tx), add("b")(tx))
			})
			written.Add(1)
		}
		ended <- err
	}()
	var archive []byte
	for n := written.Load(); n == written.Load(); { // on a busy machine nobody may write meanwhile
		archive = h.backup()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	to := newHome(t)
	if _, err := to.restore(archive, false); err != nil {
		t.Fatal(err)
	}
	all := to.notes()
	if got := len(strings.Split(all, ",")); got < before+1 || strings.Count(all, "a") !=
		strings.Count(all, "b") {
		t.Errorf("%d rows, %d a and %d b", got, strings.Count(all, "a"), strings.Count(all, "b"))
	}
}

// A restore with force moves existing data aside, together with the log of the database, and
// never mixes it with the restored data.
func TestForce(t *testing.T) {
	from, to := newHome(t).fill(), newHome(t)
	to.note("mine")
	to.write("workspace/mine.txt", "mine")
	to.write("gateway.db-wal", "another's log")
	to.write("gateway.db-sent", "another's log")
	to.write("config.toml", "stays")
	archive := from.backup()
	before := to.files()
	if _, err := to.restore(archive, false); !errors.Is(err, ErrExists) {
		t.Errorf("Restore = %v, want %v", err, ErrExists)
	}
	if got := to.files(); !maps.Equal(got, before) {
		t.Errorf("a refused restore has left\n%v, want\n%v", got, before)
	}
	done, err := to.restore(archive, true)
	if err != nil {
		t.Fatal(err)
	}
	if got := to.notes(); got != "first" {
		t.Errorf("the database has %q, want first", got)
	}
	if len(done.Aside) != 1 {
		t.Fatalf("moved aside to %v, want one folder", done.Aside)
	}
	for _, name := range []string{"gateway.db", "gateway.db-wal", "gateway.db-sent",
		"workspace/mine.txt"} {
		if _, err := os.Stat(filepath.Join(done.Aside[0], name)); err != nil {
			t.Errorf("%s is not aside: %v", name, err)
		}
	}
	if _, err := os.Stat(to.path("config.toml")); err != nil {
		t.Errorf("what is in no backup was touched: %v", err)
	}
	if _, err := to.restore(archive, true); err != nil {
		t.Errorf("second restore: %v", err)
	}
}

// A restore that fails half way moves everything back, so that the gateway can start as before. The
// mark of an earlier restore, which was killed, stays until a restore succeeds.
func TestHalfWay(t *testing.T) {
	from, to := newHome(t).fill(), newHome(t)
	archive := from.backup()
	to.note("mine")
	to.write("memory/person-1/MEMORY.md", "likes coffee")
	fail := func() {
		t.Helper()
		before := to.files()
		_, err := Restore(t.Context(), bytes.NewReader(archive), RestoreOptions{
			Migrations: []store.Migration{notes}, Home: to.dir, Now: time.Now(), Force: true,
			Place: func(name string) (Part, bool) {
				p, ok := to.place(name)
				if name == "workspace" { // nothing can be moved to this path
					p.Path = filepath.Join(to.dir, strings.Repeat("x", 300))
				}
				return p, ok
			}})
		if err == nil {
			t.Fatal("Restore = nil, want an error")
		}
		if got := to.files(); !maps.Equal(got, before) {
			t.Errorf("it has left\n%v, want\n%v", got, before)
		}
		text, err := os.ReadFile(to.path("memory/person-1/MEMORY.md"))
		if string(text) != "likes coffee" {
			t.Errorf("the memory is %q, %v", text, err)
		}
		if got := to.notes(); got != "mine" {
			t.Errorf("the database has %q, want mine", got)
		}
	}
	fail()
	to.write(Unfinished, "")
	fail()
	if _, err := to.restore(archive, true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(to.path(Unfinished)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the mark is still there: %v", err)
	}
}

// A tarball is an archive that was made by hand.
type tarball struct {
	manifest Manifest
	files    []tar.Header
	texts    []string
}

func newTarball() *tarball {
	return &tarball{manifest: Manifest{Program: program, Format: Format, Version: "1.0",
		Schema: map[string]int{"notes": 1}}}
}

// add adds a file to both the manifest and the files.
func (b *tarball) add(name, text string) *tarball {
	sum := sha256.Sum256([]byte(text))
	b.manifest.Entries = append(b.manifest.Entries,
		Entry{Name: name, Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:]), Mode: 0o600})
	return b.raw(tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(text))}, text)
}

// raw adds a file that is not in the manifest.
func (b *tarball) raw(h tar.Header, text string) *tarball {
	b.files, b.texts = append(b.files, h), append(b.texts, text)
	return b
}

func (b *tarball) bytes(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	text, err := json.Marshal(b.manifest)
	if err != nil {
		t.Fatal(err)
	}
	put := func(h tar.Header, text string) {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	put(tar.Header{Name: manifestName, Typeflag: tar.TypeReg, Size: int64(len(text))}, string(text))
	for i, h := range b.files {
		put(h, b.texts[i])
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// An invalid archive is refused and changes nothing.
func TestRefused(t *testing.T) {
	whole := newHome(t).fill().backup()
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 0x40
	good := func() *tarball { return newTarball().add("gateway.db", "db") }
	with := func(change func(b *tarball)) []byte {
		b := good()
		change(b)
		return b.bytes(t)
	}
	entry := func(h tar.Header) []byte {
		return with(func(b *tarball) {
			b.manifest.Entries = append(b.manifest.Entries, Entry{Name: h.Name, Size: h.Size})
			b.raw(h, strings.Repeat("x", int(h.Size)))
		})
	}
	for name, test := range map[string]struct {
		archive []byte
		want    error
	}{
		"empty":     {nil, ErrForeign},
		"no gzip":   {[]byte("SQLite format 3"), ErrForeign},
		"truncated": {whole[:len(whole)/2], ErrForeign},
		"no end":    {whole[:len(whole)-4], ErrForeign},
		"flipped":   {flipped, ErrForeign},
		"newer":     {with(func(b *tarball) { b.manifest.Format++ }), ErrNewer},
		"newer tables": {
			with(func(b *tarball) { b.manifest.Schema["notes"]++ }), store.ErrNewer},
		"unknown tables": {
			with(func(b *tarball) { b.manifest.Schema["other"] = 1 }), store.ErrNewer},
		"foreign":     {with(func(b *tarball) { b.manifest.Program = "x" }), ErrForeign},
		"no database": {newTarball().add("memory/x", "x").bytes(t), ErrForeign},
		"wrong sum": {
			with(func(b *tarball) { b.manifest.Entries[0].SHA256 = "00" }), ErrForeign},
		"too short": {with(func(b *tarball) { b.manifest.Entries[0].Size++ }), ErrForeign},
		"missing": {with(func(b *tarball) {
			b.manifest.Entries = append(b.manifest.Entries, Entry{Name: "memory/x"})
		}), ErrForeign},
		"more": {with(func(b *tarball) {
			b.raw(tar.Header{Name: "memory/x", Typeflag: tar.TypeReg, Size: 1}, "x")
		}), ErrForeign},
		"twice":     {with(func(b *tarball) { b.add("gateway.db", "db") }), ErrForeign},
		"unknown":   {with(func(b *tarball) { b.add("bin/sh", "x") }), ErrForeign},
		"config":    {with(func(b *tarball) { b.add("gateway.db.lock", "x") }), ErrForeign},
		"up":        {with(func(b *tarball) { b.add("memory/../../x", "x") }), ErrForeign},
		"only up":   {with(func(b *tarball) { b.add("..", "x") }), ErrForeign},
		"absolute":  {with(func(b *tarball) { b.add("/etc/passwd", "x") }), ErrForeign},
		"dot":       {with(func(b *tarball) { b.add("memory/./x", "x") }), ErrForeign},
		"backslash": {with(func(b *tarball) { b.add(`memory\..\..\x`, "x") }), ErrForeign},
		"drive":     {with(func(b *tarball) { b.add(`C:\x`, "x") }), ErrForeign},
		"link": {entry(tar.Header{Name: "memory/l", Typeflag: tar.TypeSymlink,
			Linkname: "/etc"}), ErrForeign},
		"hard link": {entry(tar.Header{Name: "memory/l", Typeflag: tar.TypeLink,
			Linkname: "/etc/passwd"}), ErrForeign},
		"device": {entry(tar.Header{Name: "memory/d", Typeflag: tar.TypeChar}), ErrForeign},
		"fifo":   {entry(tar.Header{Name: "memory/f", Typeflag: tar.TypeFifo}), ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			h.write("config.toml", "mine")
			before := h.files()
			_, err := h.restore(test.archive, true)
			if !errors.Is(err, test.want) {
				t.Errorf("Restore = %v, want %v", err, test.want)
			}
			if got := h.files(); !maps.Equal(got, before) {
				t.Errorf("it has left\n%v, want\n%v", got, before)
			}
		})
	}
}

// No archive makes Restore panic or write outside of the home.
func FuzzRestore(f *testing.F) {
	f.Add("memory/x", "text", byte(tar.TypeReg), "")
	f.Add("../x", "text", byte(tar.TypeReg), "")
	f.Add("memory/l", "", byte(tar.TypeSymlink), "../..")
	f.Add("workspace/a/", "", byte(tar.TypeDir), "")
	f.Fuzz(func(t *testing.T, name, text string, kind byte, link string) {
		h := tar.Header{Name: name, Typeflag: kind, Linkname: link, Size: int64(len(text))}
		if tar.NewWriter(io.Discard).WriteHeader(&h) != nil {
			t.Skip()
		}
		outer := t.TempDir()
		to := home{t, filepath.Join(outer, "home")}
		to.mkdir(".")
		b := newTarball().add("gateway.db", "db").add(name, text)
		b.files[1] = h
		if kind != tar.TypeReg {
			b.texts[1] = ""
			b.files[1].Size = 0
		}
		_, err := to.restore(b.bytes(t), true)
		if err == nil && kind != tar.TypeReg && kind != tar.TypeDir {
			t.Errorf("%q of type %q was taken", name, kind)
		}
		entries, err := os.ReadDir(outer)
		if err != nil || len(entries) != 1 {
			t.Errorf("outside of the home there is %v, %v", entries, err)
		}
	})
}
