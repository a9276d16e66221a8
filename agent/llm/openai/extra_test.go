package openai

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// collectExtra joins the pieces of the field x. It returns the field and the number of bytes
// allocated.
func collectExtra(t *testing.T, pieces []string) (string, uint64) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a := &answer{}
	for _, piece := range pieces {
		var c chunk
		frame := `{"choices":[{"delta":{"x":` + piece + `}}]}`
		if err := json.Unmarshal([]byte(frame), &c); err != nil {
			t.Fatal(err)
		}
		a.add(&c)
	}
	whole := a.response(ask("why?"), "model", "origin").Message.Extra["x"]
	runtime.ReadMemStats(&after)
	return string(whole), after.TotalAlloc - before.TotalAlloc
}

func TestExtraFields(t *testing.T) {
	for _, tt := range []struct {
		pieces []string
		want   string
	}{
		{[]string{`"a"`, `"b"`, `"c"`, `"d"`, `"efghijklmn"`, `"o"`}, `"abcdefghijklmno"`},
		{[]string{`"a long text"`, `1`, `"b"`}, `"b"`},
		{[]string{`{"a":"a long text"}`, `{"b":1}`, `{"c":1}`}, `{"c":1}`},
		{[]string{`[1,2,3,4,5,6]`, `[7]`, `[8]`, `[9]`}, `[1,2,3,4,5,6,7,8,9]`},
		{[]string{`[{"type":"t","index":0,"text":"a long text"}]`, `[{"type":"t","index":0,"text":","}]`,
			`[{"type":"t","index":0,"text":" and"},{"type":"t","index":1,"text":"x"}]`,
			`[{"type":"t","index":1,"text":"y"}]`, `[{"type":"t","index":1,"text":null,"signature":"S"}]`},
			`[{"index":0,"text":"a long text, and","type":"t"},` +
				`{"index":1,"signature":"S","text":"xy","type":"t"}]`},
	} {
		if got, _ := collectExtra(t, tt.pieces); got != tt.want {
			t.Errorf("%q become %s, want %s", tt.pieces, got, tt.want)
		}
	}
}

// LiteLLM sends Claude's thoughts in pieces without a number. The signature comes last, alone or
// with the whole thought once more. Claude accepts only a whole thought with its signature. See
// https://github.com/BerriAI/litellm/issues/29428.
func TestThinkingBlocks(t *testing.T) {
	piece := func(thought, signature string) string {
		return fmt.Sprintf(`[{"type":"thinking","thinking":%q,"signature":%q}]`, thought, signature)
	}
	for _, last := range []string{piece("", "S1"), piece("One. Two.", "S1")} {
		got, _ := collectExtra(t, []string{piece("One. ", ""), piece("Two.", ""), last,
			`[{"type":"redacted_thinking","data":"D"}]`, piece("Three.", ""),
			`[{"type":"thinking","thinking":"","signature":null}]`, piece("", "S2")})
		const want = `[{"signature":"S1","thinking":"One. Two.","type":"thinking"},` +
			`{"data":"D","type":"redacted_thinking"},` +
			`{"signature":"S2","thinking":"Three.","type":"thinking"}]`
		if got != want {
			t.Errorf("%s last: got %s, want %s", last, got, want)
		}
	}
}

// Twice as much reasoning takes about twice as much memory.
func TestLongReasoning(t *testing.T) {
	const words = 2000
	pieces := slices.Repeat([]string{
		`[{"type":"reasoning.text","index":0,"format":"f","text":" word"}]`}, 2*words)
	_, once := collectExtra(t, pieces[:words])
	whole, twice := collectExtra(t, pieces)
	want := fmt.Sprintf(`[{"format":"f","index":0,"text":%q,"type":"reasoning.text"}]`,
		strings.Repeat(" word", 2*words))
	if whole != want {
		t.Errorf("the reasoning is %.200s…", whole)
	}
	if twice > 3*once {
		t.Errorf("%d words take %d bytes, and %d words %d", words, once, 2*words, twice)
	}
}
