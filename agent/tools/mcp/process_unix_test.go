//go:build unix

package mcp

import (
	"context"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

func pid(t *testing.T, s Server, mode string) int {
	t.Helper()
	n, err := strconv.Atoi(number(t, s, mode+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// lives reports whether a process exists and is not a zombie.
func lives(t *testing.T, pid int) bool {
	t.Helper()
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !zombie(string(stat))
}

func zombie(stat string) bool {
	for i := len(stat) - 1; i > 1; i-- {
		if stat[i-1] == ')' {
			return len(stat) > i+1 && stat[i+1] == 'Z'
		}
	}
	return false
}

// The processes that a server has started end with the server.
func TestWrapper(t *testing.T) {
	t.Parallel()
	s := self(t, "s", "child")
	c, box := run(t, &Options{grace: 10 * time.Millisecond}, s)
	awaitState(t, c, Connected)
	if got, err := box.call(t, "mcp_s_echo", "text", "x"); err != nil || got.Text != "x" {
		t.Errorf("echo = %q, %v", got.Text, err)
	}
	wrapper, child := pid(t, s, "child"), pid(t, s, "normal")
	if !lives(t, child) || wrapper == child {
		t.Fatalf("the server is process %d in %d, and not there", child, wrapper)
	}
	if err := syscall.Kill(wrapper, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the wrapper's child", func() bool { return !lives(t, child) })
	await(t, "the new wrapper", func() bool { return number(t, s, "starts") == "4" })
}

// When Run returns, no process of a server is left, even if a server ignores signals.
func TestNothingLeft(t *testing.T) {
	t.Parallel()
	deaf, good, litter := self(t, "a", "deaf"), self(t, "b", "normal"), self(t, "c", "litter")
	c := New([]Server{deaf, good, litter}, &Options{grace: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	await(t, "the servers", func() bool {
		list := c.States()
		return list[1].State == Connected && list[2].State == Connected &&
			number(t, deaf, "deaf.pid") != "" && number(t, litter, "deaf.pid") != ""
	})
	cancel()
	<-done
	for what, pid := range map[string]int{"deaf": pid(t, deaf, "deaf"), "good": pid(t, good, "normal"),
		"littering": pid(t, litter, "litter"), "left": pid(t, litter, "deaf")} {
		await(t, "the end of the "+what+" one", func() bool { return !lives(t, pid) })
	}
}
