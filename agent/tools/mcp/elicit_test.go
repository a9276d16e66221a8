package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"gateway/agent/tool"
	"gateway/bus"
)

// An asker is a server whose tools ask people. The tool "ask" asks for values as its schema says,
// "twice" asks two times, "open" asks to open a link, and "need" does nothing until a link is
// open. The tool "say" asks nobody.
type asker struct {
	schema   any
	calls    atomic.Int64
	sayBegun chan struct{}
	sayMay   chan struct{}
	opened   atomic.Bool
}

// askers runs a test with both kinds of server: an old one asks in the middle of a call, and a
// current one at its end.
func askers(t *testing.T, a *asker, test func(t *testing.T, s Server)) {
	t.Helper()
	t.Run("in the middle of a call", func(t *testing.T) {
		t.Parallel()
		test(t, oldServer(t, a))
	})
	t.Run("at the end of a call", func(t *testing.T) {
		t.Parallel()
		test(t, hosted(t, sdk.NewStreamableHTTPHandler(
			func(*http.Request) *sdk.Server { return a.current() },
			&sdk.StreamableHTTPOptions{Stateless: true})))
	})
}

// oldServer serves a over the transport of old versions of the protocol.
func oldServer(t *testing.T, a *asker) Server {
	t.Helper()
	h := sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return a.old(t.Context()) }, nil)
	return hosted(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.RawQuery == "" {
			http.Error(w, "what is that?", http.StatusMethodNotAllowed)
			return
		}
		h.ServeHTTP(w, r)
	}))
}

func hosted(t *testing.T, h http.Handler) Server {
	t.Helper()
	e := httptest.NewServer(h)
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	return Server{Name: "s", URL: e.URL, Timeout: time.Minute}
}

func (a *asker) params() *sdk.ElicitParams {
	return &sdk.ElicitParams{Message: "How [many]?", RequestedSchema: a.schema}
}

var payLink = &sdk.ElicitParams{Mode: "url", Message: "Please pay.",
	URL: "https://pay.example/x?y=1", ElicitationID: "e1"}

type toolHandler func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error)

func toolServer(tools map[string]toolHandler) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "asker", Version: "1"}, nil)
	for name, h := range tools {
		s.AddTool(&sdk.Tool{Name: name, InputSchema: map[string]any{"type": "object"}},
			sdk.ToolHandler(h))
	}
	return s
}

// old returns a server that asks in the middle of a call. It stops asking when the test ends:
// after a failure, nobody answers, and the server can't be closed during a call.
func (a *asker) old(test context.Context) *sdk.Server {
	elicit := func(p *sdk.ElicitParams) toolHandler {
		return func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			a.calls.Add(1)
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(test, cancel)()
			res, err := r.Session.Elicit(ctx, p)
			if err != nil {
				return nil, err
			}
			return answered(res), nil
		}
	}
	tools := a.both()
	tools["ask"], tools["open"] = elicit(a.params()), elicit(payLink)
	tools["twice"] = func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for range 2 {
			if _, err := elicit(a.params())(ctx, r); err != nil {
				return nil, err
			}
		}
		return text("asked twice"), nil
	}
	return toolServer(tools)
}

func (a *asker) current() *sdk.Server {
	elicit := func(p *sdk.ElicitParams, times int) toolHandler {
		return func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			if n := len(r.Params.RequestState); n < times {
				a.calls.Add(1)
				return &sdk.CallToolResult{RequestState: strings.Repeat("x", n+1),
					InputRequests: sdk.InputRequestMap{"it": p}}, nil
			}
			if times == 2 {
				return text("asked twice"), nil
			}
			res, ok := r.Params.InputResponses["it"].(*sdk.ElicitResult)
			if !ok {
				return nil, fmt.Errorf("there is no answer in %v", r.Params.InputResponses)
			}
			return answered(res), nil
		}
	}
	tools := a.both()
	tools["ask"], tools["open"] = elicit(a.params(), 1), elicit(payLink, 1)
	tools["twice"] = elicit(a.params(), 2)
	return toolServer(tools)
}

func answered(r *sdk.ElicitResult) *sdk.CallToolResult {
	data, err := json.Marshal(r.Content)
	if err != nil {
		return text(err.Error())
	}
	return text(r.Action + " " + string(data))
}

// both returns the tools that are the same for all versions.
func (a *asker) both() map[string]toolHandler {
	return map[string]toolHandler{
		"need": func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			if a.calls.Add(1); a.opened.Load() {
				return text("paid"), nil
			}
			data, err := json.Marshal(map[string]any{"elicitations": []any{payLink}})
			if err != nil {
				return nil, err
			}
			return nil, &jsonrpc.Error{Code: sdk.CodeURLElicitationRequired, Message: "pay", Data: data}
		},
		"say": func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			a.sayBegun <- struct{}{}
			select {
			case <-a.sayMay:
			case <-ctx.Done():
			}
			return text("said"), nil
		},
	}
}

// A dialogue is a tool call of a turn, with a person who answers its questions.
type dialogue struct {
	t    *testing.T
	box  *toolbox
	name string
	call tool.Call
}

func (b *toolbox) talk(t *testing.T, name string, turn int64) *dialogue {
	return &dialogue{t, b, name, tool.Call{ID: "call_1", Turn: turn, Args: json.RawMessage(`{}`),
		Session: bus.Session{Conversation: bus.Address{Account: "x", Chat: "1"}}}}
}

func (d *dialogue) run() (tool.Result, error) {
	d.t.Helper()
	found, err := d.box.reg.Lookup(d.name)
	if err != nil {
		d.t.Fatal(err)
	}
	return found.Run(d.t.Context(), d.call)
}

// wait makes or continues the call and returns the question for the person.
func (d *dialogue) wait() *tool.Wait {
	d.t.Helper()
	r, err := d.run()
	if err != nil || r.Wait == nil {
		d.t.Fatalf("%s = %+v, %v, want a question", d.name, r, err)
	}
	d.call.Reply = &tool.Reply{State: r.Wait.State}
	return r.Wait
}

func (d *dialogue) answer(text string) *dialogue {
	d.call.Reply.Answered, d.call.Reply.Text = true, text
	return d
}

// end continues the call and checks that it ends with want in its result.
func (d *dialogue) end(want string) {
	d.t.Helper()
	r, err := d.run()
	if err != nil || r.Wait != nil || !strings.Contains(r.Text, want) {
		d.t.Fatalf("%s = %+v, %v, want %q", d.name, r, err, want)
	}
}

func (d *dialogue) wantQuestion(parts ...string) {
	d.t.Helper()
	w := d.wait()
	for _, part := range parts {
		if !strings.Contains(w.Text, part) {
			d.t.Fatalf("the person reads %q, want %q in it", w.Text, part)
		}
	}
}

func form(properties string, required ...string) map[string]any {
	s := map[string]any{"type": "object", "required": required}
	var p any
	if err := json.Unmarshal([]byte(properties), &p); err != nil {
		panic(err)
	}
	s["properties"] = p
	return s
}

var bookingForm = form(`{
	"count": {"type": "integer", "minimum": 1, "maximum": 9, "description": "Beds"},
	"kind": {"type": "string", "oneOf": [
		{"const": "r", "title": "Roses"}, {"const": "t", "title": "Tulips"}]},
	"mail": {"type": "string", "format": "email"},
	"days": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["mo", "tu", "we"]}},
	"now": {"type": "boolean", "default": true}}`, "count", "kind")

// A person is asked for each value, and asked again if the answer is not valid. The server gets
// all values.
func TestElicit(t *testing.T) {
	t.Parallel()
	askers(t, &asker{schema: bookingForm}, func(t *testing.T, s Server) {
		c, box := run(t, nil, s)
		awaitState(t, c, Connected)
		d := box.talk(t, "mcp_s_ask", 1)
		d.wantQuestion("The MCP server `s` asks you, during the call of its tool `ask`:",
			"“How (many)?”", "**count** (1 of 5): “Beds”\nA whole number from 1 to 9.",
			"Never send a password")
		for _, unfit := range []string{"many", "0", "2.5", "", "default", "skip"} {
			d.answer(unfit).wantQuestion("This answer is not valid. The MCP", "**count** (1 of 5)")
			if unfit == "2.5" { // the number of attempts is limited
				d.answer("3").wantQuestion("**kind**")
				break
			}
		}
		w := d.answer("green").wait()
		if got := fmt.Sprint(w.Options); got != "[Roses Tulips Decline]" {
			t.Errorf("the options are %s", got)
		}
		d.answer("tulips").wantQuestion("**days**", "Some of these, with commas between them", "2. tu",
			"`skip` leaves it out")
		d.answer("1, WE").wantQuestion("**mail**", "An e-mail address.")
		d.answer("x").wantQuestion("This answer is not valid", "**mail**")
		d.answer("skip").wantQuestion("**now**", "`default` stands for “Yes”")
		d.answer("default").end(`accept {"count":3,"days":["mo","we"],"kind":"t","now":true}`)
	})
}

func TestElicitRefused(t *testing.T) {
	t.Parallel()
	askers(t, &asker{schema: bookingForm}, func(t *testing.T, s Server) {
		c, box := run(t, nil, s)
		awaitState(t, c, Connected)
		const told = "the server asked the person for input, and the person gave none"
		d := box.talk(t, "mcp_s_ask", 1)
		d.wait()
		d.answer("Decline").end("decline null\n(" + told)
		d = box.talk(t, "mcp_s_ask", 2)
		d.wait()
		d.answer("cancel").end("cancel null\n(" + told)
		d = box.talk(t, "mcp_s_ask", 3)
		d.wait() // the person does not answer in time
		d.end("cancel null\n(" + told)
		d = box.talk(t, "mcp_s_ask", 4)
		for range maxUnfit {
			d.wait()
			d.answer("?")
		}
		d.end("cancel null\n(" + told)
		for _, alone := range []tool.Call{{Proactive: true}, {Session: bus.Session{Task: "x"}}} {
			d = box.talk(t, "mcp_s_ask", 5)
			d.call.Proactive, d.call.Session = alone.Proactive, alone.Session
			d.end("decline null\n(" + noPerson)
		}
	})
}

// A server can ask only for consent, ask more than once, and ask a person to open a link.
func TestElicitMore(t *testing.T) {
	t.Parallel()
	a := &asker{}
	askers(t, a, func(t *testing.T, s Server) {
		c, box := run(t, nil, s)
		awaitState(t, c, Connected)
		d := box.talk(t, "mcp_s_twice", 1)
		d.wantQuestion("asks you, during the call of its tool `twice` for your consent.")
		d.answer("Accept").wantQuestion("for your consent")
		d.answer("Accept").end("asked twice")
		d = box.talk(t, "mcp_s_open", 2)
		d.wantQuestion("to open a link. It leads to `pay.example`:\n\nhttps://pay.example/x?y=1\n\n",
			"“Please pay.”")
		d.answer("well?").wantQuestion("This answer is not valid")
		d.answer(optionOpened).end("accept null")
	})
}

// If a server refuses a call until a link is open, the call is made again after the person has
// opened it.
func TestLinkRequired(t *testing.T) {
	t.Parallel()
	a := &asker{}
	c, box := run(t, nil, hosted(t, sdk.NewStreamableHTTPHandler(
		func(*http.Request) *sdk.Server { return a.current() },
		&sdk.StreamableHTTPOptions{Stateless: true})))
	awaitState(t, c, Connected)
	d := box.talk(t, "mcp_s_need", 1)
	d.wantQuestion("https://pay.example/x?y=1")
	_, err := d.answer("decline").run()
	wantError(t, err, "has not opened the link", "nothing was done")
	d = box.talk(t, "mcp_s_need", 2)
	d.wait()
	a.opened.Store(true)
	d.answer(optionOpened).end("paid")
	if n := a.calls.Load(); n != 3 {
		t.Errorf("%d calls, want 3", n)
	}
}

// If a person is asked in the middle of a call, the call ends with the turn. Another process
// can't continue it.
func TestElicitHeld(t *testing.T) {
	t.Parallel()
	a := &asker{schema: bookingForm}
	s := oldServer(t, a)
	c, box := run(t, nil, s)
	awaitState(t, c, Connected)
	d := box.talk(t, "mcp_s_ask", 1)
	d.wait()
	d.answer("cancel").end("cancel null")

	d = box.talk(t, "mcp_s_ask", 2)
	w := d.wait()
	if w.Cancel == nil {
		t.Fatal("the call can't be cancelled")
	}
	w.Cancel()
	_, err := d.answer("3").run()
	wantError(t, err, "the call has ended before the person answered; it is not known whether")

	d = box.talk(t, "mcp_s_ask", 3)
	d.wait()
	_, other := run(t, nil, s)
	await(t, "the other client", func() bool {
		_, err := other.reg.Lookup("mcp_s_ask")
		return err == nil
	})
	lost := &dialogue{t, other, d.name, d.call}
	lost.answer("decline")
	_, err = lost.run()
	wantError(t, err, "the call has ended before the person answered")
	d.answer("decline").end("decline null")
}

// The timeout of a call is stopped while a person is asked.
func TestElicitClock(t *testing.T) {
	t.Parallel()
	a, r := newLiveRequests(), &liveRequest{}
	end, err := a.begin(context.WithValue(t.Context(), liveKey{}, r), func() *time.Timer {
		return time.AfterFunc(time.Hour, func() {})
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, first := a.claim(); got != r || !first {
		t.Fatalf("the server asks during %p, first %t; want %p and true", got, first, r)
	}
	if r.limit.Stop() {
		t.Error("the clock runs while the person is asked")
	}
	a.resume(r, time.Hour)
	if !r.limit.Stop() {
		t.Error("the clock stands after the answer")
	}
	end()
}

// A server that asks in the middle of a call does not say which call it means. If several calls
// are running, no person is asked, because the question may belong to another person's call.
func TestElicitWhom(t *testing.T) {
	t.Parallel()
	a := &asker{sayBegun: make(chan struct{}), sayMay: make(chan struct{})}
	c, box := run(t, nil, oldServer(t, a))
	awaitState(t, c, Connected)
	var wg sync.WaitGroup
	wg.Go(func() { box.talk(t, "mcp_s_say", 1).end("said") })
	<-a.sayBegun
	box.talk(t, "mcp_s_ask", 2).end("cancel null\n(the server asked for input while several calls")
	a.sayMay <- struct{}{}
	wg.Wait()
	// From now on, the server's calls run one after another. They do not wait for a call in which a
	// person is asked.
	slow := box.talk(t, "mcp_s_ask", 3)
	slow.wait()
	quick := box.talk(t, "mcp_s_ask", 4)
	quick.wait()
	wg.Go(func() { box.talk(t, "mcp_s_say", 5).end("said") })
	<-a.sayBegun
	asked := make(chan struct{})
	wg.Go(func() {
		defer close(asked)
		d := box.talk(t, "mcp_s_ask", 6)
		d.wait()
		d.answer("Accept").end("accept null")
	})
	select {
	case <-asked:
		t.Error("two calls run side by side")
	default:
	}
	a.sayMay <- struct{}{}
	wg.Wait()
	quick.answer("Accept").end("accept null")
	slow.answer("Decline").end("decline null")
}

// If a call was cancelled but has not ended yet, the server can still ask during the next call.
func TestElicitGivenUp(t *testing.T) {
	t.Parallel()
	a := newLiveRequests()
	begin := func() (*liveRequest, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &liveRequest{}
		end, err := a.begin(context.WithValue(ctx, liveKey{}, r),
			func() *time.Timer { return time.AfterFunc(time.Hour, func() {}) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(end)
		t.Cleanup(cancel)
		return r, cancel
	}
	_, giveUp := begin()
	next, _ := begin()
	giveUp()
	if r, _ := a.claim(); r != next {
		t.Errorf("the server asks in %p, want %p; notes %q", r, next, next.notes)
	}
}

// Invalid requests for input are refused. No schema makes the check run forever.
func TestHostileForms(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ params, want string }{
		{`{"mode":"url","url":"javascript:alert(1)"}`, "want a URL"},
		{`{"mode":"url","url":"https://me@evil.example/"}`, "want a URL"},
		{`{"mode":"url","url":"https://gооgle.com/"}`, "want a URL"}, // with Cyrillic letters
		{"{\"mode\":\"url\",\"url\":\"https://x.example/?a=`b\"}", "want a URL"},
		{`{"mode":"url","url":"https://x.example/` + strings.Repeat("a", maxLink) + `"}`, "want a URL"},
		{`{"mode":"telepathy"}`, "does not exist"},
		{`{"requestedSchema":7}`, "not an object"},
		{`{"requestedSchema":{"type":"array"}}`, "not that of an object"},
		{`{"requestedSchema":{"type":"object","$ref":"#"}}`, "references"},
		{`{"requestedSchema":{"properties":{"a":{"type":"string","allOf":[{"$ref":"#"}]}}}}`,
			"references"},
		{`{"requestedSchema":` + strings.Repeat(`{"not":`, 100) + `{}` + strings.Repeat(`}`, 100) + `}`,
			"too deep"},
		{`{"requestedSchema":{"properties":{"a":null}}}`, "no schema"},
		{`{"requestedSchema":{"properties":{"a":{"type":"object"}}}}`, "can't be asked for"},
		{`{"requestedSchema":{"properties":{"a":{"type":"array"}}}}`, "values to choose from"},
		{`{"requestedSchema":{"properties":{"a":{"type":"array","items":{"type":"string"}}}}}`,
			"values to choose from"},
		{`{"requestedSchema":{"properties":{"a":{"enum":[1,{}]}}}}`, "not a string"},
		{`{"requestedSchema":{"properties":{"a":{"oneOf":[{"title":"x"}]}}}}`, "missing"},
		{`{"requestedSchema":{"properties":{"a":{"type":"string","enum":["` +
			strings.Repeat(`x","`, maxChoices) + `"]}}}}`, "more than"},
	} {
		var p *sdk.ElicitParams
		if err := json.Unmarshal([]byte(tt.params), &p); err != nil {
			t.Fatal(err)
		}
		_, err := newRequest("", p)
		wantError(t, err, tt.want)
		// The library must not see it: it would decode a schema for minutes if that is deep and large.
		_, err = new(dialer).survive(func(context.Context, string, sdk.Request) (sdk.Result, error) {
			t.Errorf("the library gets %.100s", tt.params)
			return nil, nil
		})(t.Context(), "elicitation/create", &sdk.ElicitRequest{Params: p})
		wantError(t, err, tt.want)
	}
	many := make(map[string]any)
	for i := range maxFields + 1 {
		many[fmt.Sprint(i)] = map[string]any{"type": "string"}
	}
	_, err := newRequest("", &sdk.ElicitParams{RequestedSchema: map[string]any{"properties": many}})
	wantError(t, err, "more than")
}
