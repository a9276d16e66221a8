package markup

import (
	"fmt"
	"strings"
	"testing"
)

// TestSplitItem checks that the rest of a list item shows no Markdown if a text is split within the
// item, at whatever place, and that code stays code.
func TestSplitItem(t *testing.T) {
	const item = `%d.  **Step**

    Explanation of the step, which is some words long.

    *   point a with [a link](https://example.org/x)

        *   a nested point, *without* anything else
    *   point b

    More text here, which is **bold** at its end.

    ` + "```go\n    if x {\n        y()\n    }\n    ```" + `

`
	var list strings.Builder
	for i := range 9 {
		fmt.Fprintf(&list, item, i+1)
	}
	src := "Text before:\n\n" + list.String() + "Text after.\n"
	for _, src := range []string{src, strings.ReplaceAll(src, "    ", "\t"),
		strings.ReplaceAll(src, "1.  ", "1. ")} {
		for limit := 150; limit < 900; limit += 25 {
			code := 0
			for _, piece := range SplitFirst(src, limit, len(src), TelegramLen) {
				html := Telegram(piece)
				if strings.ContainsAny(html, "*[`") {
					t.Fatalf("limit %d: the piece %q shows as %q", limit, piece, html)
				}
				code += strings.Count(html, "y()")
			}
			if code != 9 {
				t.Errorf("limit %d: the code is shown %d times, want 9", limit, code)
			}
			checkSplit(t, src, limit, TelegramLen)
		}
	}
}

// TestSplitIndentedCode checks that code that only its indentation marks keeps that, because it is
// not in a list.
func TestSplitIndentedCode(t *testing.T) {
	src := "Code:\n\n" + strings.Repeat("    x = *p * *q\n\n", 30)
	for _, piece := range SplitFirst(src, 150, len(src), TelegramLen)[1:] {
		if !strings.Contains(piece, "\n\n    x") {
			t.Errorf("the piece %q has no indentation", piece)
		}
	}
}
