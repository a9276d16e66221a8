package session

import (
	"encoding/json"
	"testing"

	"gateway/bus"
)

// The name and the JSON of a key can be read back, and the key knows its parent session.
func TestKey(t *testing.T) {
	chat := KeyOf(bus.Address{Account: "telegram", Chat: "-5", Thread: "7"})
	hash := KeyOf(bus.Address{Account: "telegram", Chat: "-5", Thread: "#7"})
	member := Key{Conversation: chat.Conversation, Speaker: "49@lid"}
	person := Key{Person: 12}
	none := Key{}
	for _, tt := range []struct {
		key                Key
		name               string
		parent             Key
		background, worker bool // worker: it descends from chat
	}{
		{chat, "telegram/-5/7", none, false, false},
		{hash, "telegram/-5/#7", none, false, false},
		{hash.OfTask("1"), "telegram/-5/#7#1", hash, false, false},
		{chat.OfTask("1-a"), "telegram/-5/7#1-a", chat, false, true},
		{chat.OfJob(3), "telegram/-5/7#@job-3", none, true, true},
		{chat.OfHook("run-x"), "telegram/-5/7#@hook-run-x", none, true, true},
		{chat.OfRun(3), "telegram/-5/7#@run-3", none, true, true},
		{chat.OfJob(3).OfTask("a"), "telegram/-5/7#@job-3#a", chat.OfJob(3), true, true},
		{chat.OfHook("x").OfTask("a"), "telegram/-5/7#@hook-x#a", chat.OfHook("x"), true, true},
		{chat.OfRun(3).OfTask("a"), "telegram/-5/7#@run-3#a", chat.OfRun(3), true, true},
		{chat.OfJob(5).OfRun(3), "telegram/-5/7#@job-5#@run-3", none, true, true},
		{member, "telegram/-5/7#@speaker-49@lid", none, false, false},
		{member.OfTask("a"), "telegram/-5/7#@speaker-49@lid#a", member, false, false},
		{member.OfRun(3), "telegram/-5/7#@speaker-49@lid#@run-3", none, true, false},
		{person, "@person-12", none, false, false},
		{person.OfTask("a"), "@person-12#a", person, false, false},
		{KeyOf(bus.Address{Account: "telegram", Chat: "-5", Thread: "78"}), "telegram/-5/78", none,
			false, false},
	} {
		if got := tt.key.String(); got != tt.name {
			t.Errorf("%+v is named %s, want %s", tt.key, got, tt.name)
		}
		if got, err := bus.ParseSession(tt.name); got != tt.key || err != nil {
			t.Errorf("%s is %+v, %v; want %+v", tt.name, got, err, tt.key)
		}
		var got Key
		body, err := json.Marshal(tt.key)
		if err == nil {
			err = json.Unmarshal(body, &got)
		}
		if got != tt.key || err != nil {
			t.Errorf("%s is %+v, %v; want %+v", body, got, err, tt.key)
		}
		if got := tt.key.Parent(); got != tt.parent {
			t.Errorf("parent of %s = %q, want %q", tt.key, got, tt.parent)
		}
		if got := tt.key.Background(); got != tt.background {
			t.Errorf("%s is in the background: %t, want %t", tt.key, got, tt.background)
		}
		if got := tt.key.IsDescendantOf(chat); got != tt.worker {
			t.Errorf("%s is below %s: %t, want %t", tt.key, chat, got, tt.worker)
		}
	}
	if run := chat.OfJob(5).OfRun(3); !run.OfTask("a").IsDescendantOf(run) ||
		!run.OfTask("a").IsDescendantOf(chat.OfJob(5)) || run.IsDescendantOf(chat.OfJob(6)) ||
		run.IsDescendantOf(run) {
		t.Errorf("what is below %s is wrong", run)
	}
}

// Older versions wrote the names of sessions into the JSON of messages, and named a run like a
// job. Such names can still be read.
func TestOldKeys(t *testing.T) {
	chat := KeyOf(bus.Address{Account: "test", Chat: "a"})
	for text, want := range map[string]Key{
		`"test/a"`: chat, `""`: {}, `"test/a#1-c"`: chat.OfTask("1-c"),
		`"test/a#@job--12"`:        chat.OfRun(12),
		`"test/a#@job-7#@job--13"`: chat.OfJob(7).OfRun(13),
	} {
		var got Key
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, name := range []string{"test", "/a", "test/", "test/a#@job-x", "", "@person-x"} {
		if got, err := bus.ParseSession(name); err == nil {
			t.Errorf("%q is %+v, want an error", name, got)
		}
	}
}
