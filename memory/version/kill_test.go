package version

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKilledProcess kills a process that commits changes, at several moments. It checks that each
// change that the process has reported is there once, and that the next process can continue.
func TestKilledProcess(t *testing.T) {
	if dir := os.Getenv("GATEWAY_TEST_VERSIONS"); dir != "" {
		commitForever(t, dir)
		return
	}
	dir := t.TempDir()
	told := 0
	for i := range 8 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledProcess$")
		cmd.Env = append(os.Environ(), "GATEWAY_TEST_VERSIONS="+dir)
		out := firstWrite{told: make(chan struct{})}
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		if i%2 == 0 { // otherwise it is killed while it starts, on a busy machine
			select {
			case <-out.told:
			case err := <-ended:
				t.Fatalf("the process ended by itself: %v\n%s", err, out.String())
			}
		}
		kill := time.AfterFunc(time.Duration(40+29*i)*time.Millisecond, func() {
			_ = cmd.Process.Kill() // the process may have ended already, which shows below
		})
		err := <-ended
		kill.Stop()
		if err == nil || strings.Contains(out.String(), "FAIL") {
			t.Fatalf("the process ended by itself: %v\n%s", err, out.String())
		}
		told += strings.Count(out.String(), "committed ")
		wantAll(t, dir, out.String())
	}
	if told == 0 {
		t.Error("nothing was committed before a kill; the test shows nothing")
	}
}

// A firstWrite is a writer in memory. It closes told at the first write.
type firstWrite struct {
	strings.Builder
	told chan struct{}
}

func (w *firstWrite) Write(p []byte) (int, error) {
	if w.Len() == 0 {
		close(w.told)
	}
	return w.Builder.Write(p)
}

// commitForever commits numbered changes. It begins with the first number that is missing.
func commitForever(t *testing.T, dir string) {
	h := openHistory(t, dir, filepath.Join(dir, "memory"), false)
	list, err := h.Log(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for n := len(list); ; n++ {
		h.write("MEMORY.md", strings.Repeat(fmt.Sprintln("line", n), 50))
		h.write("skills/x/SKILL.md", fmt.Sprintln("skill", n))
		v, err := h.Commit(t.Context(), Change{Author: "Dream", ID: fmt.Sprint("c", n)})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("committed %d %s\n", n, v.ID)
	}
}

// wantAll checks that each change is there once and complete, and that no reported change is
// missing.
func wantAll(t *testing.T, dir, told string) {
	t.Helper()
	h := openHistory(t, dir, filepath.Join(dir, "memory"), false)
	// Like a new process, it first records changes that were not recorded.
	if _, err := h.Commit(t.Context(), Change{Reason: "after a kill"}); err != nil {
		t.Fatal(err)
	}
	list, err := h.Log(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, v := range list {
		if v.Change != "" && seen[v.Change] {
			t.Errorf("%s is there twice", v.Change)
		}
		seen[v.Change] = true
	}
	for line := range strings.Lines(told) {
		var n int
		var id string
		if _, err := fmt.Sscanf(line, "committed %d %s", &n, &id); err != nil || id == "" {
			continue
		}
		if !seen[fmt.Sprint("c", n)] {
			t.Errorf("c%d was told of and is gone", n)
		}
		f, err := h.find(t.Context(), id)
		if err != nil || f.after["skills/x/SKILL.md"] != fmt.Sprintln("skill", n) ||
			f.after["MEMORY.md"] != strings.Repeat(fmt.Sprintln("line", n), 50) {
			t.Errorf("version %d is %.60q, %v", n, f.after, err)
		}
	}
	if err := h.store.db.Close(); err != nil { // for the next process
		t.Fatal(err)
	}
}
