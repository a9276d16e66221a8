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

// TestSplitCodeOfItem checks that the code of a list item ends with its piece, so that nothing that
// follows there becomes code.
func TestSplitCodeOfItem(t *testing.T) {
	src := "1. Do:\n\n   ```sh\n" + strings.Repeat("   make it so\n", 20) + "   ```\n"
	for _, piece := range SplitFirst(src, 60, len(src), TelegramLen) {
		if html := Telegram(piece + "\n\nEnd"); !strings.HasSuffix(html, "</pre>\n\nEnd") {
			t.Errorf("after the piece %q code goes on: %q", piece, html)
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

// TestSplitNumbers checks that a list whose items have all the same number goes on in the next
// piece with the number that the item has in the whole.
func TestSplitNumbers(t *testing.T) {
	for _, item := range []string{
		"1. Some words about %d\n", "1. Some words about %d\n\n   and more of it\n\n",
		"1.  Some words about %d\n\n    - and more of it\n\n", "1. Some words about %d\n   1. in it\n",
		"1. Some words about %d:\n\n   ```\n   code\n   ```\n\n", "1)\tSome words about %d\n\n\tcode\n\n",
	} {
		var b strings.Builder
		for i := range 12 {
			fmt.Fprintf(&b, item, i+1)
		}
		src := "Text before:\n\n" + b.String() + "\nText after.\n"
		if got, want := Plain(numbered(src)), Plain(src); got != want {
			t.Errorf("%q shows as %q, want %q", numbered(src), got, want)
		}
		for limit := 40; limit < 400; limit += 20 {
			checkSplit(t, src, limit, TelegramLen)
			var got []string
			for _, piece := range SplitFirst(src, limit, len(src), TelegramLen) {
				for line := range strings.Lines(Plain(piece)) {
					if number, about, ok := strings.Cut(line, ". Some words about "); ok {
						got = append(got, number)
						if n, _, _ := strings.Cut(strings.Trim(about, ":\n"), " "); n != number {
							t.Errorf("limit %d: item %s has number %s", limit, n, number)
						}
					}
				}
			}
			if len(got) != 12 {
				t.Errorf("limit %d: %q has the items %q", limit, src, got)
			}
		}
	}
}

// Other numbers in the source change nothing that people see.
func TestNumbered(t *testing.T) {
	for _, md := range append(Samples(t),
		"1. a\n1. b\n   1. c\n   1. d\n1. e", "> 1. a\n> 1. b", "- 1. a\n  1. b\n\n    c",
		"text\n2. a\n2. b", "1.\n1.\n1. c", "1. a\n\n       code\n1. b", "    1. a\n    1. b",
		"0. a\n0. b\nc\n0. d", "9. a\n9.     code\n\n       more\n9. - b\n     c\n\n\td",
		"999999999. a\n1. b", "01. a\n01. b", "9. a\r\n9. b\r\n\r\n   c\r\n",
		"9. > a\n9. > b\n   > c\n d", "> 9. a\n> 9. b\n>\n>    c", "9. a\n9. b\nc\n   - d\n9. e",
		"1. a\n100. b\n5. c\n\n     d", "9. a\n9. b\n\n|a|\n|-|", "9. a\n9. b\n\n***",
		"9. a\n9. b\n\nc\n=",
		"9. a\n9. b\n\n<!--\n-->", "9. a\n9. b\n```\nc", "9. a\n9. b\n\n> c", "9. a\n9. b\n\n[c]: d",
		"9. a\n9. b\n\n   |a|\n   |-|\n   |c|", "9. a\n9. b\n\n# c", "9. a\n9. b\n\n   c\n\nd\n\n    e",
	) {
		if got, want := Telegram(numbered(md)), Telegram(md); got != want {
			t.Errorf("numbered(%q) = %q, which shows as %q, want %q", md, numbered(md), got, want)
		}
	}
}
