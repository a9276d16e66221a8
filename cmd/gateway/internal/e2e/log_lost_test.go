//go:build unix

package e2e

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"gateway/store"
)

// TestLogLost checks that a gateway ends in order if the program that reads its log ends, as
// "gateway 2>&1 | logger" when logger is killed, or under systemd without its journal. The exit
// code makes systemd start it again.
func TestLogLost(t *testing.T) {
	t.Parallel()
	path, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, worldOptions{})
	cmd := exec.Command(path)
	cmd.Env = w.environ()
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, unless the test fails
	lines := bufio.NewScanner(log)
	for lines.Scan() && !strings.Contains(lines.Text(), `"gateway ready"`) {
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	// The log has a line about this.
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	until(t, "the end of the gateway", ended)
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("without a reader of its log the gateway ends with %v, want exit code 1",
			cmd.ProcessState)
	}
	w.look(func(db *store.DB) {
		if n := w.count(db, "lives WHERE ended_ms = 0"); n > 0 {
			t.Error("the next start takes that for a crash")
		}
	})
}
