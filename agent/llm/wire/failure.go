package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"gateway/agent/llm"
	"gateway/store/plaintext"
)

// How much of an error is kept, in bytes.
const (
	maxErrorBody = 64 << 10
	maxErrorText = 300
)

// A Failure is a provider's description of a failed call.
type Failure struct {
	Status  int    // HTTP status or a number in the body; 0 if unknown
	Code    string // such as context_length_exceeded, with the type
	Message string // in the provider's words
	After   time.Duration
	Begun   bool // the answer had begun, so the provider had accepted the request
}

func (f *Failure) Error() string {
	s := plaintext.Clip(strings.Join(strings.Fields(f.Message), " "), maxErrorText)
	if f.Code != "" {
		s = f.Code + ": " + s
	}
	if f.Status != 0 {
		s = fmt.Sprintf("status %d: %s", f.Status, s)
	}
	return s
}

// ReadFailure reads the failure from a response and closes the response's body.
func ReadFailure(resp *http.Response) *Failure {
	// If reading fails, only a part of the message is missing.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	// The response is not used any more; an error of Close does not matter.
	_ = resp.Body.Close()
	f := ParseFailure(body)
	f.Status = resp.StatusCode
	f.After = cmp.Or(retryAfter(resp.Header), f.After)
	return f
}

// ParseFailure parses the body of an error, or the value of an error field, in the different forms
// that providers use. It also parses a JSON value that came instead of an answer.
func ParseFailure(body []byte) *Failure {
	f := &Failure{}
	body = bytes.TrimSpace(body)
	whole := body // the message if the form is unknown
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 { // Gemini
		body = list[0]
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil {
		f.Message = plainText(body)
	}
	for range 2 { // some providers nest: {"error": {"error": …}}
		inner, has := object["error"]
		if !has {
			break
		}
		object = nil // do not merge into the outer object
		if json.Unmarshal(inner, &object) != nil {
			f.Message = TextOf(inner)
		}
	}
	f.read(object)
	f.Message = cmp.Or(f.Message, string(whole))
	f.After = askedToWait(f.Message)
	return f
}

// read sets the fields of f from an error object.
func (f *Failure) read(object map[string]json.RawMessage) {
	var metadata map[string]json.RawMessage
	if json.Unmarshal(object["metadata"], &metadata) == nil {
		object["metadata"] = metadata["raw"] // OpenRouter: the message of the underlying provider
	}
	for _, name := range []string{"message", "detail", "msg", "error_msg", "metadata"} {
		if raw := object[name]; !IsEmpty(raw) {
			f.Message = strings.TrimSpace(f.Message + " " + TextOf(raw))
		}
	}
	// Xiaomi puts the message here. As a rule it is the name of a parameter.
	if text := TextOf(object["param"]); strings.Contains(text, " ") {
		f.Message = strings.TrimSpace(f.Message + " " + text)
	}
	for _, name := range []string{"code", "status"} {
		if n, err := strconv.Atoi(TextOf(object[name])); err == nil && n < maxStatus {
			f.Status = n
		} else if !IsEmpty(object[name]) && f.Code == "" {
			f.Code = TextOf(object[name])
		}
	}
	if f.Code == "" && !IsEmpty(object["type"]) {
		f.Code = TextOf(object["type"])
	}
	f.Code = strings.TrimSpace(f.Code + " " + string(dailyQuota().Find(object["details"])))
}

// dailyQuota matches the name of a limit of a day in the details of Gemini's errors. The message
// does not tell that limit from one of a minute.
var dailyQuota = plaintext.Pattern(`\b[A-Za-z]+PerDay[A-Za-z-]*`)

// maxStatus is more than any HTTP status. Some providers have error numbers of their own, such as
// 1113.
const maxStatus = 1000

// plainText returns the body of an error that is not JSON, or "" if it is an HTML page.
func plainText(body []byte) string {
	switch {
	case len(body) == 0:
		return "no message"
	case body[0] == '<':
		return "a page of HTML"
	case body[0] == '"':
		return TextOf(body)
	}
	return string(body)
}

// retryAfter returns how long the headers ask the caller to wait, or 0. It compares a date with the
// Date header, the provider's own clock.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return seconds(ms / 1000)
	}
	value := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(value, 64); err == nil {
		return seconds(s)
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return min(max(0, until.Sub(now)), maxAfter)
}

// maxAfter is the longest wait that a provider can ask for. A longer one is a mistake, which would
// take a model out of use until the next start.
const maxAfter = 24 * time.Hour

// seconds returns s as a duration between 0 and maxAfter. For NaN it returns 0.
func seconds(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, maxAfter.Seconds()) * float64(time.Second))
}

var waitText = plaintext.Pattern(`(?i)(?:try again|retry) ` +
	`(?:in ((?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?m?s)|(?:in|after) (\d{1,3}) second)`)

// askedToWait returns how long the message asks the caller to wait, or 0. OpenAI and Gemini write
// it into the message: "Please try again in 7.66s". So do Azure and Moonshot, "after 26 seconds";
// not every proxy passes on Azure's header. Azure's 86400 seconds have another cause than a rate.
func askedToWait(message string) time.Duration {
	m := waitText().FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	if m[2] != "" {
		m[1] = m[2] + "s"
	}
	d, err := time.ParseDuration(m[1])
	if err != nil {
		return 0
	}
	return min(d, maxAfter)
}

// minuteText matches the limit in errors of Anthropic and of Gemini.
var minuteText = plaintext.Pattern(
	`([0-9,]+) input tokens per minute|input_token_count, limit: ([0-9]+)`)

// perMinute returns how many tokens all prompts of a minute may have, or 0 if f does not tell.
func (f *Failure) perMinute() int {
	m := minuteText().FindStringSubmatch(f.Message)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(strings.ReplaceAll(m[1]+m[2], ",", ""))
	if err != nil {
		return 0
	}
	return n
}

// Words of providers for causes that the status does not tell.
var (
	contextWords = []string{
		"context_length_exceeded", "context length", "context window", "context size", "context limit",
		"maximum context", "prompt is too long", "input is too long", "input token count",
		"reduce the length", "string_above_max_length",
		"maximum prompt length",                                     // xAI
		"exceeded model token limit",                                // Moonshot
		"range of input length",                                     // Qwen at DashScope
		"prompt token count",                                        // GitHub Copilot
		"prompt exceeds max length", "more than max tokens allowed", // GLM
		"max input token limit", "prompt tokens (", // Bedrock
		"maximum allowed input length",       // Poolside
		"n_ctx",                              // LM Studio
		"maximum model length",               // vLLM
		"exceeds the maximum allowed length", // SGLang
		"max_seq_len",                        // SiliconFlow
		"`inputs` must have less than",       // Hugging Face
		"exceeds the model's max",            // Cohere
		"`max_new_tokens` must be",           // Together, Hugging Face
	}
	quotaWords = []string{
		"insufficient_quota", "insufficient balance", "insufficient_balance",
		"exceeded_current_quota", "exceeded your current quota", "credit balance",
		"insufficient credit", "out of credit",
		"billing_hard_limit", "payment required", "arrearage",
		"specified api usage limits",      // Anthropic
		"used all available credits",      // xAI
		"key limit exceeded",              // OpenRouter
		"balance is insufficient", "余额不足", // SiliconFlow, GLM
		"monthly spending limit", "billing_not_active", // Fireworks, OpenAI
		"budget has been exceeded", "budget_exceeded", // LiteLLM: the budget of its key
	}
	refusedWords = []string{
		"content_filter", "content_policy", "content management policy", "responsibleai",
		"content exists risk", "data_inspection_failed", "considered high risk", "flagged",
		"safety system",
		"content filtering policy",                // Anthropic
		"violates usage guidelines",               // xAI
		"unsafe or sensitive content", "不安全或敏感内容", // GLM
		"new_sensitive", // MiniMax
	}
	// A message that has an image word and a no-image word says that the model does not accept
	// images, whatever the status.
	imageWords   = []string{"image", "vision", "multimodal", "multi-modal"}
	noImageWords = []string{
		"not support", "n't support", "unsupported", "only supported by", "no endpoints found",
		"not accept", "n't accept", "unknown variant", "text only", "text-only", "only text",
		"not a multimodal", "not multimodal", "not a vision", "no vision", "not allowed",
		"not enabled", "not a valid image", "invalid image", "could not process image",
		"cannot process image", "unable to process",
		"missing data required", // Ollama
	}
	// A message that has an image word and one of these says that the request has more images than
	// the model accepts, or larger ones.
	manyImageWords = []string{"too many", "at most", "more than", "maximum of", "maximum number",
		"supports up to"}
	// A message that has a word of each list says that the provider does not accept the thoughts of
	// an earlier answer. It signs them, and refuses those of another model, key or project, and
	// some that have a wrong place.
	thoughtWords    = []string{"thought", "thinking"}
	badThoughtWords = []string{"signature", "cannot be modified", "final block", "cannot contain"}
	noToolWords     = []string{
		"not support tools", "n't support tools", // Ollama
		"found that support tool use",                                     // OpenRouter
		"tool calling is not supported", "tool calling` is not supported", // Perplexity, Groq
		"not support function calling", "function calling is not supported",
		"function call is not supported",                           // SiliconFlow
		"'tools' is not supported",                                 // OpenAI
		"--enable-auto-tool-choice",                                // vLLM
		"tools param requires --jinja", "unsupported param: tools", // llama.cpp
	}
	// Groq and Ollama check the answers of their models. Groq blames the request for a wrong one.
	// Ollama quotes it, so the message may have any other words.
	wrongAnswerWords = []string{"tool_use_failed", "tool call validation failed", "failed_generation",
		"error parsing tool call"}
	// Not all providers answer 404 if they do not have a model.
	modelWords = []string{
		"not a valid model id", "model not exist", "model does not exist", // OpenRouter, DeepSeek
		"has been decommissioned", "invalid model:", "invalid model name", // Groq, Mistral, LiteLLM
	}
	keyWords = []string{
		"api key not valid", "api_key_invalid", "invalid_api_key", "invalid api key",
		"incorrect api key", "authentication_error", "api key expired",
	}
)

// Kind derives the kind of error from status, code and message.
func (f *Failure) Kind() llm.Kind {
	words := strings.ToLower(f.Code + " " + f.Message)
	switch {
	case f.isBadRequest() && ContainsAny(words, wrongAnswerWords...):
		return llm.Unavailable // the next answer may be right
	// OpenAI answers 429 if a single request has more tokens than the account may use in a minute.
	// Such a request fails however long one waits.
	case f.Status == http.StatusRequestEntityTooLarge, strings.Contains(words, "request too large"),
		f.Status != http.StatusTooManyRequests && ContainsAny(words, contextWords...):
		return llm.ContextTooLong
	case f.Status == http.StatusPaymentRequired, f.quota(words):
		return llm.OutOfQuota
	case f.Status < 500 && f.Status != http.StatusTooManyRequests &&
		ContainsAny(words, refusedWords...):
		return llm.ContentRefused
	case f.Status == http.StatusUnauthorized,
		f.Status < 500 && ContainsAny(words, keyWords...):
		return llm.Unauthorized
	case ContainsAny(words, "location is not supported", // Gemini
		"organization has been disabled"): // Anthropic
		return llm.Forbidden
	case f.Status == http.StatusBadRequest && ContainsAny(words, modelWords...): // may name vision
		return llm.NotFound
	case strings.Contains(words, "overloaded"):
		return llm.Overloaded
	case f.isBadRequest() && ContainsAny(words, thoughtWords...) &&
		ContainsAny(words, badThoughtWords...):
		return llm.BadThoughts
	case f.isBadRequest() && ContainsAny(words, noToolWords...): // may name the tool edit_image
		return llm.NoTools
	case f.isBadRequest() && ContainsAny(words, imageWords...) &&
		ContainsAny(words, manyImageWords...):
		return llm.TooManyImages
	case f.noImages(words):
		return llm.NoImages
	case f.isBadRequest() && ContainsAny(words, "jinja", "tool call id"):
		return llm.BadRequest // the model's template refuses the conversation, now and later
	}
	return f.kindByStatus(words)
}

// isBadRequest reports whether the provider may mean a part of the request. Servers of local models
// answer 500 in this case.
func (f *Failure) isBadRequest() bool {
	switch f.Status {
	case 0, http.StatusBadRequest, http.StatusNotFound, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity, http.StatusInternalServerError:
		return true
	}
	return false
}

// noImages reports whether the model accepts no images, or not those of this request. There are
// many reasons for that: the size, the format, the shape. So any refusal that mentions an image
// counts.
func (f *Failure) noImages(words string) bool {
	if !ContainsAny(words, imageWords...) {
		return false
	}
	switch f.Status {
	case http.StatusBadRequest, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return true
	}
	return f.isBadRequest() && ContainsAny(words, noImageWords...)
}

// noFreeTier matches Gemini's error for a model that needs an account with money. It asks for a
// short wait, too.
var noFreeTier = plaintext.Pattern(`free_tier\w*, limit: 0\b`)

// quota reports whether the account has no credit left, or no free requests on this day. Gemini
// uses the same words for its limit per minute, but then asks for a short wait. It does so for its
// limit per day, too.
func (f *Failure) quota(words string) bool {
	if ContainsAny(words, "insufficient_quota", "perday", "free-models-per-day") ||
		noFreeTier().MatchString(words) {
		return true
	}
	return f.Status < 500 && f.After == 0 && ContainsAny(words, quotaWords...)
}

func (f *Failure) kindByStatus(words string) llm.Kind {
	switch f.Status {
	case http.StatusForbidden:
		return llm.Forbidden
	case http.StatusNotFound:
		return llm.NotFound
	case http.StatusTooManyRequests:
		return llm.RateLimited
	case http.StatusRequestTimeout, http.StatusGatewayTimeout, 524: // 524: Cloudflare
		return llm.TimedOut
	case http.StatusServiceUnavailable, 498, 529: // 498: Groq; 529: Anthropic
		return llm.Overloaded
	case 499: // Gemini has cancelled the request
		return llm.Unavailable
	}
	switch {
	case f.Status >= 400 && f.Status < 500 && !f.Begun:
		return llm.BadRequest
	case f.Status >= 400:
		return llm.Unavailable
	case ContainsAny(words, "rate limit", "rate_limit", "too many requests"):
		return llm.RateLimited
	case ContainsAny(words, "timeout", "timed out"):
		return llm.TimedOut
	case ContainsAny(words, "invalid_request") && !f.Begun:
		return llm.BadRequest
	}
	return llm.Unavailable
}

// asFailure returns the Failure in err's tree, or nil.
func asFailure(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	return nil
}
