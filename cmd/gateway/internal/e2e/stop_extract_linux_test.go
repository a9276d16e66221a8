package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gateway/agent/extract"
)

// TestStopWhileDecoding checks that /stop at once ends a turn whose file is being decoded, and
// its decoder process. The test suspends the decoder, so it would never end by itself. Later
// messages are answered.
func TestStopWhileDecoding(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: followOrders})
	w.configure(quiet)
	p := w.start()
	p.ready()
	missed := w.stopDecoder(p)
	w.telegram.Say(annID, annID, "/stop")
	w.await("the stop", func() bool { return heard(w, annID, "Stopped") })
	// This limit is far below the minute after which a decoder is killed in any case.
	ticks(t, "the end of the process", 30*time.Second, func() bool {
		return decoder(t, p.cmd.Process.Pid) == 0
	})
	w.telegram.Say(annID, annID, "are you there?")
	w.await("an answer", func() bool { return heard(w, annID, "are you there?") })
	if got := w.texts(annID); len(got) != missed+2 {
		t.Errorf("Ann reads %q, want the stop and one answer after %d answers", got, missed)
	}
}

// stopDecoder makes Ann send a file and suspends (SIGSTOP) the process that decodes it. It
// returns the number of files whose decoding ended before the test saw the process. That can
// happen on a busy machine.
func (w *world) stopDecoder(p *process) (missed int) {
	w.t.Helper()
	file := passesJPEG(w.t, 99)
	for {
		w.telegram.SayDocument(annID, annID, "", "slow.jpg", "image/jpeg", file)
		stopped := false
		ticks(w.t, "a process that decodes", patience, func() bool {
			child := decoder(w.t, p.cmd.Process.Pid)
			stopped = child != 0 && syscall.Kill(child, syscall.SIGSTOP) == nil
			return stopped || len(w.texts(annID)) > missed
		})
		if stopped {
			return missed
		}
		missed++
	}
}

// ticks polls cond until it is true, because no event announces the change.
func ticks(t testing.TB, what string, limit time.Duration, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}

// decoder returns the id of the process that decodes a file for a gateway, or 0.
func decoder(t testing.TB, gateway int) int {
	t.Helper()
	list, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", gateway))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range list {
		children, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for _, child := range strings.Fields(string(children)) {
			args, err := os.ReadFile("/proc/" + child + "/cmdline")
			pid, atoi := strconv.Atoi(child)
			if err == nil && atoi == nil && bytes.Contains(args, []byte(extract.Argument)) {
				return pid
			}
		}
	}
	return 0
}
