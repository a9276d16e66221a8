package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/openai/openaitest"
	"gateway/agent/llm/wire"
)

func TestStatus(t *testing.T) {
	tests := map[string]struct {
		status int
		body   string
		want   llm.Kind
	}{
		"no key": {401, `{"error":{"message":"no","code":"invalid_api_key"}}`,
			llm.Unauthorized},
		"no right": {403, `{"error":{"message":"not your project"}}`, llm.Forbidden},
		"Gemini's key": {400, `[{"error":{"code":400,"message":"API key not valid."}}]`,
			llm.Unauthorized},
		"no money": {402, `{"error":{"message":"Insufficient credits"}}`, llm.OutOfQuota},
		"quota as 429": {429, `{"error":{"code":"insufficient_quota","message":"x"}}`,
			llm.OutOfQuota},
		"balance": {429, `{"error":{"message":"exceeded_current_quota_error"}}`,
			llm.OutOfQuota},
		"rate": {429, `{"error":{"message":"slow down"}}`, llm.RateLimited},
		"rate in words": {429,
			`{"error":{"message":"exceeded your current quota. Please retry in 7.5s."}}`,
			llm.RateLimited},
		"busy as 429": {429, `{"error":{"type":"engine_overloaded_error","message":"x"}}`,
			llm.Overloaded},
		"no model": {404, `{"error":{"message":"no such model","code":"model_not_found"}}`,
			llm.NotFound},
		"bad request": {400, `{"error":{"message":"unknown field"}}`, llm.BadRequest},
		"string":      {400, `{"error":"plain string"}`, llm.BadRequest},
		"in a proxy's error": {400, `{"error":{"error":{"code":"content_filter"}}}`,
			llm.ContentRefused},
		"detail": {422, `{"detail":[{"msg":"bad"}]}`, llm.BadRequest},
		"too long": {400, `{"error":{"message":"x","code":"context_length_exceeded"}}`,
			llm.ContextTooLong},
		"too long, words": {400, `{"error":"This model's maximum context length is 8192 tokens"}`,
			llm.ContextTooLong},
		"too large": {413, `too large`, llm.ContextTooLong},
		"too long for xAI": {400, `{"code":"Client specified an invalid argument","error":"This ` +
			`model's maximum prompt length is 131072 but the request contains 136973 tokens."}`,
			llm.ContextTooLong},
		"too long for Moonshot": {400, `{"error":{"message":"Invalid request: Your request exceeded ` +
			`model token limit: 262144","type":"invalid_request_error"}}`, llm.ContextTooLong},
		"too long for Qwen": {400, `{"error":{"code":"invalid_parameter_error","message":` +
			`"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",` +
			`"type":"invalid_request_error"}}`, llm.ContextTooLong},
		"too long for Copilot": {400, `{"error":{"message":"prompt token count of 204801 exceeds ` +
			`the limit of 128000","code":"model_max_prompt_tokens_exceeded"}}`, llm.ContextTooLong},
		"too long for GLM": {400, `{"error":{"code":"1261","message":"Prompt exceeds max length"}}`,
			llm.ContextTooLong},
		"too long for GLM elsewhere": {400,
			`{"error":{"message":"tokens in request more than max tokens allowed"}}`, llm.ContextTooLong},
		"too long for Bedrock": {400, `{"error":{"code":"validation_error","message":"prompt tokens ` +
			`(1200008) exceed model maximum (1050000) for openai.gpt-5.6-terra"}}`, llm.ContextTooLong},
		"too long for Bedrock's Claude": {400, `{"message":"ValidationException: Input exceeds the max ` +
			`input token limit"}`, llm.ContextTooLong},
		"too long for Poolside": {400, `{"error":{"message":"Provider returned error","code":400,` +
			`"metadata":{"raw":"Input length 131393 exceeds the maximum allowed input length of 131040 ` +
			`tokens."}}}`, llm.ContextTooLong},
		"too long for Cohere": {400, `{"message":"total tokens exceeds the model's max of 4096"}`,
			llm.ContextTooLong},
		"too long for Together": {422, "{\"error\":{\"message\":\"Input validation error: `inputs` " +
			"tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens\"}}",
			llm.ContextTooLong},
		"too long for a minute": {429, `{"error":{"message":"Request too large for gpt-4o in ` +
			`organization org-1 on tokens per min (TPM): Limit 30000, Requested 31538. The input ` +
			`or output tokens must be reduced in order to run successfully.","type":"tokens",` +
			`"param":null,"code":"rate_limit_exceeded"}}`, llm.ContextTooLong},
		"too many in a minute": {429, `{"error":{"message":"Rate limit reached for gpt-4o on tokens ` +
			`per min (TPM): Limit 30000, Used 29937, Requested 385. Please try again in 644ms.",` +
			`"type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, llm.RateLimited},
		"wrong call": {400, `{"error":{"message":"Failed to call a function. Please adjust your ` +
			`prompt. See 'failed_generation' for more details.","type":"invalid_request_error",` +
			`"code":"tool_use_failed","failed_generation":"look{}</function>"}}`, llm.Unavailable},
		"unknown tool": {400, `{"error":{"message":"Tool call validation failed: attempted to call ` +
			`tool 'look' which was not in request.tools","type":"invalid_request_error"}}`,
			llm.Unavailable},
		"filter": {400, `{"error":{"code":"content_filter","message":"x"}}`,
			llm.ContentRefused},
		"flagged": {403, `{"error":{"message":"Input was flagged"}}`, llm.ContentRefused},
		"DeepSeek's filter": {400, `{"error":{"message":"Content Exists Risk"}}`,
			llm.ContentRefused},
		"timeout":         {408, ``, llm.TimedOut},
		"gateway timeout": {504, `<html>`, llm.TimedOut},
		"server":          {500, `{"error":{"message":"oops"}}`, llm.Unavailable},
		"HTML":            {502, `<html><body>502</body></html>`, llm.Unavailable},
		"unavailable":     {503, `{"error":{"message":"x"}}`, llm.Overloaded},
		"Anthropic busy": {529,
			`{"type":"error","error":{"type":"overloaded_error","message":"x"}}`,
			llm.Overloaded},
		"redirect": {304, ``, llm.Unavailable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := raw(t, tt.status, "application/json", tt.body)
			_, _, err := collect(t.Context(), m, ask("x"))
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != tt.want || e.Model != "test" {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// Providers sign thoughts, and refuse those of another model, key or project. If the request has
// none, the error is another one.
func TestBadThoughts(t *testing.T) {
	with := conversation(map[string]json.RawMessage{"reasoning_details": json.RawMessage(`[]`)})
	for _, body := range []string{
		`[{"error":{"code":400,"message":"Corrupted thought signature.","status":"INVALID_ARGUMENT"}}]`,
		`{"error":{"code":400,"message":"Thought signature is not valid"}}`,
		`{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"message\":` +
			`\"messages.7.content.2: Invalid signature in thinking block\"}"}}}`,
		`{"error":{"type":"invalid_request_error","message":"messages.1.content.0: ` +
			"`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be " +
			`modified."}}`,
		`{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"message\":` +
			"\\\"messages.1: The final block in an assistant message cannot be `thinking`.\\\"}\"}}}",
		`{"error":{"message":"messages.1.content.0: When thinking is disabled, an ` +
			"`assistant` message in the final position cannot contain `thinking`." + `"}}`,
	} {
		m := raw(t, 400, "application/json", body)
		for want, req := range map[llm.Kind]llm.Request{llm.BadThoughts: with, llm.BadRequest: ask("x")} {
			_, _, err := collect(t.Context(), m, req)
			if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != want {
				t.Errorf("%s: got %v, want %s", body, err, want)
			}
		}
	}
}

// A model that can't call tools refuses a request with them. If the request has none, the error is
// another one.
func TestNoTools(t *testing.T) {
	with := ask("x")
	with.Tools = []llm.ToolSpec{{Name: "look", Schema: json.RawMessage(`{"type":"object"}`)}}
	for body, status := range map[string]int{
		`{"error":{"message":"registry.ollama.ai/library/gemma3:4b does not support tools",` +
			`"type":"api_error","param":null,"code":null}}`: 400,
		`{"error":{"message":"No endpoints found that support tool use. Try disabling \"look\".",` +
			`"code":404}}`: 404,
		"{\"error\":{\"message\":\"`tool calling` is not supported with this model\"}}": 400,
	} {
		m := raw(t, status, "application/json", body)
		_, _, err := collect(t.Context(), m, with)
		if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.NoTools {
			t.Errorf("%s: got %v, want %s", body, err, llm.NoTools)
		}
		_, _, err = collect(t.Context(), m, ask("x"))
		if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.BadRequest {
			t.Errorf("%s: without tools: got %v, want %s", body, err, llm.BadRequest)
		}
	}
}

// Bedrock and LiteLLM refuse calls in the history of a request without tools. The Model then names
// the tools and forbids their use. It remembers that, for this provider only.
func TestCallsWithoutTools(t *testing.T) {
	for _, message := range []string{
		"litellm.UnsupportedParamsError: Anthropic doesn't support tool calling without `tools=` " +
			"param specified.",
		"The toolConfig field must be defined when using toolUse and toolResult content blocks.",
	} {
		var bodies []string
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			bodies = append(bodies, string(body))
			if strings.Contains(string(body), `"tool_calls"`) &&
				!strings.Contains(string(body), `"tools"`) {
				w.WriteHeader(http.StatusBadRequest)
				_ = json.NewEncoder(w).Encode(map[string]any{"error": message})
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, content("done")+"\n\ndata: [DONE]\n\n")
		}))
		m := New("test", "fake", &Options{BaseURL: srv.URL, HTTP: srv.Client()})
		req := conversation(nil)
		req.Tools = nil
		for range 2 {
			if text, _, err := collect(t.Context(), m, req); err != nil || text != "done" {
				t.Errorf("%s: got %q, %v", message, text, err)
			}
		}
		if _, _, err := collect(t.Context(), m, ask("x")); err != nil {
			t.Error(err)
		}
		srv.Close()
		const named = `,"tools":[{"type":"function","function":{"name":"time","parameters":` +
			`{"type":"object","properties":{}}}}],"tool_choice":"none"}`
		if len(bodies) != 4 || !strings.HasSuffix(bodies[1], named) ||
			!strings.HasSuffix(bodies[2], named) || strings.Contains(bodies[3], "tool") {
			t.Errorf("%s: the requests are %q", message, bodies)
		}
	}
}

// A model whose id does not tell that it wants the newer name of the limit says so. See
// https://github.com/murtaza-nasir/speakr/issues/367.
func TestNewLimit(t *testing.T) {
	var bodies []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		if strings.Contains(string(body), `"max_tokens"`) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported `+
				`with this model. Use 'max_completion_tokens' instead.","param":"max_tokens",`+
				`"type":"invalid_request_error","code":"unsupported_parameter"}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, content("done")+"\n\ndata: [DONE]\n\n")
	}))
	defer srv.Close()
	m := New("test", "our-deployment", &Options{BaseURL: srv.URL, HTTP: srv.Client()})
	for range 2 {
		if text, _, err := collect(t.Context(), m, conversation(nil)); err != nil || text != "done" {
			t.Errorf("got %q, %v", text, err)
		}
	}
	if len(bodies) != 3 || !strings.Contains(bodies[2], `"max_completion_tokens":100`) {
		t.Errorf("the requests are %q", bodies)
	}
}

// An error within a stream has the right kind, also after a good beginning.
func TestErrorFrame(t *testing.T) {
	overloaded := `data: {"error":{"message":"overloaded","code":529}}`
	tests := map[string]struct {
		lines []string
		want  llm.Kind
	}{
		"alone":           {[]string{overloaded}, llm.Overloaded},
		"after text":      {[]string{content("x"), overloaded}, llm.Overloaded},
		"after a comment": {[]string{": c", content("x"), ": c", overloaded}, llm.Overloaded},
		"within a chunk": {[]string{content("x"),
			`data: {"id":"1","error":{"message":"x","code":502},` +
				`"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`},
			llm.Unavailable},
		"finish only": {[]string{strings.Replace(stop, "stop", "error", 1)}, llm.Unavailable},
		"DeepSeek is overloaded": {[]string{content("x"),
			strings.Replace(stop, "stop", "insufficient_system_resource", 1)}, llm.Unavailable},
		"GLM breaks off": {[]string{content("x"),
			strings.Replace(stop, "stop", "network_error", 1)}, llm.Unavailable},
		// vLLM, when it stops. See https://github.com/vllm-project/vllm/issues/57082.
		"the server aborts": {[]string{content("x"),
			strings.Replace(stop, "stop", "abort", 1)}, llm.Unavailable},
		// See https://github.com/coder/coder/pull/28470.
		"Gemini drops a call": {[]string{content("I look."),
			strings.Replace(stop, "stop", "function_call_filter: MALFORMED_FUNCTION_CALL", 1)},
			llm.Unavailable},
		// See https://github.com/earendil-works/pi/issues/8511.
		"OpenRouter's provider breaks off": {[]string{content("x"), strings.Replace(stop,
			`"stop"`, `"stop","native_finish_reason":"network_error"`, 1)}, llm.Unavailable},
		"Groq finds a wrong call": {[]string{`data: {"error":{"message":"Tool choice is none, but ` +
			`model called a tool","code":"tool_use_failed","status_code":400}}`}, llm.Unavailable},
		// vLLM reports its own mistakes so, for example if its parser does not understand the model.
		// See https://github.com/tenstorrent/vllm/issues/386.
		"a bad request after the beginning": {[]string{content(""), `data: {"error":{"message":` +
			`"unexpected tokens remaining in message header: Some(\"to=functions.look\")",` +
			`"type":"BadRequestError","param":null,"code":400}}`}, llm.Unavailable},
		"a bad request before": {[]string{`data: {"error":{"message":"x","code":400}}`},
			llm.BadRequest},
		"string": {[]string{`data: {"error":"rate limit reached"}`}, llm.RateLimited},
		// Servers whose error has no field "error": vLLM's form, FastChat's, MiniMax's.
		"object": {[]string{content("x"), `data: {"object":"error","message":"CUDA out of memory",` +
			`"type":"InternalServerError","param":null,"code":500}`}, llm.Unavailable},
		"error code": {[]string{content("x"), `data: {"text":"NETWORK ERROR DUE TO HIGH TRAFFIC.",` +
			`"error_code":50001}`}, llm.Unavailable},
		"base_resp": {[]string{`data: {"id":"1","choices":null,"model":"","usage":{"total_tokens":0},` +
			`"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}`}, llm.OutOfQuota},
		// llama.cpp of 2025. See https://github.com/coddy-project/coddy-agent/pull/106.
		"error field": {[]string{content("x"), `error: {"code":500,"message":"Context size has been ` +
			`exceeded.","type":"server_error"}`}, llm.ContextTooLong},
		"bare":       {[]string{content("x"), `{"error":{"message":"timed out"}}`}, llm.TimedOut},
		"with event": {[]string{"event: error\n" + overloaded}, llm.Overloaded},
		"nested": {[]string{`data: {"error":{"message":"Provider returned error","code":400,` +
			`"metadata":{"raw":"maximum context length is 10"}}}`}, llm.ContextTooLong},
		"quota":    {[]string{`data: {"error":{"code":"insufficient_quota"}}`}, llm.OutOfQuota},
		"no frame": {[]string{content("x"), "data: hello"}, llm.Unavailable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, m := start(t, frames(append(tt.lines, done)...))
			_, resp, err := collect(t.Context(), m, ask("x"))
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != tt.want {
				t.Errorf("got %+v, %v, want %s", resp, err, tt.want)
			}
		})
	}
}

// Each fault of the fake server gives the expected kind of error.
func TestFaults(t *testing.T) {
	tests := map[string]struct {
		fault openaitest.Fault
		want  llm.Kind // empty if the answer arrives nevertheless
	}{
		"HTML":              {openaitest.HTML502(), llm.Unavailable},
		"ends early":        {openaitest.Fault{EndAfter: 1}, llm.Unavailable},
		"dropped":           {openaitest.Fault{DropAfter: 1}, llm.Unavailable},
		"error frame":       {openaitest.Fault{ErrorAfter: 1}, llm.Overloaded},
		"status":            {openaitest.Fault{Status: 529}, llm.Overloaded},
		"keep-alives":       {openaitest.Fault{KeepAlives: 400}, ""},
		"no [DONE]":         {openaitest.Fault{NoDone: true}, ""},
		"error and comment": {openaitest.Fault{KeepAlives: 400, ErrorAfter: 1}, llm.Overloaded},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			srv, m := start(t, openaitest.Say("text"))
			srv.Inject(1, tt.fault)
			text, _, err := collect(t.Context(), m, ask("x"))
			var e *llm.Error
			switch {
			case tt.want == "" && (err != nil || text != "text"):
				t.Errorf("got %q, %v", text, err)
			case tt.want != "" && (!errors.As(err, &e) || e.Kind != tt.want):
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestRetryAfterReachesTheError(t *testing.T) {
	srv, m := start(t, nil)
	srv.Inject(1, openaitest.Fault{Status: 429, RetryAfter: "9"})
	_, _, err := collect(t.Context(), m, ask("x"))
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != llm.RateLimited || e.After != 9*time.Second {
		t.Errorf("got %v", err)
	}
	if _, _, err := collect(t.Context(), m, ask("x")); err != nil {
		t.Errorf("after the fault: %v", err)
	}
}

func TestNoSecretsInErrors(t *testing.T) {
	echo := raw(t, 401, "application/json", `{"error":{"message":"Incorrect API key: SECRET"}}`)
	refused := New("test", "fake",
		&Options{BaseURL: "http://user:SECRET@127.0.0.1:1/v1", Key: "SECRET"})
	mangled := New("test", "fake", &Options{BaseURL: "http://user:SECRET@host:port/v1"})
	for name, m := range map[string]*Model{"echo": echo, "refused": refused, "mangled": mangled} {
		_, _, err := collect(t.Context(), m, ask("x"))
		var e *llm.Error
		if !errors.As(err, &e) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestErrorTextIsBounded(t *testing.T) {
	m := raw(t, 500, "text/plain", strings.Repeat("line\n", 10000))
	_, _, err := collect(t.Context(), m, ask("x"))
	if err == nil || len(err.Error()) > 500 || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %.600v", err)
	}
}

func TestDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, m := start(t, func(openaitest.Request) openaitest.Reply {
		return openaitest.Reply{Fault: openaitest.Fault{Hang: true}}
	})
	if _, _, err := collect(ctx, m, ask("x")); err != context.DeadlineExceeded {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}

// If a provider repeats the key or a header in its error, the error of the client does not
// contain them.
func TestFailureHidesSecrets(t *testing.T) {
	srv, _ := start(t, nil)
	srv.Inject(1, openaitest.Fault{Status: 401,
		Body: `{"error":{"message":"bad: secret-key and secret-header"}}`})
	m := newModel(t, srv, "fake", Options{Key: "secret-key",
		Headers: map[string]string{"X-Secret": "secret-header"}})
	for _, err := range m.Stream(t.Context(), ask("hello")) {
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("the error is %v", err)
		}
	}
}

// The client stops reading an answer that never ends, whatever it consists of.
func TestEndlessAnswer(t *testing.T) {
	for name, delta := range map[string]string{
		"text":      `{"content":"%s"}`,
		"details":   `{"reasoning_details":"%s"}`,
		"arguments": `{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"%s"}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			frame := fmt.Sprintf(`data: {"choices":[{"index":0,"delta":%s}]}`+"\n\n",
				fmt.Sprintf(delta, strings.Repeat("x", 1<<20)))
			srv := httptest.NewServer(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					var err error
					for n := 0; n < 2*maxAnswer>>20 && err == nil; n++ {
						_, err = io.WriteString(w, frame)
					}
				}))
			defer srv.Close()
			m := New("test", "fake", &Options{BaseURL: srv.URL, HTTP: srv.Client()})
			if _, _, err := collect(t.Context(), m, ask("x")); !errors.Is(err, errTooLong) {
				t.Errorf("got %v, want %v", err, errTooLong)
			}
		})
	}
}

// A failure that comes as JSON with a status of success says what happened.
func TestFailureWithoutStatus(t *testing.T) {
	for body, want := range map[string]string{
		`{"code":401,"msg":"token expired","success":false}`: "unauthorized: status 401: token expired",
		"{\n \"base_resp\": {\"status_msg\": \"no login\"},\n \"choices\": null\n}": "" +
			`unavailable: {"base_resp":{"status_msg":"no login"},"choices":null}`,
		`["no"]`: "unavailable: no",
	} {
		m := raw(t, 200, "application/json", body)
		want = "llm: test: " + want
		if _, _, err := collect(t.Context(), m, ask("x")); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
}

// An answer has a limited number of tool calls, however small they are, in one frame or in many.
func TestEndlessCalls(t *testing.T) {
	for name, perFrame := range map[string]int{"one frame": 2 * wire.MaxCalls, "frames": 1} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					for n := 0; n < 2*wire.MaxCalls; n += perFrame {
						calls := make([]string, perFrame)
						for i := range calls {
							calls[i] = fmt.Sprintf(`{"index":%d,"function":{"name":"f"}}`, n+i)
						}
						_, _ = fmt.Fprintf(w, `data: {"choices":[{"index":0,"delta":{"tool_calls":[%s]}}]}`+
							"\n\n", strings.Join(calls, ","))
					}
					_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"finish_reason":"stop"}]}`+"\n\n")
				}))
			defer srv.Close()
			m := New("test", "fake", &Options{BaseURL: srv.URL, HTTP: srv.Client()})
			if _, _, err := collect(t.Context(), m, ask("x")); !errors.Is(err, wire.ErrManyCalls) {
				t.Errorf("got %v, want %v", err, wire.ErrManyCalls)
			}
		})
	}
}

// A long call in very many pieces takes time in proportion to its length. Otherwise this test would
// take many minutes.
func TestManyPieces(t *testing.T) {
	var l callList
	zero := 0
	l.add(callDelta{Index: &zero, Name: "f", Arguments: text(`{"a":"` + strings.Repeat("x", 8<<20))})
	for range 100_000 {
		l.add(callDelta{Index: &zero, Name: "f", Arguments: "{"})
	}
	l.add(callDelta{Index: &zero, Name: "f", Arguments: `\""}`})
	l.add(callDelta{Index: &zero, Name: "f", Arguments: `{"b":"`})
	if len(l) != 2 || l[1].arguments.String() != `{"b":"` {
		t.Errorf("got %d calls, want 2", len(l))
	}
}
