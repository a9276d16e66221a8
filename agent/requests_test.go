package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/agent/llm/openai"
	"gateway/agent/llm/openai/openaitest"
	"gateway/agent/pool"
	"gateway/agent/prompt"
	"gateway/agent/tool"
	"gateway/agent/turn"
	"gateway/bus"
)

var update = flag.Bool("update", false, "write what the tests got into testdata")

// A recorder is a fake model server in memory that gives prepared replies.
type recorder struct {
	server *openaitest.Server

	mu      sync.Mutex
	replies []openaitest.Reply
}

// record makes the dispatchers use the real client with a fake server behind it.
func (w *world) record(replies ...openaitest.Reply) *recorder {
	r := &recorder{replies: replies}
	r.server = openaitest.New(func(openaitest.Request) openaitest.Reply {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.replies) == 0 {
			return openaitest.Reply{Text: []string{"more than was prepared"}}
		}
		reply := r.replies[0]
		r.replies = r.replies[1:]
		return reply
	})
	w.deps.Model = openai.New("recorded", "fake-model", &openai.Options{
		BaseURL: "http://model.invalid/v1", Key: "secret",
		HTTP: &http.Client{Transport: r},
	})
	return r
}

// RoundTrip implements [http.RoundTripper].
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	r.server.ServeHTTP(answer, req)
	return answer.Result(), nil
}

func says(text string) openaitest.Reply { return openaitest.Reply{Text: []string{text}} }

func cutOff(text string) openaitest.Reply {
	return openaitest.Reply{Text: []string{text}, Finish: "length"}
}

// calls returns a reply that calls the tool "look" with each of the subjects.
func calls(subjects ...string) openaitest.Reply {
	r := openaitest.Reply{Text: []string{"I look."}}
	for _, s := range subjects {
		r.ToolCalls = append(r.ToolCalls, openaitest.ToolCall{
			ID: "call_" + s, Name: "look", Arguments: `{"at": "` + s + `"}`,
		})
	}
	return r
}

type lookArgs struct {
	At string `json:"at" jsonschema:"what to look at"`
}

// TestRequests compares the last request to a provider for each kind of turn with the indented
// JSON in testdata/requests.
func TestRequests(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		replies []openaitest.Reply
		play    func(w *world)
	}{
		{"first", nil, func(w *world) { w.say("a", "hello <b>&") }},
		{"second", []openaitest.Reply{says("hi")}, func(w *world) { w.say("a", "hello", "again") }},
		{"group", nil, func(w *world) {
			m := w.message("a", "what do you think?")
			m.Group, m.ChatTitle = true, "Friends"
			m.ReplyTo = &bus.Quote{ID: "9", Sender: "Bob", Text: "It will \"rain\".\nSurely."}
			w.put(m)
		}},
		{"forwarded", nil, func(w *world) {
			m := w.message("a", "Breaking: nothing happened.")
			m.Forwarded = "The Times"
			w.put(m)
		}},
		{"tool", []openaitest.Reply{calls("sky")}, func(w *world) { w.say("a", "is it raining?") }},
		{"parallel-tools", []openaitest.Reply{calls("sky", "sea", "")},
			func(w *world) { w.say("a", "sky and sea?") }},
		{"steered", []openaitest.Reply{calls("slow")},
			func(w *world) { w.say("a", "look", "look again") }},
		{"followed-up", []openaitest.Reply{{Text: []string{"one"}, First: time.Second}},
			func(w *world) { w.say("a", "first", "second", "third") }},
		{"collected", nil, func(w *world) {
			w.say("a", "/queue collect", "first", "second\nof two lines")
			m := w.message("a", "third")
			m.Group, m.Sender.Name = true, "Bob"
			w.put(m)
		}},
		{"resumed", nil, func(w *world) {
			w.must(w.stop())
			lost := intent("send", "look")
			lost.ToolCalls[1].Arguments = `{"at": "sky"}`
			w.leave("a", "send it", 1, lost)
			w.start()
		}},
		{"continued", []openaitest.Reply{cutOff("To begin "), cutOff("with, ")},
			func(w *world) { w.say("a", "tell me all") }},
		{"round-limit", []openaitest.Reply{calls("sky"), calls("sea"), calls("land")},
			func(w *world) { w.say("a", "look around") }},
		{"blank", []openaitest.Reply{says(""), says("\n")}, func(w *world) { w.say("a", "well?") }},
		{"failed", []openaitest.Reply{{Fault: openaitest.Fault{Status: 401}}},
			func(w *world) { w.say("a", "hello", "again") }},
		{"stopped", []openaitest.Reply{calls("sky", "slow")},
			func(w *world) { w.say("a", "look", "/stop", "go on") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				recorder := w.record(test.replies...)
				w.opts = Options{Name: "Robin", Settings: pool.Settings{
					Settings: turn.Settings{MaxRounds: 3, MaxOutput: 4096}}}
				w.tools(tool.New("look", "Looks at something.", tool.Pure, look),
					act("send", tool.Once, always("sent")))
				w.start()
				test.play(w)
				w.sleep(time.Minute)
				requests := recorder.server.Requests()
				if got, want := len(requests), len(test.replies)+1; got != want {
					t.Errorf("%d requests, want %d", got, want)
				}
				wantGolden(t, test.name, requests[len(requests)-1].Body)
			})
		})
	}
}

// look is a tool that takes a second for "slow" and fails for "".
func look(ctx context.Context, _ tool.Call, a lookArgs) (tool.Result, error) {
	if a.At == "slow" {
		select {
		case <-ctx.Done():
			return tool.Result{}, ctx.Err()
		case <-time.After(time.Second):
		}
	}
	if a.At == "" {
		return tool.Result{}, errors.New("nothing to look at")
	}
	return tool.Result{Text: "The " + a.At + " is blue."}, nil
}

// wantGolden compares a request with testdata/requests, except for the platform of the machine.
func wantGolden(t *testing.T, name string, body []byte) {
	t.Helper()
	var got bytes.Buffer
	if err := json.Indent(&got, body, "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	text := strings.ReplaceAll(got.String(), "Platform: "+prompt.Platform, "Platform: this one")
	file := filepath.Join("testdata", "requests", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("request differs from %s (see -update); it is\n%s", file, text)
	}
}
