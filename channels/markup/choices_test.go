package markup

import (
	"strings"
	"testing"
)

// TestChoicesAfterList checks that the choices keep their numbers below a message that ends with a
// list of its own, as questions of models often do.
func TestChoicesAfterList(t *testing.T) {
	choices := []Choice{{Label: "Basic", Number: 1}, {Label: "Pro", Number: 2}}
	for _, end := range []string{"1. Basic: 5 €\n2. Pro: 10 €", "1) Basic\n2) Pro", "- Basic\n- Pro",
		"1. Basic\n\n   for one\n2. Pro\n   1. for two\n   2. for three", "> 1. Basic\n> 2. Pro"} {
		md := WithChoices("Which plan?\n\n"+end, choices)
		for name, got := range map[string]string{"WhatsApp": WhatsApp(md), "ANSI": ANSI(md, 60)} {
			if !strings.HasSuffix(got, "\n1. Basic\n2. Pro") {
				t.Errorf("%s shows other numbers below %q:\n%s", name, end, got)
			}
		}
	}
}
