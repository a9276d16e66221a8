//go:build amd64 || arm64

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gateway/agent/tools/shell/sandbox"
)

// TestEarly checks that two init functions run early enough: the supervisor of a command does not
// wait until the whole program is initialised, and the garbage collector does not run before the
// main function.
func TestEarly(t *testing.T) {
	t.Parallel()
	path, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	run := func(trace string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), path, args...)
		for _, entry := range os.Environ() {
			if !strings.HasPrefix(entry, "GOGC=") {
				cmd.Env = append(cmd.Env, entry)
			}
		}
		cmd.Env = append(cmd.Env, "GODEBUG="+trace)
		out, err := cmd.CombinedOutput()
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
			t.Fatal(err)
		}
		return string(out)
	}
	const database = "init modernc.org/sqlite "
	if out := run("inittrace=1", "version"); !strings.Contains(out, database) {
		t.Errorf("want a line %q in the trace of the program:\n%s", database, out)
	}
	out := run("inittrace=1", sandbox.Argument)
	if !strings.Contains(out, "for the gateway's own use") || strings.Contains(out, database) {
		t.Errorf("want the supervisor's usage and no line %q:\n%s", database, out)
	}
	if out := run("gctrace=1", "version"); !strings.HasPrefix(out, "gateway ") {
		t.Errorf("the garbage collector ran:\n%s", out)
	}
}
