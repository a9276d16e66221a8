package markup

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
)

// WhatsApp renders md in WhatsApp's dialect, which is described at
// https://faq.whatsapp.com/539178204879377. The dialect has no escapes: characters that WhatsApp
// would treat as markup get an invisible neighbour that makes them part of a word.
func WhatsApp(md string) string {
	if isPlain(md) && !mayControl(md) {
		return md
	}
	return render(md, &whatsApp).out.String()
}

// WhatsAppLen returns the length of WhatsApp(md) in code points, including markup. WhatsApp
// documents no unit; its limit is far above what people read.
func WhatsAppLen(md string) int { return utf8.RuneCountInString(WhatsApp(md)) }

// whatsApp is the dialect of WhatsApp. A heading becomes bold, because it has no mark.
var whatsApp = dialect{
	marks: [styles]mark{
		bold:   {"*", "*"},
		italic: {"_", "_"},
		strike: {"~", "~"},
		hidden: {"(hidden: ", ")"},
	},
	bullets:  []string{"- "},
	number:   ". ",
	quote:    "> ",
	lazy:     true,
	tight:    true,
	plain:    &plain,
	between:  whatsAppBetween,
	escape:   escapeWhatsApp,
	pre:      whatsAppPre,
	code:     whatsAppCode,
	link:     linkAsText,
	bareLink: bareLinkAsText,
	fits:     whatsAppFits,
	literal:  whatsAppLiteral,
}

// joint is an invisible character that regular expressions treat as part of a word.
const joint = "\u200c"

// whatsAppBetween separates a mark from a character that would make it part of a word.
func whatsAppBetween(w *writer, next string) string {
	if strings.HasSuffix(w.out.String(), joint) || w.closed && strings.IndexByte("*_~", next[0]) >= 0 {
		return noSpace
	}
	return ""
}

// whatsAppFits reports whether n is separate from words: WhatsApp has no styles within words.
func whatsAppFits(r *renderer, s style, n ast.Node) bool {
	before, after := r.neighbours(n)
	return s == hidden || !isWord(before) && !isWord(after)
}

// whatsAppLiteral returns the text on both sides of n if its style can't be shown: stars that are
// part of an address.
func whatsAppLiteral(n ast.Node) string {
	if e, ok := n.(*ast.Emphasis); ok {
		if _, ok := n.PreviousSibling().(*ast.AutoLink); ok {
			return strings.Repeat("%2A", e.Level)
		}
	}
	return ""
}

// whatsAppStyle maps each mark to its style.
var whatsAppStyle = map[byte]style{'*': bold, '_': italic, '~': strike}

// escapeWhatsApp writes s so that nothing in it is a mark. A mark counts only beside a character
// that is not part of a word, so an invisible joint beside it makes it text.
func escapeWhatsApp(w *writer, s string) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		style, special := whatsAppStyle[c]
		switch {
		case c == 'h' && webAddress(s[i:]) > 0:
			n := webAddress(s[i:])
			w.out.WriteString(whatsAppAddress(w, s[i:i+n]))
			i += n - 1
			continue
		case c == '`':
			w.out.WriteString("‵") // no neighbour keeps it from being code
			continue
		case special:
			if !isWord(w.lastRune()) {
				w.out.WriteString(joint)
			}
			w.out.WriteByte(c)
			// The character could also end the style that is open.
			if next, _ := utf8.DecodeRuneInString(s[i+1:]); w.active[style] > 0 && !isWord(next) {
				w.out.WriteString(joint)
			}
			continue
		case i == 0 && w.fresh && isLineMarker(s):
			w.out.WriteString(joint)
		}
		w.out.WriteByte(c)
	}
}

// whatsAppAddress returns an address without markup that leads to the same place.
func whatsAppAddress(w *writer, address string) string {
	var b strings.Builder
	for i := range len(address) {
		c := address[i]
		before, _ := utf8.DecodeLastRuneInString(address[:i])
		style, special := whatsAppStyle[c]
		if special && (w.active[style] > 0 || !isWord(before)) || c == '`' {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// isLineMarker reports whether s begins like a quotation or a list item.
func isLineMarker(s string) bool {
	digits := strings.TrimLeft(s, "0123456789")
	return strings.IndexByte(">-*", s[0]) >= 0 || digits != s && strings.HasPrefix(digits, ".")
}

// whatsAppPre writes a code block. WhatsApp knows no languages.
func whatsAppPre(w *writer, _, s string) {
	s = cleaned(s)
	if w.active[quoted] == 0 {
		w.lines(append(append([]string{"```"}, strings.Split(unfenced(s), "\n")...), "```")...)
		return
	}
	var quoted []string // line by line, because a fence can't extend over several lines of a quotation
	for line := range strings.SplitSeq(s, "\n") {
		if strings.TrimFunc(line, isBlank) != "" {
			quoted = append(quoted, monospaced(line))
		}
	}
	w.lines(quoted...)
}

// whatsAppCode writes inline code. Marks in it would end the styles around it, so they get a joint.
func whatsAppCode(w *writer, s string) {
	s = cleaned(s)
	for c, style := range whatsAppStyle {
		if w.active[style] > 0 {
			s = strings.ReplaceAll(s, string(c), string(c)+joint)
		}
	}
	switch {
	case strings.TrimFunc(s, isBlank) == "":
		w.text(s)
	case strings.Contains(s, "`"):
		w.writeUnit(monospaced(s))
	default:
		w.writeUnit("`" + s + "`")
	}
}

// monospaced encloses one line in marks that may contain backquotes.
func monospaced(s string) string {
	return "```" + strings.ReplaceAll(s, "`", noSpace+"`"+noSpace) + "```"
}
