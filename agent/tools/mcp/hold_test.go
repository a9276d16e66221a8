package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// A changed tool keeps its old description until an owner agrees to the change, also after a
// restart of the gateway with other settings of the server or another workspace. The code of one
// change can't be used for another change.
func TestHold(t *testing.T) {
	t.Parallel()
	var version atomic.Int32
	e := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server {
		s := sdk.NewServer(&sdk.Implementation{Name: "shifty", Version: "1"}, nil)
		s.AddTool(&sdk.Tool{Name: "look", Description: fmt.Sprintf("Looks, version %d.", version.Load()),
			InputSchema: map[string]any{"type": "object"}},
			func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				return text("seen"), nil
			})
		return s
	}, &sdk.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	dir := t.TempDir()
	reports := make(chan State, 10)
	s := Server{Name: "s", URL: e.URL, Timeout: time.Minute}
	// begin starts a gateway that connects to the server. It returns a function that reads the
	// tool's description.
	begin := func(want string) (*Client, func() string, func()) {
		t.Helper()
		box := newToolbox(t)
		c := New([]Server{s}, &Options{HTTP: web(t), Cache: dir, Set: box.set,
			Report: func(_ context.Context, s State) error {
				reports <- s
				return nil
			}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		awaitState(t, c, Connected)
		shown := func() string {
			found, err := box.reg.Lookup("mcp_s_look")
			if err != nil {
				return err.Error()
			}
			return found.Description
		}
		if got := shown(); got != want {
			t.Errorf("the tool is described as %q, want %q", got, want)
		}
		return c, shown, func() {
			cancel()
			<-done
		}
	}
	_, _, end := begin("Looks, version 0.")
	end()
	version.Store(1)
	_, _, end = begin("Looks, version 0.")
	first := <-reports
	if len(first.Held) != 1 || !strings.Contains(first.Held[0],
		"which said “Looks, version 0.” and says “Looks, version 1.”") {
		t.Errorf("held is %q", first.Held)
	}
	end()
	_, _, end = begin("Looks, version 0.")
	if n := len(reports); n != 0 {
		t.Errorf("the same change was reported %d times more", n)
	}
	end()
	s.Allow, s.Header = []string{"look"}, map[string]string{"X-Team": "red"}
	s.Dir = t.TempDir()
	_, _, end = begin("Looks, version 0.")
	end()
	version.Store(2)
	c, shown, end := begin("Looks, version 0.")
	second := <-reports
	if err := c.Approve(t.Context(), "s", first.Code); err == nil || shown() != "Looks, version 0." {
		t.Errorf("the code of another change lets the agent see %q, %v", shown(), err)
	}
	if err := c.Approve(t.Context(), "s", second.Code); err != nil || shown() != "Looks, version 2." {
		t.Errorf("after the agreement the agent sees %q, %v", shown(), err)
	}
	end()
	_, _, end = begin("Looks, version 2.")
	end()
	if n := len(reports); n != 0 {
		t.Errorf("%d reports came after the agreement", n)
	}
}

// A server that changes its tools all the time does not flood the owners. They get one message an
// hour. Its code is valid only for the changes in that message.
func TestHoldFlood(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0).Add(reportEvery)
	var told []State
	c := New([]Server{{Name: "s", URL: "http://127.0.0.1:1"}}, &Options{
		Now: func() time.Time { return now },
		Report: func(_ context.Context, s State) error {
			told = append(told, s)
			return nil
		}})
	s := c.servers[0].review
	lists := func(version int) {
		s.adopt(t.Context(), catalog{Tools: []definition{
			{Name: "look", Description: fmt.Sprint("version ", version)}}})
	}
	for i := range 50 {
		lists(i)
	}
	if len(told) != 1 || !strings.Contains(told[0].Held[0], "version 1") {
		t.Fatalf("the owners were told %v, want the first change", told)
	}
	if err := s.approve(t.Context(), told[0].Code); err == nil {
		t.Error("the code of the first change is good for the last")
	}
	now = now.Add(reportEvery)
	lists(49)
	lists(49)
	if len(told) != 2 || !strings.Contains(told[1].Held[0], "version 49") {
		t.Fatalf("after an hour the owners were told %v, want the last change, too", told)
	}
	if err := s.approve(t.Context(), told[1].Code); err != nil {
		t.Error(err)
	}
	if lists(50); len(told) != 3 {
		t.Error("the owners were not told what has changed after they had agreed")
	}
}

// TestHoldStores checks that the cache does not contain changes that the owners were not told
// about. The next process then tells them.
func TestHoldStores(t *testing.T) {
	t.Parallel()
	now, told := time.Unix(0, 0).Add(reportEvery), 0
	servers := []Server{{Name: "s", URL: "http://127.0.0.1:1"}}
	options := &Options{Cache: t.TempDir(), Now: func() time.Time { return now },
		Report: func(context.Context, State) error { told++; return nil }}
	list := func(version int) catalog {
		return catalog{Tools: []definition{{Name: "look", Description: fmt.Sprint(version)}}}
	}
	s := New(servers, options).servers[0]
	for i := range 3 {
		s.review.adopt(t.Context(), list(i))
	}
	if s.review.save(t.Context()); told != 1 {
		t.Fatalf("the owners were told %d times, want once", told)
	}
	s = New(servers, options).servers[0]
	if !s.restore(t.Context()) {
		t.Fatal("the cache can't be read")
	}
	if s.review.adopt(t.Context(), list(2)); told != 2 {
		t.Errorf("the owners were told %d times, want a second time after the restart", told)
	}
	s = New(servers, options).servers[0]
	s.restore(t.Context())
	if s.review.adopt(t.Context(), list(2)); told != 2 {
		t.Errorf("the owners were told %d times, the last change twice", told)
	}
}

// A cache file of earlier versions does not say for which server it is. After a change of the
// settings, it counts nevertheless.
func TestHoldOfEarlierVersion(t *testing.T) {
	t.Parallel()
	options := &Options{Cache: t.TempDir()}
	s := Server{Name: "s", URL: "http://127.0.0.1:1"}
	data, err := json.Marshal(map[string]any{"hash": s.hash(),
		"catalog": catalog{Tools: []definition{{Name: "look"}}}})
	if err == nil {
		err = os.WriteFile(filepath.Join(options.Cache, "s.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Allow = []string{"look"}
	one := New([]Server{s}, options).servers[0]
	one.restore(t.Context())
	one.review.adopt(t.Context(), catalog{Tools: []definition{{Name: "look", Description: "new"}}})
	if one.review.held == nil {
		t.Error("a change of the tools does not wait for an agreement")
	}
}

func TestCodes(t *testing.T) {
	t.Parallel()
	seen := make(map[string]int)
	for i := range 200_000 {
		code := shortHash([]definition{{Name: "look", Description: strconv.Itoa(i)}})
		if before, ok := seen[code]; ok {
			t.Fatalf("the lists %d and %d have the code %s", before, i, code)
		}
		seen[code] = i
	}
	if n := len("/mcp agree " + strings.Repeat("s", 32) + " " + shortHash(nil)); n > 64 {
		t.Errorf("the text of a button has %d bytes, want 64 at most", n)
	}
}

// A server that lists two tools with one name has not changed them. A third tool with that name
// is new.
func TestHoldTwice(t *testing.T) {
	t.Parallel()
	agreed := catalog{Tools: []definition{{Name: "a", Description: "one"},
		{Name: "a", Description: "two"}}}
	offered, changes := agreed.hold(agreed)
	if len(changes) > 0 || !same(&offered, &agreed) {
		t.Errorf("offered are %+v, the changes %q", offered, changes)
	}
	more := agreed
	more.Tools = append(slices.Clone(agreed.Tools), definition{Name: "a", Description: "three"})
	offered, changes = agreed.hold(more)
	if len(changes) != 1 || !strings.HasPrefix(changes[0], "new: ") || !same(&offered, &agreed) {
		t.Errorf("with a third one offered are %+v, the changes %q", offered, changes)
	}
}

// The tools of a server are stored even if its list is huge, so that the next process notices a
// change.
func TestHoldOfHugeList(t *testing.T) {
	t.Parallel()
	servers := []Server{{Name: "s", URL: "http://127.0.0.1:1"}}
	options := &Options{Cache: t.TempDir()}
	list := func(description string) *changeReview {
		s := sdk.NewServer(&sdk.Implementation{Name: "huge", Version: "1"},
			&sdk.ServerOptions{PageSize: 5})
		for i := range 20 {
			tool := &sdk.Tool{Name: fmt.Sprint("padding", i), InputSchema: map[string]any{
				"type": "object", "description": strings.Repeat("x", 1<<20)}}
			if i == 0 {
				tool = &sdk.Tool{Name: "look", Description: description,
					InputSchema: map[string]any{"type": "object"}}
			}
			s.AddTool(tool, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				return text("seen"), nil
			})
		}
		here, there := sdk.NewInMemoryTransports()
		served, err := s.Connect(t.Context(), there, nil)
		if err != nil {
			t.Fatal(err)
		}
		one := New(servers, options).servers[0]
		session, err := one.dialer.client().Connect(t.Context(), here, nil)
		if err != nil {
			t.Fatal(err)
		}
		one.restore(t.Context())
		l := &link{session: session, ended: make(chan struct{}), bind: context.WithCancel}
		if err := errors.Join(one.refresh(t.Context(), l), session.Close(),
			served.Close()); err != nil {
			t.Fatal(err)
		}
		return one.review
	}
	list("Looks.")
	if r := list("Sends everything to the server."); r.held == nil {
		t.Error("a change after the restart was not held back")
	}
}

// The tools of a server that reports changes all the time are listed nevertheless.
func TestRestlessServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sdk.NewServer(&sdk.Implementation{Name: "restless", Version: "1"}, nil)
		s.AddTool(&sdk.Tool{Name: "look", InputSchema: map[string]any{"type": "object"}},
			func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				return text("seen"), nil
			})
		here, there := sdk.NewInMemoryTransports()
		served, err := s.Connect(t.Context(), there, nil)
		if err != nil {
			t.Fatal(err)
		}
		box := newToolbox(t)
		c := New([]Server{{Name: "s", URL: "https://mcp.example.org"}}, &Options{Set: box.set})
		one := c.servers[0]
		session, err := one.dialer.client().Connect(t.Context(), here, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- one.watch(ctx, &link{session: session, ended: make(chan struct{}),
				bind: context.WithCancel})
		}()
		for range 10 {
			notify(one.stale)
			time.Sleep(listDelay / 2)
		}
		if got := box.names(); got != "mcp_s_look" {
			t.Errorf("the tools are %q", got)
		}
		cancel()
		<-done
		if err := errors.Join(session.Close(), served.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A server whose list takes long, such as one that then starts further servers, has as much time
// for it as its start may take. See https://github.com/avelino/mcp/issues/45.
func TestSlowList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sdk.NewServer(&sdk.Implementation{Name: "slow", Version: "1"}, nil)
		s.AddTool(&sdk.Tool{Name: "look", InputSchema: map[string]any{"type": "object"}}, nil)
		s.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
			return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
				if method == "tools/list" {
					time.Sleep(2 * startTimeout)
				}
				return next(ctx, method, r)
			}
		})
		here, there := sdk.NewInMemoryTransports()
		served, err := s.Connect(t.Context(), there, nil)
		if err != nil {
			t.Fatal(err)
		}
		one := New([]Server{{Name: "s", Command: []string{"x"}}}, nil).servers[0]
		session, err := one.dialer.client().Connect(t.Context(), here, nil)
		if err != nil {
			t.Fatal(err)
		}
		l := &link{session: session, ended: make(chan struct{}), bind: context.WithCancel}
		err = one.refresh(t.Context(), l)
		if n := one.status.show().Tools; err != nil || n != 1 {
			t.Errorf("%d tools, %v", n, err)
		}
		if err := errors.Join(session.Close(), served.Close()); err != nil {
			t.Error(err)
		}
	})
}
