//go:build unix

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/store"
)

// bossID is the owner. The owner writes to the gateway in addition to the people of a trial.
const bossID = 7001

const (
	restarting = "Restarting. Open work continues afterwards; I tell you here when I am back."
	backAgain  = "I am back: gateway "
)

// TestRestart checks that /restart restarts the gateway in the same process while people talk to
// it, several times. Each message of the people is answered once. Each /restart gets two
// messages, before and after the restart.
func TestRestart(t *testing.T) {
	t.Parallel()
	tr := newTrial(t, 40)
	tr.configure(quiet + fmt.Sprintf("\nowners = [\"%d\"]", bossID))
	p := tr.start()
	p.ready()
	const times = 4
	for i := range times {
		tr.say(30)
		tr.telegram.Say(bossID, bossID, "/restart")
		tr.say(30)
		p.says("gateway ready", i+2)
		tr.say(10)
		tr.await("the end of the restart", func() bool { return len(tr.texts(bossID)) == 2*(i+1) })
	}
	if n := p.logged("gateway stopped"); n != times {
		t.Errorf("the gateway has stopped %d times, want %d", n, times)
	}
	var told []string
	for _, text := range tr.texts(bossID) {
		if strings.HasPrefix(text, backAgain) {
			text = backAgain
		}
		told = append(told, text)
	}
	want := slices.Repeat([]string{restarting, backAgain}, times)
	if !slices.Equal(told, want) {
		t.Errorf("the owner was told %q, want %q", told, want)
	}
	tr.ledger.await(t, 0, p.done)
	tr.stop(p) // p is still the same process
}

// TestRestartOfSeveral checks that several people who send /restart at the same time all get the
// messages about the restart and its end, and that nobody is told that it failed.
func TestRestartOfSeveral(t *testing.T) {
	t.Parallel()
	people := []int64{annID, bobID, bossID}
	w := newWorld(t, worldOptions{answer: repeat, channel: quiet +
		fmt.Sprintf("\nowners = [\"%d\", \"%d\", \"%d\"]", annID, bobID, bossID)})
	p := w.start()
	p.ready()
	for _, id := range people {
		w.telegram.Say(id, id, "/restart")
	}
	for _, id := range people {
		w.await("the end", func() bool { return len(w.texts(id)) == 2 })
	}
	for _, id := range people {
		w.wantReply(id, "hello", "hello")
		texts := w.texts(id)
		if texts[0] != restarting || !strings.HasPrefix(texts[1], backAgain) || len(texts) != 3 {
			t.Errorf("%d was told %q", id, texts)
		}
	}
	p.stop()
}

// TestRestartKilled checks that a gateway which was killed during a restart reports at the next
// start, and only once, that it is back.
func TestRestartKilled(t *testing.T) {
	t.Parallel()
	h := newHold()
	defer h.release()
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		h.wait()
		return repeat(r)
	}, channel: quiet + "\nowners = [\"7\"]"})
	p := w.start()
	p.ready()
	w.telegram.Say(bobID, bobID, "hello") // the open answer delays the restart
	until(t, "the model to be asked", h.reached)
	w.wantReply(annID, "/restart", restarting)
	w.eventually("what was told is noted as sent", func(db *store.DB) bool {
		return w.count(db, "outbox WHERE state IN ('waiting', 'sending')") == 0
	})
	p.kill()
	h.release()
	for range 2 {
		p = w.start()
		p.ready()
		w.await("the end", func() bool { return len(w.texts(annID)) == 2 })
		w.await("the answer", func() bool { return heard(w, bobID, "hello") })
		p.stop()
	}
	if texts := w.texts(annID); !strings.HasPrefix(texts[1], backAgain) || len(texts) != 2 {
		t.Errorf("the owner was told %q", texts)
	}
}

// TestRestartProgram checks that the gateway keeps running if its program can't be started again,
// and that a restart starts the new program if the file was replaced.
func TestRestartProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat, channel: quiet + "\nowners = [\"7\"]"})
	binary, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "gateway")
	install := func(text []byte) {
		t.Helper()
		// A process that another test starts could inherit the open file for a moment. The system
		// refuses to run a program that is open for writing.
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		if err := os.WriteFile(program+".new", text, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(program+".new", program); err != nil {
			t.Fatal(err)
		}
	}
	real, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	install(real)
	p := w.startProgram(program)
	p.ready()
	install([]byte("no program"))
	w.wantReply(annID, "/restart", "My program can't be started any more")
	lingers := filepath.Join(t.TempDir(), "lingers")
	if err := os.WriteFile(lingers, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	install(fmt.Appendf(nil, "#!/bin/sh\nwhile [ -e %s ]; do sleep 0.1; done &\n", lingers))
	w.wantReply(annID, "/restart", "My program can't be started any more") // without a delay
	w.wantReply(annID, "hello", "hello")
	install(real)
	w.configure(quiet + "\nowners = [\"7\"]\nnonsense = 1")
	p.says(notReloaded, 1)
	w.wantReply(annID, "/restart", "The configuration has mistakes")
	w.configure(quiet + "\nowners = [\"7\"]")
	install([]byte("#!/bin/sh\nexec " + binary + " \"$@\"\n"))
	w.wantReply(annID, "/restart", restarting)
	p.says("gateway ready", 2)
	w.await("the end", func() bool { return heard(w, annID, backAgain) })
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.cmd.Process.Pid))
	if err == nil && link != binary { // only systems with /proc have this link
		t.Errorf("the process runs %s, want the new program", link)
	}
	p.stop()
}
