package prompt

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
)

// randomTranscript returns a transcript that the gateway should not write, but that may exist.
// Results can be missing, in any order or without a call. Several messages in a row can have the
// same role.
func randomTranscript(r *rand.Rand) (list []llm.Message) {
	text := func() string {
		return strings.Repeat("x", r.IntN(2)*r.IntN(5000)) + fmt.Sprint(len(list))
	}
	for range r.IntN(30) {
		switch r.IntN(5) {
		case 0, 1:
			list = append(list, llm.Message{Role: llm.User, Text: text()})
		case 2:
			list = append(list, llm.Message{Role: llm.Assistant, Text: text()})
		case 3:
			list = append(list, llm.Message{Role: llm.ToolRole, ToolCallID: "orphan", Text: text()})
		case 4:
			m := llm.Message{Role: llm.Assistant}
			var found []llm.Message
			for i := range 1 + r.IntN(4) {
				c := llm.ToolCall{ID: fmt.Sprintf("c%d_%d", len(list), i), Name: "look"}
				m.ToolCalls = append(m.ToolCalls, c)
				if r.IntN(3) > 0 {
					found = append(found, ToolResult(c, text()))
				}
			}
			r.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
			list = append(append(list, m), found...)
		}
	}
	return append(list, llm.Message{Role: llm.User, Text: "the question"})
}

// Pitfalls: "tool-call history with orphans (HTTP 400)", "compaction that cuts tool pairs apart".
// FuzzPrepare checks that a provider accepts the prepared messages and that the user's text is
// complete.
func FuzzPrepare(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed, 1<<20)
		f.Add(seed, 8000)
	}
	f.Fuzz(func(t *testing.T, seed uint64, size int) {
		transcript := randomTranscript(rand.New(rand.NewPCG(seed, 1)))
		before, err := json.Marshal(transcript)
		if err != nil {
			t.Fatal(err)
		}
		list := Prepare(transcript, size)
		sent := Merge(append([]llm.Message{{Role: llm.System}}, list...))
		if problem := llmtest.Problem(sent); problem != "" {
			t.Errorf("%s in %q", problem, lines(sent))
		}
		if got, want := userText(sent), userText(transcript); got != want {
			t.Errorf("the user said %q, the model is told %q", want, got)
		}
		least := 0 // the size after shrinking all results that may be shrunk
		for i, m := range list {
			if m.Role == llm.ToolRole && i < len(list)-keptResults {
				m.Text = m.Text[:min(len(m.Text), leastResult)]
			}
			least += TextSize([]llm.Message{m})
		}
		if got := TextSize(list); got > max(size, least) {
			t.Errorf("%d bytes are sent, want %d at most", got, max(size, least))
		}
		if after, err := json.Marshal(transcript); err != nil || string(after) != string(before) {
			t.Errorf("the transcript was changed, %v", err)
		}
	})
}

// userText returns the text of all messages of the user.
func userText(list []llm.Message) string {
	var said []string
	for _, m := range list {
		if m.Role == llm.User {
			said = append(said, m.Text)
		}
	}
	return strings.Join(said, "\n\n")
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	user := func(text string) llm.Message { return llm.Message{Role: llm.User, Text: text} }
	said := func(text string) llm.Message { return llm.Message{Role: llm.Assistant, Text: text} }
	big := strings.Repeat("x", 3000)
	cut := "tool: " + big[:ShrunkResult-len(resultShrunk)] + resultShrunk
	for _, test := range []struct {
		name string
		size int
		in   []llm.Message
		want []string
	}{
		{"nothing from the user", 100, []llm.Message{said("a"), intent("look")}, nil},
		{"begins with the user", 100, []llm.Message{result(0, "r"), said("a"), user("b")},
			[]string{"user: b"}},
		{"missing result", 100, []llm.Message{user("a"), intent("look"), user("b")},
			[]string{"user: a", "assistant:  look()", "tool: " + ResultMissing, "user: b"}},
		{"missing result at the end", 100, []llm.Message{user("a"), intent("look")},
			[]string{"user: a", "assistant:  look()", "tool: " + ResultMissing}},
		{"results in the order of the calls", 100,
			[]llm.Message{user("a"), intent("one", "two"), result(1, "2"), result(0, "1")},
			[]string{"user: a", "assistant:  one() two()", "tool: 1", "tool: 2"}},
		{"fits", 4000, []llm.Message{user("a"), intent("look"), result(0, big), user("b")},
			[]string{"user: a", "assistant:  look()", "tool: " + big, "user: b"}},
		{"older results are shrunk", 4000, []llm.Message{user("a"), intent("look"), result(0, big),
			user("b"), intent("look"), result(0, big)},
			[]string{"user: a", "assistant:  look()", cut, "user: b", "assistant:  look()",
				"tool: " + big}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := lines(Prepare(test.in, test.size))
			for i := range got {
				got[i] = strings.ReplaceAll(got[i], "({})", "()")
			}
			wantLines(t, "history", got, test.want)
		})
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	call := intent("look")
	call.Text, call.Reasoning = "now", "hm"
	got := Merge([]llm.Message{
		{Role: llm.System, Text: "s"}, {Role: llm.User, Text: "a"}, {Role: llm.User, Text: "b"},
		{Role: llm.Assistant, Text: "c"}, {Role: llm.Assistant, Text: ""}, call,
		result(0, "1"), result(1, "2"),
	})
	wantLines(t, "messages", lines(got), []string{"system: s", "user: a\n\nb",
		"assistant: c\n\nnow look({})", "tool: 1", "tool: 2"})
	if got[2].Reasoning != "hm" {
		t.Errorf("the reasoning of the tool call is %q, want it kept", got[2].Reasoning)
	}
}

func TestShrinkAll(t *testing.T) {
	t.Parallel()
	list := []llm.Message{result(0, strings.Repeat("é", 600)), {Role: llm.User, Text: "é"},
		result(1, "short")}
	for _, n := range []int{ShrunkResult, ShrunkResult, leastResult} {
		ShrinkResults(list, n)
		text, marked := strings.CutSuffix(list[0].Text, resultShrunk)
		if len(list[0].Text) > n || len(list[0].Text) < n-3 || !marked || strings.Trim(text, "é") != "" {
			t.Errorf("shrunk to %d bytes, want about %d: %q", len(list[0].Text), n, list[0].Text)
		}
	}
	if got := lines(list[1:]); !slices.Equal(got, []string{"user: é", "tool: short"}) {
		t.Errorf("the others are %q, want them untouched", got)
	}
}

func wantLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s is\n\t%s\nwant\n\t%s", what,
			strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// lines returns messages as text that is easy to compare: "user: text", "assistant: text
// look({})", "tool: result".
func lines(messages []llm.Message) (list []string) {
	for _, m := range messages {
		line := string(m.Role) + ": " + m.Text
		for _, c := range m.ToolCalls {
			line += " " + c.Name + "(" + c.Arguments + ")"
		}
		list = append(list, line)
	}
	return list
}

// intent returns an assistant message that calls tools.
func intent(tools ...string) llm.Message {
	m := llm.Message{Role: llm.Assistant}
	for i, name := range tools {
		id := fmt.Sprintf("left_%d", i)
		m.ToolCalls = append(m.ToolCalls, llm.ToolCall{ID: id, Name: name, Arguments: "{}"})
	}
	return m
}

func result(of int, text string) llm.Message {
	return llm.Message{Role: llm.ToolRole, ToolCallID: fmt.Sprintf("left_%d", of), Text: text}
}

// Arguments that are cut stay a JSON object with the same names, and short values stay as they
// are. The calls that others share do not change, and a second cut changes nothing.
func TestShrinkCalls(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü<", 2000)
	arguments := `{"path":"a.txt","text":"` + long + `","lines":[` + strings.Repeat("1,", 2000) + `1]}`
	shared := []llm.ToolCall{{Name: "write", Arguments: arguments}, {Name: "write", Arguments: long}}
	list := []llm.Message{{Role: llm.Assistant, ToolCalls: shared}}
	ShrinkCalls(list, ShrunkResult)
	if shared[0].Arguments != arguments {
		t.Error("the shared call has changed")
	}
	got := list[0].ToolCalls[0].Arguments
	var values map[string]string
	if err := json.Unmarshal([]byte(got), &values); err != nil || values["path"] != "a.txt" {
		t.Fatalf("the arguments are %s, %v", got, err)
	}
	for _, name := range []string{"text", "lines"} {
		if v := values[name]; len(v) > ShrunkResult || !strings.HasSuffix(v, callShrunk) {
			t.Errorf("%s has %d bytes and ends with %q", name, len(v), v[max(len(v)-60, 0):])
		}
	}
	if n := len(list[0].ToolCalls[1].Arguments); n > ShrunkResult {
		t.Errorf("arguments that are no JSON have %d bytes", n)
	}
	ShrinkCalls(list, ShrunkResult)
	if again := list[0].ToolCalls[0].Arguments; again != got {
		t.Errorf("a second cut made %s", again)
	}
}
