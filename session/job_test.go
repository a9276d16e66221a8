package session

import (
	"testing"

	"gateway/bus"
)

// A job's session works for nobody, and yet is found among what is below its conversation.
func TestJobKey(t *testing.T) {
	chat := KeyOf(bus.Address{Account: "tg", Chat: "-7", Thread: "3"})
	job := JobKey(chat, 12)
	sub := SubKey(job, "5-call")
	for _, test := range []struct{ key, want Key }{
		{chat, ""}, {SubKey(chat, "5-call"), chat}, {job, ""}, {sub, job}, {SubKey(sub, "6-c"), sub},
	} {
		if got := test.key.Parent(); got != test.want {
			t.Errorf("Parent of %q = %q, want %q", test.key, got, test.want)
		}
	}
	if job == SubKey(chat, "12") || job == JobKey(chat, 1) {
		t.Errorf("%q is the key of something else, too", job)
	}
}
