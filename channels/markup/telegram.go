package markup

import (
	"cmp"
	"html"
	"strings"

	"github.com/yuin/goldmark/ast"
)

// Telegram renders md as HTML in Telegram's dialect, which is described at
// https://core.telegram.org/bots/api#html-style. The result is always valid. Markdown without
// visible content, such as a link definition, and absurdly nested Markdown are shown unchanged.
func Telegram(md string) string {
	if isPlain(md) {
		return md
	}
	return render(md, &telegram).out.String()
}

// TelegramSource is the maximum length of HTML that Telegram parses, in bytes.
const TelegramSource = 1 << 15

// Telegram documents no limits of the entities of a message, which are what its tags become. It
// shows the text of further entities without their style or link, and refuses a message whose
// entities with their addresses have more than some 9,500 bytes: see
// https://github.com/tdlib/telegram-bot-api/issues/165 and issue 820 there.
const (
	telegramEntities    = 100
	telegramEntityBytes = 8000
	telegramEntity      = 16 // bytes of an entity without an address
)

// TelegramLen returns the length of Telegram(md) as Telegram counts it: UTF-16 units of the visible
// text, with tags and references resolved. The addresses of links may be much longer than the text
// that people see. So what uses more than half of another limit counts as a text that uses as much
// of Telegram's limit of 4096 units.
func TelegramLen(md string) int {
	if isPlain(md) {
		return units(md)
	}
	const limit = 4096
	w := render(md, &telegram)
	share := func(n, most int) int {
		if n <= most/2 {
			return 0
		}
		return (n*limit + most - 1) / most
	}
	return max(w.units, share(w.out.Len(), TelegramSource), share(w.entities, telegramEntities),
		share(w.entities*telegramEntity+w.addresses, telegramEntityBytes))
}

// Plain renders md as text without markup. Addresses of links follow in parentheses.
func Plain(md string) string {
	if isPlain(md) {
		return md
	}
	return render(md, &plain).out.String()
}

// telegram is the dialect of Telegram's HTML. Tags may extend over lines and enclose nothing, so it
// is not lazy.
var telegram = dialect{
	marks: [styles]mark{
		bold:   {"<b>", "</b>"},
		italic: {"<i>", "</i>"},
		strike: {"<s>", "</s>"},
		hidden: {"<tg-spoiler>", "</tg-spoiler>"},
		quoted: {"<blockquote>", "</blockquote>"},
	},
	bullets:  []string{"• "},
	number:   ". ",
	quote:    "> ",
	escape:   escapeHTML,
	pre:      telegramPre,
	code:     telegramCode,
	link:     telegramLink,
	bareLink: bareLinkAsText, // Telegram makes it a link
	plain:    &plain,
}

// plain is the dialect without marks. It also renders what the others have no marks for.
var plain = dialect{
	bullets:  []string{"• "},
	number:   ". ",
	quote:    "> ",
	escape:   escapeNothing,
	pre:      plainPre,
	code:     (*writer).text,
	link:     linkAsText,
	bareLink: bareLinkAsText,
}

// telegramPre writes a code block. language has only characters that need no escape: see
// renderer.code.
func telegramPre(w *writer, language, s string) {
	w.breakLines()
	open, end := "<pre>", "</pre>"
	if language != "" {
		open, end = `<pre><code class="language-`+language+`">`, "</code></pre>"
	}
	before := w.indent
	w.indent = "" // the block itself shows its extent
	w.entities++
	w.out.WriteString(open)
	w.text(s)
	w.out.WriteString(end)
	w.indent = before
}

func plainPre(w *writer, _, s string) { w.text(s) }

func telegramCode(w *writer, s string) {
	w.breakLines()
	w.entities++
	w.out.WriteString("<code>")
	w.text(s)
	w.out.WriteString("</code>")
}

// telegramLink renders a link or an image. If the address is not valid for Telegram or could do
// harm, only the label is shown, with the address if it is harmless.
func telegramLink(r *renderer, n ast.Node, t target, instead string) {
	if !t.web || r.w.active[link] > 0 {
		linkAsText(r, n, t, instead)
		return
	}
	r.w.breakLines()
	r.w.entities++
	r.w.addresses += len(t.address)
	r.w.out.WriteString(`<a href="` + html.EscapeString(t.address) + `">`)
	r.w.active[link]++
	units := r.w.units
	r.inlines(n)
	// The label shows nothing, so the link needs another text.
	if r.w.units == units {
		r.w.text(cmp.Or(instead, t.address))
	}
	r.w.active[link]--
	r.w.out.WriteString("</a>")
}

// bareLinkAsText writes an address as text, in which platforms find the link by themselves.
func bareLinkAsText(r *renderer, n *ast.AutoLink) { r.w.text(string(n.Label(r.src))) }

// escapeHTML writes s, escaped, and counts it. It drops control characters.
func escapeHTML(w *writer, s string) {
	start := 0
	for i := range len(s) {
		c := s[i]
		w.units += unitsOf(c)
		escaped := ""
		switch {
		case c == '&':
			escaped = "&amp;"
		case c == '<':
			escaped = "&lt;"
		case c == '>':
			escaped = "&gt;"
		case c < ' ' && c != '\n' && c != '\t' || c == 0x7f:
			w.units-- // dropped
		default:
			continue
		}
		w.out.WriteString(s[start:i])
		w.out.WriteString(escaped)
		start = i + 1
	}
	w.out.WriteString(s[start:])
}

// escapeNothing writes s without control characters, for dialects without markup.
func escapeNothing(w *writer, s string) { w.out.WriteString(cleaned(s)) }

// cleaned returns s without control characters.
func cleaned(s string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t':
			return c
		case c < ' ' || c >= 0x7f && c < 0xa0:
			return -1
		}
		return c
	}, s)
}
