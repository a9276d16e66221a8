package markup

import (
	"slices"
	"strings"
	"testing"
)

// separate are texts beside which every platform shows emphasis, and besides are all texts that
// stand beside emphasis in the tests below.
var (
	separate = []string{"", " ", "(", ")", "-", "`c`", "\n", "&amp;"}
	besides  = append([]string{"a", "é", "7 ", "_", "\\*", "日", "**b**", "~~d~~", "||e||",
		"[f](http://g.h)", "http://i.j", "http://i.j ", "<http://i.j>"}, separate...)
)

// emphases are the texts within emphasis.
var emphases = []string{"x", "x y", "`x`", "`_`", "~~x~~", "**x**", "x **y**", "x_y", "é", "日",
	"[x](http://y.z)", "http://y.z"}

// emphasised calls check with each combination, and whether emphasis must be shown.
func emphasised(check func(md string, must bool)) {
	for _, before := range besides {
		for _, inner := range emphases {
			for _, after := range besides {
				check(before+"*"+inner+"*"+after,
					slices.Contains(separate, before) && slices.Contains(separate, after))
			}
		}
	}
}

// TestDiscordFits checks that italics are italic for Discord whatever is in them and beside them,
// without asking discordFits what is right.
func TestDiscordFits(t *testing.T) {
	all := discord
	all.fits = nil
	emphasised(func(md string, _ bool) {
		got := Discord(md)
		if want, read := normal(meant(md, all)), normal(readDiscord(got)); read != want {
			t.Errorf("Discord(%q) = %q\nread as %q\nmeant   %q", md, got, read, want)
		}
	})
}

// TestWhatsAppFits checks that emphasis is shown or left out for WhatsApp, but never changes the
// text, and that it is shown where no word is beside it, without asking whatsAppFits what is right.
func TestWhatsAppFits(t *testing.T) {
	all := whatsApp
	all.fits = nil
	var marks []string
	for s := range hidden {
		marks = append(marks, shadowMark(s).open, "", shadowMark(s).close, "")
	}
	spoiler := strings.NewReplacer(shadowMark(hidden).open, "(hidden: ", shadowMark(hidden).close, ")")
	bare := strings.NewReplacer(append(marks, "*", "", " ", "")...)
	emphasised(func(md string, must bool) {
		if strings.HasPrefix(md, "<http") {
			return // the stars are part of the address
		}
		got := WhatsApp(md)
		want, read := normal(spoiler.Replace(meant(md, all))), normal(readWhatsApp(got))
		if must && read != want || bare.Replace(read) != bare.Replace(want) {
			t.Errorf("WhatsApp(%q) = %q\nread as %q\nmeant   %q", md, got, read, want)
		}
	})
}

// TestFormulas checks which stars belong to a formula, and are shown, and which are emphasis.
func TestFormulas(t *testing.T) {
	long := strings.Repeat("w", 600)
	for _, md := range []string{
		"2*3*4", "2**3**4", "x*y*z", "x**2**y", "f(a)*g(b)*rest", "rest*(a)*b", "12*a*34", "é*y*z",
		"ab*[c]*de", "5*x* is", "is *x*5", "n*x+1* is", "is *1+x*n", "2*3*4*5*6", "(2*3*4)", "2*3 cm*4",
		"x*" + long + "*2", long + "2*y*z", "2*" + strings.Repeat("y ", 600) + "y*2",
	} {
		if got := Plain(md); got != md {
			t.Errorf("%q shows as %q, without stars", md, got)
		}
	}
	for _, md := range []string{
		"un*frigging*believable", "the **21**st", "two *API*s", "a*word* in", "in *word*s", "n *x+1*",
		"*a-b*s", "*it’s*s", "a*b c* d", "2 *x* 3", "2\n*x*", "*x*\n2", "2  \n*x*", "长*宽*高", "x **y**z",
		"2`-`*x*", "**2** *x*", "[2](http://a.b)*x*", "<http://a.b>*x*", "ab*cd*ef", "2**bold** word",
		"word **bold**2",
	} {
		if got := Plain(md); strings.Contains(got, "*") {
			t.Errorf("%q shows as %q, with stars", md, got)
		}
	}
	if got, want := Plain("**2*3*4** and ~~x*y*z~~ &lt;2*3*4"), "2*3*4 and x*y*z <2*3*4"; got != want {
		t.Errorf("a formula in a style shows as %q, want %q", got, want)
	}
}
