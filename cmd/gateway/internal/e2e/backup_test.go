//go:build unix

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/store"
	"gateway/store/storetest"
)

// TestBackup takes a backup while people write, kills the gateway and restores the backup in
// another home. It verifies that a gateway there answers each message of the backup, and each
// later message, once and in order.
func TestBackup(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"begin", "middle", "again"} {
		t.Run(when, func(t *testing.T) {
			tr := newTrial(t, 40)
			p := tr.start()
			p.ready()
			switch when {
			case "middle":
				tr.say(120)
				tr.ledger.await(t, 30, p.done)
			case "again": // a gateway was killed in this home before
				tr.say(60)
				tr.ledger.await(t, 10, p.done)
				p.kill()
				p = tr.start()
				p.ready()
			}
			before := p.logged("message received")
			late := tr.ledger.delay()
			defer late.release()
			tr.say(150)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			// Some answers are in progress at the backup and stay so until p ends.
			if err := p.wait(ctx, func() bool {
				return p.logged("message received") >= before+30
			}); err != nil {
				t.Fatal(err)
			}
			until(t, "somebody to wait for long", late.reached)
			file := filepath.Join(t.TempDir(), "backup.tar.gz")
			if out, err := tr.gateway("backup", file); err != nil {
				t.Fatalf("backup: %v\n%s", err, out)
			}
			p.kill()
			late.release()
			tr.await("what it was sending to arrive", func() bool {
				return tr.telegram.Connections() == 0
			})
			tr.moveHome(file)
			tr.afterRestore()
		})
	}
}

// moveHome restores a backup into a new home, in which tr continues.
func (tr *trial) moveHome(file string) {
	tr.t.Helper()
	config, err := os.ReadFile(filepath.Join(tr.home, "config.toml"))
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.home = tr.t.TempDir()
	if err := os.WriteFile(filepath.Join(tr.home, "config.toml"), config, 0o600); err != nil {
		tr.t.Fatal(err)
	}
	if out, err := tr.gateway("restore", file); err != nil {
		tr.t.Fatalf("restore: %v\n%s", err, out)
	}
}

// afterRestore runs a gateway with the restored data and checks the results.
func (tr *trial) afterRestore() {
	tr.t.Helper()
	sent := make(map[string]bool) // answers that the backup marks as sent
	accepted, open := 0, 0
	seen := make(map[int64]int) // number of texts that a chat shows
	tr.look(func(db *store.DB) {
		accepted = tr.count(db, "inbox")
		open = tr.count(db, "inbox WHERE state IN ('waiting', 'taken')")
		var body []byte
		for range tr.query(db, []any{&body}, "SELECT body FROM outbox WHERE state = 'sent'") {
			sent[outbound(tr.t, body).Text] = true
		}
	})
	for chat := range tr.ledger.said {
		seen[chat] = len(tr.platform.texts(chat))
	}
	if accepted == 0 || open == 0 {
		tr.t.Fatalf("the backup has %d messages, %d without an answer: it proves nothing",
			accepted, open)
	}
	p := tr.start()
	p.ready()
	tr.say(60)
	tr.await("all to be taken", func() bool { return tr.telegram.Pending() == 0 })
	tr.eventually("all to be answered", func(db *store.DB) bool {
		return tr.count(db, "outbox WHERE state IN ('waiting', 'sending')") == 0 &&
			tr.count(db, "turns WHERE state = 'running'") == 0 &&
			tr.count(db, "inbox WHERE state IN ('waiting', 'taken')") == 0
	})
	tr.stop(p)
	tr.look(func(db *store.DB) {
		if got := tr.count(db, "inbox WHERE state = 'done'"); got < accepted+60 {
			tr.t.Errorf("%d messages are answered, want at least %d", got, accepted+60)
		}
		for _, rows := range []string{"inbox WHERE state <> 'done'", "turns WHERE state <> 'done'",
			"outbox WHERE state <> 'sent'", "previews"} {
			if got := tr.count(db, rows); got != 0 {
				tr.t.Errorf("%s: %d rows, want none", rows, got)
			}
		}
		all := tr.deliveries(db)
		for chat := range tr.ledger.said {
			tr.checkRestored(db, chat, all[chat], sent, tr.platform.texts(chat)[seen[chat]:])
		}
	})
}

// checkRestored checks that each message of a chat in the database has one delivery as its
// answer, in order. Since the restore, people must have seen exactly the deliveries that are not
// marked as sent in the backup, each once.
func (tr *trial) checkRestored(
	db *store.DB, chat int64, all []delivery, sent map[string]bool, shown []string,
) {
	tr.t.Helper()
	var asked, answered, want []string
	var body []byte
	at := tr.platform.address(chat)
	for range tr.query(db, []any{&body}, "SELECT body FROM inbox "+
		"WHERE account = $1 AND chat = $2 ORDER BY id", at.Account, at.Chat) {
		var m bus.InboundMessage
		if err := json.Unmarshal(body, &m); err != nil {
			tr.t.Fatal(err)
		}
		asked = append(asked, marks(m.Text)...)
	}
	for _, d := range all {
		answered = append(answered, marks(d.text)...)
		if !sent[d.text] {
			want = append(want, d.text)
		}
	}
	if !slices.Equal(answered, asked) {
		tr.t.Errorf("chat %d: answered are\n%q, want\n%q", chat, answered, asked)
	}
	if !slices.Equal(shown, want) {
		tr.t.Errorf("chat %d has seen since\n%q, want\n%q", chat, shown, want)
	}
}

// TestRestoreRefused checks that a gateway does not start in a home with an unfinished restore,
// and that a restore refuses a home in which a gateway is running.
func TestRestoreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	p := w.start()
	p.ready()
	file := filepath.Join(t.TempDir(), "backup.tar.gz")
	if out, err := w.gateway("backup", file); err != nil {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	out, err := w.gateway("restore", "--force", file)
	if err == nil || !strings.Contains(out, "a gateway is running in") {
		t.Errorf("restore beside a gateway: %v\n%s", err, out)
	}
	p.kill()
	if out, err = w.gateway("restore", file); err == nil || !strings.Contains(out, "--force") {
		t.Errorf("restore over data: %v\n%s", err, out)
	}
	mark := filepath.Join(w.home, "restore-unfinished")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err = w.gateway("backup", "--force", file+".half")
	if err == nil || !strings.Contains(out, "restore FILE") {
		t.Errorf("backup of half a restore: %v\n%s", err, out)
	}
	p = w.start()
	if code := p.exited(patience); code != 1 || !strings.Contains(p.newest(), "restore FILE") {
		t.Errorf("start after half a restore: code %d\n%s", code, p.newest())
	}
	for range 2 {
		if out, err := w.gateway("restore", "--force", file); err != nil {
			t.Fatalf("restore by force: %v\n%s", err, out)
		}
	}
	w.start().ready()
	aside, err := filepath.Glob(filepath.Join(w.home, "before-restore-*", "gateway.db"))
	if err != nil || len(aside) != 2 {
		t.Errorf("moved aside are %q, %v; want two databases", aside, err)
	}
}

// TestBackupMemory checks that a restore brings back the documents with all versions, and the
// history without entries that the database does not contain.
func TestBackupMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{channel: quiet + "\nowners = [\"7\"]"})
	p := w.start()
	p.ready()
	w.telegram.Say(7, 7, "/remember tea is what I drink")
	w.await("the answer", func() bool { return len(w.texts(7)) > 0 })
	scope := filepath.Join(w.home, "memory", "person-1")
	if err := os.MkdirAll(scope, 0o700); err != nil {
		t.Fatal(err)
	}
	// A line that is not in the table was added after the table was copied.
	lines := `{"cursor":7,"time":"2026-01-02T03:04:05Z","session":"s","text":"later"}` +
		"\nby hand\nhalf"
	history := filepath.Join(scope, "history.jsonl")
	if err := os.WriteFile(history, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	repository := filepath.Join(w.home, "versions", "person-1.git")
	git := func(dir string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	if err := os.MkdirAll(repository, 0o700); err != nil {
		t.Fatal(err)
	}
	git(repository, "init", "--quiet", "--bare", "--template=")
	git(repository, "-c", "user.name=a", "-c", "user.email=a@b", "commit-tree", "-m", "empty",
		"4b825dc642cb6eb9a060e54bf8d69288fbee4904")
	file := filepath.Join(t.TempDir(), "backup.tar.gz")
	if out, err := w.gateway("backup", "--with-config", file); err != nil {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	p.kill()
	if err := os.RemoveAll(w.home); err != nil {
		t.Fatal(err)
	}
	// The configuration decides which programs run, so it is restored only on request.
	place := filepath.Join(w.home, "config.toml")
	out, err := w.gateway("restore", file)
	if err != nil || !strings.Contains(out, place+".restored and is not used") {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	if _, err := os.Stat(place); err == nil {
		t.Errorf("the configuration of the backup is used unasked")
	}
	if _, err := os.Stat(place + ".restored"); err != nil {
		t.Errorf("the configuration of the backup is not there to be looked at: %v", err)
	}
	if out, err := w.gateway("restore", "--force", "--with-config", file); err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	got, err := os.ReadFile(history)
	if err != nil || string(got) != "by hand\n" {
		t.Errorf("the history is %q, %v; want what a person wrote", got, err)
	}
	git(repository, "fsck", "--strict")
	w.start().ready()
	if _, err := os.Stat(filepath.Join(w.home, "config.toml")); err != nil {
		t.Errorf("no configuration: %v", err)
	}
}

// TestBackupBeforeUpgrade checks that the new gateway can make a backup before the upgrade, and
// that the backup contains the configuration named on the command line.
func TestBackupBeforeUpgrade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{channel: quiet})
	p := w.start()
	p.ready()
	p.kill()
	db, err := store.Open(t.Context(), filepath.Join(w.home, "gateway.db"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	older := func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE schema SET version = version - 1 WHERE package = $1",
			schedule.Migration.Package)
		return err
	}
	if err := errors.Join(db.Tx(t.Context(), older), db.Close()); err != nil {
		t.Fatal(err)
	}
	named := filepath.Join(storetest.Dir(t), "named.toml") // on the disk of the home, for os.Rename
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	if err := os.Rename(filepath.Join(w.home, "config.toml"), named); err != nil {
		t.Fatal(err)
	}
	out, err := w.gateway("backup", "--with-config", "-c", named, file)
	if err != nil {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	want, err := os.ReadFile(named)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(w.home); err != nil {
		t.Fatal(err)
	}
	if out, err = w.gateway("restore", "--with-config", "-c", named, file); err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	got, err := os.ReadFile(filepath.Join(w.home, "config.toml"))
	if err != nil || !bytes.Equal(got, want) || !strings.Contains(out, "this gateway reads") {
		t.Errorf("the configuration is %q, %v; want %q\n%s", got, err, want, out)
	}
	// A missing configuration is an error, so that nobody believes it is in the backup.
	out, err = w.gateway("backup", "--with-config", "-c", named+"x", file)
	if err == nil || !strings.Contains(out, "named.tomlx") {
		t.Errorf("backup without a configuration: %v\n%s", err, out)
	}
}

// TestRestoreOwner checks that root does not restore into the home of another user, who could not
// read the files.
func TestRestoreOwner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	w := newWorld(t, worldOptions{channel: quiet})
	p := w.start()
	p.ready()
	file := filepath.Join(t.TempDir(), "backup.tar.gz")
	if out, err := w.gateway("backup", file); err != nil {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	p.kill()
	database := filepath.Join(w.home, "gateway.db")
	for _, path := range []string{database, w.home} { // first with a database, then without one
		if err := os.Chown(path, 65534, -1); err != nil {
			t.Fatal(err)
		}
		out, err := w.gateway("restore", "--force", file)
		if err == nil || !strings.Contains(out, path+" belongs to user 65534") {
			t.Errorf("restore as root: %v\n%s", err, out)
		}
		if err := os.Remove(database); err != nil && path == database {
			t.Fatal(err)
		}
	}
	aside, err := filepath.Glob(filepath.Join(w.home, "*restore*"))
	if err != nil || len(aside) > 0 {
		t.Errorf("it has left %q, %v; want nothing", aside, err)
	}
}

// TestRootCommands checks that root writes no files into the home of another user, whose gateway
// could not read them.
func TestRootCommands(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	w := newWorld(t, worldOptions{channel: quiet})
	p := w.start()
	p.ready()
	p.kill()
	if err := os.Chown(filepath.Join(w.home, "gateway.db"), 65534, -1); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	for name, text := range map[string]string{"config.json": "{}", "SKILL.md": "---\nname: tea\n" +
		"description: Makes tea.\n---\nBoil water.", "workspace/memory/MEMORY.md": "likes tea"} {
		path := filepath.Join(other, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range [][]string{
		{"import", "nanobot", other, "--scope", "chat-telegram-7"},
		{"skills", "install", other},
		{"send", "telegram", "7", "hello", "--file", filepath.Join(other, "config.json")},
	} {
		out, err := w.gateway(command...)
		if err == nil || !strings.Contains(out, "sudo -u '#65534'") {
			t.Errorf("%s as root: %v\n%s", command[0], err, out)
		}
	}
	if out, err := w.gateway("import", "nanobot", other, "--scope", "chat-telegram-7",
		"--dry-run"); err != nil {
		t.Errorf("a dry run as root: %v\n%s", err, out)
	}
}
