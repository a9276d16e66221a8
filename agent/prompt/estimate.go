package prompt

import (
	"maps"
	"math"
	"sync"

	"gateway/agent/llm"
)

// BytesPerToken is how many bytes a token of an unknown model is taken for. It errs on the safe
// side: English has about four, Chinese about three.
const BytesPerToken = 3

// The ratios that are believed.
const (
	LeastRatio = 1.5
	MostRatio  = 6
)

// ratioWeight is how much a new ratio counts.
const ratioWeight = 0.2

// worthWriting is how far a ratio must be from the one that is kept to be written again, as a part
// of that. It moves with every answer, and a few percent are no reason to write.
const worthWriting = 0.05

// leastSample is the smallest prompt that says something of a ratio, in tokens: in a smaller one
// what the provider adds by itself counts too much.
const leastSample = 500

// An estimator says how many tokens a prompt has, by its bytes. It learns how many bytes a model's
// token has from what the model reports, and the next process goes on with that. The zero value is
// ready for use.
type Estimator struct {
	mu     sync.Mutex
	ratios map[string]float64 // bytes per token, by model
	kept   map[string]float64 // those that are in the database
}

// Load takes in what an earlier process has learnt.
func (e *Estimator) Load(kept map[string]float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept, e.ratios = kept, maps.Clone(kept)
}

// A Calibration is a ratio that is to be written in a transaction; the zero value is none.
type Calibration struct {
	Model string
	Ratio float64 // bytes per token
}

// Unsaved returns the ratio of a model if it has changed enough to be written. Once that is
// durable, Saved must be told.
func (e *Estimator) Unsaved(model string) Calibration {
	e.mu.Lock()
	defer e.mu.Unlock()
	ratio, kept := e.ratios[model], e.kept[model] // 0 if there is none
	if math.Abs(ratio-kept) <= worthWriting*kept {
		return Calibration{}
	}
	return Calibration{model, ratio}
}

// Saved notes what is in the database now.
func (e *Estimator) Saved(c Calibration) {
	if c.Ratio == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.kept == nil {
		e.kept = make(map[string]float64)
	}
	e.kept[c.Model] = c.Ratio
}

// Ratio returns how many bytes a token of a model has.
func (e *Estimator) Ratio(model string) float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r, ok := e.ratios[model]; ok {
		return r
	}
	return BytesPerToken
}

// Tokens returns how many tokens so many bytes are for a model.
func (e *Estimator) Tokens(model string, bytes int) int {
	return int(float64(bytes) / e.Ratio(model))
}

// Bytes returns how many bytes so many tokens have.
func (e *Estimator) Bytes(model string, tokens int) int {
	return int(float64(tokens) * e.Ratio(model))
}

// Learn takes in that a prompt had so many bytes, and tokens as the model counts.
func (e *Estimator) Learn(model string, bytes, tokens int) {
	if tokens < leastSample || bytes <= 0 {
		return
	}
	seen := min(max(float64(bytes)/float64(tokens), LeastRatio), MostRatio)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ratios == nil {
		e.ratios = make(map[string]float64)
	}
	old, ok := e.ratios[model]
	if !ok {
		e.ratios[model] = seen
		return
	}
	e.ratios[model] = old + (seen-old)*ratioWeight
}

// Exceeded takes in that a prompt of so many bytes did not fit into a window of tokens.
func (e *Estimator) Exceeded(model string, window, bytes int) {
	most := max(float64(bytes)/float64(window), LeastRatio)
	if ratio := e.Ratio(model); ratio > most {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.ratios == nil {
			e.ratios = make(map[string]float64)
		}
		e.ratios[model] = most
	}
}

// Share returns so many bytes, or, where the window is small, one nth of a prompt of so many
// tokens: what stands in the system prompt must leave room for the conversation.
func Share(tokens, n, bytes int) int { return min(bytes, tokens*BytesPerToken/n) }

// messageOverhead is about what a message takes besides its text, in bytes.
const messageOverhead = 16

// MaxImages is how many images a prompt has: the newest ones. The others are only mentioned.
const MaxImages = 6

// imageSize is what an image is taken for, in bytes of text: about 1,300 tokens.
const imageSize = 4000

// Size returns the size of a request, in bytes.
func Size(r llm.Request) int { return TextSize(r.Messages) + ToolsSize(r.Tools) }

// TextSize returns the size of messages in a prompt, in bytes.
func TextSize(list []llm.Message) (n int) {
	for _, m := range list {
		n += messageOverhead + len(m.Text) + min(len(m.Images), MaxImages)*imageSize
		for _, c := range m.ToolCalls {
			n += messageOverhead + len(c.Name) + len(c.Arguments)
		}
	}
	return n
}

// ToolsSize returns the size of tools in a prompt, in bytes.
func ToolsSize(specs []llm.ToolSpec) (n int) {
	for _, s := range specs {
		n += messageOverhead + len(s.Name) + len(s.Description) + len(s.Schema)
	}
	return n
}

// LearnFrom learns from an answer how large the prompt was. Images tell nothing of text.
func (e *Estimator) LearnFrom(req llm.Request, resp *llm.Response) {
	for _, m := range req.Messages {
		if len(m.Images) > 0 {
			return
		}
	}
	e.Learn(resp.Model, Size(req), resp.Usage.Input)
}
