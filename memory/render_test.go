package memory

import (
	"strings"
	"testing"
)

// FuzzOrder checks that isInstruction, which is fast, agrees with the regular expression.
func FuzzOrder(f *testing.F) {
	for _, words := range orderWords {
		f.Add("we " + words + " it")
		f.Add(strings.ToUpper(words))
		f.Add(words + "_" + words + "s")
	}
	for _, s := range []string{"", "Bello", "12.5 kg, at noon", "don-t", "ſend it", "tas\u212a",
		"a必须b", "Нина никогда", "un_tell", "do  not", "от", "sayé say"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := isInstruction(s), order().MatchString(s); got != want {
			t.Errorf("isOrder(%q) = %t, want %t", s, got, want)
		}
	})
}

// Quote quotes a text that reads as an instruction, in upper or lower case and in any of the
// known languages. It does not quote a text that only resembles one.
func TestQuoteOrders(t *testing.T) {
	for _, words := range orderWords {
		for _, s := range []string{words, "x " + strings.ToUpper(words[:1]) + words[1:] + " y"} {
			if got := Quote(s); !strings.HasPrefix(got, `"`) {
				t.Errorf("Quote(%s) = %s, want it quoted", s, got)
			}
		}
	}
	for _, s := range []string{"Sendai", "a mustard", "Bello", "12.5 kg", "systems", "Müller"} {
		if got := Quote(s); got != s {
			t.Errorf("Quote(%s) = %s, want it as it is", s, got)
		}
	}
}

func BenchmarkRender(b *testing.B) {
	facts := []Fact{{Key: "name of the dog", Value: "Bello, who is seven", Category: "pets"}}
	b.ReportAllocs()
	for b.Loop() {
		Render(facts)
	}
}
