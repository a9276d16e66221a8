package markup

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
)

// The tests of Discord and WhatsApp render a text twice: in the dialect, and in a "shadow" of
// the dialect, whose marks are characters that no text has. A small parser of the platform's
// grammar reads the dialect into the same marks. Both results must be equal.

// The marks of a shadow. Each style begins with shadow+2*style and ends with the next character.
const (
	shadow      = '\uE000'
	shadowCode  = "\uE030"
	shadowPre   = "\uE031"
	shadowQuote = "\uE032"
	shadowItem  = "\uE033"
	shadowHead  = "\uE034"
	shadowBad   = "\uE035" // a mention or the like
)

func shadowMark(s style) mark {
	return mark{string(shadow + rune(2*s)), string(shadow + rune(2*s) + 1)}
}

// shadowOf returns d with other marks and without escapes.
func shadowOf(d dialect) *dialect {
	for s := range heading {
		if d.marks[s].open != "" {
			d.marks[s] = shadowMark(s)
		}
	}
	for i := range d.headings {
		d.headings = append(d.headings[:i:i], append([]string{shadowHead}, d.headings[i+1:]...)...)
	}
	d.bullets = []string{"- " + shadowItem}
	d.number = ". " + shadowItem
	d.quote = shadowQuote + " "
	d.between = nil
	if fits := d.fits; fits != nil {
		d.fits = func(r *renderer, s style, n ast.Node) bool {
			fit := fits(r, s, n)
			r.w.italic = mark{}
			return fit
		}
	}
	d.escape = func(w *writer, s string) {
		if w.active[link] > 0 && w.d.marks[masked].open != "" {
			s = strings.NewReplacer("[", "(", "]", ")").Replace(s)
		}
		w.out.WriteString(s)
	}
	d.code = func(w *writer, s string) {
		s = cleaned(s)
		if trimmed := strings.TrimFunc(s, isBlank); trimmed != "" {
			w.writeUnit(shadowCode + trimmed + shadowCode)
			return
		}
		w.text(s)
	}
	d.bareLink = func(r *renderer, n *ast.AutoLink) {
		r.w.text(string(n.Label(r.src)))
	}
	return &d
}

var (
	preformatted = regexp.MustCompile("\uE031[^\uE031]*\uE031")
	emptyQuote   = regexp.MustCompile("\uE032[ >]*(\n|$)")
	enclosed     = regexp.MustCompile(`<(https?://[^\s<>]+)>`)
	sameItalics  = regexp.MustCompile("\uE003( ?)\uE002")
	aroundCode   = regexp.MustCompile(" *([\uE030\uE031]) *")
	manyQuotes   = regexp.MustCompile("(?m)^([^\uE032\n]*\uE032)(.*)$")
)

// normal removes the differences between two shadows that don't matter.
func normal(s string) string {
	s = strings.NewReplacer(noSpace, "", joint, "", "%2A", "*", "%5F", "_", "%7E", "~", "%7C", "|",
		"%40", "@", "%28", "(", "%29", ")", "%60", "`", `%5C`, `\`, "‵", "`",
		"%3C", "<", "%3E", ">", "%3c", "<", "%3e", ">").Replace(s)
	s = strings.NewReplacer("\uE002\uE000", "\uE000\uE002", "\uE001\uE003", "\uE003\uE001").Replace(s)
	s = enclosed.ReplaceAllString(s, "$1")
	s = emptyQuote.ReplaceAllString(s, "$1")
	s = strings.Join(strings.FieldsFunc(s, isBlank), " ")
	s = sameItalics.ReplaceAllString(s, "$1")
	return aroundCode.ReplaceAllString(s, "$1")
}

// meant returns the meaning of md in the shadow of d.
func meant(md string, d dialect) string {
	r := render(md, shadowOf(d))
	s := r.out.String()
	s = preformatted.ReplaceAllStringFunc(s, func(pre string) string {
		return strings.ReplaceAll(pre, shadowQuote, "")
	})
	// A quotation can't contain another one, nor other marks that begin a line.
	return manyQuotes.ReplaceAllStringFunc(s, func(line string) string {
		i := strings.Index(line, shadowQuote) + len(shadowQuote)
		head, rest := line[:i], line[i:]
		if before, after, ok := strings.Cut(rest, shadowQuote); ok {
			after = strings.ReplaceAll(after, shadowQuote, ">")
			rest = before + ">" + strings.ReplaceAll(after, shadowItem, "")
		}
		return head + rest
	})
}

// A reader reads a platform's markup into the marks of a shadow.
type reader struct {
	out    strings.Builder
	inline func(r *reader, s string, i int) int // reads markup at s[i] and returns its length, or 0
	quoted bool
}

func (r *reader) style(st style, s string) {
	m := shadowMark(st)
	r.out.WriteString(m.open)
	r.text(s)
	r.out.WriteString(m.close)
}

// text reads the inlines of s.
func (r *reader) text(s string) {
	for i := 0; i < len(s); {
		if n := r.inline(r, s, i); n > 0 {
			i += n
			continue
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		r.out.WriteString(s[i : i+size])
		i += size
	}
}

var private = regexp.MustCompile("[\uE000-\uF8FF\u200b\u200c\u200d‵]|%[0-9A-Fa-f]{2}")

// checkMeaning checks that the platform reads got as the meaning of md, without the parts that
// the replacer removes from that.
func checkMeaning(t *testing.T, name, md, got, read string, d dialect, but *strings.Replacer) {
	t.Helper()
	if private.MatchString(md) || private.MatchString(unescape(md)) || !utf8.ValidString(md) {
		return
	}
	if want, have := normal(but.Replace(meant(md, d))), normal(read); have != want {
		t.Errorf("%s(%q) = %q\nread as %q\nmeant   %q", name, md, got, have, want)
	}
}
