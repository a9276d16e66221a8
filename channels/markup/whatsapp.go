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
	bareLink: whatsAppBareLink,
	fits:     whatsAppFits,
	literal:  whatsAppLiteral,
}

// joint is an invisible character that regular expressions treat as part of a word.
const joint = "\u200c"

// whatsAppBetween separates a mark from a character that would make it part of a word.
func whatsAppBetween(r *renderer, next string) string {
	if strings.HasSuffix(r.out.String(), joint) || r.closed && strings.IndexByte("*_~", next[0]) >= 0 {
		return noSpace
	}
	return ""
}

// whatsAppFits reports whether n is separate from words: WhatsApp has no styles within words.
func whatsAppFits(r *renderer, s style, n ast.Node) bool {
	before, after := r.neighbours(n)
	return s == hidden || !isWord(before) && !isWord(after)
}

var whatsAppStyle = map[byte]style{'*': bold, '_': italic, '~': strike}

func escapeWhatsApp(r *renderer, s string) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		style, special := whatsAppStyle[c]
		switch {
		case c == 'h' && webAddress(s[i:]) > 0:
			n := webAddress(s[i:])
			r.out.WriteString(whatsAppAddress(r, s[i:i+n]))
			i += n - 1
			continue
		case c == '`':
			r.out.WriteString("‵") // no neighbour keeps it from being code
			continue
		case special:
			if !isWord(r.lastRune()) {
				r.out.WriteString(joint)
			}
			r.out.WriteByte(c)
			if next, _ := utf8.DecodeRuneInString(s[i+1:]); r.active[style] > 0 && !isWord(next) {
				r.out.WriteString(joint)
			}
			continue
		case i == 0 && r.fresh && isLineMarker(s):
			r.out.WriteString(joint)
		}
		r.out.WriteByte(c)
	}
}

// whatsAppAddress returns an address without markup that leads to the same place.
func whatsAppAddress(r *renderer, address string) string {
	var b strings.Builder
	for i := range len(address) {
		c := address[i]
		before, _ := utf8.DecodeLastRuneInString(address[:i])
		style, special := whatsAppStyle[c]
		if special && (r.active[style] > 0 || !isWord(before)) || c == '`' {
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

func whatsAppBareLink(r *renderer, n *ast.AutoLink) { r.text(string(n.Label(r.src))) }

func whatsAppPre(r *renderer, _, s string) {
	s = cleaned(s)
	if r.active[quoted] == 0 {
		r.lines(append(append([]string{"```"}, strings.Split(unfenced(s), "\n")...), "```")...)
		return
	}
	var quoted []string // line by line, because a fence can't extend over several lines of a quotation
	for line := range strings.SplitSeq(s, "\n") {
		if strings.TrimFunc(line, isBlank) != "" {
			quoted = append(quoted, monospaced(line))
		}
	}
	r.lines(quoted...)
}

func whatsAppCode(r *renderer, s string) {
	s = cleaned(s)
	for c, style := range whatsAppStyle {
		if r.active[style] > 0 {
			s = strings.ReplaceAll(s, string(c), string(c)+joint)
		}
	}
	switch {
	case strings.TrimFunc(s, isBlank) == "":
		r.text(s)
	case strings.Contains(s, "`"):
		r.writeUnit(monospaced(s))
	default:
		r.writeUnit("`" + s + "`")
	}
}

// monospaced encloses one line in marks that may contain backquotes.
func monospaced(s string) string {
	return "```" + strings.ReplaceAll(s, "`", noSpace+"`"+noSpace) + "```"
}
