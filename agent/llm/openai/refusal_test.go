package openai

import (
	"encoding/json"
	"errors"
	"testing"

	"gateway/agent/llm"
)

// What a server does not accept in a request, in the words of real servers, has the kind that tells
// the caller what to leave out. If the request does not have it, the error is another one.
func TestRefusals(t *testing.T) {
	images := ask("x")
	images.Messages[1].Images = []llm.Image{{Type: "image/png", Data: []byte("png")}}
	tools := ask("x")
	tools.Tools = []llm.ToolSpec{{Name: "look", Schema: json.RawMessage(`{"type":"object"}`)}}
	for _, tt := range []struct {
		status int
		body   string
		req    llm.Request
		want   llm.Kind
	}{
		// llama.cpp without --mmproj. See https://github.com/ggml-org/llama.cpp/issues/15377.
		{500, `{"error":{"code":500,"message":"image input is not supported - hint: if this is ` +
			`unexpected, you may need to provide the mmproj","type":"server_error"}}`,
			images, llm.NoImages},
		// Ollama. See https://github.com/open-webui/open-webui/issues/13077.
		{500, `{"error":{"message":"Failed to create new sequence: failed to process inputs: this ` +
			`model is missing data required for image input","type":"api_error"}}`,
			images, llm.NoImages},
		// vLLM. See https://github.com/vllm-project/vllm/issues/17092.
		{400, `{"object":"error","message":"At most 1 image(s) may be provided in one request.",` +
			`"type":"BadRequestError","param":null,"code":400}`, images, llm.TooManyImages},
		// GitHub Copilot. See https://github.com/microsoft/vscode/issues/306919.
		{400, `{"error":{"message":"Too many images in request: 11 images provided, but the model ` +
			`supports a maximum of 10 images."}}`, images, llm.TooManyImages},
		// Azure. See https://github.com/the-open-agent/openagent/issues/874.
		{400, `{"error":{"message":"Too many images in request. Max is 10."}}`,
			images, llm.TooManyImages},
		// vLLM without --enable-auto-tool-choice. See
		// https://github.com/openagents-org/openagents/issues/285.
		{400, `{"error":{"message":"\"auto\" tool choice requires --enable-auto-tool-choice and ` +
			`--tool-call-parser to be set","type":"BadRequestError","param":null,"code":400}}`,
			tools, llm.NoTools},
		// llama.cpp without --jinja. See https://github.com/QwenLM/Qwen3.8/issues/44.
		{500, `{"error":{"code":500,"message":"tools param requires --jinja flag",` +
			`"type":"server_error"}}`, tools, llm.NoTools},
	} {
		m := raw(t, tt.status, "application/json", tt.body)
		_, _, err := collect(t.Context(), m, tt.req)
		if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != tt.want {
			t.Errorf("%s: got %v, want %s", tt.body, err, tt.want)
		}
		_, _, err = collect(t.Context(), m, ask("x"))
		if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind == tt.want {
			t.Errorf("%s: without it: got %v", tt.body, err)
		}
	}
}
