package session

import "testing"

// A key and what its session is are two forms of the same.
func TestPlace(t *testing.T) {
	const chat = Key("telegram/-5/7")
	for _, tt := range []struct {
		key                Key
		want               Place
		parent, beside     Key
		background, worker bool // worker: it belongs to the conversation
	}{
		{chat, Place{Kind: Chat}, "", "", false, false},
		{SubKey(chat, "1-a"), Place{Task, "1-a", chat}, chat, "", false, true},
		{JobKey(chat, 3), Place{Job, "3", chat}, "", "", true, true},
		{HookKey(chat, "run-x"), Place{Hook, "run-x", chat}, "", "", true, true},
		{RunKey(chat, 3), Place{Run, "3", chat}, "", chat, true, true},
		{chat + "#@job--3", Place{Run, "3", chat}, "", chat, true, true},
		{SubKey(JobKey(chat, 3), "a"), Place{Task, "a", JobKey(chat, 3)}, JobKey(chat, 3), "", true,
			true},
		{SubKey(HookKey(chat, "x"), "a"), Place{Task, "a", HookKey(chat, "x")}, HookKey(chat, "x"), "",
			true, true},
		{SubKey(RunKey(chat, 3), "a"), Place{Task, "a", RunKey(chat, 3)}, RunKey(chat, 3), chat, true,
			true},
		{RunKey(JobKey(chat, 5), 3), Place{Run, "3", JobKey(chat, 5)}, "", JobKey(chat, 5), true, true},
		{chat + "8", Place{Kind: Chat}, "", "", false, false},
	} {
		if got := tt.key.Place(); got != tt.want {
			t.Errorf("%s is %+v, want %+v", tt.key, got, tt.want)
		}
		if got := tt.key.Parent(); got != tt.parent {
			t.Errorf("parent of %s = %q, want %q", tt.key, got, tt.parent)
		}
		if got := tt.key.Beside(); got != tt.beside {
			t.Errorf("%s works beside %q, want %q", tt.key, got, tt.beside)
		}
		if got := tt.key.Background(); got != tt.background {
			t.Errorf("%s is in the background: %t, want %t", tt.key, got, tt.background)
		}
		if got := tt.key.Below(chat); got != tt.worker {
			t.Errorf("%s is below %s: %t, want %t", tt.key, chat, got, tt.worker)
		}
	}
}
