package failover

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
)

var question = llm.Request{Messages: []llm.Message{{Role: llm.User, Text: "a secret question"}}}

// chain returns a Chain of the models, with the names a, b, c …
func chain(models ...llm.Model) *Chain {
	var entries []Entry
	for i, m := range models {
		entries = append(entries, Entry{Name: string(rune('a' + i)), Model: m})
	}
	return New(entries, nil)
}

// collect reads a whole stream. The text is the one that a person sees in the end.
func collect(ctx context.Context, m llm.Model) (text, model string, err error) {
	for e, err := range m.Stream(ctx, question) {
		if err != nil {
			return text, "", err
		}
		if e.Reset {
			text = ""
		}
		text += e.Text
		if e.Response != nil {
			model = e.Response.Model
		}
	}
	return text, model, nil
}

// always returns a model that always fails with this kind of error.
func always(kind llm.Kind, after time.Duration) *llmtest.Model {
	return llmtest.Func("failing", func(llm.Request) llmtest.Step {
		return llmtest.Step{Err: &llm.Error{Kind: kind, After: after}}
	})
}

// steady returns a model that always answers.
func steady(name string) *llmtest.Model {
	return llmtest.Func(name, func(llm.Request) llmtest.Step { return llmtest.Say("fine") })
}

// calls returns how often m was asked.
func calls(m *llmtest.Model) int { return len(m.Requests()) }

// For each kind of error, the chain makes the given number of attempts on the first model, which
// takes at least the given time. Then it asks the second model or returns the error.
func TestKinds(t *testing.T) {
	tests := map[string]struct {
		kind     llm.Kind
		after    time.Duration
		attempts int
		least    time.Duration // without the jitter
		next     bool
	}{
		"rate limited":     {llm.RateLimited, 0, 4, 7 * time.Second, true},
		"overloaded":       {llm.Overloaded, 0, 4, 7 * time.Second, true},
		"unavailable":      {llm.Unavailable, 0, 4, 7 * time.Second, true},
		"timed out":        {llm.TimedOut, 0, 4, 7 * time.Second, true},
		"asked to wait":    {llm.RateLimited, time.Minute, 4, 3 * time.Minute, true},
		"asked too much":   {llm.RateLimited, time.Minute + 1, 1, 0, true},
		"unauthorized":     {llm.Unauthorized, 0, 1, 0, true},
		"forbidden":        {llm.Forbidden, 0, 1, 0, true},
		"not found":        {llm.NotFound, 0, 1, 0, true},
		"out of quota":     {llm.OutOfQuota, 0, 1, 0, true},
		"bad request":      {llm.BadRequest, 0, 1, 0, true},
		"content refused":  {llm.ContentRefused, 0, 1, 0, true},
		"context too long": {llm.ContextTooLong, 0, 1, 0, false},
		"no images":        {llm.NoImages, 0, 1, 0, false},
		"bad thoughts":     {llm.BadThoughts, 0, 1, 0, false},
		"no tools":         {llm.NoTools, 0, 1, 0, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad, good := always(tt.kind, tt.after), steady("good")
				start := time.Now()
				text, model, err := collect(t.Context(), chain(bad, good))
				took := time.Since(start)
				if tt.next && (err != nil || text != "fine" || model != "good") {
					t.Errorf("got %q of %q, %v", text, model, err)
				}
				if !tt.next && (kindOf(err) != tt.kind || calls(good) != 0) {
					t.Errorf("got %v, %d calls of the second", err, calls(good))
				}
				most := tt.least + time.Duration(jitter*float64(tt.least))
				if calls(bad) != tt.attempts || took < tt.least || took > most {
					t.Errorf("%d attempts in %v, want %d in %v",
						calls(bad), took, tt.attempts, tt.least)
				}
			})
		})
	}
}

// An answer of which the content filter left nothing counts as refused, so the next model answers.
// If the filter left some text, or no model follows, that is the answer.
func TestFilteredAnswer(t *testing.T) {
	for text, want := range map[string]string{"": "good", "\n": "good", "half of": "bad"} {
		filtered := llmtest.Func("bad", func(llm.Request) llmtest.Step {
			return llmtest.Step{Text: []string{text}, Finish: llm.FinishFiltered}
		})
		_, model, err := collect(t.Context(), chain(filtered, steady("good")))
		if err != nil || model != want {
			t.Errorf("%q: answered by %q, %v, want %q", text, model, err, want)
		}
		if _, model, err = collect(t.Context(), chain(filtered)); err != nil || model != "bad" {
			t.Errorf("%q without a second model: %q, %v", text, model, err)
		}
	}
}

// The chain returns a refusal rather than the error of a later model, but not rather than NoTools.
// The answer of a later model also counts the usage of the refused answer.
func TestRefusalCounts(t *testing.T) {
	refused := llmtest.Func("refused", func(llm.Request) llmtest.Step {
		return llmtest.Step{Finish: llm.FinishFiltered, Usage: llm.Usage{Input: 100}}
	})
	_, _, err := collect(t.Context(), chain(refused, always(llm.Unauthorized, 0)))
	if err == nil || kindOf(err) != llm.ContentRefused {
		t.Errorf("with a later model that fails: %v, want a refusal", err)
	}
	_, _, err = collect(t.Context(), chain(refused, always(llm.NoTools, 0)))
	if err == nil || kindOf(err) != llm.NoTools {
		t.Errorf("with a later model that takes no tools: %v, want its error", err)
	}
	for e, err := range chain(refused, steady("good")).Stream(t.Context(), question) {
		if err != nil {
			t.Fatal(err)
		}
		if r := e.Response; r != nil && r.Spent().Input != r.Usage.Input+100 {
			t.Errorf("the answer counts %+v, beside the refused one %+v", r.Usage, r.Refused)
		}
	}
}

func TestRetrySucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := llmtest.New("a", llmtest.Fail(llm.Overloaded), llmtest.Say("fine"))
		c := chain(m, steady("b"))
		text, model, err := collect(t.Context(), c)
		if err != nil || text != "fine" || model != "a" {
			t.Errorf("got %q of %q, %v", text, model, err)
		}
		if left := c.links[0].cooling(time.Now()); left != 0 {
			t.Errorf("cools for %v after a success", left)
		}
	})
}

func TestLastErrorIsReturned(t *testing.T) {
	c := chain(always(llm.BadRequest, 0), always(llm.Unauthorized, 0))
	_, _, err := collect(t.Context(), c)
	if kindOf(err) != llm.Unauthorized {
		t.Errorf("got %v", err)
	}
}

// Each kind of error has its own cool-downs. They grow with each failure up to a maximum.
func TestCoolDown(t *testing.T) {
	const m, h = time.Minute, time.Hour
	tests := map[llm.Kind][]time.Duration{
		llm.RateLimited: {m / 2, m, 2 * m, 4 * m, 8 * m, 16 * m, 30 * m, 30 * m},
		llm.OutOfQuota:  {h, 2 * h, 4 * h, 8 * h, 16 * h, 24 * h, 24 * h},
		llm.Overloaded:  {m / 2, m, 2 * m, 4 * m, 5 * m, 5 * m},
		llm.Unavailable: {m / 2, m, 2 * m, 4 * m, 5 * m, 5 * m},
		llm.TimedOut:    {m / 2, m, 2 * m, 4 * m, 5 * m, 5 * m},

		llm.Unauthorized:   {5 * m, 10 * m, 20 * m, 40 * m, h, h},
		llm.Forbidden:      {5 * m, 10 * m, 20 * m, 40 * m, h, h},
		llm.NotFound:       {5 * m, 10 * m, 20 * m, 40 * m, h, h},
		llm.BadRequest:     {0, 0},
		llm.ContentRefused: {0, 0},
	}
	for kind, want := range tests {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad := always(kind, 0)
				c := chain(bad, steady("good"))
				for i, d := range want {
					if _, _, err := collect(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					if got := c.links[0].cooling(time.Now()); got != d {
						t.Errorf("cool-down %d is %v, want %v", i, got, d)
					}
					before := calls(bad)
					time.Sleep(max(0, d-time.Second))
					if _, _, err := collect(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					if d > 0 && calls(bad) != before {
						t.Error("asked while it cooled down")
					}
					time.Sleep(2 * time.Second)
				}
			})
		})
	}
}

func TestProviderAsksForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := chain(always(llm.RateLimited, 2*time.Hour), steady("good"))
		if _, _, err := collect(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if got := c.links[0].cooling(time.Now()); got != 2*time.Hour {
			t.Errorf("cools for %v", got)
		}
	})
}

func TestFailuresAtOnceAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := make(chan struct{})
		c := chain(llmtest.Func("bad", func(llm.Request) llmtest.Step {
			return llmtest.Step{Block: blocked, Err: &llm.Error{Kind: llm.Unauthorized}}
		}), steady("good"))
		for range 50 {
			go func() {
				if _, _, err := collect(t.Context(), c); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		close(blocked)
		synctest.Wait()
		if got := c.links[0].cooling(time.Now()); got != 5*time.Minute {
			t.Errorf("cools for %v after 50 failures at once", got)
		}
	})
}

func TestSuccessResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := llmtest.New("a",
			llmtest.Fail(llm.Unauthorized), llmtest.Say("fine"), llmtest.Fail(llm.Unauthorized))
		c := chain(m, steady("b"))
		for range 3 {
			if _, _, err := collect(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute)
		}
		if m.Left() != 0 {
			t.Errorf("%d steps left", m.Left())
		}
		if got := c.links[0].cools[llm.Unauthorized].length; got != 5*time.Minute {
			t.Errorf("second cool-down is %v, want the shortest", got)
		}
	})
}

// While all models cool down, the model whose cool-down ends first is tried.
func TestAllCooling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broke := always(llm.OutOfQuota, 0)
		back := llmtest.New("back", llmtest.Fail(llm.Unauthorized), llmtest.Say("fine"))
		c := chain(broke, back)
		if _, _, err := collect(t.Context(), c); kindOf(err) != llm.Unauthorized {
			t.Fatalf("got %v", err)
		}
		text, model, err := collect(t.Context(), c)
		if err != nil || text != "fine" || model != "back" || calls(broke) != 1 {
			t.Errorf("got %q of %q, %v, %d calls of the first", text, model, err, calls(broke))
		}
	})
}

func TestResetAfterText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		half := llmtest.Step{Text: []string{"ha", "lf"}, Err: &llm.Error{Kind: llm.Unavailable}}
		m := llmtest.New("a", half, llmtest.Fail(llm.Unavailable), llmtest.Say("whole"))
		var got []string
		for e, err := range chain(m).Stream(t.Context(), question) {
			switch {
			case err != nil:
				t.Fatal(err)
			case e.Reset:
				got = append(got, "reset")
			case e.Response == nil:
				got = append(got, e.Text)
			}
		}
		if want := []string{"ha", "lf", "reset", "whole"}; !reflect.DeepEqual(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestCancel(t *testing.T) {
	for name, model := range map[string]*llmtest.Model{
		"while waiting": always(llm.RateLimited, time.Minute),
		"while asking":  llmtest.New("a", llmtest.Step{Delay: time.Hour}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				next := steady("b")
				_, _, err := collect(ctx, chain(model, next))
				if err != context.DeadlineExceeded || calls(next) != 0 {
					t.Errorf("got %v, %d calls of the next", err, calls(next))
				}
				if took := time.Since(start); took != time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func TestBreak(t *testing.T) {
	m, next := steady("a"), steady("b")
	for range chain(m, next).Stream(t.Context(), question) {
		break
	}
	if calls(m) != 1 || calls(next) != 0 {
		t.Errorf("%d and %d calls", calls(m), calls(next))
	}
}

func TestOtherErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		odd := llmtest.Func("odd", func(llm.Request) llmtest.Step {
			return llmtest.Step{Err: errors.New("odd")}
		})
		text, _, err := collect(t.Context(), chain(odd, steady("b")))
		if err != nil || text != "fine" {
			t.Errorf("got %q, %v", text, err)
		}
	})
}

func TestLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		bad := llmtest.New("bad", llmtest.Fail(llm.Overloaded), llmtest.Fail(llm.Unauthorized))
		c := New([]Entry{{Name: "one", Model: bad}, {Name: "two", Model: steady("b")}},
			&Options{Logger: slog.New(slog.NewTextHandler(&buf, nil))})
		if _, _, err := collect(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`level=INFO msg="model is retried" model=one kind=overloaded after=`,
			`level=WARN msg="model cools down" model=one kind=unauthorized after=5m0s`,
		} {
			if !strings.Contains(buf.String(), want) {
				t.Errorf("%s is not in %s", want, &buf)
			}
		}
		if strings.Contains(buf.String(), "secret") {
			t.Errorf("content in the log: %s", &buf)
		}
	})
}

func TestNoModels(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	New(nil, nil)
}

// Each model has its own limit of an answer. One that the caller sets otherwise is not exceeded.
func TestMaxOutput(t *testing.T) {
	for _, tt := range []struct{ first, second, asked, want int }{
		{64_000, 8000, 64_000, 8000}, {64_000, 0, 64_000, 0}, {0, 8000, 0, 8000}, {0, 0, 0, 0},
		{64_000, 8000, 1500, 1500}, {64_000, 1000, 1500, 1000}, {64_000, 0, 1500, 1500},
		{64_000, 8000, 0, 0},
	} {
		bad, good := always(llm.BadRequest, 0), steady("good")
		c := New([]Entry{{"a", bad, tt.first}, {"b", good, tt.second}}, nil)
		req := question
		req.MaxOutput = tt.asked
		for range c.Stream(t.Context(), req) {
		}
		got := []int{bad.Requests()[0].MaxOutput, good.Requests()[0].MaxOutput}
		if want := []int{tt.asked, tt.want}; !slices.Equal(got, want) {
			t.Errorf("%+v: the models were asked for %d tokens, want %d", tt, got, want)
		}
	}
}
