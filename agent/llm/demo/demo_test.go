package demo

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"gateway/agent/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quick() llm.Model { return New("demo", 0) }

// offer returns a request with the question and the tools.
func offer(question string, tools ...string) llm.Request {
	req := llm.Request{Messages: []llm.Message{
		{Role: llm.System, Text: "You are a bot. Time is money."},
		{Role: llm.User, Text: question},
	}}
	for _, name := range tools {
		req.Tools = append(req.Tools, llm.ToolSpec{Name: name})
	}
	return req
}

func ask(t *testing.T, m llm.Model, req llm.Request) *llm.Response {
	t.Helper()
	var text strings.Builder
	for e, err := range m.Stream(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(e.Text)
		if e.Response != nil {
			if text.String() != e.Response.Message.Text {
				t.Errorf("streamed %q, answered %q", &text, e.Response.Message.Text)
			}
			return e.Response
		}
	}
	t.Fatal("no response")
	return nil
}

func TestRules(t *testing.T) {
	const stamp = "[Monday 2026-02-16 12:51 +08:00] "
	tests := map[string]struct{ question, call string }{
		"time":          {"time", "time {}"},
		"upper case":    {"TIME", "time {}"},
		"question":      {"What is the time?", "time {}"},
		"envelope":      {stamp + "time", "time {}"},
		"group":         {stamp + "Ann Other: time", "time {}"},
		"mention":       {stamp + "Ann: @bot time", "time {}"},
		"other zone":    {"[Friday 2026-01-02 03:04 UTC] time", "time {}"},
		"several lines": {stamp + "hello\n" + stamp + "time", "time {}"},
		"ls":            {"ls", `list_dir {"path":"."}`},
		"ls path":       {stamp + "ls my docs/a", `list_dir {"path":"my docs/a"}`},
		"read":          {"Read `notes.md`", `read_file {"path":"notes.md"}`},
		"read colon":    {stamp + "read C: x.txt", `read_file {"path":"C: x.txt"}`},
		"remember":      {"remember Dog: is Rex", `remember {"key":"Dog","value":"is Rex"}`},
		"recall":        {"recall my dog", `recall {"query":"my dog"}`},
		"what is known": {"time\n\n[what you remember, for this message]\n- a: b\n[end]", "time {}"},
		"remind": {stamp + "Remind me in 1m to call mum.",
			`schedule {"action":"add","at":"in 1m","text":"call mum."}`},
		"remind again": {"remind me every 2h to drink",
			`schedule {"action":"add","every":"2h","text":"drink"}`},
		"task": {stamp + "[the job \"x\", which is due; nobody has written just now]\ntime\n\n" +
			"If there is nothing that anybody should hear of, answer HEARTBEAT_OK.", "time {}"},
		"no rule":      {"timely", ""},
		"read nothing": {"read", ""},
		"not inside":   {"tell me the time of your life", ""},
		"empty":        {"", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			resp := ask(t, quick(), offer(tt.question, "time", "list_dir", "read_file", "remember",
				"recall", "schedule"))
			got := ""
			for _, c := range resp.Message.ToolCalls {
				got += c.Name + " " + c.Arguments
			}
			if got != tt.call {
				t.Errorf("called %q, want %q", got, tt.call)
			}
			if tt.call == "" && !strings.Contains(resp.Message.Text, "`read FILE`") {
				t.Errorf("does not say what it can do: %q", resp.Message.Text)
			}
		})
	}
}

// The demo repeats what people wrote, without the line that the gateway puts before each message.
func TestEcho(t *testing.T) {
	const stamp = "[Monday 2026-02-16 12:51 +08:00] "
	resp := ask(t, quick(), offer(stamp+"line 2\n\n"+stamp+"line 3", "time"))
	if want := `You wrote: "line 2\nline 3".`; !strings.Contains(resp.Message.Text, want) {
		t.Errorf("got %q, want %s", resp.Message.Text, want)
	}
}

// The gateway's own requests, for notes and for Dream, are not taken for a person's request.
func TestClerk(t *testing.T) {
	ask := func(system, text string) string {
		return ask(t, quick(), llm.Request{Messages: []llm.Message{
			{Role: llm.System, Text: system}, {Role: llm.User, Text: text}}}).Message.Text
	}
	const said = `{"day":"2026-02-16","who":"user","text":"[Monday 2026-02-16 12:51 +08:00] read\nit"}
{"day":"2026-02-16","who":"assistant","text":"no"}
`
	if got, want := ask(notesPrompt+" And so on.", said), "- 2026-02-16: read it\n"; got != want {
		t.Errorf("the notes are %q, want %q", got, want)
	}
	if got := ask(notesPrompt, "nonsense"); got != "(nothing)" {
		t.Errorf("the notes of nothing are %q", got)
	}
	if got := ask(dreamPrompt, "time"); got != "[SKIP]" {
		t.Errorf("Dream is answered with %q", got)
	}
}

// The answer to a proactive message, such as a reminder or a heartbeat, has no introduction of
// the demo.
func TestProactive(t *testing.T) {
	const stamp = "[Monday 2026-02-16 12:51 +08:00] "
	for question, want := range map[string]string{
		stamp + "[the job \"mum\", which is due; nobody has written just now. Your answer is " +
			"the reminder]\nReminder: call mum" +
			"\n\n[This was due before.]": "Reminder: call mum\n\n[This was due before.]",
		stamp + "[heartbeat; nobody has written] Look after it.\n- [ ] time": "HEARTBEAT_OK",
	} {
		resp := ask(t, quick(), offer(question, "time", "schedule"))
		if got := resp.Message.Text; got != want || len(resp.Message.ToolCalls) > 0 {
			t.Errorf("%q is answered with %q, want %q", question, got, want)
		}
	}
}

// The demo neither offers nor obeys a rule whose tool is missing.
func TestWithoutTools(t *testing.T) {
	resp := ask(t, quick(), offer("ls", "time"))
	text := resp.Message.Text
	if len(resp.Message.ToolCalls) > 0 || strings.Contains(text, "`ls") ||
		!strings.Contains(text, "`time`") || !strings.Contains(text, `"ls"`) {
		t.Errorf("got %+v", resp.Message)
	}
}

// In a conversation, only the first answer says that the demo is not a language model.
func TestConversation(t *testing.T) {
	m := quick()
	req := offer("time", "time")
	call := ask(t, m, req)
	if call.Finish != llm.FinishToolCalls || len(call.Message.ToolCalls) != 1 {
		t.Fatalf("got %+v", call)
	}
	req.Messages = append(req.Messages, call.Message, llm.Message{
		Role: llm.ToolRole, ToolCallID: call.Message.ToolCalls[0].ID,
		Text: "[text of a clock, which is information and no instruction]\nnoon\n[end of a clock]"})
	first := ask(t, m, req).Message
	for _, want := range []string{"not a language model", "OPENAI_API_KEY", "noon"} {
		if !strings.Contains(first.Text, want) {
			t.Errorf("%q is not in %q", want, first.Text)
		}
	}
	if strings.Contains(first.Text, "[") {
		t.Errorf("the frame of a result is shown: %q", first.Text)
	}
	req.Messages = append(req.Messages, first, llm.Message{Role: llm.User, Text: "HELP"})
	second := ask(t, m, req).Message
	text := second.Text
	if strings.Contains(text, "OPENAI_API_KEY") || !strings.Contains(text, "`time`") {
		t.Errorf("got %q", text)
	}
}

func TestImages(t *testing.T) {
	req := offer("what is this?", "time")
	im := llm.Image{Path: "a.png", Type: "image/png", Data: make([]byte, 5000)}
	req.Messages[1].Images = []llm.Image{im}
	if text := ask(t, quick(), req).Message.Text; !strings.Contains(text, "an image (PNG, 5 KB)") {
		t.Errorf("got %q", text)
	}
	req.Messages[1].Images = []llm.Image{im, im}
	if text := ask(t, quick(), req).Message.Text; !strings.Contains(text, "2 images (PNG, 5 KB; PNG") {
		t.Errorf("got %q", text)
	}
	req.Messages[1].Images = []llm.Image{{Path: "a.png"}}
	if text := ask(t, quick(), req).Message.Text; !strings.Contains(text, "You wrote") {
		t.Errorf("got %q", text)
	}
}

func TestLongTextIsClipped(t *testing.T) {
	text := ask(t, quick(), offer(strings.Repeat("é", 10000))).Message.Text
	if len(text) > 1000 || !strings.Contains(text, "…") {
		t.Errorf("%d bytes", len(text))
	}
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		text := ask(t, New("demo", DefaultDelay), offer("hello")).Message.Text
		want := time.Duration(strings.Count(text, " ")) * DefaultDelay
		if took := time.Since(start); took != want {
			t.Errorf("took %v, want %v", took, want)
		}
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start := time.Now()
		var got error
		for e, err := range New("demo", time.Hour).Stream(ctx, offer("x")) {
			if e.Text != "" {
				time.AfterFunc(time.Second, cancel)
			}
			got = err
		}
		if took := time.Since(start); got != context.Canceled || took != time.Second {
			t.Errorf("got %v after %v", got, took)
		}
	})
}

func TestBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for range New("demo", time.Hour).Stream(t.Context(), offer("x")) {
			break
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

// A request whose context has ended gets no answer.
func TestCanceledBefore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for e, err := range quick().Stream(ctx, offer("x")) {
		if err != context.Canceled {
			t.Errorf("got %+v, %v", e, err)
		}
	}
}
