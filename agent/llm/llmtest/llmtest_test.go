package llmtest

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"gateway/agent/llm"
)

var question = llm.Request{Messages: []llm.Message{{Role: llm.User, Text: "?"}}}

// collect reads a whole stream.
func collect(ctx context.Context, m llm.Model) (pieces []string, resp *llm.Response, err error) {
	for e, err := range m.Stream(ctx, question) {
		if err != nil {
			return pieces, nil, err
		}
		if e.Text != "" {
			pieces = append(pieces, e.Text)
		}
		resp = e.Response
	}
	return pieces, resp, nil
}

func TestSteps(t *testing.T) {
	m := New("m", Say("one two"), Call("f", "{}"), Call("f", "{}"), Fail(llm.Overloaded))
	pieces, resp, err := collect(t.Context(), m)
	if err != nil || !reflect.DeepEqual(pieces, []string{"one ", "two"}) ||
		resp.Message.Text != "one two" || resp.Finish != llm.FinishStop || resp.Model != "m" {
		t.Errorf("Say: %q, %+v, %v", pieces, resp, err)
	}
	_, first, _ := collect(t.Context(), m)
	_, second, _ := collect(t.Context(), m)
	if a, b := first.Message.ToolCalls[0].ID, second.Message.ToolCalls[0].ID; a == "" || a == b {
		t.Errorf("ids %q and %q", a, b)
	}
	var e *llm.Error
	if _, _, err := collect(t.Context(), m); !errors.As(err, &e) ||
		e.Kind != llm.Overloaded || e.Model != "m" {
		t.Errorf("Fail: %v", err)
	}
	if _, _, err := collect(t.Context(), m); !errors.Is(err, ErrNoStep) {
		t.Errorf("got %v, want %v", err, ErrNoStep)
	}
	m.Queue(Say("more"))
	if _, resp, err := collect(t.Context(), m); err != nil || resp.Message.Text != "more" {
		t.Errorf("Queue: %+v, %v", resp, err)
	}
	if got := m.Requests(); len(got) != 6 || !reflect.DeepEqual(got[5], question) {
		t.Errorf("requests %+v", got)
	}
}

func TestErrorAfterText(t *testing.T) {
	broken := errors.New("broken")
	m := Func("m", func(llm.Request) Step { return Step{Text: []string{"half"}, Err: broken} })
	pieces, _, err := collect(t.Context(), m)
	if !reflect.DeepEqual(pieces, []string{"half"}) || err != broken {
		t.Errorf("got %q, %v", pieces, err)
	}
}

func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		m := New("m", Step{Delay: time.Hour, Block: release, Text: []string{"a", "b"},
			Between: time.Minute})
		start := time.Now()
		done := make(chan time.Duration)
		go func() {
			if _, _, err := collect(t.Context(), m); err != nil {
				t.Error(err)
			}
			done <- time.Since(start)
		}()
		time.Sleep(2 * time.Hour)
		if m.Running() != 1 {
			t.Errorf("%d running, want 1", m.Running())
		}
		close(release)
		if took := <-done; took != 2*time.Hour+time.Minute {
			t.Errorf("took %v", took)
		}
		synctest.Wait()
		if m.Running() != 0 || m.Left() != 0 {
			t.Errorf("%d running, %d left", m.Running(), m.Left())
		}
	})
}

func TestCancel(t *testing.T) {
	for name, step := range map[string]func() Step{
		"delay":   func() Step { return Step{Delay: time.Hour} },
		"blocked": func() Step { return Step{Block: make(chan struct{})} },
		"between": func() Step { return Step{Text: []string{"a", "b"}, Between: time.Hour} },
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, _, err := collect(ctx, New("m", step())); err != context.DeadlineExceeded {
				t.Errorf("%s: got %v", name, err)
			}
		})
	}
}
