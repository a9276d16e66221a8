package prompt

import (
	"maps"
	"math"
	"sync"

	"gateway/agent/llm"
)

// BytesPerToken is the number of bytes per token assumed for an unknown model. It errs on
// the safe side: English has about four, Chinese about three.
const BytesPerToken = 3

// Ratios outside these bounds are clamped.
const (
	LeastRatio = 1.5
	MostRatio  = 6
)

// ratioWeight is the weight of a new ratio in the moving average.
const ratioWeight = 0.2

// worthWriting is the relative change of a ratio from which it is saved again. The ratio
// moves with every answer, and a few percent are not worth a write.
const worthWriting = 0.05

// leastSample is the size of the smallest prompt from which a ratio is learnt, in tokens.
// In smaller prompts the provider's own additions distort the ratio.
const leastSample = 500

// An Estimator estimates the tokens of a prompt from its bytes. It learns the bytes per
// token of each model from the usage that the model reports. The ratios are saved for the
// next process. The zero value is ready for use.
type Estimator struct {
	mu     sync.Mutex
	ratios map[string]float64 // bytes per token, by model
	kept   map[string]float64 // ratios saved in the database
}

// Load sets the ratios that an earlier process has saved.
func (e *Estimator) Load(kept map[string]float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept, e.ratios = kept, maps.Clone(kept)
}

// A Calibration is a ratio to be saved in a transaction. The zero value means none.
type Calibration struct {
	Model string
	Ratio float64 // bytes per token
}

// Unsaved returns the ratio of a model if it has changed enough to be saved. The caller
// calls Saved once the ratio is durable.
func (e *Estimator) Unsaved(model string) Calibration {
	e.mu.Lock()
	defer e.mu.Unlock()
	ratio, kept := e.ratios[model], e.kept[model] // 0 if there is none
	if math.Abs(ratio-kept) <= worthWriting*kept {
		return Calibration{}
	}
	return Calibration{model, ratio}
}

// Saved records that c is in the database.
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

// Ratio returns the bytes per token of a model.
func (e *Estimator) Ratio(model string) float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r, ok := e.ratios[model]; ok {
		return r
	}
	return BytesPerToken
}

// Tokens returns the estimated tokens of so many bytes for a model.
func (e *Estimator) Tokens(model string, bytes int) int {
	return int(float64(bytes) / e.Ratio(model))
}

// Bytes returns the estimated bytes of so many tokens for a model.
func (e *Estimator) Bytes(model string, tokens int) int {
	return int(float64(tokens) * e.Ratio(model))
}

// Learn updates the ratio of a model from a prompt with so many bytes, for which the model
// reported tokens.
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

// Exceeded updates the ratio of a model after a prompt of so many bytes did not fit into
// its window, which is given in tokens.
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

// Share returns bytes, but at most one nth of a prompt of so many tokens. It limits the
// parts of the system prompt in a small window, to leave room for the conversation.
func Share(tokens, n, bytes int) int { return min(bytes, tokens*BytesPerToken/n) }

// messageOverhead is the approximate size of a message besides its text, in bytes.
const messageOverhead = 16

// MaxImages is the number of images in a prompt. The newest are included, the others are
// only mentioned.
const MaxImages = 6

// imageSize is the assumed size of an image, in bytes of text: about 1,300 tokens.
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

// LearnFrom updates the ratio from the usage in resp. It ignores requests with images,
// because their tokens say nothing about text.
func (e *Estimator) LearnFrom(req llm.Request, resp *llm.Response) {
	for _, m := range req.Messages {
		if len(m.Images) > 0 {
			return
		}
	}
	e.Learn(resp.Model, Size(req), resp.Usage.Input)
}
