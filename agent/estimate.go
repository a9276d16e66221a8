package agent

import (
	"maps"
	"math"
	"sync"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/store"
)

// bytesPerToken is how many bytes a token of an unknown model is taken for. It errs on the safe
// side: English has about four, Chinese about three.
const bytesPerToken = 3

// The ratios that are believed, and how much a new one counts.
const (
	leastRatio  = 1.5
	mostRatio   = 6
	ratioWeight = 0.2
)

// worthWriting is how far a ratio must be from the one that is kept to be written again, as a part
// of that. It moves with every answer, and a few percent are no reason to write.
const worthWriting = 0.05

// leastSample is the smallest prompt that says something of a ratio, in tokens: in a smaller one
// what the provider adds by itself counts too much.
const leastSample = 500

// An estimator says how many tokens a prompt has, by its bytes. It learns how many bytes a model's
// token has from what the model reports, and the next process goes on with that. The zero value is
// ready for use.
type estimator struct {
	mu     sync.Mutex
	ratios map[string]float64 // bytes per token, by model
	kept   map[string]float64 // those that are in the database
}

// restore takes in what an earlier process has learnt.
func (e *estimator) restore(q store.Queryer) error {
	kept, err := budget.Ratios(q)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept, e.ratios = kept, maps.Clone(kept)
	return nil
}

// A lesson is a ratio that was written in a transaction; the zero value is none.
type lesson struct {
	model string
	ratio float64
}

// write writes the ratio of a model if it has changed enough. Once that is durable, keep must be
// told.
func (e *estimator) write(tx *store.Tx, model string) (lesson, error) {
	e.mu.Lock()
	ratio, kept := e.ratios[model], e.kept[model] // 0 if there is none
	e.mu.Unlock()
	if math.Abs(ratio-kept) <= worthWriting*kept {
		return lesson{}, nil
	}
	return lesson{model, ratio}, budget.SetRatio(tx, model, ratio)
}

// keep notes what is in the database now.
func (e *estimator) keep(l lesson) {
	if l.ratio == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.kept == nil {
		e.kept = make(map[string]float64)
	}
	e.kept[l.model] = l.ratio
}

func (e *estimator) ratio(model string) float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r, ok := e.ratios[model]; ok {
		return r
	}
	return bytesPerToken
}

// tokens returns how many tokens so many bytes are for a model.
func (e *estimator) tokens(model string, bytes int) int {
	return int(float64(bytes) / e.ratio(model))
}

// bytes returns how many bytes so many tokens have.
func (e *estimator) bytes(model string, tokens int) int {
	return int(float64(tokens) * e.ratio(model))
}

// learn takes in that a prompt had so many bytes, and tokens as the model counts.
func (e *estimator) learn(model string, bytes, tokens int) {
	if tokens < leastSample || bytes <= 0 {
		return
	}
	seen := min(max(float64(bytes)/float64(tokens), leastRatio), mostRatio)
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

// exceeded takes in that a prompt of so many bytes did not fit into a window of tokens.
func (e *estimator) exceeded(model string, window, bytes int) {
	most := max(float64(bytes)/float64(window), leastRatio)
	if ratio := e.ratio(model); ratio > most {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.ratios == nil {
			e.ratios = make(map[string]float64)
		}
		e.ratios[model] = most
	}
}

// messageOverhead is about what a message takes besides its text, in bytes.
const messageOverhead = 16

// imageSize is what an image is taken for, in bytes of text: about 1,300 tokens.
const imageSize = 4000

// textSize returns the size of messages in a prompt, in bytes.
func textSize(list []llm.Message) (n int) {
	for _, m := range list {
		n += messageOverhead + len(m.Text) + min(len(m.Images), maxImages)*imageSize
		for _, c := range m.ToolCalls {
			n += messageOverhead + len(c.Name) + len(c.Arguments)
		}
	}
	return n
}

// toolsSize returns the size of tools in a prompt, in bytes.
func toolsSize(specs []llm.ToolSpec) (n int) {
	for _, s := range specs {
		n += messageOverhead + len(s.Name) + len(s.Description) + len(s.Schema)
	}
	return n
}

// learnFrom learns from an answer how large the prompt was. Images tell nothing of text.
func (e *estimator) learnFrom(req llm.Request, resp *llm.Response) {
	for _, m := range req.Messages {
		if len(m.Images) > 0 {
			return
		}
	}
	e.learn(resp.Model, textSize(req.Messages)+toolsSize(req.Tools), resp.Usage.Input)
}
