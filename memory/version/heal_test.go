package version

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("git is not installed")
	}
}

// What a kill leaves behind holds up nobody.
func TestHeal(t *testing.T) {
	needGit(t)
	leave := map[string]func(h *history, git string) error{
		"locks": func(_ *history, git string) error {
			var err error
			for _, name := range []string{"index.lock", "HEAD.lock", "config.lock", "refs/heads/main.lock",
				"packed-refs.lock", "gc.pid"} {
				err = errors.Join(err, os.WriteFile(filepath.Join(git, name), nil, 0o600))
			}
			return err
		},
		"half of a new repository": func(_ *history, git string) error {
			return errors.Join(os.MkdirAll(git+".new/refs", 0o700),
				os.WriteFile(git+".new/HEAD", []byte("ref"), 0o600))
		},
		"objects that were not written to their end": func(h *history, git string) error {
			// The content that comes next, as if its writing had lost its power.
			out, err := exec.Command("git", "--git-dir="+git, "hash-object", "-w",
				filepath.Join(h.folder, "a")).Output()
			name := strings.TrimSpace(string(out))
			path := filepath.Join(git, "objects", name[:2], name[2:])
			return errors.Join(err, os.Chmod(path, 0o600), os.Truncate(path, 0),
				os.WriteFile(filepath.Join(git, "objects", name[:2], "tmp_obj_x"), nil, 0o600),
				os.WriteFile(filepath.Join(git, "gateway-writes"), nil, 0o600))
		},
	}
	for what, leave := range leave {
		t.Run(what, func(t *testing.T) {
			h := newHistory(t, "")
			h.write("a", "1\n")
			h.commit("x", "first")
			h.write("a", "2\n")
			if err := leave(h, h.path(".git")); err != nil {
				t.Fatal(err)
			}
			v := h.commit("x", "second")
			h.wantReasons("second", "first")
			f, err := h.find(t.Context(), v.ID)
			if err != nil || f.after["a"] != "2\n" {
				t.Errorf("the version has %q, %v", f.after, err)
			}
			wantSound(t, h.path(".git"))
		})
	}
}

func wantSound(t *testing.T, git string) {
	t.Helper()
	out, err := exec.Command("git", "--git-dir="+git, "fsck", "--full").CombinedOutput()
	if err != nil {
		t.Errorf("git fsck: %v\n%s", err, out)
	}
}

// TestKill ends git at many moments, and then begins anew as after a kill.
func TestKill(t *testing.T) {
	needGit(t)
	h := newHistory(t, "")
	killed := 0
	for i := range 40 {
		text := strings.Repeat("x\n", i+1)
		h.write("a", text)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
		c := Change{Author: "x", Reason: "r", ID: "c" + text[:1] + strings.Repeat("1", i)}
		_, err := h.Commit(ctx, c)
		cancel()
		if err != nil {
			killed++
		}
		if _, err := h.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if ok, err := h.Has(t.Context(), c.ID); !ok || err != nil {
			t.Errorf("after a kill at %d ms the change is there: %t, %v", i, ok, err)
		}
	}
	if killed == 0 {
		t.Error("nothing was killed; the test shows nothing")
	}
	list, err := h.Log(t.Context(), 0)
	if err != nil || len(list) != 40 {
		t.Errorf("there are %d versions, %v; want 40", len(list), err)
	}
	wantSound(t, h.path(".git"))
}

// A repository that can't be read any more is put aside, and the documents have a history again.
func TestDamaged(t *testing.T) {
	needGit(t)
	h := newHistory(t, "")
	h.write("a", "1\n")
	v := h.commit("x", "first")
	path := filepath.Join(h.path(".git"), "objects", v.ID[:2], v.ID[2:])
	err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte("junk"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	h.write("a", "2\n")
	// What it was before is not known, so that this is no change that could be undone.
	if v, err := h.Commit(t.Context(), Change{Author: "x"}); err != nil || v != (Version{}) {
		t.Errorf("Commit = %+v, %v", v, err)
	}
	h.write("a", "2\n3\n")
	h.commit("x", "third")
	h.wantReasons("third", startReason)
	aside, err := filepath.Glob(h.path(".git.damaged-*"))
	if err != nil || len(aside) != 1 {
		t.Errorf("put aside is %q, %v", aside, err)
	}
	list, err := h.Log(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := h.Undo(t.Context(), list[1].ID, Change{}); err == nil {
		t.Errorf("Undo of a beginning = %+v", v)
	}
	h.wantFile("a", "2\n3\n")
}

func TestPlainUnfinished(t *testing.T) {
	h := newHistory(t, "-")
	h.write("a", "1\n")
	h.commit("x", "first")
	half := filepath.Join(h.path(".versions"), unfinished+"2")
	if err := os.MkdirAll(filepath.Join(half, "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.wantReasons("first")
	h.write("a", "2\n")
	h.commit("x", "second")
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unfinished version is there: %v", err)
	}
	h.wantReasons("second", "first")
}

// Git comes, goes and comes again. No version loses what was made by the other kind.
func TestKindsChange(t *testing.T) {
	needGit(t)
	plain := newHistory(t, "-")
	git := openHistory(t, plain.dir, plain.folder, "")
	git.store.opts.Now, plain.store.opts.Now = sharedClock()
	plain.write("a", "1\n")
	first := plain.commit("x", "first")
	plain.write("a", "1\n2\n")
	plain.commit("x", "second")

	git.write("a", "1\n2\n3\n")
	third := git.commit("x", "third")
	git.wantReasons("third", startReason, "second", "first")
	got, err := git.Diff(t.Context(), third.ID)
	if want := "--- a/a\n+++ b/a\n@@ -1,2 +1,3 @@\n 1\n 2\n+3\n"; err != nil || got != want {
		t.Errorf("Diff = %q, %v; want %q", got, err, want)
	}
	if text, err := git.Show(t.Context(), first.ID); err != nil || !strings.Contains(text, "+1") {
		t.Errorf("Show of a plain version = %q, %v", text, err)
	}

	// Without git, what was before is not known, and so can't be undone.
	plain.write("a", "1\n2\n3\n4\n")
	if _, err := plain.Commit(t.Context(), Change{Reason: "fourth"}); err != nil {
		t.Fatal(err)
	}
	list, err := plain.Log(t.Context(), 1)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if v, err := plain.Undo(t.Context(), list[0].ID, Change{}); err == nil {
		t.Errorf("Undo of a beginning = %+v", v)
	}
	plain.write("a", "1\n2\n3\n4\n5\n")
	fifth := plain.commit("x", "fifth")

	for _, v := range []Version{first, third, fifth} {
		if _, err := git.Undo(t.Context(), v.ID, Change{Reason: "undone"}); err != nil {
			t.Fatal(err)
		}
	}
	git.wantFile("a", "2\n4\n")
}

// sharedClock returns a clock that goes on by a minute with each look, twice.
func sharedClock() (a, b func() time.Time) {
	now := time.Now().Add(-24 * time.Hour)
	tick := func() time.Time {
		now = now.Add(time.Minute)
		return now
	}
	return tick, tick
}

// TestConfined holds that git runs nothing but itself, whatever surrounds it.
func TestConfined(t *testing.T) {
	needGit(t)
	home := t.TempDir()
	trap := filepath.Join(t.TempDir(), "sprung")
	script := "#!/bin/sh\ntouch " + trap + "\n"
	hook := filepath.Join(home, "hook")
	config := "[core]\n\thooksPath = " + home + "\n\tfsmonitor = " + hook + "\n\tpager = " + hook +
		"\n[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = " + hook + "\n"
	var err error
	for _, name := range []string{"hook", "reference-transaction", "post-commit", "pre-commit"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(home, name), []byte(script), 0o700))
	}
	err = errors.Join(err, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(config), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("GIT_DIR", filepath.Join(home, "elsewhere"))
	t.Setenv("GIT_EXTERNAL_DIFF", hook)
	h := newHistory(t, "")
	h.write(".git/hooks/post-commit", script)
	h.write("a", "1\n")
	h.commit("x", "first")
	h.write("a", "2\n")
	second := h.commit("x", "second")
	if _, err := h.Undo(t.Context(), second.ID, Change{}); err != nil {
		t.Fatal(err)
	}
	h.wantFile("a", "1\n")
	if _, err := os.Stat(trap); err == nil {
		t.Error("something of the environment was run")
	}
}

// A history of years is packed, and stays readable.
func TestTidy(t *testing.T) {
	needGit(t)
	h := newHistory(t, "")
	h.write("a", "1\n")
	v := h.commit("x", "first")
	g := h.writer(nil).(*gitStore)
	if _, err := g.run(t.Context(), "", "gc", "--quiet"); err != nil {
		t.Fatal(err)
	}
	h.write("a", "2\n")
	h.commit("x", "second")
	h.wantReasons("second", "first")
	if f, err := h.find(t.Context(), v.ID); err != nil || f.after["a"] != "1\n" {
		t.Errorf("a packed version has %q, %v", f.after, err)
	}
}
