package llm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"gateway/agent/llm"
	"gateway/agent/llm/anthropic"
	"gateway/agent/llm/openai"
)

// A dialect is a provider as its documentation describes it. The folder testdata/dialects has a
// file for each, with an error and an answer that has a thought, text and a tool call.
type dialect struct {
	Provider      string
	Documentation string
	BaseURL       string `json:"base_url"`
	Model         string
	Fields        []string // of a request; the gateway may send only these
	CallID        string   `json:"call_id"` // a pattern
	Reasoning     bool     // the answer contains its thoughts
	Cached        int      // tokens of the answer's usage
	Error         struct {
		Status int
		Kind   llm.Kind
	}

	stream, failure []byte
	t               *testing.T
	fails           bool                       // the next request fails
	request         map[string]json.RawMessage // the newest request
}

func readDialects(t *testing.T) (list []*dialect) {
	t.Helper()
	files, err := filepath.Glob("testdata/dialects/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialects: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil || len(archive.Files) != 3 {
			t.Fatalf("%s: %d files, %v", file, len(archive.Files), err)
		}
		d := &dialect{t: t, stream: archive.Files[1].Data, failure: archive.Files[2].Data}
		decoder := json.NewDecoder(bytes.NewReader(archive.Files[0].Data))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		list = append(list, d)
	}
	return list
}

// RoundTrip acts as the provider. It reports requests that the documentation does not allow.
func (d *dialect) RoundTrip(r *http.Request) (*http.Response, error) {
	path := d.BaseURL + "/chat/completions"
	if d.Provider == "Anthropic" {
		path = d.BaseURL + "/messages"
	}
	if r.URL.String() != path {
		d.t.Errorf("%s: asked at %s, want %s", d.Provider, r.URL, path)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	d.request = nil
	if err := json.Unmarshal(body, &d.request); err != nil {
		d.t.Errorf("%s: %v", d.Provider, err)
	}
	for name := range d.request {
		if !slices.Contains(d.Fields, name) {
			d.t.Errorf("%s does not know the field %s", d.Provider, name)
		}
	}
	for _, id := range callID.FindAllSubmatch(d.request["messages"], -1) {
		if pattern := regexp.MustCompile(d.CallID); !pattern.Match(id[1]) {
			d.t.Errorf("%s refuses the call id %s", d.Provider, id[1])
		}
	}
	resp := &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(d.stream))}
	resp.Header.Set("Content-Type", "text/event-stream")
	if d.fails {
		resp.StatusCode, resp.Body = d.Error.Status, io.NopCloser(bytes.NewReader(d.failure))
		resp.Header.Set("Content-Type", "application/json")
	}
	return resp, nil
}

var callID = regexp.MustCompile(`"(?:tool_call_id|id)":"([^"]*)"`)

// model returns the model of a dialect as the gateway creates it.
func (d *dialect) model() llm.Model {
	client := &http.Client{Transport: d}
	if d.Provider == "Anthropic" {
		return anthropic.New("m", d.Model, &anthropic.Options{BaseURL: d.BaseURL, Key: "k", HTTP: client})
	}
	return openai.New("m", d.Model, &openai.Options{BaseURL: d.BaseURL, Key: "k", HTTP: client})
}

// ask sends a request within a conversation that another provider began.
func (d *dialect) ask(effort llm.Effort) (text string, r *llm.Response, err error) {
	call := llm.ToolCall{ID: "call_DdmO9pD3xa9XTPNJ32zg2hcA", Name: "look", Arguments: "{}"}
	req := llm.Request{Effort: effort, MaxOutput: 4000, Messages: []llm.Message{
		{Role: llm.System, Text: "You help."}, {Role: llm.User, Text: "look"},
		{Role: llm.Assistant, ToolCalls: []llm.ToolCall{call}},
		{Role: llm.ToolRole, ToolCallID: call.ID, Text: "nothing"}, {Role: llm.User, Text: "again"},
	}, Tools: []llm.ToolSpec{{Name: "look", Schema: json.RawMessage(`{"type":"object"}`)}}}
	for e, err := range d.model().Stream(d.t.Context(), req) {
		if err != nil {
			return "", nil, err
		}
		text += e.Text
		r = e.Response
	}
	return text, r, nil
}

// The gateway sends each provider only documented fields, and reads the answers and errors of the
// provider's documentation.
func TestDialects(t *testing.T) {
	for _, d := range readDialects(t) {
		for _, effort := range append(llm.Efforts(d.model()), llm.EffortDefault) {
			text, r, err := d.ask(effort)
			if err != nil || r == nil {
				t.Errorf("%s: %v", d.Provider, err)
				continue
			}
			calls := r.Message.ToolCalls
			if text != "I look." || r.Message.Text != text || r.Finish != llm.FinishToolCalls ||
				len(calls) != 1 || calls[0].Name != "look" || calls[0].ID == "" ||
				strings.ReplaceAll(calls[0].Arguments, " ", "") != `{"path":"."}` {
				t.Errorf("%s: answered %q, %+v", d.Provider, text, r)
			}
			if d.Reasoning && r.Message.Reasoning != "A folder." {
				t.Errorf("%s: thought %q", d.Provider, r.Message.Reasoning)
			}
			if want := (llm.Usage{Input: 80, Output: 18, Cached: d.Cached}); r.Usage != want {
				t.Errorf("%s: used %+v, want %+v", d.Provider, r.Usage, want)
			}
		}
		d.fails = true
		_, _, err := d.ask(llm.EffortDefault)
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != d.Error.Kind {
			t.Errorf("%s: failed with %v, want %s", d.Provider, err, d.Error.Kind)
		}
	}
}

// The table in docs/models.md has a row for each dialect. The row agrees with the requests that
// the gateway sends.
func TestDialectTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "| provider | `base_url` | tried with | limit of an answer | `/think` |\n"
	_, rest, ok := strings.Cut(string(page), head)
	table, _, ends := strings.Cut(rest, "\n\n")
	if !ok || !ends {
		t.Fatalf("docs/models.md has no table with the head\n%s", head)
	}
	rows := strings.Split(table, "\n")[1:]
	for _, d := range readDialects(t) {
		if _, _, err := d.ask(llm.EffortDefault); err != nil {
			t.Fatal(err)
		}
		limit := "max_tokens"
		if d.request[limit] == nil {
			limit = "max_completion_tokens"
		}
		var words []string
		for _, e := range llm.Efforts(d.model()) {
			words = append(words, string(e))
		}
		if words == nil {
			words = []string{"no"}
		}
		row := fmt.Sprintf("| [%s](%s) | `%s` | %s | %s | %s |", d.Provider, d.Documentation,
			d.BaseURL, d.Model, limit, strings.Join(words, ", "))
		i := slices.Index(rows, row)
		if i < 0 {
			t.Errorf("the table lacks\n%s", row)
			continue
		}
		rows = slices.Delete(rows, i, i+1)
	}
	for _, row := range rows {
		t.Errorf("no dialect was tried for\n%s", row)
	}
}
