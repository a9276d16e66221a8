package spawn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gateway/agent/tool"
	"gateway/bus"
	"gateway/bus/bustest"
	"gateway/session"
	"gateway/store"
)

// A fixture has the tools and their database.
type fixture struct {
	*testing.T
	db      *store.DB
	in      *bus.Inbox
	tools   []tool.Tool
	now     time.Time
	working map[session.Key]bool // sub-agents that Stop can stop
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"),
		[]store.Migration{bus.Migration, session.Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &fixture{T: t, db: db, in: bus.NewInbox(), now: time.UnixMilli(1_000_000),
		working: make(map[session.Key]bool)}
	f.tools = Tools(Options{DB: db, Inbox: f.in, Now: func() time.Time { return f.now },
		Stop: func(_ context.Context, key session.Key) (bool, error) {
			defer delete(f.working, key)
			return f.working[key], nil
		}})
	return f
}

// call calls a tool with a call id. It returns the text for the model and what the turn waits
// for.
func (f *fixture) call(name, id, args string) (string, *tool.Wait) {
	f.Helper()
	i := 0
	for f.tools[i].Name != name {
		i++
	}
	r, err := f.tools[i].Run(f.Context(), tool.Call{ID: id, Turn: 3, Args: json.RawMessage(args),
		Session: bustest.Session("test/a"), Address: bus.Address{Account: "test", Chat: "a"},
		Role:   bus.User,
		Sender: bus.Sender{ID: "7"}, Person: 5, Group: true, Title: "Club"})
	if err != nil {
		return "Error: " + err.Error(), nil
	}
	if r.Commit == nil {
		return r.Text, r.Wait
	}
	text := ""
	err = f.db.Tx(f.Context(), func(tx *store.Tx) (err error) {
		text, err = r.Commit(tx)
		return err
	})
	if refused, ok := errors.AsType[*tool.RefusedError](err); ok {
		return "Refused: " + refused.Reason, nil
	}
	if err != nil {
		f.Fatal(err)
	}
	return text, r.Wait
}

func (f *fixture) tasks() []bus.TaskMessage {
	f.Helper()
	list, err := f.in.Tasks(f.db.Read(f.Context()), bustest.Session("test/a"))
	if err != nil {
		f.Fatal(err)
	}
	return list
}

// A task is a message to its own session. It has the account and the role of the person who asked
// for it.
func TestSpawn(t *testing.T) {
	for _, wait := range []bool{false, true} {
		f := newFixture(t)
		text, waits := f.call("spawn", "c1",
			fmt.Sprintf(`{"task":" look \n","label":"a\u202e\nlook","wait":%t}`, wait))
		if want := `The sub-agent "a look" (id 3-c1) works on it.`; !strings.HasPrefix(text, want) {
			t.Errorf("the model is told %q, want %q", text, want)
		}
		if (waits != nil) != wait || wait && (!waits.Outcome || waits.For != waitFor) {
			t.Errorf("the turn waits for %+v, want for the outcome: %t", waits, wait)
		}
		list := f.tasks()
		if len(list) != 1 {
			t.Fatalf("%d tasks were given, want one", len(list))
		}
		m := list[0].Message
		origin := bus.Origin{Kind: bus.Task, Label: "a look", Session: bustest.Session("test/a#3-c1"),
			Parent: bustest.Session("test/a")}
		if wait {
			origin.Call = "c1"
		}
		if !reflect.DeepEqual(m.Origin, origin) ||
			m.Text != "look" || m.Person != 5 || m.Role != bus.User || !m.Group ||
			m.Sender.ID != "7" || session.Of(m).Parent() != bustest.Session("test/a") {
			t.Errorf("the task is %+v with %+v, want %+v", m, m.Origin, origin)
		}
	}
}

func TestSpawnRefuses(t *testing.T) {
	f := newFixture(t)
	for _, test := range []struct{ args, want string }{
		{`{"task":" "}`, "Error: the task is empty"},
		{`{"task":"` + strings.Repeat("x", maxTask+1) + `"}`, "Error: the task is longer than"},
	} {
		if text, _ := f.call("spawn", "c", test.args); !strings.HasPrefix(text, test.want) {
			t.Errorf("the model is told %q, want %q", text, test.want)
		}
	}
	for i := range maxOpen {
		if text, _ := f.call("spawn", fmt.Sprint("c", i), `{"task":"x"}`); !strings.Contains(text,
			"works on it") {
			t.Fatalf("task %d: %q", i, text)
		}
	}
	if text, _ := f.call("spawn", "more", `{"task":"x"}`); !strings.HasPrefix(text,
		"Error: 32 sub-agents are open") {
		t.Errorf("the model is told %q, want that there are too many", text)
	}
}

// A provider chooses the id of a call. No id leads to another session, and a repeated id is
// refused.
func TestTaskID(t *testing.T) {
	for id, want := range map[string]string{
		"call_1": "3-call_1", "functions.spawn:0": "3-functions.spawn:0", "a#b": "3-a_b",
		"../x y\n": "3-.._x_y_",
	} {
		got := taskID(tool.Call{Turn: 3, ID: id})
		key := bustest.Session("test/a").OfTask(got)
		if read, err := bus.ParseSession(key.String()); got != want || read != key || err != nil {
			t.Errorf("the task of call %q is %q in %+v, %v, want %q", id, got, read, err, want)
		}
	}
	f := newFixture(t)
	f.call("spawn", "c1", `{"task":"x"}`)
	text, waits := f.call("spawn", "c1", `{"task":"y","wait":true}`)
	if want := "Refused: this task already exists"; text != want || waits != nil {
		t.Errorf("a second task of a call is told %q and waits for %v, want %q", text, waits, want)
	}
}

func TestSubagents(t *testing.T) {
	f := newFixture(t)
	if text, _ := f.call("subagents", "l", `{}`); text != "No sub-agents work or wait." {
		t.Errorf("the empty list is %q", text)
	}
	f.call("spawn", "c1", `{"task":"one"}`)
	f.call("spawn", "c2", `{"task":"two"}`)
	err := f.db.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := f.in.Claim(tx, f.tasks()[0].Seq, 9)
		if err == nil { // others may use such ids for messages that are not tasks of this session
			_, err = f.in.Put(tx, bus.InboundMessage{ID: "task:test/a:1-x"}, f.now)
		}
		if err == nil {
			_, err = f.in.Put(tx, bus.InboundMessage{ID: "task:test/a:b:1-x",
				Origin: bus.Origin{Kind: bus.Task, Parent: bustest.Session("test/a:b")}}, f.now)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(90 * time.Second)
	want := "- 3-c1 \"one\": works, since 1m30s\n- 3-c2 \"two\": waits for its turn, since 1m30s\n"
	if text, _ := f.call("subagents", "l", `{}`); text != want {
		t.Errorf("the list is %q, want %q", text, want)
	}
	f.working[bustest.Session("test/a#3-c2")] = true
	for _, want := range []string{"Stopped. No outcome of it will come.",
		`Error: no sub-agent with the id "3-c2" works; 2 do`} {
		if text, _ := f.call("subagents", "s", `{"stop":"3-c2"}`); text != want {
			t.Errorf("the model is told %q, want %q", text, want)
		}
	}
}
