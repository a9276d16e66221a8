package skills

import "testing"

func makePipe(t *testing.T, _ string) {
	t.Helper()
	t.Skip("no pipes")
}
