package store

import (
	"context"
	"path/filepath"
	"testing"
	"time"
)

// A new life reports how the one before it ended, and what that one was trying alone.
func TestLife(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	begin := func(crashed bool, suspect string) *Life {
		t.Helper()
		l, err := BeginLife(t.Context(), db, time.Now(), 2)
		if err != nil {
			t.Fatal(err)
		}
		if l.IsSuspect("delivery") != (crashed && suspect == "") || suspect != "" &&
			!l.IsSuspect(suspect) {
			t.Errorf("after a crash %t with %q it blames what else was under way, or not the suspect",
				crashed, suspect)
		}
		if l.Crashed != crashed || l.Suspect != suspect {
			t.Fatalf("it says crashed %t, suspect %q; want %t, %q",
				l.Crashed, l.Suspect, crashed, suspect)
		}
		return l
	}
	l := begin(false, "")
	if err := l.Try(t.Context(), "message 1", func() {}); err != nil {
		t.Fatal(err)
	}
	l = begin(true, "")
	if err := l.Try(t.Context(), "message 2", func() { begin(true, "message 2") }); err != nil {
		t.Fatal(err)
	}
	l = begin(true, "")
	if err := l.End(context.WithoutCancel(t.Context()), time.Now()); err != nil {
		t.Fatal(err)
	}
	begin(false, "")
}

// TrialsDone waits until each party has ended the trials of what it suspects.
func TestLifeTrialsDone(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	l, err := BeginLife(t.Context(), db, time.Now(), 2)
	if err != nil {
		t.Fatal(err)
	}
	l.EndTrials()
	select {
	case <-l.TrialsDone():
		t.Fatal("it is settled while one party still tries")
	default:
	}
	l.EndTrials()
	<-l.TrialsDone()
}
