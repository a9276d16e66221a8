//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	// The log has a line about this. Another line may have ended the gateway before.
	_ = cmd.Process.Signal(syscall.SIGHUP)
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

// TestBackupLost checks that a backup to standard output leaves nothing in the home if the program
// that reads it ends, as ssh in "gateway backup - | ssh …" after an outage.
func TestBackupLost(t *testing.T) {
	t.Parallel()
	path, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, worldOptions{})
	p := w.start()
	p.ready()
	const size = 1 << 20 // more than a pipe holds, and it can't be compressed
	random, err := io.ReadAll(io.LimitReader(rand.Reader, size))
	if err == nil {
		err = os.WriteFile(filepath.Join(w.home, "workspace", "big"), random, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "backup", "-")
	var said bytes.Buffer
	cmd.Env, cmd.Stderr = w.environ(), &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = io.ReadFull(out, make([]byte, 100))
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // ProcessState has the outcome
	if code := cmd.ProcessState.ExitCode(); code != 1 ||
		!strings.Contains(said.String(), "no backup was made") {
		t.Errorf("the backup ends with %v and says %q", cmd.ProcessState, &said)
	}
	if left, err := filepath.Glob(filepath.Join(w.home, ".gateway-backup-*")); len(left) > 0 {
		t.Errorf("it has left %q, %v", left, err)
	}
}
