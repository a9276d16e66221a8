package e2e

import (
	"bytes"
	"os"
	"slices"
	"syscall"
	"testing"

	"gateway/agent/llm/openai/openaitest"
)

// TestFullDisk checks that turns continue if the disk of the memory files is full. A warning is
// logged, nothing is lost, and the files are written once there is space again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := newEditWorld(t)
	dir := s.own(".")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		// Mounting needs privileges. TestFolderForHistory checks the same without them.
		t.Logf("no disk of its own can be made: %v", err)
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s.fill(dir)
	p := s.start()
	p.ready()
	s.makeNotes()
	s.turn("are you there?")
	p.says("history could not be written to its file", 1)
	s.set(func() {
		s.analyse = openaitest.Say("[MEMORY] has roses")
		s.edit = calls("", "- has roses")
	})
	s.tell("/dream", "That has not worked yet")
	if table, dreamed, file := s.entries(); len(table) != 1 || dreamed != 0 || len(file) != 0 {
		t.Errorf("%d entries, %d in the file, %d read by Dream; the disk is not full", len(table),
			len(file), dreamed)
	}
	if got := s.read(s.own("MEMORY.md")); got != "" {
		t.Errorf("MEMORY.md = %q on a full disk", got)
	}
	p.kill()
	if err := os.Remove(s.own("filler")); err != nil {
		t.Fatal(err)
	}
	s.due()
	p = s.start()
	p.ready()
	s.rest()
	s.checkCaughtUp("- has roses\n")
	p.kill()
}

// fill writes a file until the disk of dir is full.
func (s *editWorld) fill(dir string) {
	s.t.Helper()
	f, err := os.Create(s.own("filler"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	for size := 4096; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(bytes.Repeat([]byte("x"), size))
		}
	}
	// A full disk can still have space for the name of a new file, so try to write a byte, too.
	if err := os.WriteFile(s.own("probe"), []byte("x"), 0o600); err == nil {
		s.t.Fatalf("there is still room in %s", dir)
	}
	if err := os.Remove(s.own("probe")); err != nil {
		s.t.Fatal(err)
	}
}

// checkCaughtUp checks that the files contain the rows of the table, and that Dream has ended its
// run.
func (s *editWorld) checkCaughtUp(document string) {
	s.t.Helper()
	table, dreamed, file := s.entries()
	var want []string
	for _, e := range table {
		want = append(want, e.Text)
	}
	if len(want) == 0 || !slices.Equal(file, want) || dreamed != int64(len(want)) {
		s.t.Errorf("history.jsonl has %q, want %q; Dream has read up to %d", file, want, dreamed)
	}
	if got := s.read(s.own("MEMORY.md")); got != document {
		s.t.Errorf("MEMORY.md = %q, want %q", got, document)
	}
}

// TestFolderForHistory checks that a folder in the place of the history file blocks nothing.
func TestFolderForHistory(t *testing.T) {
	t.Parallel()
	s := newEditWorld(t)
	if err := os.MkdirAll(s.own("history.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := s.start()
	p.ready()
	s.makeNotes()
	s.turn("are you there?")
	p.says("history could not be written to its file", 1)
	p.kill()
	if err := os.Remove(s.own("history.jsonl")); err != nil {
		t.Fatal(err)
	}
	p = s.start()
	p.ready()
	s.makeNotes()
	s.set(func() {
		s.analyse = openaitest.Say("[MEMORY] has roses")
		s.edit = calls("", "- has roses")
	})
	s.tell("/dream", "I have changed my memory")
	s.rest()
	s.checkCaughtUp("- has roses\n")
	p.kill()
}
