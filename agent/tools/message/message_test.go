package message

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/tool"
	"gateway/bus"
	"gateway/bus/bustest"
	"gateway/session"
	"gateway/store"
)

var named = bustest.Session

// A fixture has the tool, a database with two conversations and a folder with a file.
type fixture struct {
	*testing.T
	db   *store.DB
	out  *bus.Outbox
	tool tool.Tool
	kept []string // stored files, each as "conversation: name: content"
}

func at(chat string) bus.Address { return bus.Address{Account: "test", Chat: chat} }

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), filepath.Join(dir, "m.db"),
		[]store.Migration{bus.Migration, session.Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &fixture{T: t, db: db, out: bus.NewOutbox()}
	f.tool = New(Options{DB: db, Outbox: f.out, Now: time.Now,
		Open: func(_ tool.Call, name string) (*os.File, error) {
			return os.Open(filepath.Join(dir, filepath.Base(name)))
		},
		Put: func(to bus.Address, name string, r io.Reader) (bus.Attachment, error) {
			data, err := io.ReadAll(r)
			if string(data) == "refused" {
				return bus.Attachment{}, errors.New("it is too large")
			}
			f.kept = append(f.kept, fmt.Sprintf("%s: %s: %s", to, name, data))
			return bus.Attachment{Kind: bus.Document, Name: name, Path: "media/" + name}, err
		},
	})
	for name, text := range map[string]string{"a.txt": "hello", "bad.txt": "refused"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err = db.Tx(t.Context(), func(tx *store.Tx) error {
		for _, key := range []session.Key{named("test/a"), named("test/b"), named("test/b#1-x")} {
			turn := &session.Turn{Session: key, Address: key.Conversation}
			if _, err := session.BeginTurn(tx, turn, "", store.Lease{}, time.Now()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// call calls the tool in chat a and returns the text for the model. It runs the transaction
// twice, as after a retry.
func (f *fixture) call(role bus.Role, args string) string {
	f.Helper()
	r, err := f.tool.Run(f.Context(), tool.Call{Args: json.RawMessage(args), Address: at("a"),
		Session: named("test/a"), Role: role})
	if err != nil {
		return "Error: " + err.Error()
	}
	text, again := "", errors.New("again")
	for _, end := range []error{again, nil} {
		err := f.db.Tx(f.Context(), func(tx *store.Tx) (err error) {
			text, err = r.Commit(tx)
			return errors.Join(err, end)
		})
		if !errors.Is(err, end) {
			f.Fatal(err)
		}
	}
	return text
}

func (f *fixture) sent() (list []bus.OutboundMessage) {
	f.Helper()
	rows, err := f.out.Open(f.db.Read(f.Context()), 0)
	if err != nil {
		f.Fatal(err)
	}
	for _, row := range rows {
		list = append(list, row.Message)
	}
	return list
}

// A message is put into the outbox once, in the transaction that writes the call's result.
func TestSend(t *testing.T) {
	f := newFixture(t)
	text := f.call(bus.User,
		`{"text":" see \n","files":["x/a.txt"],"buttons":["Yes","n\u202eo\nw","\u200bok"]}`)
	sent := f.sent()
	if !strings.HasPrefix(text, "It is on its way to test/a, as message ") || len(sent) != 1 {
		t.Fatalf("the model is told %q, and %d messages are sent, want one", text, len(sent))
	}
	var labels []string
	for _, b := range sent[0].Buttons {
		labels = append(labels, b.Label+"="+b.Text)
	}
	if m := sent[0]; m.Text != "see" || m.To != at("a") || len(m.Attachments) != 1 ||
		!slices.Equal(labels, []string{"Yes=Yes", "no w=no w", "ok=ok"}) ||
		!slices.Equal(f.kept, []string{"test/a: a.txt: hello"}) {
		t.Errorf("sent was %+v with the files %q", m, f.kept)
	}
}

// Documents that were written for nanobot use other names for the arguments. These names are
// accepted.
func TestSendAliases(t *testing.T) {
	f := newFixture(t)
	tools, err := tool.NewRegistry(f.tool)
	if err != nil {
		t.Fatal(err)
	}
	args, err := tools.Arguments("message", `{"content":"a text","media":["x/a.txt"]}`)
	if err != nil {
		t.Fatal(err)
	}
	f.call(bus.User, string(args))
	got := f.sent()
	if len(got) != 1 || got[0].Text != "a text" || len(got[0].Attachments) != 1 {
		t.Errorf("sent was %+v", got)
	}
}

// Only an admin may send a message to another conversation, and the conversation must exist.
func TestSendElsewhere(t *testing.T) {
	for _, test := range []struct {
		role     bus.Role
		to, want string
		chat     string
	}{
		{bus.User, "test/a", "It is on its way to test/a", "a"},
		{bus.User, "test/b", "Error: only an admin may have you write to another conversation", ""},
		{bus.Guest, "test/c", "Error: only an admin may have you write to another conversation", ""},
		{bus.Admin, "test/b", "It is on its way to test/b", "b"},
		{bus.Owner, "test/c", `Error: there is no conversation "test/c"; those used last are:`, ""},
		{bus.Owner, "test/b#1-x", `Error: there is no conversation "test/b#1-x"`, ""},
	} {
		t.Run(string(test.role)+" "+test.to, func(t *testing.T) {
			f := newFixture(t)
			got := f.call(test.role, fmt.Sprintf(`{"text":"x","to":%q,"files":["a.txt"]}`, test.to))
			if !strings.HasPrefix(got, test.want) {
				t.Errorf("the model is told %q, want %q", got, test.want)
			}
			if strings.Contains(got, "#1-x,") || strings.HasSuffix(got, "#1-x") {
				t.Errorf("the model is told %q, which names a sub-agent", got)
			}
			sent := f.sent()
			if test.chat == "" && (len(sent) != 0 || len(f.kept) != 0) ||
				test.chat != "" && (len(sent) != 1 || sent[0].To != at(test.chat)) {
				t.Errorf("sent was %+v with the files %q, want something in %q", sent, f.kept, test.chat)
			}
		})
	}
}

func TestSendRefuses(t *testing.T) {
	label := strings.Repeat("x", maxLabel+1)
	for _, test := range []struct{ args, want string }{
		{`{"text":" \n"}`, "there is neither a text nor a file to send"},
		{`{"text":"` + strings.Repeat("x", maxText+1) + `"}`, "the text is longer than 65536 bytes"},
		{`{"files":["1","2","3","4","5","6","7","8","9","10","11"]}`, "11 files are more than 10"},
		{`{"text":"x","buttons":["1","2","3","4","5","6","7","8","9"]}`, "9 buttons are more than 8"},
		{`{"text":"x","buttons":[" "]}`, `button "": want 1 to 40 bytes, and no command`},
		{`{"text":"x","buttons":["` + label + `"]}`, "button "},
		{`{"text":"x","buttons":[" /stop"]}`, `button "/stop": want 1 to 40 bytes, and no command`},
		{`{"text":"x","buttons":["\u200b\u2060/approve X"]}`, `button "/approve X": want`},
		{`{"files":["none.txt"]}`, "open "},
		{`{"files":["bad.txt"]}`, `"bad.txt" can't be sent: it is too large`},
	} {
		f := newFixture(t)
		if got := f.call(bus.Owner, test.args); !strings.HasPrefix(got, "Error: "+test.want) {
			t.Errorf("the model is told %q, want %q", got, test.want)
		}
		if sent := f.sent(); len(sent) != 0 {
			t.Errorf("%.60s: sent was %+v, want nothing", test.args, sent)
		}
	}
}

// A message to another conversation needs approval, even if an owner asks for it.
func TestAsks(t *testing.T) {
	asks := New(Options{}).Asks
	for _, test := range []struct {
		role bus.Role
		args string
		want bool
	}{
		{bus.Owner, `{"text":"x"}`, false},
		{bus.Owner, `{"text":"x","to":"test/a"}`, false},
		{bus.Owner, `{"text":"x","to":"test/b"}`, true},
		{bus.Admin, `{"text":"x","to":"test/a/1"}`, true},
		{bus.User, `{"text":"x","to":"test/b"}`, false}, // refused, so no approval is needed
	} {
		c := tool.Call{Args: []byte(test.args), Role: test.role, Address: at("a")}
		if got := asks(c); got != test.want {
			t.Errorf("%s with %s: asks %v, want %v", test.role, test.args, got, test.want)
		}
	}
}
