package version

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aymanbagabas/go-udiff"
	"pgregory.net/rapid"
)

func TestMerge3(t *testing.T) {
	tests := []struct {
		name, base, ours, theirs, want, conflicts string
	}{
		{"nothing", "a\n", "a\n", "a\n", "a\n", "[]"},
		{"ours", "a\nb\nc\n", "a\nB\nc\n", "a\nb\nc\n", "a\nB\nc\n", "[]"},
		{"both apart", "a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n", "[]"},
		{"both the same", "a\nb\nc\n", "a\nX\nc\n", "a\nX\nc\n", "a\nX\nc\n", "[]"},
		{"the same and more", "a\nb\nc\n", "a\nX\nc\n", "a\nX\nc\nd\n", "a\nX\nc\nd\n", "[]"},
		{"conflict", "a\nb\nc\n", "a\nX\nc\n", "a\nY\nc\n", "a\nX\nc\n", "[{2 b X Y}]"},
		{"beside each other", "a\nb\n", "A\nb\n", "a\nB\n", "A\nB\n", "[]"},
		{"removed beside what was added", "1\n2\n3\n", "1\n2\n3\n4\n", "1\n2\n", "1\n2\n4\n", "[]"},
		{"added within", "a\nb\nc\nd\n", "a\nb\nX\nc\nd\n", "a\nY\nd\n", "a\nb\nX\nc\nd\n",
			"[{2 b\nc b\nX\nc Y}]"},
		{"three overlap", "a\nb\nc\nd\n", "A\nb\nc\nD\n", "X\n", "A\nb\nc\nD\n",
			"[{1 a\nb\nc\nd A\nb\nc\nD X}]"},
		{"both add", "a\n", "a\nx\n", "a\ny\n", "a\nx\n", "[{2  x y}]"},
		{"remove and change", "a\nb\nc\n", "a\nc\n", "a\nB\nc\n", "a\nc\n", "[{2 b  B}]"},
		{"from nothing", "", "a\n", "a\nb\n", "a\n", "[{1  a a\nb}]"},
		{"all removed", "a\nb\nc\nd\ne\n", "c\nd\ne\n", "a\nb\n", "", "[]"},
		{"end of the last line", "a\nb\nc", "a\nb\nc\n", "A\nb\nc", "A\nb\nc\n", "[]"},
		{"no end", "a\nb\nc", "a\nb\nc", "A\nb\nc", "A\nb\nc", "[]"},
		{"line ends changed", "a\nb\nc\n", "a\r\nb\r\nc\r\n", "A\nb\nc\n", "A\r\nb\r\nc\r\n", "[]"},
		{"line ends stay", "a\r\nb\r\nc\r\n", "a\r\nb\r\nC\r\n", "A\nb\nc\n", "A\nb\nC\n", "[]"},
	}
	for _, tt := range tests {
		got, conflicts := Merge3(tt.base, tt.ours, tt.theirs)
		if got != tt.want || fmt.Sprint(conflicts) != tt.conflicts {
			t.Errorf("%s: Merge3 = %q, %v; want %q, %s", tt.name, got, conflicts, tt.want, tt.conflicts)
		}
	}
}

// text returns a generator of texts with a few lines, which are often equal.
func text() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "", "é"}), 0, 12).
			Draw(t, "lines")
		end := rapid.SampledFrom([]string{"", "\n"}).Draw(t, "end")
		if len(lines) == 0 {
			return ""
		}
		return strings.Join(lines, "\n") + end
	})
}

func TestMergeSides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, x, y := text().Draw(t, "base"), text().Draw(t, "x"), text().Draw(t, "y")
		for _, tt := range []struct{ base, ours, theirs, want string }{
			{base, x, base, x}, {base, base, x, x}, {base, x, x, x},
		} {
			if got, c := Merge3(tt.base, tt.ours, tt.theirs); got != tt.want || len(c) > 0 {
				t.Fatalf("Merge3(%q, %q, %q) = %q, %v", tt.base, tt.ours, tt.theirs, got, c)
			}
		}
		_, c := Merge3(base, x, y)
		if _, other := Merge3(base, y, x); len(c) != len(other) {
			t.Fatalf("Merge3(%q, %q, %q) has conflicts %v, turned round %v", base, x, y, c, other)
		}
	})
}

// A line that only one side has added is not lost. It is in the result or in a conflict.
func TestMergeLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, ours, theirs := text().Draw(t, "base"), text().Draw(t, "ours"), text().Draw(t, "theirs")
		got, conflicts := Merge3(base, ours, theirs)
		all := newLines(got).list
		for _, c := range conflicts {
			all = slices.Concat(all, strings.Split(c.Ours, "\n"), strings.Split(c.Theirs, "\n"))
		}
		for _, side := range []string{ours, theirs} {
			for _, line := range newLines(side).list {
				if !slices.Contains(newLines(base).list, line) && !slices.Contains(all, line) {
					t.Fatalf("Merge3(%q, %q, %q) = %q, %v lost %q", base, ours, theirs, got, conflicts, line)
				}
			}
		}
	})
}

// Both edits are kept if an unchanged line is between them. No other line changes.
func TestMergeApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 40).Draw(t, "lines")
		var base, ours, theirs, want []string
		turn := 0
		for i := range n {
			line := fmt.Sprintf("line %d", i)
			base = append(base, line)
			kind := 0
			if i%2 == 0 { // every other line stays
				kind = rapid.IntRange(0, 6).Draw(t, "kind")
			}
			turn++
			edited := []string{fmt.Sprintf("new %d", turn)}
			switch kind {
			case 1, 4: // changed
			case 2, 5: // removed
				edited = nil
			case 3, 6: // added to
				edited = append(edited, line)
			default:
				edited = []string{line}
			}
			switch {
			case kind == 0:
				ours, theirs = append(ours, line), append(theirs, line)
			case kind < 4:
				ours, theirs = append(ours, edited...), append(theirs, line)
			default:
				ours, theirs = append(ours, line), append(theirs, edited...)
			}
			want = append(want, edited...)
		}
		join := func(l []string) string { return strings.Join(l, "\n") + "\n" }
		got, conflicts := Merge3(join(base), join(ours), join(theirs))
		if got != join(want) || len(conflicts) > 0 {
			t.Fatalf("Merge3(%q, %q, %q) = %q, %v\nwant %q", base, ours, theirs, got, conflicts, want)
		}
	})
}

// The edits of a diff change the first text into the second one.
func TestDiffApplies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := text().Draw(t, "a"), text().Draw(t, "b")
		if made, err := udiff.Apply(a, byteEdits(a, b)); err != nil || made != b {
			t.Fatalf("%q to %q by edits is %q, %v", a, b, made, err)
		}
		got, err := diff(snapshot{"x": a}, snapshot{"x": b})
		if err != nil || (got == "") != (a == b) {
			t.Fatalf("the diff of %q and %q is %q, %v", a, b, got, err)
		}
	})
}

// Texts that are too long for the table of the comparison are still compared. The matching lines
// are in order.
func TestMatchesLong(t *testing.T) {
	var a, b []string
	for i := range 30_000 {
		a = append(a, fmt.Sprint("line ", i), "")
		if i%3 > 0 {
			b = append(b, fmt.Sprint("line ", i), "")
		} else {
			b = append(b, fmt.Sprint("other ", i), "")
		}
	}
	found, last := 0, -1
	for i, j := range matches(a, b) {
		if j < 0 {
			continue
		}
		if j <= last || a[i] != b[j] {
			t.Fatalf("line %d is said to be %d, after %d", i, j, last)
		}
		found, last = found+1, j
	}
	if found < 40_000 {
		t.Errorf("%d of 60000 lines were found again", found)
	}
}

func BenchmarkMerge3(b *testing.B) {
	var base, ours []string
	for i := range 1000 {
		base = append(base, fmt.Sprint("line ", i))
		ours = append(ours, fmt.Sprint("line ", i+i%7))
	}
	x, y := strings.Join(base, "\n"), strings.Join(ours, "\n")
	for b.Loop() {
		Merge3(x, y, x+"\nmore")
	}
}
