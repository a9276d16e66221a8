package openai

import (
	"slices"
	"strings"
	"testing"
)

// think splits content, which is pushed in pieces of n bytes.
func think(content string, n int) (text, thought string) {
	var t thinkSplitter
	add := func(s split) {
		if s.retract {
			text, thought = "", thought+text
		}
		text += s.text
		thought += s.thought
	}
	for content != "" {
		k := min(n, len(content))
		add(t.push(content[:k]))
		content = content[k:]
	}
	add(t.flush())
	return text, thought
}

func TestThink(t *testing.T) {
	tests := []struct{ in, text, thought string }{
		{"", "", ""},
		{"plain", "plain", ""},
		{"  plain\n", "  plain\n", ""},
		{"<think>a</think>b", "b", "a"},
		{"<think>\na\n</think>\n\nb\n", "b\n", "\na\n"},
		{"x<think>a</think>y<think>b</think>z", "xyz", "ab"},
		{"<think>never closed", "", "never closed"},
		{"thought</think>text", "text", "thought"},
		{"<think>a</think>text </think> on", "text </think> on", "a"},
		{"a < b <thin c", "a < b <thin c", ""},
		{"ends with <thi", "ends with <thi", ""},
		{"<think>ends with </thi", "", "ends with </thi"},
		{"<<think>a<</think>b", "<b", "a<"},
		{"a `b`</think>c", "c", "a `b`"},
		{"```\na\n</think>c", "c", "```\na\n"},
		{"[THINK]a\n</think>[/THINK]b [THINK] c", "b [THINK] c", "a\n</think>"},
		{"<seed:think>a</seed:think>b", "b", "a"},
		{"◁think▷a◁/think▷\n\nb", "b", "a"},
		{"<thinking>a </thinking>\n\nb", "b", "a "},
		{"<thought>a\n</thought>b <thinking>", "b <thinking>", "a\n"},
		{"see [THINK] and </seed:think>", "see [THINK] and </seed:think>", ""},
		{"say `<think>`\nor\n</think>c", "c", "say `<think>`\nor\n"},
	}
	for _, tt := range tests {
		for n := 1; n <= len(tt.in)+1; n++ {
			text, thought := think(tt.in, n)
			if text != tt.text || thought != tt.thought {
				t.Errorf("%q by %d: got %q, %q, want %q, %q",
					tt.in, n, text, thought, tt.text, tt.thought)
			}
		}
	}
}

// An answer about the tags is shown as it is.
func TestThinkMentioned(t *testing.T) {
	for _, in := range []string{
		"It thinks within `<think>` tags:\n\n```python\nre.sub(r\"<think>.*?</think>\", \"\", s)\n```\n",
		"The template:\n\n```\n<think>\n{thoughts}\n</think>\n```\nThen the answer.",
		"~~~xml\n<think>\n</think>\n~~~\n",
		"The thoughts end with `</think>`, and the answer follows.",
		"Split at `</think>`", "the `<think>` tag and the `</think>` tag", "``a <think> b``",
	} {
		for n := 1; n <= len(in)+1; n++ {
			if text, thought := think(in, n); text != in || thought != "" {
				t.Errorf("%q by %d: got %q, %q", in, n, text, thought)
			}
		}
	}
}

// FuzzThink checks that the size of the pieces makes no difference, that an opening tag at the
// beginning is not shown, and that only tags and blank space are lost.
func FuzzThink(f *testing.F) {
	f.Add("<think>a</think> b", 2)
	f.Add("a</think>b<think>", 3)
	f.Add("[THINK]a[/THINK]b", 1)
	f.Fuzz(func(t *testing.T, in string, n int) {
		text, thought := think(in, max(1, n))
		if t2, th2 := think(in, max(1, len(in))); text != t2 || thought != th2 {
			t.Errorf("in pieces %q, %q; whole %q, %q", text, thought, t2, th2)
		}
		if strings.HasPrefix(in, thinkOpen) && len(text)+len(thought)+len(thinkOpen) > len(in) {
			t.Errorf("%q came out of %q", text+thought, in)
		}
		known := append([]string{thinkOpen, thinkClose}, otherThoughts...)
		if !slices.ContainsFunc(known, func(tag string) bool { return strings.Contains(in, tag) }) &&
			text+thought != in {
			t.Errorf("got %q, %q of %q", text, thought, in)
		}
	})
}
