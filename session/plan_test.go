package session

import (
	"strings"
	"testing"

	"gateway/store/plantest"
)

// A search in one session does not read the messages of others. A search in all reads the newest
// first.
func TestSearchByIndex(t *testing.T) {
	f := newFixture(t)
	for name, want := range map[string]string{
		KeyOf(chat).String(): "SEARCH m USING INDEX messages_session (session=?)", "": "SCAN m",
	} {
		p := &plantest.Plans{Queryer: f.read(), T: t}
		_, err := Search(p, "zanzibar", name, 10)
		f.must(err)
		if !strings.Contains(p.Seen[0], want) || strings.Contains(p.Seen[0], "TEMP B-TREE") {
			t.Errorf("the plan of a search in %q is %q, want %s without sorting", name, p.Seen[0], want)
		}
	}
}
