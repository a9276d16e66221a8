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

// The messages of a turn are found even if an earlier turn has written since it began.
func TestTurnBehindEarlier(t *testing.T) {
	f := newFixture(t)
	first, second := f.begin(chat, "user: first"), f.begin(chat, "user: second")
	f.must(f.append(first, "assistant: one"))
	list, err := TurnMessages(f.read(), second)
	f.must(err)
	start, err := TurnStart(f.read(), second)
	f.must(err)
	newest, err := NewestMessage(f.read(), KeyOf(chat))
	f.must(err)
	if len(list) != 1 || list[0].Text != "user: second" || start != newest-1 {
		t.Errorf("the turn has %+v from %d on, want its message from %d on", list, start, newest-1)
	}
}

// The scope of a group is found without reading the sessions of other chats.
func TestGroupScopeByIndex(t *testing.T) {
	f := newFixture(t)
	p := &plantest.Plans{Queryer: f.read(), T: t}
	_, err := GroupScope(p, chat)
	f.must(err)
	p.WantNoScan()
}
