package files

import (
	"os"
	"testing"

	"gateway/agent/tool"
)

// Files in which the system describes the gateway itself are not read, even if a tree contains
// them.
func TestProc(t *testing.T) {
	if _, err := os.Stat("/proc/version"); err != nil {
		t.Skip("there is no /proc here")
	}
	w := New(Options{Workspace: openRoot(t, "/proc"), Path: "/proc"})
	for _, name := range []string{"version", "self/environ", "thread-self/maps"} {
		_, err := w.Open(tool.Call{}, name)
		wantError(t, err, "part of the system")
	}
	_, err := w.browser.listDir(t.Context(), tool.Call{}, listArgs{Path: "self"})
	wantError(t, err, "part of the system")
	r, err := w.browser.grep(t.Context(), tool.Call{}, grepArgs{Pattern: "."})
	if err != nil || r.Text != "(nothing matches the pattern)\n\n(1 directories could not be read)" {
		t.Errorf("grep = %q, %v", r.Text, err)
	}
}
