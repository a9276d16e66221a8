package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"gateway/bus"
	"gateway/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A memory is a backend that keeps the messages that it sends.
type memory struct {
	mu   sync.Mutex
	sent []bus.OutboundMessage
}

var day = time.Date(2026, 7, 16, 20, 51, 7, 0, time.FixedZone("x", 3600))

func (m *memory) Send(_ context.Context, to bus.Address, text string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if to.Account != "tg" {
		return 0, fmt.Errorf("there is no account %q", to.Account)
	}
	m.sent = append(m.sent, bus.OutboundMessage{To: to, Text: text})
	return int64(len(m.sent)), nil
}

func (m *memory) Sessions(_ context.Context, limit int) ([]session.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []session.Info
	for i := len(m.sent) - 1; i >= 0 && len(list) < limit; i-- {
		list = append(list, session.Info{Key: session.KeyOf(m.sent[i].To), Title: "a\nb",
			Messages: 1, Created: day, Updated: day})
	}
	return list, nil
}

func (m *memory) Recall(_ context.Context, query, in string, limit int) ([]Hit, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var hits []Hit
	for _, o := range m.sent {
		key := session.KeyOf(o.To)
		if strings.Contains(o.Text, query) && (in == "" || in == key.String()) && len(hits) < limit {
			hits = append(hits, Hit{Session: key, Time: day, Role: "assistant", Text: o.Text})
		}
	}
	return hits, nil
}

// connect returns a session with a server in the same process.
func connect(t *testing.T, b Backend) *sdk.ClientSession {
	t.Helper()
	near, far := sdk.NewInMemoryTransports()
	server, err := newServer(b, "1.2").Connect(t.Context(), far, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).
		Connect(t.Context(), near, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), server.Wait()); err != nil {
			t.Error(err)
		}
	})
	return client
}

// call returns the text and the structured content of a tool's result.
func call(
	t *testing.T, s *sdk.ClientSession, name string, args any,
) (text, data string, failed bool) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	structured, err := json.Marshal(r.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Content {
		text += c.(*sdk.TextContent).Text
	}
	return text, string(structured), r.IsError
}

type object = map[string]any

func TestTools(t *testing.T) {
	b := &memory{}
	s := connect(t, b)
	tests := []struct {
		tool       string
		args       object
		text, data string
	}{
		{"sessions", object{}, "There are no sessions yet.", `{"sessions":[]}`},
		{"recall", object{"query": "x"}, "Nothing was found.", `{"hits":[]}`},
		{"send", object{"to": "tg/1", "text": "hello"},
			"The message to tg/1 is on its way; its number is 1.", `{"id":1}`},
		{"send", object{"to": "tg/-2/7/8", "text": "hello there"},
			"The message to tg/-2/7/8 is on its way; its number is 2.", `{"id":2}`},
		{"sessions", object{"limit": 1},
			"tg/-2/7/8  1 messages, last 2026-07-16T19:51:07Z  \"a\\nb\"",
			`{"sessions":[{"created":"2026-07-16T19:51:07Z","messages":1,"session":"tg/-2/7/8",` +
				`"title":"a\nb","updated":"2026-07-16T19:51:07Z"}]}`},
		{"recall", object{"query": "hello", "session": "tg/1"},
			"tg/1, 2026-07-16T19:51:07Z, assistant:\nhello",
			`{"hits":[{"role":"assistant","session":"tg/1","text":"hello",` +
				`"time":"2026-07-16T19:51:07Z"}]}`},
	}
	for _, tt := range tests {
		text, data, failed := call(t, s, tt.tool, tt.args)
		if text != tt.text || data != tt.data || failed {
			t.Errorf("%s %v = %q, %s, failed %t\nwant %q, %s", tt.tool, tt.args, text, data, failed,
				tt.text, tt.data)
		}
	}
	want := bus.Address{Account: "tg", Chat: "-2", Thread: "7/8"}
	if got := b.sent[1].To; got != want {
		t.Errorf("it was sent to %#v, want %#v", got, want)
	}
}

func TestRefused(t *testing.T) {
	b := &memory{}
	s := connect(t, b)
	tests := []struct {
		tool string
		args object
		want string
	}{
		{"send", object{"to": "tg", "text": "x"}, "is no address"},
		{"send", object{"to": "tg/", "text": "x"}, "is no address"},
		{"send", object{"to": "/1", "text": "x"}, "is no address"},
		{"send", object{"to": "tg/1/", "text": "x"}, "is no address"},
		{"send", object{"to": "tg/1", "text": " \n"}, "the text is empty"},
		{"send", object{"to": "tg/1", "text": strings.Repeat("ä", maxText+1)}, "more than 100000"},
		{"send", object{"to": "xx/1", "text": "x"}, `there is no account "xx"`},
		{"send", object{"to": "tg/1"}, `argument "text" is missing; want a string`},
		{"send", object{"to": "tg/1", "text": nil}, `argument "text"`},
		{"send", object{"to": "tg/1", "text": "x", "more": 1},
			`there is no argument "more"; known are: text, to`},
		{"sessions", object{"limit": "many"}, `argument "limit": want a whole number`},
		{"sessions", object{"limit": -1}, "want 1 to 200"},
		{"sessions", object{"limit": 1_000}, "want 1 to 200"},
		{"recall", object{"query": ""}, "want a query"},
		{"recall", object{"query": strings.Repeat("x", maxQuery+1)}, "want a query"},
	}
	for _, tt := range tests {
		text, _, failed := call(t, s, tt.tool, tt.args)
		if !failed || !strings.Contains(text, tt.want) || strings.Contains(text, "reflect") {
			t.Errorf("%s = %q, failed %t; want %q in it", tt.tool, text, failed, tt.want)
		}
	}
	if len(b.sent) > 0 {
		t.Errorf("%d messages were sent all the same", len(b.sent))
	}
}

func TestDescriptions(t *testing.T) {
	s := connect(t, &memory{})
	list, err := s.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 3 {
		t.Fatalf("tools are %v, %v; want 3", list, err)
	}
	for _, tool := range list.Tools {
		if a := tool.Annotations; a == nil || a.ReadOnlyHint == (tool.Name == "send") {
			t.Errorf("%s has the annotations %+v", tool.Name, a)
		}
		if tool.OutputSchema == nil || tool.Description == "" {
			t.Errorf("%s has the schema %v and the description %q", tool.Name, tool.OutputSchema,
				tool.Description)
		}
	}
}

// pipes returns the ends of two pipes: in and out for the server, toServer and fromServer for the
// test.
func pipes(t *testing.T) (in, out, toServer, fromServer *os.File) {
	t.Helper()
	in, toServer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromServer, out, err = os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range []*os.File{in, out, toServer, fromServer} {
			_ = f.Close() // most are closed already
		}
	})
	return in, out, toServer, fromServer
}

// Serve works over real pipes with messages as other programs write them. Every line of its
// output is a message.
func TestServe(t *testing.T) {
	in, out, toServer, fromServer := pipes(t)
	done := make(chan error, 1)
	go func() { done <- Serve(t.Context(), in, out, &memory{}, "") }()
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
			`"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"send",` +
			`"arguments":{"to":"tg/1","text":"hi"}}}`,
		`{"jsonrpc":"2.0","id":3,"method":"no/such"}`,
	} {
		if _, err := fmt.Fprintln(toServer, line); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewScanner(fromServer)
	answers := make(map[float64]string)
	for len(answers) < 3 && lines.Scan() {
		var m struct {
			ID float64 `json:"id"`
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatalf("%q is no message: %v", lines.Text(), err)
		}
		answers[m.ID] = lines.Text()
	}
	for id, want := range map[float64]string{
		1: `"name":"gateway"`, 2: `its number is 1`, 3: `"error"`,
	} {
		if !strings.Contains(answers[id], want) {
			t.Errorf("answer %v is %s, want %s in it", id, answers[id], want)
		}
	}
	if err := toServer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("Serve = %v after the end of its input, want nil", err)
	}
}

func TestServeCancelled(t *testing.T) {
	in, out, _, _ := pipes(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, in, out, &memory{}, "1") }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Serve = %v, want %v", err, context.Canceled)
	}
}

func TestServeGarbage(t *testing.T) {
	in, out, toServer, _ := pipes(t)
	done := make(chan error, 1)
	go func() { done <- Serve(t.Context(), in, out, &memory{}, "1") }()
	if _, err := fmt.Fprintln(toServer, "GET / HTTP/1.1"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil || !strings.HasPrefix(err.Error(), "mcpserver: serve: ") {
		t.Errorf("Serve = %v, want an error of the protocol", err)
	}
}
