package agent

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/modelcall"
	"gateway/agent/prompt"
	"gateway/store"
)

// counted returns a step whose prompt has this many tokens, as the model counts.
func counted(text string, tokens int) llmtest.Step {
	s := llmtest.Say(text)
	s.Usage = llm.Usage{Input: tokens, Output: 1}
	return s
}

// The learned ratio of bytes to tokens of a model survives a restart and applies to the first
// prompt.
func TestEstimateIsKept(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(counted("one", 2000))
		w.start()
		w.say("a", strings.Repeat("long ", 2000))
		learnt := w.d.env.Calls.Estimates.Ratio("scripted")
		if learnt == prompt.BytesPerToken || learnt < prompt.LeastRatio {
			t.Fatalf("the ratio is %g, want one that was learnt", learnt)
		}
		w.restart()
		if got := w.d.env.Calls.Estimates.Ratio("scripted"); got != learnt {
			t.Errorf("after a restart the ratio is %g, want %g", got, learnt)
		}
		if got := w.d.env.Calls.Estimates.Ratio("other"); got != prompt.BytesPerToken {
			t.Errorf("that of another model is %g, want %d", got, prompt.BytesPerToken)
		}
		w.wantQuiet()
	})
}

// Calls for notes teach the ratio of their model, too.
func TestEstimateOfNotesIsKept(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(llmtest.Say("hello"))
		notes := llmtest.New("noted")
		notes.Queue(counted("- they like roses", 2000))
		w.deps.Notes = notes
		w.start()
		w.say("a", strings.Repeat("roses ", 2000))
		w.say("a", "/new")
		w.sleep(time.Hour)
		if n := len(notes.Requests()); n != 1 {
			t.Fatalf("the model for notes was asked %d times, want once", n)
		}
		learnt := w.d.env.Calls.Estimates.Ratio("noted")
		w.restart()
		if got := w.d.env.Calls.Estimates.Ratio("noted"); got != learnt || got == prompt.BytesPerToken {
			t.Errorf("after a restart the ratio is %g, want %g, as it was learnt", got, learnt)
		}
	})
}

// A ratio is written when it has changed enough, and not with every answer. A ratio that was
// written is not written again. If the transaction fails, nothing was written, and the ratio is
// written later.
func TestEstimateIsWrittenRarely(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var e prompt.Estimator
		write := func() bool {
			t.Helper()
			l := e.Unsaved("m")
			w.tx(func(tx *store.Tx) error { return modelcall.SaveCalibration(tx, l) })
			e.Saved(l)
			return l != prompt.Calibration{}
		}
		kept := func(want float64) {
			t.Helper()
			ratios, err := budget.Ratios(w.read())
			if err != nil || math.Abs(ratios["m"]-want) > 1e-9 {
				t.Errorf("kept is %g, %v; want %g", ratios["m"], err, want)
			}
		}
		if write() {
			t.Error("something was written before anything was learnt")
		}
		for i, step := range []struct {
			bytes int // of a prompt of 1000 tokens
			wrote bool
			kept  float64
		}{
			{4000, true, 4},
			{4000, false, 4},
			{4400, false, 4}, // the ratio is 4.08
			{4400, false, 4}, // the ratio is 4.144
			{4400, false, 4}, // the ratio is 4.1952
			{4800, true, 4.31616},
			{1500, true, 3.752928},
		} {
			e.Learn("m", step.bytes, 1000)
			if got := write(); got != step.wrote {
				t.Errorf("answer %d: written is %t, want %t", i, got, step.wrote)
			}
			kept(step.kept)
		}
		e.Learn("m", 6000, 1000)
		failed := w.deps.DB.Tx(t.Context(), func(tx *store.Tx) error {
			if err := modelcall.SaveCalibration(tx, e.Unsaved("m")); err != nil {
				return err
			}
			return fmt.Errorf("it ends otherwise")
		})
		if failed == nil || !write() {
			t.Errorf("after a transaction that failed, %v, nothing was written", failed)
		}
		var next prompt.Estimator
		ratios, err := budget.Ratios(w.read())
		if next.Load(ratios); err != nil || next.Ratio("m") != e.Ratio("m") {
			t.Errorf("the next process begins with %g, %v; want %g", next.Ratio("m"), err, e.Ratio("m"))
		}
	})
}
