package markup

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// Samples returns Markdown that exercises every construct.
func Samples(tb testing.TB) []string {
	all := []string{
		"", "plain", "two\nlines", "a\n\nb", "# t\n\n- a\n  - b\n\n1. x\n",
		"**b *i* `c`** ~~s~~ ||x||",
		"[l](http://a/?q=\"&) ![i](j) [![a](b)](https://c) <http://d> www.e.f",
		"> q\n> > r\n> - s",
		"|a|b|\n|-|:-:|\n|`c\\|d`|**e**|\n", "```go\nx\n", "~~~\n```\n~~~",
		"    code", "<b>x</b>\n<div>\ny",
		"a\\*b &amp; &#x41; &#0; &nbsp;", "[r]: http://x",
		"***", "\xff\xfe", "日本語。テスト！", "👩‍👩‍👧🇩🇪é",
		"[`c`](https://x)", "> |a|\n> |-|\n> |b|", "- ```\n  x\n  ```\n", "a\r\nb",
		"**[x](http://y)**",
		"> ```go\n> x\n> ```", "1. a\n\n   b\n2. c", "\u2028\u202e", "- \n- ", ">", "#", "`` ` ``",
	}
	all = append(all, // samples that were once difficult in some dialect
		"[0](http:)0", "0http://[0", "- # ", ">00\n\x00", "[](http://0)00", "http://0<#1>", "~~~\n`````",
		"000***0***", "[*0*`0`]()0", "**0`*`0**", "*0*\x00*0*0000", "\\\n-", "0\n* >", ">* >00",
		"    0 ", "  |\n|-", "*0*`", "0*\x10\t0*", "a\n:-\nb", "00)  00) 0", "**a***b*c",
	)
	paths, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil {
		tb.Fatal(err)
	}
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, string(a.Files[0].Data))
	}
	return all
}
