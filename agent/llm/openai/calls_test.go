package openai

import (
	"encoding/json"
	"testing"

	"gateway/agent/llm"
)

// Some servers send the arguments of a call again, whole, or send an empty object before them. The
// call is made once, with the arguments that it has.
func TestRepeatedCalls(t *testing.T) {
	tests := map[string]struct {
		deltas []string
		want   []string
	}{
		// Bedrock. See https://github.com/openai/openai-agents-js/pull/712.
		"empty object first": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]`,
			`[{"index":0,"function":{"arguments":"{\"x\""}}]`,
			`[{"index":0,"function":{"arguments":":1}"}}]`,
		}, []string{`a f {"x":1}`}},
		// Gateways before GLM and Cursor. See https://github.com/anomalyco/opencode/pull/17339.
		"whole arguments again": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]`,
			`[{"index":0,"function":{"arguments":"{\"x\":1}"}}]`,
			`[{"index":0,"function":{"arguments":"{\"x\":1}"}}]`,
			`[{"index":0,"function":{"arguments":""}}]`,
		}, []string{`a f {"x":1}`}},
		"whole call again": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]`,
			`[{"index":0,"id":"a","function":{"arguments":"1}"}}]`,
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]`,
		}, []string{`a f {"x":1}`}},
		// LiteLLM. See https://github.com/BerriAI/litellm/issues/20480.
		"whole call again, as a string": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]`,
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"\"{\\\"x\\\":1}\""}}]`,
		}, []string{`a f {"x":1}`}},
		// New API. See https://github.com/QuantumNous/new-api/issues/6278.
		"whole call again, with another number": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]`,
			`[{"index":0,"function":{"arguments":"1}"}}]`,
			`[{"index":1,"id":"a","function":{"name":"f","arguments":"{\"x\": 1}"}}]`,
		}, []string{`a f {"x":1}`}},
		"same id for another call": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]`,
			`[{"index":1,"id":"a","function":{"name":"f","arguments":"{\"x\":2}"}}]`,
		}, []string{`a f {"x":1}`, ` f {"x":2}`}},
		"same id and number for another call": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]`,
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":2}"}}]`,
		}, []string{`a f {"x":1}`, ` f {"x":2}`}},
		"empty object first, with id and name": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]`,
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":2}"}}]`,
		}, []string{`a f {"x":2}`}},
		"equal calls with ids of their own": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]`,
			`[{"index":1,"id":"b","function":{"name":"f","arguments":"{\"x\":1}"}}]`,
		}, []string{`a f {"x":1}`, `b f {"x":1}`}},
		"brace within a text": {[]string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":\"if {}"}}]`,
			`[{"index":0,"function":{"arguments":"{}\"}"}}]`,
		}, []string{`a f {"x":"if {}{}"}`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { checkDeltas(t, tt.deltas, tt.want) })
	}
}

// Some servers leave marks of the model's own format in the name of a tool. See
// https://github.com/vllm-project/vllm/issues/32587, https://github.com/tontinton/maki/pull/518 and
// https://github.com/amd/gaia/issues/3742.
func TestNamesOfCalls(t *testing.T) {
	for written, want := range map[string]string{
		"look<|channel|>commentary": "look", "functions.look": "look", " look\n": "look",
		"functions.look<|constrain|>json": "look", "functions": "functions",
		"<|channel|>analysis": "<|channel|>analysis", "functions.": "functions.",
	} {
		text, err := json.Marshal(written)
		if err != nil {
			t.Fatal(err)
		}
		checkDeltas(t, []string{`[{"id":"a","function":{"name":` + string(text) +
			`,"arguments":"{}"}}]`}, []string{"a " + want + " {}"})
	}
}

// Some servers number their calls instead of naming them. See
// https://github.com/anomalyco/opencode/issues/19947.
func TestNumberedCalls(t *testing.T) {
	checkDeltas(t, []string{
		`[{"index":0,"id":7,"function":{"name":"f","arguments":"{\"x\":"}}]`,
		`[{"index":0,"id":7,"function":{"arguments":"1}"}}]`,
		`[{"index":1,"id":8,"function":{"name":"f","arguments":"{}"}}]`,
	}, []string{`7 f {"x":1}`, `8 f {}`})
}

// checkDeltas checks which calls an answer has if each delta has the given list of calls.
func checkDeltas(t *testing.T, deltas, want []string) {
	t.Helper()
	var lines []string
	for _, d := range deltas {
		lines = append(lines, `data: {"choices":[{"delta":{"tool_calls":`+d+`}}]}`)
	}
	_, m := start(t, frames(append(lines, stop, done)...))
	_, resp, err := collect(t.Context(), m, conversation(nil))
	if err != nil || resp.Finish != llm.FinishToolCalls {
		t.Fatalf("got %+v, %v", resp, err)
	}
	checkCalls(t, resp.Message.ToolCalls, want)
}

// Some servers send an empty call before the model has decided to make one. A call without a name
// does not count, so the text is the answer. See https://github.com/jjang-ai/vmlx/pull/244.
func TestPlaceForCall(t *testing.T) {
	for _, place := range []string{"null", `{"index":0,"id":"","function":{"name":"","arguments":""}}`,
		`{"index":0,"id":"a","function":{"name":"","arguments":""}}`} {
		_, m := start(t, frames(`data: {"choices":[{"delta":{"tool_calls":[`+place+`]}}]}`,
			content("text"), stop, done))
		_, resp, err := collect(t.Context(), m, ask("x"))
		if err != nil || resp.Finish != llm.FinishStop || len(resp.Message.ToolCalls) > 0 {
			t.Errorf("%s: got %+v, %v", place, resp, err)
		}
	}
}
