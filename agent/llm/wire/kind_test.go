package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
)

// A refusal is an error of a real provider. A status of 0 means that the error came in a stream.
type refusal struct {
	status int
	body   string
}

// check reports the refusals that do not have the kind want.
func check(t *testing.T, want llm.Kind, list ...refusal) {
	t.Helper()
	for _, r := range list {
		f := ParseFailure([]byte(r.body))
		if r.status != 0 {
			f.Status = r.status
		}
		if got := f.Kind(); got != want {
			t.Errorf("status %d: %s: got %q, want %q", r.status, r.body, got, want)
		}
	}
}

// Accounts without money, in words of providers that answer with the status of another error.
func TestQuotaWords(t *testing.T) {
	check(t, llm.OutOfQuota,
		// See https://github.com/anthropics/claude-code/issues/38038.
		refusal{400, `{"type":"error","error":{"type":"invalid_request_error","message":"You have ` +
			`reached your specified API usage limits. You will regain access on 2026-04-01 at 00:00 ` +
			`UTC."},"request_id":"req_1"}`},
		// See https://github.com/continuedev/continue/issues/10373.
		refusal{429, `{"code":"Some resource has been exhausted","error":"Your team t has either ` +
			`used all available credits or reached its monthly spending limit. To continue making ` +
			`API requests, please purchase more credits or raise your spending limit."}`},
		// See https://github.com/Wei-Shaw/sub2api/issues/4069.
		refusal{403, `{"code":"personal-team-blocked","error":"You have run out of credits or need ` +
			`a Grok subscription."}`},
		// See https://github.com/RooCodeInc/Roo-Code/issues/515.
		refusal{403, `{"error":{"message":"Key limit exceeded (total limit). Manage it using ` +
			`https://openrouter.ai/settings/keys","code":403}}`},
		// See https://github.com/FoundationAgents/OpenManus/issues/438.
		refusal{403, `{"code":30011,"message":"The selected model requires paid balance. Your paid ` +
			`balance is insufficient. Please top up and try again.","data":null}`},
		// See https://github.com/continuedev/continue/issues/11823.
		refusal{429, `{"error":{"code":"1113","message":"余额不足或无可用资源包,请充值。"}}`},
		refusal{0, `{"code":"1113","message":"余额不足或无可用资源包,请充值。"}`},
		// See https://github.com/pollinations/pollinations/issues/12136.
		refusal{412, `{"error":{"message":"Account a is suspended, possibly due to reaching the ` +
			`monthly spending limit or failure to pay past invoices.","param":null,` +
			`"code":"PRECONDITION_FAILED","type":"error"}}`},
		refusal{429, `{"error":{"message":"Your account is not active, please check your billing ` +
			`details on our website.","type":"billing_not_active","code":"billing_not_active"}}`},
		// See https://github.com/continuedev/continue/issues/10085.
		refusal{429, `[{"error":{"code":429,"message":"You exceeded your current quota.\n* Quota ` +
			`exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_` +
			`input_token_count, limit: 0, model: gemini-2.5-pro\nPlease retry in 38.8s.",` +
			`"status":"RESOURCE_EXHAUSTED"}}]`})
}

// The free requests of a day are used up. It does not help to wait for as long as Gemini asks. See
// https://github.com/google-gemini/gemini-cli/issues/8437 and
// https://github.com/Gitlawb/openclaude/issues/936.
func TestDailyLimit(t *testing.T) {
	const gemini = `[{"error":{"code":429,"message":"You exceeded your current quota, please check ` +
		`your plan and billing details.\n* Quota exceeded for metric: generativelanguage.googleapis.` +
		`com/generate_content_free_tier_requests, limit: 20, model: gemini-2.5-flash\nPlease retry ` +
		`in 38.8s.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.` +
		`rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_` +
		`content_free_tier_requests","quotaId":"GenerateRequestsPer%sPerProjectPerModel-FreeTier",` +
		`"quotaValue":"20"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo",` +
		`"retryDelay":"38s"}]}}]`
	check(t, llm.OutOfQuota, refusal{429, fmt.Sprintf(gemini, "Day")},
		refusal{429, `{"error":{"message":"Rate limit exceeded: free-models-per-day. Add 10 credits ` +
			`to unlock 1000 free model requests per day","code":429,"metadata":{"headers":` +
			`{"X-RateLimit-Limit":"50","X-RateLimit-Remaining":"0"}}}}`})
	check(t, llm.RateLimited, refusal{429, fmt.Sprintf(gemini, "Minute")})
}

// A proxy's own budget is spent. See https://github.com/BerriAI/litellm/issues/14144 and
// https://github.com/BerriAI/litellm/issues/36729.
func TestBudgetOfProxy(t *testing.T) {
	check(t, llm.OutOfQuota,
		refusal{400, `{"error":{"message":"Budget has been exceeded! Current cost: 0.0010747, Max ` +
			`budget: 0.0","type":"auth_error","param":null,"code":400}}`},
		refusal{429, `{"error":{"message":"Your AI usage allowance has been reached.",` +
			`"type":"budget_exceeded","param":null,"code":"429"}}`})
}

// Models that a provider does not have, or not any more, if it answers with the status 400. The
// name of the model may contain other words that matter.
func TestUnknownModels(t *testing.T) {
	check(t, llm.NotFound,
		// OpenRouter. See https://github.com/sipeed/picoclaw/issues/1790.
		refusal{400, `{"error":{"message":"llama-3.2-vision:free is not a valid model ID","code":400}}`},
		// DeepSeek. See https://github.com/langbot-app/LangBot/issues/1643.
		refusal{400, `{"error":{"message":"Model Not Exist","type":"invalid_request_error",` +
			`"param":null,"code":"invalid_request_error"}}`},
		// Groq. See https://github.com/bklieger-groq/stockbot-on-groq/issues/59.
		refusal{400, `{"error":{"message":"The model ` + "`llama3-70b-8192`" + ` has been ` +
			`decommissioned and is no longer supported. Please refer to ` +
			`https://console.groq.com/docs/deprecations for a recommendation on which model to use ` +
			`instead.","type":"invalid_request_error","code":"model_decommissioned"}}`},
		// Mistral. See https://github.com/tmc/langchaingo/issues/1233.
		refusal{400, `{"object":"error","message":"Invalid model: x","type":"invalid_model",` +
			`"param":null,"code":"1500"}`},
		// LiteLLM and SiliconFlow.
		refusal{400, `{"error":{"message":"Invalid model name passed in model=gpt-9. Call ` +
			"`/v1/models` to view available models for your key.\",\"type\":\"invalid_request_error\"," +
			`"param":"model","code":"400"}}`},
		refusal{400, `{"code":20012,"message":"Model does not exist. Please check it carefully."}`})
}

// Content filters that answer with the status of another error.
func TestFilterWords(t *testing.T) {
	check(t, llm.ContentRefused,
		// See https://github.com/anthropics/claude-code/issues/58367.
		refusal{400, `{"type":"error","error":{"type":"invalid_request_error","message":"Output ` +
			`blocked by content filtering policy"},"request_id":"req_1"}`},
		refusal{0, `{"details":null,"type":"invalid_request_error","message":"Output blocked by ` +
			`content filtering policy"}`},
		// See https://github.com/UKGovernmentBEIS/inspect_ai/pull/2267.
		refusal{403, `{"code":"The caller does not have permission to execute the specified ` +
			`operation","error":"Content violates usage guidelines. Team: t, API key ID: k, Model: ` +
			`grok-4-0709, Failed check: SAFETY_CHECK_TYPE_BIO"}`},
		refusal{400, `{"contentFilter":[{"level":1,"role":"user"}],"error":{"code":"1301",` +
			`"message":"系统检测到输入或生成内容可能包含不安全或敏感内容，请您避免输入易产生敏感内容的提示语"}}`},
		refusal{400, `{"error":{"code":"1301","message":"System detected potentially unsafe or ` +
			`sensitive content in input or generation."}}`},
		refusal{0, `{"message":"input new_sensitive (1026)"}`})
}

// Errors that have nothing to do with the conversation, although their status says so.
func TestMisleadingStatus(t *testing.T) {
	// See https://github.com/continuedev/continue/issues/11336.
	check(t, llm.Unauthorized, refusal{400, `[{"error":{"code":400,"message":"API key expired. ` +
		`Please renew the API key.","status":"INVALID_ARGUMENT"}}]`})
	// See https://github.com/PublicAffairs/openai-gemini/issues/4.
	check(t, llm.Forbidden, refusal{400, `[{"error":{"code":400,"message":"User location is not ` +
		`supported for the API use.","status":"FAILED_PRECONDITION"}}]`})
	// See https://github.com/anthropics/claude-code/issues/72457.
	check(t, llm.Forbidden, refusal{400, `{"type":"error","error":{"type":"invalid_request_error",` +
		`"message":"This organization has been disabled."},"request_id":"req_1"}`})
	check(t, llm.Unavailable,
		// See https://github.com/google-gemini/gemini-cli/issues/20309.
		refusal{499, `[{"error":{"code":499,"message":"The operation was cancelled.",` +
			`"status":"CANCELLED"}}]`},
		refusal{400, `{"error":{"message":"Parsing failed. The model generated output that could ` +
			`not be parsed. Please adjust your prompt. See 'failed_generation' for more details.",` +
			`"type":"invalid_request_error","code":"output_parse_failed"}}`})
}

// If one prompt has more tokens than all prompts of a minute may have, waiting does not help.
func TestTooLongForAMinute(t *testing.T) {
	for _, message := range []string{
		// See https://github.com/logancyang/obsidian-copilot/issues/2327.
		"This request would exceed your organization's rate limit of 30,000 input tokens per minute " +
			"(org: o, model: claude-sonnet-4-20250514).",
		// See https://github.com/cline/cline/issues/6058.
		"* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_" +
			"input_token_count, limit: 30000, model: gemini-2.5-pro\nPlease retry in 38.8s.",
	} {
		for size, want := range map[int]llm.Kind{60_000: llm.RateLimited, 120_000: llm.ContextTooLong} {
			c := NewCaller("test", time.Second, "", nil)
			err := c.FailedRequest(t.Context(), t.Context(),
				&Failure{Status: 429, Message: message, After: time.Second},
				llm.Request{Messages: []llm.Message{{Text: strings.Repeat("x", size)}}})
			if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != want {
				t.Errorf("%s: %d bytes: got %v, want %s", message, size, err, want)
			}
		}
	}
}

// Ollama quotes the answer that it could not read. The quote says nothing about the request. See
// https://github.com/ollama/ollama/issues/17638.
func TestQuotedAnswer(t *testing.T) {
	for _, quoted := range []string{"# The context window", "Images are not supported by this model",
		"The tool may be overloaded", "The signature of the thinking process"} {
		body := `{"error":{"message":"error parsing tool call: raw='{\"content\":\"` + quoted +
			`\"}]', err=invalid character ']' after top-level value","type":"api_error"}}`
		check(t, llm.Unavailable, refusal{500, body}, refusal{0, body})
	}
}
