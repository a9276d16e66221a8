//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// An askingServer is an MCP server whose tool "book" asks the person how many plants to book, and
// in which colour. At /now, the question is the result of the call, and a second call brings the
// answer. At /old, the server asks while the call runs, as older versions of the protocol do.
type askingServer struct {
	*httptest.Server
	t       *testing.T
	over    chan struct{} // closed at the end of the test
	mu      sync.Mutex
	booked  map[string]int // number of bookings, by plant
	refused map[string]int // number of calls that booked nothing, by plant
}

func newAskingServer(t *testing.T) *askingServer {
	n := &askingServer{t: t, over: make(chan struct{}), booked: make(map[string]int),
		refused: make(map[string]int)}
	now := sdk.NewStreamableHTTPHandler(
		func(*http.Request) *sdk.Server { return n.server(n.now) },
		&sdk.StreamableHTTPOptions{Stateless: true})
	old := sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return n.server(n.old) }, nil)
	mux := http.NewServeMux()
	mux.Handle("/now", now)
	mux.HandleFunc("/old", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.RawQuery == "" {
			http.Error(w, "what is that?", http.StatusMethodNotAllowed)
			return
		}
		old.ServeHTTP(w, r)
	})
	n.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		close(n.over)
		n.CloseClientConnections()
		n.Close()
	})
	return n
}

func (n *askingServer) server(book sdk.ToolHandler) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "nursery", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "book", Description: "Books plants.",
		InputSchema: map[string]any{"type": "object"}}, book)
	return s
}

// what returns the argument of a call: the plants to book.
func (n *askingServer) what(r *sdk.CallToolRequest) string {
	var args struct {
		What string `json:"what"`
	}
	if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
		n.t.Error(err)
	}
	return args.What
}

func (n *askingServer) form(what string) *sdk.ElicitParams {
	return &sdk.ElicitParams{Message: "How many " + what + "?", RequestedSchema: map[string]any{
		"type": "object", "required": []any{"a"}, "properties": map[string]any{
			"a": map[string]any{"type": "integer", "minimum": 1, "maximum": 9, "title": "Number"},
			"b": map[string]any{"type": "string", "enum": []any{"white", "red"}, "title": "Colour",
				"default": "white"}}}}
}

// end counts the outcome of a call and returns its result.
func (n *askingServer) end(what string, r *sdk.ElicitResult) *sdk.CallToolResult {
	n.mu.Lock()
	defer n.mu.Unlock()
	text := "nothing booked"
	if r == nil || r.Action != "accept" {
		n.refused[what]++
	} else {
		n.booked[what]++
		text = fmt.Sprintf("booked %v %v %s", r.Content["a"], r.Content["b"], what)
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

func (n *askingServer) now(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	what := n.what(r)
	if r.Params.RequestState == "" {
		return &sdk.CallToolResult{RequestState: "asked for " + what,
			InputRequests: sdk.InputRequestMap{"number": n.form(what)}}, nil
	}
	if r.Params.RequestState != "asked for "+what {
		n.t.Errorf("the state of %s is %q", what, r.Params.RequestState)
	}
	answer, _ := r.Params.InputResponses["number"].(*sdk.ElicitResult)
	return n.end(what, answer), nil
}

func (n *askingServer) old(
	ctx context.Context, r *sdk.CallToolRequest,
) (*sdk.CallToolResult, error) {
	what := n.what(r)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends the question if the client was killed and never answers
		select {
		case <-n.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	answer, err := r.Session.Elicit(ctx, n.form(what))
	return n.end(what, answer), err
}

// count returns how many calls have booked the plants, and how many have booked nothing.
func (n *askingServer) count(what string) (booked, refused int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.booked[what], n.refused[what]
}

// reads waits until Ann reads one message that contains all parts.
func (s *scene) reads(parts ...string) {
	s.t.Helper()
	s.until(strings.Join(parts, " and "), func() bool {
		for _, m := range s.direct() {
			found := true
			for _, part := range parts {
				found = found && strings.Contains(m, part)
			}
			if found {
				return true
			}
		}
		return false
	})
}

// TestServerAsks checks on each platform that an MCP server can ask the person whose turn calls
// its tool. A question survives a kill if the protocol allows that. Otherwise the model is told
// that the outcome is unknown. Nothing is booked twice.
func TestServerAsks(t *testing.T) {
	t.Parallel()
	n := newAskingServer(t)
	var servers strings.Builder
	for _, name := range []string{"telegram", "discord", "whatsapp"} {
		for _, way := range []string{"now", "old"} {
			fmt.Fprintf(&servers, "[mcp.%s_%s]\nurl = %q\n", way, name, n.URL+"/"+way)
		}
	}
	w, platforms := joinPlatforms(t, servers.String(), answerConversations)
	begin := func() *process {
		p := w.start()
		p.ready()
		return p
	}
	p := begin()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.wait(ctx, func() bool { return p.logged("mcp server connected") >= 6 }); err != nil {
		t.Fatalf("waited for the servers: %v\n%s", err, p.newest())
	}
	book := func(s *scene, way, what string) string {
		what += " on " + s.name
		s.say(fmt.Sprintf(`DO mcp_%s_%s_book {"what":%q}`, way, s.name, what))
		s.reads("The MCP server", way+"_"+s.name, "How many "+what+"?", "Number", "(1 of 2)",
			"A whole number from 1 to 9.", "Never send a password")
		return what
	}
	w.onAll(platforms, func(s *scene) {
		for _, way := range []string{"now", "old"} {
			what := book(s, way, "roses by "+way)
			s.say("some")
			s.reads("This answer is not valid.", "How many "+what)
			s.say("3")
			s.reads("How many "+what, "Colour", "(2 of 2)")
			if s.name == "whatsapp" { // WhatsApp has no buttons
				s.say("2")
			} else {
				s.press("red")
			}
			s.hear("booked 3 red " + what)
			what = book(s, way, "lilies by "+way)
			s.say("4")
			s.reads("How many "+what, "(2 of 2)")
			s.say("default")
			s.hear("booked 4 white " + what)
			book(s, way, "weeds by "+way)
			s.say("decline")
			s.reads("nothing booked", "the person gave none")
			what = book(s, way, "moss by "+way)
			s.say("/stop")
			s.hear("Stopped")
			if way == "old" {
				s.w.repeat("the end of the call", func() bool { _, no := n.count(what); return no == 1 })
			}
			s.rows(0, "outbox WHERE state IN ('waiting', 'sending')")
		}
		book(s, "now", "tulips")
	})
	p.kill()
	p = begin()
	w.onAll(platforms, func(s *scene) {
		s.say("5")
		s.reads("How many tulips on "+s.name, "(2 of 2)")
	})
	p.kill()
	p = begin()
	w.onAll(platforms, func(s *scene) {
		s.say("red")
		s.hear("booked 5 red tulips on " + s.name)
		if booked, _ := n.count("tulips on " + s.name); booked != 1 {
			s.t.Errorf("%s: %d bookings, want one", s.name, booked)
		}
		book(s, "old", "ferns")
	})
	p.kill()
	begin()
	w.onAll(platforms, func(s *scene) {
		s.hear("the tools said The gateway was restarted while this call ran")
		if booked, _ := n.count("ferns on " + s.name); booked != 0 {
			s.t.Errorf("%s: %d bookings that nobody has wanted", s.name, booked)
		}
		s.ask("thanks", "you said thanks")
	})
}
