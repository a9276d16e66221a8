package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// While there is little room on the disk the gateway is not ready, also if writes wait for room;
// with room all goes on.
func TestReadyDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	if err := syscall.Mount("tmpfs", w.home, "tmpfs", 0, "size=96m,mode=700"); err != nil {
		t.Logf("no disk of its own can be made: %v", err) // it takes privileges
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(w.home, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	w.configure(quiet)
	o := w.operate()
	o.healthy(w)
	filler := filepath.Join(w.home, "filler")
	if err := os.WriteFile(filler, bytes.Repeat([]byte("x"), 48<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	o.turns(w, "disk", false)
	if r, _ := o.check("store"); !r.OK {
		t.Errorf("store: %+v, want it well while there is some room", r)
	}
	if err := fillUp(filler); err != nil {
		t.Fatal(err)
	}
	o.turns(w, "store", false)
	w.telegram.Say(1, 1, "are you there?")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	o.healthy(w)
	w.await("an answer", func() bool { return w.telegram.SentCount(1) == 1 })
}

// fillUp makes a file larger until its disk is full.
func fillUp(path string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
	}
	return nil
}

// Without a sandbox the gateway is not ready; once one is installed it finds it by itself.
func TestReadySandbox(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("bwrap")
	if err != nil {
		t.Skip("bubblewrap is not installed")
	}
	w := newWorld(t, worldOptions{sandbox: "bubblewrap"})
	bin := t.TempDir()
	o := w.operate("PATH=" + bin)
	r := o.turns(w, "sandbox", false)
	if r.State == "" || r.State == "being tested" {
		w.repeat("the self-test to fail", func() bool {
			r, _ := o.check("sandbox")
			return !r.OK && r.State != "being tested"
		})
	}
	if err := os.Symlink(program, filepath.Join(bin, "bwrap")); err != nil {
		t.Fatal(err)
	}
	o.healthy(w)
}
