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
		// llama.cpp. See https://github.com/cline/cline/issues/8977.
		{400, `{"error":{"code":400,"message":"Failed to load image or audio file",` +
			`"type":"invalid_request_error"}}`, images, llm.NoImages},
		// Qwen. See https://github.com/QwenLM/qwen-code/issues/2505.
		{400, `{"error":{"message":"<400> InternalError.Algo.InvalidParameter: The image length and ` +
			`width do not meet the model restrictions. [height:1 or width:1 must be larger than 10]"}}`,
			images, llm.NoImages},
		// Gemini. See https://github.com/google-gemini/gemini-cli/issues/27244.
		{400, `[{"error":{"code":400,"message":"Provided image is not valid.",` +
			`"status":"INVALID_ARGUMENT"}}]`, images, llm.NoImages},
		{404, `{"error":{"message":"No endpoints found that support tool use. Try disabling ` +
			`\"edit_image\".","code":404}}`, tools, llm.NoTools},
		// A reverse proxy, such as nginx with its usual limit of 1 MB.
		{413, `<html><head><title>413 Request Entity Too Large</title></head></html>`,
			images, llm.TooManyImages},
		// SiliconFlow. See https://github.com/labring/FastGPT/issues/4023.
		{400, `{"code":20037,"message":"Function call is not supported for this model.","data":null}`,
			tools, llm.NoTools},
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

// The errors of servers for a conversation that is too long have the kind that makes the gateway
// shorten it.
func TestTooLong(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
	}{
		// LM Studio, within the stream. See https://github.com/anomalyco/opencode/issues/11141.
		{200, "event: error\ndata: {\"error\":{\"message\":\"Cannot truncate prompt with n_keep " +
			"(15028) >= n_ctx (7424)\"}}\n\n"},
		// vLLM, and Xinference, which runs it. See https://github.com/langchain-ai/deepagents/issues/468.
		{400, `{"error":{"message":"The decoder prompt (length 21535) is longer than the maximum ` +
			`model length of 16384.","type":"BadRequestError","code":400}}`},
		{500, `{"detail":"[address=0.0.0.0:43769, pid=1065] The decoder prompt (length 66501) is ` +
			`longer than the maximum model length of 65536."}`},
		// SGLang. See https://github.com/sgl-project/sglang/issues/4048.
		{400, `{"object":"error","message":"Input length (160062 tokens) exceeds the maximum ` +
			`allowed length (59862 tokens). Use a shorter input or enable --allow-auto-truncate."}`},
		// SiliconFlow. See https://github.com/chatboxai/chatbox/issues/2060.
		{400, `{"code":20015,"message":"length of prompt_tokens (68957) must be less than ` +
			`max_seq_len (65536).","data":null}`},
		// Text Generation Inference. See https://github.com/meta-llama/llama/issues/1103.
		{422, "{\"error\":\"Input validation error: `inputs` must have less than 4096 tokens. " +
			"Given: 4545\",\"error_type\":\"validation\"}"},
	} {
		kind := "application/json"
		if tt.status == 200 {
			kind = "text/event-stream"
		}
		_, _, err := collect(t.Context(), raw(t, tt.status, kind, tt.body), ask("x"))
		if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.ContextTooLong {
			t.Errorf("%s: got %v, want %s", tt.body, err, llm.ContextTooLong)
		}
	}
}
