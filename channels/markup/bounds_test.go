package markup

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// grown returns the text of a table with this many columns and rows. Each row has one byte, and a
// parser adds the missing cells.
func grown(columns, rows int) string {
	return strings.Repeat("|", columns+1) + "\n" + strings.Repeat("-|", columns) + "\n" +
		strings.Repeat("|\n", rows)
}

// explosive returns texts of which a parser makes many parts.
func explosive(size int) map[string]string {
	repeat := func(s string) string { return strings.Repeat(s, size/len(s)) }
	all := map[string]string{
		"table":              grown(size/6, size/4),
		"table in a list":    "- " + strings.ReplaceAll(grown(size/16, size/8), "\n", "\n  "),
		"table in quotation": "> " + strings.ReplaceAll(grown(size/16, size/8), "\n", "\n>"),
		"uneven table": strings.Repeat("|", size/16+1) + "\n" + strings.Repeat("-|", size/16) +
			strings.Repeat("\n"+strings.Repeat("|\n", size/64)+strings.Repeat("-|", size/16+1), 4),
		"references": "[a]: http://" + strings.Repeat("x", size/2) + "\n\n" +
			strings.Repeat("[a] ", 200),
		"quotations": repeat("> > > > > > > > > > a\n"), "brackets": repeat("["),
		"marks": repeat("*a_ "), "spoilers": repeat("||a "), "bars": repeat("|"),
		"bare links": repeat("http://a.b "), "code": repeat("` a`` "), "lines": repeat("a\n=\n"),
	}
	var deep strings.Builder
	for i := 0; deep.Len() < size; i++ {
		deep.WriteString(strings.Repeat("  ", i) + "- a\n")
	}
	all["lists"] = deep.String()
	return all
}

var dialects = map[string]func(string) string{
	"Telegram": Telegram, "Discord": Discord, "WhatsApp": WhatsApp, "plain": Plain,
	"ANSI": func(md string) string { return ANSI(md, 80) },
}

// allocated returns how many bytes f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// mostAllocated returns how many bytes the rendering of md may allocate: some for the cells of
// the largest table that is accepted, and some for each byte of md.
func mostAllocated(md string) int { return overhead * (24<<20 + 2000*len(md)) }

func TestMemoryIsBounded(t *testing.T) {
	for name, md := range explosive(8 << 10) {
		for dialect, render := range dialects {
			if n := allocated(func() { render(md) }); n > mostAllocated(md) {
				t.Errorf("%s takes %d MiB for %s, %d bytes", dialect, n>>20, name, len(md))
			}
		}
		n := allocated(func() { SplitFirst(md, 4096, len(md), TelegramLen) })
		if most := 10 * mostAllocated(md); n > most { // Split measures several pieces
			t.Errorf("Split takes %d MiB for %s, %d bytes", n>>20, name, len(md))
		}
	}
}

func FuzzMemory(f *testing.F) {
	for _, md := range explosive(1 << 10) {
		f.Add(md, 8)
	}
	f.Fuzz(func(t *testing.T, md string, times int) {
		md = strings.Repeat(md, 1+int(uint(times)%64))
		if len(md) > 1<<16 {
			return
		}
		if n := allocated(func() { Plain(md) }); n > mostAllocated(md) {
			t.Errorf("%d MiB for %d bytes: %.200q", n>>20, len(md), md)
		}
	})
}

// Tables that people really write are parsed.
func TestTablesThatAreRendered(t *testing.T) {
	wide := "|" + strings.Repeat("a|", 20) + "\n|" + strings.Repeat("-|", 20) + "\n" +
		strings.Repeat("|"+strings.Repeat("b|", 20)+"\n", 900)
	narrow := "a | b\n--|--\n" + strings.Repeat("c | d\n", 5000)
	for i, md := range []string{wide, narrow, strings.Repeat(wide[:4000]+"\n\n", 10)} {
		if isTooComplex(md) {
			t.Errorf("table %d, of %d bytes, is not parsed", i, len(md))
		}
	}
	for _, tt := range []struct {
		md   string
		want bool
	}{{grown(100, 190), false}, {grown(100, 201), true}} {
		if got := isTooComplex(tt.md); got != tt.want {
			t.Errorf("isAbsurd(%d cells) = %v", cells(tt.md), got)
		}
	}
}

// A text that is too complex to be parsed is shown as it was written.
func TestAbsurdIsShown(t *testing.T) {
	md := grown(200, 200)
	want := fmt.Sprintf("%.300s", md)
	if got := Plain(md); !strings.HasPrefix(got, want) {
		t.Errorf("got %.300q", got)
	}
}
