package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gateway/agent/tool"
)

// A raw server answers each method with the text in its table, even if the text is invalid.
type raw map[string]string

func (answers raw) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&q) != nil || q.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result, ok := answers[q.Method]
	if !ok {
		result = map[string]string{
			"initialize": `{"protocolVersion":"2025-11-25","serverInfo":{"name":"x","version":"1"},` +
				`"capabilities":{"tools":{},"resources":{},"prompts":{}}}`,
			"tools/list":     `{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`,
			"resources/list": `{"resources":[{"uri":"a://b","name":"b"}]}`,
			"prompts/list":   `{"prompts":[{"name":"p"}]}`,
		}[q.Method]
	}
	w.Header().Set("Content-Type", "application/json")
	if result == "" {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, q.ID)
		return
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, result)
}

func rawServer(t *testing.T, answers raw) Server {
	t.Helper()
	srv := httptest.NewServer(answers)
	t.Cleanup(srv.Close)
	return Server{Name: "s", URL: srv.URL, Timeout: 20 * time.Second}
}

// An invalid answer of a server causes an error at worst.
func TestHostileResults(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 5<<20)
	closed := strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20)
	tests := []struct{ name, method, tool, result, want string }{
		{"null", "tools/call", "t", `null`, ""},
		{"empty", "tools/call", "t", `{}`, ""},
		{"list", "tools/call", "t", `[]`, "failed"},
		{"null content", "tools/call", "t", `{"content":null}`, ""},
		{"null part", "tools/call", "t", `{"content":[null]}`, ""},
		{"no type", "tools/call", "t", `{"content":[{"text":"x"}]}`, "failed"},
		{"new type", "tools/call", "t", `{"content":[{"type":"smell"}]}`, "failed"},
		{"no resource", "tools/call", "t", `{"content":[{"type":"resource"}]}`, ""},
		{"null resource", "tools/call", "t", `{"content":[{"type":"resource","resource":null}]}`, ""},
		{"bad picture", "tools/call", "t", `{"content":[{"type":"image","data":"%%"}]}`, "failed"},
		{"empty picture", "tools/call", "t", `{"content":[{"type":"image","data":""}]}`, ""},
		{"error without text", "tools/call", "t", `{"isError":true}`, "does not say which"},
		{"input", "tools/call", "t", `{"resultType":"input_required","content":[]}`, ""},
		{"deep", "tools/call", "t", `{"content":[],"structuredContent":` + deep, ""},
		{"deep and closed", "tools/call", "t", `{"structuredContent":` + closed + `}`, ""},
		{"resource", "resources/read", "resources", `null`, ""},
		{"resource part", "resources/read", "resources", `{"contents":[null]}`, ""},
		{"prompt", "prompts/get", "prompts", `null`, ""},
		{"prompt part", "prompts/get", "prompts", `{"messages":[null]}`, ""},
		{"prompt content", "prompts/get", "prompts", `{"messages":[{"role":"user"}]}`, ""},
		{"prompt null", "prompts/get", "prompts", `{"messages":[{"content":null}]}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, box := run(t, &Options{HTTP: web(t)}, rawServer(t, raw{tt.method: tt.result}))
			awaitState(t, c, Connected)
			args := map[string][]any{"resources": {"uri", "a://b"}, "prompts": {"name", "p"}}[tt.tool]
			got, err := box.call(t, "mcp_s_"+tt.tool, args...)
			if err == nil && tt.want != "" {
				t.Errorf("got %q, want an error", got.Text)
			}
			if err != nil {
				wantError(t, err, "the MCP server s", tt.want)
			}
		})
	}
}

func TestHostileLists(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 5_000 {
		fmt.Fprintf(&many, `,{"name":"many%d","inputSchema":{}}`, i)
	}
	const resources = " mcp_s_prompts mcp_s_resources"
	tests := []struct{ name, method, result, tools, refused string }{
		{"null", "tools/list", `{"tools":null}`, resources, ""},
		{"null tool", "tools/list", `{"tools":[null,{"name":"a","inputSchema":null}]}`,
			"mcp_s_a" + resources, ""},
		{"schemas", "tools/list", `{"tools":[{"name":"a","inputSchema":[]},{"name":"b"},
			{"name":"c","inputSchema":{"type":"object","properties":{"x":{"$ref":"http://x/y"}}}},
			{"name":"","inputSchema":{}},{"name":"d","inputSchema":` + doubling(40) + `}]}`,
			"mcp_s_b" + resources, `"": it has no name|"a": its schema is not an object|` +
				`"c": its schema refers to "http://x/y", which is not there|` +
				`"d": its schema multiplies without bound`},
		{"clashes", "tools/list", `{"tools":[{"name":"a.b"},{"name":"a b"},{"name":"a.b"}]}`,
			"mcp_s_a_b_2e7336dc mcp_s_a_b_c8687a08" + resources,
			`"a.b": the server has two tools with this name`},
		{"for ever", "tools/list", `{"tools":[{"name":"a"}],"nextCursor":"x"}`,
			"mcp_s_a" + resources, `"a": the server has two tools with this name`},
		{"many", "tools/list", `{"tools":[{"name":"a"}` + many.String() + `]}`, "", "more"},
		{"resources", "resources/list", `{"resources":null}`, "mcp_s_prompts mcp_s_t", ""},
		{"prompts", "prompts/list", `[]`, "mcp_s_resources mcp_s_t", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, box := run(t, &Options{HTTP: web(t)}, rawServer(t, raw{tt.method: tt.result}))
			awaitState(t, c, Connected)
			got := c.States()[0]
			if tt.name == "many" {
				if got.Tools != maxTools+2 || len(got.Refused) != maxRefused+1 {
					t.Errorf("there are %d tools, %d refused", got.Tools, len(got.Refused))
				}
				return
			}
			if names := box.names(); strings.TrimSpace(tt.tools) != names {
				t.Errorf("tools are %s\nwant %s", names, tt.tools)
			}
			if refused := strings.Join(got.Refused, "|"); refused != tt.refused {
				t.Errorf("refused are %s\nwant %s", refused, tt.refused)
			}
		})
	}
}

// A server may ask forever although nobody can be asked. Then its call ends, and the notes about
// it take a bounded amount of memory.
func TestHostileAsking(t *testing.T) {
	t.Parallel()
	a := newLiveRequests()
	ctx, cancel := context.WithCancelCause(t.Context())
	r := &liveRequest{cancel: cancel}
	end, err := a.begin(context.WithValue(ctx, liveKey{}, r),
		func() *time.Timer { return time.AfterFunc(time.Hour, func() {}) })
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	times := 0
	for ; times < 20*maxRounds; times++ {
		live, _ := a.claim()
		if live == nil {
			break
		}
		a.refuse(live)
		a.resume(live, time.Hour)
	}
	if times != maxRounds+1 || ctx.Err() == nil {
		t.Errorf("the server asked %d times, want %d; the call's context: %v", times, maxRounds+1,
			ctx.Err())
	}
	if notes := a.notes(r); len(notes) != 2 || notes[0] != noPerson {
		t.Errorf("%d notes for the model: %.300q", len(notes), notes)
	}
}

// An endless reader repeats a text.
type endless struct {
	text string
	rest string
}

func (e *endless) Read(p []byte) (int, error) {
	if e.rest == "" {
		e.rest = e.text
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// A server that sends requests and notifications without end, and does not read the answers, takes
// little memory: the gateway reads its messages slowly. It does so until the connection ends.
func TestFlood(t *testing.T) {
	t.Parallel()
	const (
		ping   = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		entry  = `{"jsonrpc":"2.0","method":"notifications/message"}`
		result = `{"jsonrpc":"2.0","id":1,"result":{}}`
	)
	large := fmt.Sprintf(`{"jsonrpc":"2.0","method":"x","params":[%q]}`, strings.Repeat("x", 1<<20))
	for _, tt := range []struct {
		message  string
		messages int
		most     int // in ten seconds
	}{
		{ping, 20_000, requestBurst + 10*requestRate + 1},
		{strings.Replace(ping, "method", `\u006dethod`, 1), 20_000, requestBurst + 10*requestRate + 1},
		{entry, 100_000, notificationBurst + 10*notificationRate + 1},
		{large, 120, (byteBurst+10*byteRate)/len(large) + 1},
		{result, 20_000, 20_000},
	} {
		for _, way := range []string{"process", "stream"} {
			synctest.Test(t, func(t *testing.T) {
				life, end := context.WithCancel(t.Context())
				messages := &lines{bufio.NewReader(&endless{text: tt.message + "\n"}), newMeter(),
					life.Done()}
				var in io.Reader = &pieces{next: messages.next}
				if way == "stream" {
					resp := stream("")
					resp.Body = io.NopCloser(&endless{text: "data: " + tt.message + "\n\n"})
					answer := doer(func(*http.Request) (*http.Response, error) { return resp, nil })
					got, err := roundTrip(life, answer, httptest.NewRequest(http.MethodGet, "/", nil),
						newMeter())
					if err != nil {
						t.Fatal(err)
					}
					in = got.Body
				}
				var n int // messages that were read
				all := bufio.NewScanner(in)
				all.Buffer(nil, 2*len(tt.message)+1000)
				go func() {
					for all.Scan() && n < tt.messages {
						if len(all.Bytes()) > 0 {
							n++
						}
					}
				}()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if n > tt.most || n < tt.most*9/10 {
					t.Errorf("%s: %d messages %.40s in ten seconds, want %d", way, n, tt.message, tt.most)
				}
				end() // nothing waits any more
			})
		}
	}
}

// A refusal is not read for ever, even if it calls itself a stream of events.
func TestEndlessRefusal(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", ": x\n\n"} {
		answer := doer(func(*http.Request) (*http.Response, error) {
			resp := stream("")
			resp.StatusCode, resp.Body = http.StatusBadRequest, io.NopCloser(&endless{text: text})
			return resp, nil
		})
		resp, err := roundTrip(t.Context(), answer, httptest.NewRequest(http.MethodPost, "/", nil),
			newMeter())
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.CopyN(io.Discard, resp.Body, 2*maxMessage); n > maxMessage {
			t.Errorf("%q: read %d bytes, %v", text, n, err)
		}
		_ = resp.Body.Close()
	}
}

// TestListPanics checks that a panic over the list of a server's tools is an error of the
// connection, and that the next attempt works.
func TestListPanics(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(raw{})
	t.Cleanup(srv.Close)
	var lists atomic.Int32
	c, box := run(t, &Options{HTTP: web(t),
		Set: func(string, []tool.Tool) error {
			if lists.Add(1) == 1 {
				panic("a bug")
			}
			return nil
		}}, Server{Name: "s", URL: srv.URL, Timeout: 20 * time.Second})
	awaitState(t, c, Connected)
	if n := lists.Load(); n != 2 || box.count() != 1 {
		t.Errorf("the tools were set %d times, want 2; there are %d, want 1", n, box.count())
	}
}

// A message of a server during a call can't end the gateway, whatever it lacks.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	var messages []string
	for _, method := range []string{"elicitation/create", "notifications/cancelled",
		"notifications/elicitation/complete", "notifications/message", "notifications/progress",
		"notifications/resources/updated", "notifications/subscriptions/acknowledged",
		"notifications/tools/list_changed", "ping", "roots/list", "sampling/createMessage", "x"} {
		for _, params := range []string{``, `,"params":null`, `,"params":{}`, `,"params":[]`} {
			for _, id := range []string{``, `,"id":77`} {
				messages = append(messages,
					fmt.Sprintf(`{"jsonrpc":"2.0","method":%q%s%s}`, method, params, id))
			}
		}
	}
	var next atomic.Int32
	inner := raw{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var q struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err != nil || json.Unmarshal(body, &q) != nil || q.Method != "tools/call" {
			r.Body = io.NopCloser(bytes.NewReader(body))
			inner.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\n", messages[next.Load()])
		fmt.Fprintf(w, `data: {"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`+"\n\n", q.ID)
	}))
	t.Cleanup(srv.Close)
	c, box := run(t, &Options{HTTP: web(t)},
		Server{Name: "s", URL: srv.URL, Timeout: 20 * time.Second})
	awaitState(t, c, Connected)
	for i := range messages {
		next.Store(int32(i))
		if _, err := box.call(t, "mcp_s_t"); err != nil {
			t.Errorf("a call with %s: %v", messages[i], err)
		}
	}
}
