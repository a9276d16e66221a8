package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"gateway/agent/llm"
	"gateway/agent/llm/openai/openaitest"
	"gateway/agent/llm/wire"
)

var timeTool = llm.ToolSpec{Name: "time", Description: "tells the time"}

// conversation returns a request whose history has one call of a tool, without arguments and
// without a result text.
func conversation(extra map[string]json.RawMessage) llm.Request {
	return llm.Request{
		Messages: []llm.Message{
			{Role: llm.System, Text: "be brief"},
			{Role: llm.User, Text: "<hi> & you?"},
			{Role: llm.Assistant, Reasoning: "why not", Extra: extra, ToolCalls: []llm.ToolCall{
				{ID: "c1", Name: "time", Extra: map[string]json.RawMessage{"sig": []byte(`"S"`)}},
			}},
			{Role: llm.ToolRole, ToolCallID: "c1"},
		},
		Tools:     []llm.ToolSpec{timeTool},
		MaxOutput: 100,
	}
}

func TestBody(t *testing.T) {
	const messages = `"messages":[{"role":"system","content":"be brief"},` +
		`{"role":"user","content":"<hi> & you?"},` +
		`{"role":"assistant","content":"",%s"tool_calls":[{"id":"c1","type":"function",` +
		`"function":{"name":"time","arguments":"{}"}%s}]%s},` +
		`{"role":"tool","content":"","tool_call_id":"c1"}],` +
		`%s"stream":true,"stream_options":{"include_usage":true}`
	const tools = `,"tools":[{"type":"function","function":{"name":"time",` +
		`"description":"tells the time","parameters":{"type":"object","properties":{}}}}]`
	tests := map[string]struct {
		id, base string
		extra    map[string]json.RawMessage
		fields   map[string]json.RawMessage
		want     string
	}{
		"plain": {"m", "http://h/v1", nil, nil,
			fmt.Sprintf(messages, "", `,"sig":"S"`, "", `"max_tokens":100,`)},
		"extra": {"m", "http://h/v1",
			map[string]json.RawMessage{"b": []byte(`[1]`), "a": []byte(`2`)}, nil,
			fmt.Sprintf(messages, "", `,"sig":"S"`, `,"a":2,"b":[1]`, `"max_tokens":100,`)},
		"its own": {"m", "http://h/v1",
			map[string]json.RawMessage{"a": []byte(`2`), originKey: []byte(`"h"`)}, nil,
			fmt.Sprintf(messages, "", `,"sig":"S"`, `,"a":2`, `"max_tokens":100,`)},
		"another's": {"m", "http://h/v1",
			map[string]json.RawMessage{"a": []byte(`2`), originKey: []byte(`"g"`)}, nil,
			fmt.Sprintf(messages, "", "", "", `"max_tokens":100,`)},
		"reasoning back": {"kimi-k2", "http://h/v1", nil, nil,
			fmt.Sprintf(messages, `"reasoning_content":"why not",`, `,"sig":"S"`, "",
				`"max_tokens":100,`)},
		"official": {"gpt-4o", "", nil, nil,
			fmt.Sprintf(messages, "", `,"sig":"S"`, "", `"max_completion_tokens":100,`)},
		"reasoning model": {"openai/gpt-5", "http://h/v1", nil, nil,
			fmt.Sprintf(messages, "", `,"sig":"S"`, "", `"max_completion_tokens":100,`)},
		"tools without reasoning": {"gpt-6-sol", "", nil, nil,
			fmt.Sprintf(messages, "", `,"sig":"S"`, "",
				`"max_completion_tokens":100,"reasoning_effort":"none",`)},
		"fields": {"m", "http://h/v1", nil,
			map[string]json.RawMessage{"temperature": []byte(`0`), "model": []byte(`"no"`)},
			fmt.Sprintf(messages, "", `,"sig":"S"`, "", `"max_tokens":100,`) + `,"temperature":0`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := New("test", tt.id, &Options{BaseURL: tt.base, Fields: tt.fields})
			for range 2 { // the second time, the tools are in the cache
				pieces, err := m.body(conversation(tt.extra))
				if err != nil {
					t.Fatal(err)
				}
				got := bytes.Join(pieces, nil)
				want := `{"model":"` + tt.id + `",` + tt.want + tools + `}`
				if string(got) != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			}
		})
	}
}

// Each message of the assistant has reasoning, also one that another model or the gateway wrote,
// with or without a call. See https://github.com/NousResearch/hermes-agent/issues/16021.
func TestReasoningPlaceholder(t *testing.T) {
	req := conversation(nil)
	req.Messages[2].Reasoning = ""
	req.Messages = append(req.Messages, llm.Message{Role: llm.Assistant, Text: "noon"},
		llm.Message{Role: llm.User, Text: "thanks"})
	for id, want := range map[string]int{"kimi-k2": 2, "deepseek-v4-pro": 2, "gpt-4.1": 0} {
		pieces, err := New("test", id, nil).body(req)
		body := bytes.Join(pieces, nil)
		n := bytes.Count(body, []byte(`"reasoning_content":" "`))
		if err != nil || n != want || bytes.Count(body, []byte("reasoning_content")) != want {
			t.Errorf("%s: got %s, %v", id, body, err)
		}
	}
}

// Groq and others refuse a request that has a field in a message that they do not know, even one
// that they have sent.
func TestStrictMessages(t *testing.T) {
	for _, tt := range []struct {
		base, id string
		want     bool // the fields are sent back
	}{
		{"https://api.groq.com/openai/v1", "openai/gpt-oss-120b", false},
		{"https://api.groq.com/openai/v1", "moonshotai/kimi-k2-instruct", false},
		{"https://api.cerebras.ai/v1", "gpt-oss-120b", false},
		{"https://api.mistral.ai/v1", "mistral-medium-latest", false},
		{"https://openrouter.ai/api/v1", "moonshotai/kimi-k2", true},
	} {
		m := New("test", tt.id, &Options{BaseURL: tt.base})
		a := &answer{}
		for _, piece := range []string{`"role":"assistant","reasoning":"hm","channel":"analysis"`,
			`"tool_calls":[{"index":0,"id":"fc_1","function":{"name":"time"},"x":1}]`} {
			var c chunk
			if err := json.Unmarshal([]byte(`{"choices":[{"delta":{`+piece+`}}]}`), &c); err != nil {
				t.Fatal(err)
			}
			a.add(&c)
		}
		req := ask("time?")
		req.Messages = append(req.Messages, a.response(req, "test", m.origin).Message,
			llm.Message{Role: llm.ToolRole, ToolCallID: "fc_1", Text: "noon"})
		pieces, err := m.body(req)
		if err != nil {
			t.Fatal(err)
		}
		body := bytes.Join(pieces, nil)
		for _, field := range []string{`"channel"`, `"reasoning_content"`, `"x"`} {
			if got := bytes.Contains(body, []byte(field)); got != tt.want {
				t.Errorf("%s %s: %s sent: %t, want %t", tt.base, tt.id, field, got, tt.want)
			}
		}
	}
}

// Models that go-openai checks with its own rules reach the provider nevertheless.
func TestNoClientSideRules(t *testing.T) {
	ids := []string{"gpt-5", "o3-mini", "gpt-6-sol", "gpt-6-astra", "text-davinci-003"}
	for _, id := range ids {
		srv, _ := start(t, nil)
		m := newModel(t, srv, id, Options{MaxTokensField: MaxTokens})
		if _, _, err := collect(t.Context(), m, conversation(nil)); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// The model's own answer, with its extra fields, is sent back in a form that the strict server
// accepts.
func TestRoundTrip(t *testing.T) {
	call := `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function",` +
		`"function":{"name":"time","arguments":""},"extra_content":{"google":{"sig":"S"}}}]}}]}`
	detail := `data: {"choices":[{"delta":{"reasoning_details":` +
		`[{"type":"t","index":0,"text":"TEXT"}]}}]}`
	srv, m := start(t, func(r openaitest.Request) openaitest.Reply {
		if len(r.Messages) > 2 {
			return openaitest.Reply{Text: []string{"noon"}}
		}
		return openaitest.Reply{Frames: []string{
			strings.Replace(detail, "TEXT", "a", 1), strings.Replace(detail, "TEXT", "b", 1),
			call, strings.Replace(stop, "stop", "tool_calls", 1), done,
		}}
	})
	req := ask("time?")
	req.Tools = []llm.ToolSpec{timeTool}
	_, resp, err := collect(t.Context(), m, req)
	if err != nil {
		t.Fatal(err)
	}
	req.Messages = append(req.Messages, resp.Message,
		llm.Message{Role: llm.ToolRole, ToolCallID: resp.Message.ToolCalls[0].ID})
	if _, _, err := collect(t.Context(), m, req); err != nil {
		t.Fatal(err)
	}
	sent := string(srv.Requests()[1].Body)
	for _, want := range []string{
		`"reasoning_details":[{"index":0,"text":"ab","type":"t"}]`,
		`"extra_content":{"google":{"sig":"S"}}`,
	} {
		if !strings.Contains(sent, want) {
			t.Errorf("%s is not in %s", want, sent)
		}
	}
	if strings.Contains(sent, originKey) {
		t.Errorf("the mark was sent: %s", sent)
	}
}

func TestToolCalls(t *testing.T) {
	tests := map[string]struct {
		deltas []string
		want   []string // "id name arguments"; no id if the client creates it
	}{
		"in pieces": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]`,
			`[{"index":0,"function":{"arguments":"{\"x\":"}}]`,
			`[{"index":0,"function":{"arguments":"1}"}}]`,
		}, []string{`a f {"x":1}`}},
		"interleaved": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}},` +
				`{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}]`,
			`[{"index":1,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":"}"}}]`,
		}, []string{"a f {}", "b g {}"}},
		"no index": {[]string{
			`[{"id":"a","function":{"name":"f","arguments":"{"}}]`,
			`[{"function":{"arguments":"}"}}]`,
			`[{"id":"b","function":{"name":"f","arguments":"{}"}}]`,
		}, []string{"a f {}", "b f {}"}},
		"whole, all index 0": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]`,
			`[{"index":0,"id":"b","function":{"name":"f","arguments":"{}"}}]`,
		}, []string{"a f {}", "b f {}"}},
		"whole, no ids": {[]string{
			`[{"function":{"name":"f","arguments":"{}"}},` +
				`{"function":{"name":"f","arguments":"{}"}}]`,
			`[{"id":"","function":{"name":"g","arguments":"{}"}}]`,
		}, []string{" f {}", " f {}", " g {}"}},
		"same id": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]`,
			`[{"index":1,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]`,
		}, []string{"a f {}", ` f {"x":1}`}},
		"id of an earlier turn": {[]string{
			`[{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}}]`,
		}, []string{" f {}"}},
		"repeated id and name": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]`,
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}]`,
		}, []string{"a f {}"}},
		"other index for the arguments": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]`,
			`[{"index":0,"function":{"arguments":"1}"}}]`,
			`[{"index":0,"id":"b","function":{"name":"g","arguments":"{\"y\""}}]`,
			`[{"index":1,"function":{"arguments":":2"}}]`,
			`[{"index":1,"id":"b","function":{"arguments":"}"}}]`,
		}, []string{`a f {"x":1}`, `b g {"y":2}`}},
		"object": {[]string{
			`[{"id":"a","function":{"name":"f","arguments":{"x":1}}}]`,
		}, []string{`a f {"x":1}`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { checkDeltas(t, tt.deltas, tt.want) })
	}
}

func checkCalls(t *testing.T, calls []llm.ToolCall, want []string) {
	t.Helper()
	ids := []string{"c1"} // the ids in the conversation
	var got []string
	for i, c := range calls {
		if c.ID == "" || slices.Contains(ids, c.ID) {
			t.Errorf("id %q is not unique", c.ID)
		}
		ids = append(ids, c.ID)
		id := c.ID
		if i < len(want) && strings.HasPrefix(want[i], " ") {
			id = ""
		}
		got = append(got, id+" "+c.Name+" "+c.Arguments)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An id of a call may contain data of the provider that created it. The id is sent back unchanged
// to this provider only.
func TestIDsThatMeanSomething(t *testing.T) {
	for _, id := range []string{"functions.time:0", "call_1__thought__c2ln+/="} {
		for host, want := range map[string]bool{"h": true, "g": false} {
			req := conversation(map[string]json.RawMessage{originKey: []byte(`"` + host + `"`)})
			req.Messages[2].ToolCalls[0].ID, req.Messages[3].ToolCallID = id, id
			pieces, err := New("test", "m", &Options{BaseURL: "http://h/v1"}).body(req)
			if err != nil {
				t.Fatal(err)
			}
			body := bytes.Join(pieces, nil)
			if n := strings.Count(string(body), `"`+id+`"`); n != 2 && want || n != 0 && !want {
				t.Errorf("%s of %s stands %d times in %s", id, host, n, body)
			}
		}
	}
}

// Gemini refuses calls without a signature, such as those that another model has made before it
// failed. See https://github.com/nesquena/hermes-webui/issues/6333.
func TestCallsOfOthersForGemini(t *testing.T) {
	const google = "generativelanguage.googleapis.com"
	const skipped = `"extra_content":{"google":{"thought_signature":` +
		`"skip_thought_signature_validator"}}`
	own := json.RawMessage(`{"google":{"thought_signature":"S"}}`)
	for _, tt := range []struct {
		model, origin string
		extra         json.RawMessage
		want          bool
	}{
		{"gemini-3.6-flash", "elsewhere", nil, true},
		{"gemini-flash-latest", google, nil, true},
		{"gemini-3.6-flash", google, own, false},
		{"gemini-3.6-flash", "elsewhere", own, true},
		{"gemini-2.5-flash", "elsewhere", nil, false},
	} {
		req := conversation(map[string]json.RawMessage{originKey: []byte(`"` + tt.origin + `"`)})
		call := &req.Messages[2].ToolCalls[0]
		call.Extra = nil
		if tt.extra != nil {
			call.Extra = map[string]json.RawMessage{"extra_content": tt.extra}
		}
		pieces, err := New("test", tt.model, &Options{
			BaseURL: "https://" + google + "/v1beta/openai"}).body(req)
		if err != nil {
			t.Fatal(err)
		}
		body := bytes.Join(pieces, nil)
		if got := bytes.Count(body, []byte(skipped)); got == 1 != tt.want ||
			bytes.Count(body, []byte("extra_content")) > 1 {
			t.Errorf("%+v: sent %s", tt, body)
		}
	}
}

// Mistral's models require an answer between the results of tools and a message of the user. A
// person may write one while tools run. See
// https://github.com/zed-industries/zed/issues/37021.
func TestUserAfterResults(t *testing.T) {
	call := llm.ToolCall{ID: "abcdefghi", Name: "f", Arguments: "{}"}
	result := llm.Message{Role: llm.ToolRole, ToolCallID: call.ID, Text: "r"}
	req := llm.Request{Messages: []llm.Message{{Role: llm.System, Text: "s"},
		{Role: llm.User, Text: "u"}, {Role: llm.Assistant, ToolCalls: []llm.ToolCall{call, call}},
		result, result, {Role: llm.User, Text: "hurry"}}}
	for model, want := range map[string]string{
		"https://api.mistral.ai/v1 m":                       "user assistant tool tool assistant user",
		"https://openrouter.ai/api/v1 mistralai/Devstral-2": "user assistant tool tool assistant user",
		"http://localhost/v1 ai/ministral3":                 "user assistant tool tool assistant user",
		"https://api.openai.com/v1 gpt-5.4-mini":            "user assistant tool tool user",
	} {
		base, id, _ := strings.Cut(model, " ")
		pieces, err := New("test", id, &Options{BaseURL: base}).body(req)
		if err != nil {
			t.Fatal(err)
		}
		var body struct {
			Messages []struct{ Role, Content string }
		}
		if err := json.Unmarshal(bytes.Join(pieces, nil), &body); err != nil {
			t.Fatal(err)
		}
		var roles []string
		for _, m := range body.Messages[1:] {
			roles = append(roles, m.Role)
			if m.Content == "" && m.Role != "assistant" {
				t.Errorf("%s: %s has no content", model, m.Role)
			}
		}
		if got := strings.Join(roles, " "); got != want {
			t.Errorf("%s: sent %s, want %s", model, got, want)
		}
	}
}

// A body can be read in pieces of any size, and more than once.
func TestOutgoing(t *testing.T) {
	p := outgoing{[]byte("ab"), nil, []byte("cde"), []byte("f")}
	for range 2 {
		got, err := io.ReadAll(iotest.OneByteReader(p.reader()))
		if string(got) != "abcdef" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if err := iotest.TestReader(p.reader(), []byte("abcdef")); err != nil {
		t.Error(err)
	}
	first := make([]byte, 5)
	if n, err := p.reader().Read(first); n != 5 || err != nil || p.size() != 6 {
		t.Errorf("the first read has %d bytes, %v; of %d", n, err, p.size())
	}
}

// TestPlainMessages checks that a message with only text has the same encoding as a message with
// all fields.
func TestPlainMessages(t *testing.T) {
	m := &Model{}
	for _, text := range []string{"", "a", "\"<\\>&\n\x00\u2028", "é 🙂", "broken \xff"} {
		for _, role := range []llm.Role{llm.System, llm.User, llm.Assistant} {
			msg := llm.Message{Role: role, Text: text, Reasoning: "r", Foreign: "f", ForeignRole: "user"}
			want, err := wire.EncodePlain(wireMessage{Role: role, Content: text}, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, got, err := m.messages([]llm.Message{{Role: llm.System}, msg, msg})
			if want := fmt.Sprintf(",%s,%[1]s", want); err != nil || string(got) != want {
				t.Errorf("%q is sent as %s, %v, want %s", text, got, err, want)
			}
		}
	}
}
