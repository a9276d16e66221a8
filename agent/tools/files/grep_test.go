package files

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"gateway/agent/tool"
	"gateway/bus/bustest"
)

var call = tool.Call{Address: here, Session: bustest.Session("x/session")}

func TestGrep(t *testing.T) {
	f := newTree(t)
	f.write(t, "text", "one\ntwo\nthree\nfour\nfive\nsix\nseven\n")
	f.write(t, "crlf", "alpha\r\nbeta\r\n")
	f.write(t, "mark", "\ufeffalpha\n")
	f.write(t, "Re\u0301sume\u0301", "x\n")
	f.write(t, "binary", "needle\x00\n")
	f.write(t, "large", "needle\n"+strings.Repeat("x", maxSearch))
	f.write(t, "long", strings.Repeat("ä", 400)+"needle2\n")
	const skipped = "not searched: 1 named .git, unless path leads there; " +
		"not searched: 1 named node_modules, unless path leads there; "
	const left = "not searched: 1 binary files; not searched: 1 files over 5 MB"
	tests := []struct {
		name string
		args []any
		want string
	}{
		{"content", pairs("pattern=package glob=*.go path=src"),
			"src/main.go:1:package x // src/main.go\nsrc/deep/x_test.go:1:package x // src/deep/x_test.go"},
		{"files", pairs("pattern=package type=md output_mode=files_with_matches"),
			"src/deep/y.md\n\n(" + strings.TrimSuffix(skipped, "; ") + ")"},
		{"at the top", pairs("pattern=package glob=./*.go path=src"),
			"src/main.go:1:package x // src/main.go"},
		{"below", pairs("pattern=package glob=./deep/*.go path=src"),
			"src/deep/x_test.go:1:package x // src/deep/x_test.go"},
		{"without", pairs("pattern=package glob=!*_test.go type=go path=src"),
			"src/main.go:1:package x // src/main.go"},
		{"without a folder", pairs("pattern=package glob=!deep/** path=src"),
			"src/main.go:1:package x // src/main.go"},
		{"left out", pairs("pattern=needle$"),
			"(nothing matches the pattern)\n\n(" + skipped + left + ")"},
		{"count", pairs("pattern=e output_mode=count path=text"), "text:4"},
		{"context", pairs("pattern=three|six path=text context=1"),
			"text-2-two\ntext:3:three\ntext-4-four\ntext-5-five\ntext:6:six\ntext-7-seven"},
		{"nanobot's names", pairs("pattern=three path=text context_before=1 context_after=1 " +
			"fixed_strings=true"), "text-2-two\ntext:3:three\ntext-4-four"},
		{"gap", pairs("pattern=one|six path=text after=1"),
			"text:1:one\ntext-2-two\n--\ntext:6:six\ntext-7-seven"},
		{"overlap", pairs("pattern=three|four path=text before=1 after=2"),
			"text-2-two\ntext:3:three\ntext:4:four\ntext-5-five\ntext-6-six"},
		{"paged", pairs("pattern=e path=text head_limit=1 offset=1"),
			"text:3:three\n\n(results 2 to 2; there are more, with offset 2)"},
		{"last page", pairs("pattern=e path=text offset=3"),
			"text:7:seven\n\n(results 4 to 4, the last)"},
		{"case", pairs("pattern=THREE path=text ignore_case=true"), "text:3:three"},
		{"fixed", pairs("pattern=thr.e path=text fixed=true"), "(nothing matches the pattern)"},
		{"expression", pairs("pattern=^t.*e$ path=text"), "text:3:three"},
		{"not over lines", pairs(`pattern=two[^x]*three path=text`), "(nothing matches the pattern)"},
		{"over lines", pairs(`pattern=two[^x]*three path=text multiline=true`),
			"text:2:two\ntext:3:three"},
		{"line break", []any{"pattern", "two\nthree", "path", "text", "multiline", true},
			"text:2:two\ntext:3:three"},
		{"CRLF", pairs("pattern=alpha$ path=crlf"), "crlf:1:alpha"},
		{"byte order mark", pairs(`pattern=\Aalpha|^beta path=mark multiline=true`), "mark:1:alpha"},
		{"accents in a name", pairs("pattern=^x$ glob=Ré*"), "Re\u0301sume\u0301:1:x\n\n(" +
			strings.TrimSuffix(skipped, "; ") + ")"},
		{"long", pairs("pattern=needle2 path=long"),
			"long:1:" + strings.Repeat("ä", 250) + " [line cut, 307 bytes more]"},
		{"other tree", pairs("pattern=package path=docs"), "docs/manual/d.go:1:package docs"},
		{"media", pairs("pattern=. path=media"), "media/photo.txt:1:of the conversation"},
		{"name", pairs("pattern=line.go glob=new*"),
			"\"new\\nline.go\":1:package x // new\n\n(" + strings.TrimSuffix(skipped, "; ") + ")"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "name" {
				tt.args[1] = "package"
			}
			if got, err := f.call(t, "grep", tt.args...); err != nil || got != tt.want {
				t.Errorf("grep %v = %q, %v; want %q", tt.args, got, err, tt.want)
			}
		})
	}
	result, err := f.result(t, "s", "grep", "pattern", "one", "path", "text")
	if err != nil || result.Foreign != "the files in text" {
		t.Errorf("the source is %q, %v", result.Foreign, err)
	}
}

func TestGrepRefused(t *testing.T) {
	f := newTree(t)
	for args, part := range map[string]string{
		"pattern=(":                      "not a regular expression that can be used: missing closing )",
		"pattern=(?=x)":                  "no look-around",
		"pattern=":                       "the pattern is empty",
		`pattern=a\nb`:                   "set multiline",
		"pattern=x type=cobol":           "use glob, or one of c, cpp",
		"pattern=x output_mode=all":      "want content, files_with_matches, count",
		"pattern=x path=no":              "there is no",
		"pattern=x path=..":              "outside the workspace",
		"pattern=x path=out.go":          "symbolic link that leads out",
		"pattern=x glob=[":               "not a valid pattern",
		"pattern=package offset=50":      "there are only",
		"pattern=x offset=-1":            "negative",
		"pattern=package offset=1000000": "too far",
	} {
		_, err := f.call(t, "grep", pairs(args)...)
		wantError(t, err, part)
	}
	got, err := f.call(t, "grep", "pattern", "root:|secret|shadowed")
	if err != nil || !strings.HasPrefix(got, "(nothing matches") {
		t.Errorf("grep finds what is outside: %q, %v", got, err)
	}
}

// The order of results is always the same. The pages together are the whole result.
func TestGrepPages(t *testing.T) {
	f := newFixture(t)
	for i := range 300 {
		f.write(t, fmt.Sprintf("d%d/f%d", i%7, i), strings.Repeat(fmt.Sprintf("hit %d\nmiss\n", i), 3))
	}
	whole, err := f.call(t, "grep", "pattern", "hit", "head_limit", 1000)
	if err != nil || strings.Count(whole, "\n") != 899 {
		t.Fatalf("the whole has %d lines, %v; want 900", strings.Count(whole, "\n")+1, err)
	}
	var pages []string
	for i := 0; i < 900; i += 90 {
		page, err := f.call(t, "grep", "pattern", "hit", "head_limit", 90, "offset", i)
		if err != nil {
			t.Fatal(err)
		}
		page, _, _ = strings.Cut(page, "\n\n")
		pages = append(pages, page)
	}
	if got := strings.Join(pages, "\n"); got != whole {
		t.Errorf("the pages are not the whole, but %d bytes in place of %d", len(got), len(whole))
	}
}

// If not all results fit, a note says which of them are shown. The pages together have all
// results.
func TestGrepNoRoom(t *testing.T) {
	f := newFixture(t)
	line := "hit " + strings.Repeat("x", 400) + "\n"
	f.write(t, "c", strings.Repeat(line, 400))
	for i := range 400 {
		f.write(t, fmt.Sprintf("b%d", i), line)
	}
	shown := 0
	for {
		page, err := f.call(t, "grep", "pattern", "hit", "head_limit", 1000, "offset", shown)
		if err != nil || len(page) > maxChars+1_000 {
			t.Fatalf("a page from %d has %d bytes (%v)", shown, len(page), err)
		}
		from := shown
		shown += strings.Count(page, ":hit ")
		note := fmt.Sprintf("results %d to %d; there are more, with offset %d", from+1, shown, shown)
		if !strings.Contains(page, note) {
			break
		}
	}
	if shown != 800 {
		t.Errorf("the pages have %d results, want 800", shown)
	}
}

// A search ends with its context within a file, whether lines match or not. Each match of the first
// expression takes time proportional to the whole text.
func TestGrepEndsWithContext(t *testing.T) {
	f := newFixture(t)
	f.write(t, "text", strings.Repeat("a\n", 5_000)+"b\n")
	for pattern, multi := range map[string]bool{"(?s)a(.*z)?": true, "[bc]": false} {
		t.Run(pattern, func(t *testing.T) { checkGrepEnds(t, f, pattern, multi) })
	}
}

func checkGrepEnds(t *testing.T, f *fixture, pattern string, multi bool) {
	q, err := newQuery(pattern, false, false, multi)
	if err != nil {
		t.Fatal(err)
	}
	s := &search{args: grepArgs{Mode: modeCount}, query: q,
		start: place{tree: f.files.trees.workspace, path: "text"}}
	p := part{names: []string{""}}
	s.parts = []part{p}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sc := &searcher{scanner: scanner{query: q}}
	var counts []int
	allocations := testing.AllocsPerRun(1, func() { counts = s.count(ctx, sc, p) })
	if counts[0] != 0 || allocations > 1_000 {
		t.Errorf("%d matches were found, with %v allocations; want none", counts[0], allocations)
	}
}

// An expression that repeats too much is refused before its machine is built: it would take minutes
// for a line and much memory.
func TestGrepPatternBounds(t *testing.T) {
	f := newFixture(t)
	f.write(t, "text", "x\n")
	for _, pattern := range []string{
		strings.Repeat("(?:.?x?){1000}", 100), "(?:" + strings.Repeat(".?", 500) + "){900,}",
		"(([ab]c?d?){30}){33}",
	} {
		_, err := f.call(t, "grep", "pattern", pattern)
		wantError(t, err, "the pattern takes too long", "smaller numbers in braces")
	}
	for _, pattern := range []string{
		"x{1,1000}", strings.Repeat("x", maxRegexp-2) + "|x", "^.{1000}.{1000}",
		"foo.{0,1000}bar",
	} {
		if _, err := f.call(t, "grep", "pattern", pattern); err != nil {
			t.Errorf("%.20q: %v", pattern, err)
		}
	}
}

// A search over several lines finds the same matches as a search in the whole text.
func TestGrepManyLines(t *testing.T) {
	for _, tt := range []struct{ text, pattern, want string }{
		{"a\nb\na\n", `a`, "a|a"},
		{"a\nb\nc\nd\n", `a\nb|c\nd`, "a\nb|c\nd"},
		{"a a\nb\n", `a`, "a a"},
		{"a\na\n", `\Aa`, "a"},
		{"a\nb\na\n", `\Aa|b`, "a|b"},
		{"b\na\n", `(\Aa)+|b`, "b"},
		{"a\nb", `^.$`, "a|b"},
		{"a\n\n", `^$`, ""},
		{"a\nb\n", `\z`, "b"},
		{"ab\nb a\n", `\ba`, "ab|b a"},
		{"", `x*`, ""},
	} {
		q, err := newQuery(tt.pattern, false, false, true)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		s := scanner{query: q}
		s.hits(t.Context(), []byte(tt.text), func(h hit) bool {
			got = append(got, tt.text[h.from:h.to])
			return true
		})
		if strings.Join(got, "|") != tt.want {
			t.Errorf("%q finds %q in %q, want %q", tt.pattern, got, tt.text, tt.want)
		}
	}
}

// FuzzQuery checks that a query finds the same lines as a slow search line by line.
func FuzzQuery(f *testing.F) {
	f.Add("one\ntwo three\n\nfour", "t.*e|r$", false)
	f.Add("Kelvin KELVIN \u212aelvin\nstraſse", "kelvin", true)
	f.Add("abc\nABC", "(ab)+c?", true)
	f.Add("a\nb\n", `\A[^x]b\z`, false)
	f.Add("x\n\n", "^$", false)
	f.Add("0\nS\nſ", "s", true)
	f.Fuzz(func(t *testing.T, text, pattern string, anyCase bool) {
		q, err := newQuery(pattern, false, anyCase, false)
		if err != nil {
			return
		}
		flags := "(?m)"
		if anyCase {
			flags = "(?mi)"
		}
		re := regexp.MustCompile(flags + pattern)
		var want []string
		for line := range strings.Lines(text) {
			if line = strings.TrimSuffix(line, "\n"); re.MatchString(line) {
				want = append(want, line)
			}
		}
		var got []string
		s := scanner{query: q}
		s.hits(t.Context(), []byte(text), func(h hit) bool {
			got = append(got, text[h.from:h.to])
			return true
		})
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%q fits %q in %q, want %q", pattern, got, text, want)
		}
	})
}

// A benchTree has 100,000 files of about 2 kB in 1,000 directories.
func benchTree(b *testing.B) *fixture {
	b.Helper()
	f := newFixture(b)
	body := strings.Repeat("func example(value int) error { return nil } // some text\n", 35)
	for i := range 100_000 {
		text := body
		if i%1000 == 0 {
			text += "the needle in the hay\n"
		}
		f.write(b, fmt.Sprintf("d%d/e%d/f%d.go", i/1000, i/100%10, i), text)
	}
	return f
}

func BenchmarkTree(b *testing.B) {
	f := benchTree(b)
	b.Logf("the tree is %s", f.dir)
	for _, bb := range []struct {
		name string
		args []any
	}{
		{"grep/literal", pairs("pattern=needle")},
		{"grep/any case", pairs("pattern=NEEDLE ignore_case=true")},
		{"grep/expression", pairs(`pattern=needle\s+in`)},
		{"grep/no literal", pairs(`pattern=n[aeiou]+dle|h[aeiou]y$`)},
		{"grep/count", pairs(`pattern=example output_mode=count head_limit=1000`)},
		{"glob/files", pairs("pattern=**/*99.go")},
		{"glob/all", pairs("pattern=**")},
	} {
		b.Run(bb.name, func(b *testing.B) {
			name, _, _ := strings.Cut(bb.name, "/")
			for b.Loop() {
				if _, err := f.call(b, name, bb.args...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
