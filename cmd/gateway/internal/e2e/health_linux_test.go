package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gateway/store"
)

// TestReadyDisk checks that the gateway is not ready while the disk has too little space, even
// while writes wait. It continues when there is space again.
func TestReadyDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	if err := syscall.Mount("tmpfs", w.home, "tmpfs", 0, "size=96m,mode=700"); err != nil {
		t.Logf("no disk of its own can be made: %v", err) // mounting needs privileges
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(w.home, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	w.configure(quiet)
	o := w.operate(soonTroubled)
	o.healthy(w)
	filler := filepath.Join(w.home, "filler")
	if err := os.WriteFile(filler, bytes.Repeat([]byte("x"), 48<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	o.turns(w, "disk", false, "make room")
	o.turns(w, "store", true) // because some space is left
	if err := fillUp(filler); err != nil {
		t.Fatal(err)
	}
	o.turns(w, "store", false)
	w.wantRoom("doctor") // asks the running gateway
	w.telegram.Say(1, 1, "are you there?")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	o.healthy(w)
	w.await("an answer", func() bool { return w.telegram.SentCount(1) == 1 })
	o.process.stop() // it empties the log, so that even the first write needs space
	if err := os.WriteFile(filler, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := fillUp(filler); err != nil {
		t.Fatal(err)
	}
	w.wantRoom("doctor", "--offline")
	w.wantRoom("run")
}

// TestDatabaseDisk checks that the readiness and the metrics show a full disk of the database if
// the home is on another disk.
func TestDatabaseDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=32m,mode=700"); err != nil {
		t.Logf("no disk of its own can be made: %v", err) // mounting needs privileges
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	o := w.operate(soonTroubled, "GATEWAY_STORE__URL=sqlite:"+filepath.Join(disk, "gateway.db"))
	o.turns(w, "disk", false, "make room on the disk of "+disk)
	if n := o.series()["gateway_store_disk_free_bytes"]; n > 32<<20 {
		t.Errorf("%.0f bytes are free, want 32 MB at most", n)
	}
}

// wantRoom checks that a command on a full disk asks only for space. Restoring a backup or using
// another home would lose data.
func (w *world) wantRoom(args ...string) {
	w.t.Helper()
	out, err := w.gateway(args...)
	room := strings.Contains(out, "Make room") || strings.Contains(out, "Free some space")
	worse := strings.Contains(out, "gateway restore") || strings.Contains(out, "another folder")
	if err == nil || !room || worse {
		w.t.Errorf("on a full disk gateway %s ends with %v and says\n%s",
			strings.Join(args, " "), err, out)
	}
}

// TestReadySandbox checks that the gateway is not ready without a sandbox, and finds one that is
// installed later.
func TestReadySandbox(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("bwrap")
	if err != nil {
		t.Skip("bubblewrap is not installed")
	}
	w := newWorld(t, worldOptions{sandbox: "bubblewrap"})
	bin := t.TempDir()
	o := w.operate(soonTroubled, "PATH="+bin)
	o.turns(w, "sandbox", false, "bwrap", "bubblewrap")
	if err := os.Symlink(program, filepath.Join(bin, "bwrap")); err != nil {
		t.Fatal(err)
	}
	o.healthy(w)
}

// TestSandboxBreaks checks that a broken sandbox is noticed by a failing command or at the next
// test. Commands are refused until the sandbox works again, and the readiness shows it.
func TestSandboxBreaks(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("bwrap")
	if err != nil {
		t.Skip("bubblewrap is not installed")
	}
	w := newWorld(t, worldOptions{answer: followOrders, sandbox: "bubblewrap",
		channel: quiet + "\nowners = [7]"})
	w.model.Keep(100)
	bin := t.TempDir()
	broken := filepath.Join(bin, "broken")
	script := fmt.Sprintf("#!/bin/sh\n"+
		"if [ -e %s ]; then echo 'bwrap: no namespaces' >&2; exit 1; fi\n"+
		"exec %s \"$@\"\n", broken, program)
	if err := os.WriteFile(filepath.Join(bin, "bwrap"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	change := func(ok bool) {
		t.Helper()
		var err error
		if ok {
			err = os.Remove(broken)
		} else {
			err = os.WriteFile(broken, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	path := "PATH=" + bin + ":" + os.Getenv("PATH")
	run := func(want string) {
		t.Helper()
		if got := result(w.do(`exec {"command":"echo it runs"}`)); !strings.Contains(got, want) {
			t.Errorf("the result is %q, want %q", got, want)
		}
	}
	const noticed = "the sandbox does not work any more; commands are refused until it does: " +
		"see gateway doctor"
	for _, test := range []struct {
		name  string
		env   string
		fails bool   // a command fails and so detects the problem
		mode  string // auto must not choose a weaker sandbox
	}{
		{"by a command", "GATEWAY_TIME_SCALE=1", true, "bubblewrap"},
		{"by a command, auto", "GATEWAY_TIME_SCALE=1", true, "auto"},
		{"by itself", "GATEWAY_TIME_SCALE=1200", false, "auto"}, // ten minutes take half a second
	} {
		o := w.operate(path, test.env, "GATEWAY_EXEC__SANDBOX="+test.mode)
		o.healthy(w)
		run("it runs")
		change(false)
		if test.fails {
			run("commands can't run now")
		}
		o.turns(w, "sandbox", false, "no namespaces", "self-test")
		run("commands can't run now")
		o.says(noticed, 1)
		if n := o.logged(noticed); n != 1 {
			t.Errorf("%s: the log says it %d times, want once", test.name, n)
		}
		change(true)
		o.healthy(w)
		run("it runs")
		w.eventually("the answers to be noted", func(db *store.DB) bool {
			return w.count(db, "outbox WHERE state <> 'sent'") == 0 &&
				w.count(db, "turns WHERE state = 'running'") == 0
		})
		o.kill()
	}
}

// TestSandboxFailsOnce checks that one failed test, on a busy machine, does not select a weaker
// sandbox.
func TestSandboxFailsOnce(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("bwrap")
	if err != nil {
		t.Skip("bubblewrap is not installed")
	}
	w := newWorld(t, worldOptions{sandbox: "auto"})
	bin := t.TempDir()
	once, runs := filepath.Join(bin, "once"), filepath.Join(bin, "runs")
	script := fmt.Sprintf("#!/bin/sh\nif rm %s 2>/dev/null; then exit 1; fi\n"+
		"echo >>%s\nexec %s \"$@\"\n", once, runs, program)
	if err := os.WriteFile(filepath.Join(bin, "bwrap"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	o := w.operate("PATH="+bin+":"+os.Getenv("PATH"), "GATEWAY_TIME_SCALE=1200")
	o.healthy(w)
	if err := os.WriteFile(once, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.repeat("it to fail", func() bool {
		_, err := os.Stat(once)
		return errors.Is(err, fs.ErrNotExist)
	})
	count := func() int {
		content, err := os.ReadFile(runs)
		if err != nil {
			t.Fatal(err)
		}
		return len(content)
	}
	begin := count()
	w.repeat("it to be proven again", func() bool { return count() >= begin+4 }) // a test has 2 runs
	o.says("sandbox found", 1)
	if n := o.logged("sandbox found"); n != 1 {
		t.Errorf("a sandbox was found %d times, want once", n)
	}
}

// TestWithoutProc checks that the gateway runs and answers where /proc is not mounted, as in many
// chroots. There it has no sandbox, and says so.
func TestWithoutProc(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	program, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "gateway")
	text := "#!/bin/sh\nexec unshare -m sh -c 'mount -t tmpfs none /proc && exec " + program + "'\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Logf("no namespace can be made: %v %s", err, out) // it needs privileges
		return
	}
	w.startProgram(script).ready()
	w.wantReply(7, "are you there?", "are you there?")
}
