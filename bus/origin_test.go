package bus

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// The origin of a turn decides what the turn may do.
func TestOrigin(t *testing.T) {
	for _, tt := range []struct {
		origin                                     Origin
		interactive, standalone, proactive, silent bool
	}{
		{Origin{}, true, false, false, false},
		{Origin{Kind: Task, Session: named("x/a#1")}, false, false, false, false},
		{Origin{Kind: Task, Session: named("x/a#1"), Background: true}, false, false, true, false},
		{Origin{Kind: Outcome, Session: named("x/a")}, true, false, false, false},
		{Origin{Kind: Outcome, Session: named("x/a"), Background: true}, true, false, true, false},
		{Origin{Kind: Job}, false, true, true, false},
		{Origin{Kind: Job, Session: named("x/a#@job-1")}, false, true, true, true},
		{Origin{Kind: Job, Session: named("x/a#@job-1"), Reminder: true}, false, true, true, false},
		{Origin{Kind: Heartbeat, Session: named("x/a#@job-2")}, false, true, true, true},
		{Origin{Kind: Hook}, false, true, true, false},
		{Origin{Kind: Hook, Session: named("x/a#@hook-h")}, false, true, true, true},
	} {
		o := tt.origin
		if o.Interactive() != tt.interactive || o.Standalone() != tt.standalone ||
			o.Proactive() != tt.proactive || o.MayBeSilent() != tt.silent {
			t.Errorf("%+v is interactive %t, standalone %t, proactive %t, may be silent %t", o,
				o.Interactive(), o.Standalone(), o.Proactive(), o.MayBeSilent())
		}
	}
	if got := (&Origin{Kind: Outcome, Budget: 3}).BudgetTurn(5); got != 3 {
		t.Errorf("turn %d pays for an outcome's sub-agents, want 3", got)
	}
	if got := new(Origin).BudgetTurn(5); got != 5 {
		t.Errorf("turn %d pays for the sub-agents of turn 5, want itself", got)
	}
}

// The JSON of a person's message has no origin. The JSON of any other message has all fields of
// its origin.
func TestOriginInJSON(t *testing.T) {
	body, err := json.Marshal(InboundMessage{ID: "1"})
	if err != nil || strings.Contains(string(body), "origin") {
		t.Errorf("the message of a person is %s, %v", body, err)
	}
	want := Origin{Kind: Task, Label: "l", Session: named("x/s"), Parent: named("x/p"),
		Call: "c", Background: true,
		Budget: 2, Foreign: "f", Run: 3, Reminder: true}
	var got InboundMessage
	if body, err = json.Marshal(InboundMessage{Origin: want}); err == nil {
		err = json.Unmarshal(body, &got)
	}
	if err != nil || !reflect.DeepEqual(got.Origin, want) {
		t.Errorf("the origin is %+v, %v; want %+v", got.Origin, err, want)
	}
}
