package markup

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
)

// Discord renders md in Discord's dialect of Markdown, which is described at
// https://support.discord.com/hc/en-us/articles/210298617. It escapes characters that Discord would
// treat as markup, and nothing in md becomes a mention, a timestamp or a custom emoji.
func Discord(md string) string {
	if isPlain(md) && strings.IndexByte(md, '@') < 0 && !mayControl(md) {
		return md
	}
	return render(md, &discord).out.String()
}

// DiscordLen returns the length of Discord(md) as Discord counts it: in code points, including
// markup.
func DiscordLen(md string) int { return utf8.RuneCountInString(Discord(md)) }

// discord is the dialect of Discord. Its marks are those of Markdown, so text that looks like
// markup must be escaped.
var discord = dialect{
	marks: [styles]mark{
		bold:   {"**", "**"},
		italic: {"*", "*"},
		strike: {"~~", "~~"},
		hidden: {"||", "||"},
		masked: {"[", ")"},
	},
	headings: []string{"# ", "## ", "### "},
	bullets:  []string{"- "},
	number:   ". ",
	quote:    "> ",
	lazy:     true,
	plain:    &plain,
	between:  discordBetween,
	escape:   escapeDiscord,
	pre:      discordPre,
	code:     discordCode,
	link:     discordLink,
	bareLink: discordBareLink,
	fits:     discordFits,
}

// noSpace is an invisible character that is not part of any markup.
const noSpace = "\u200b"

// discordBetween separates two marks that together would be another mark, as in **a***b*.
func discordBetween(w *writer, next string) string {
	if w.closed && strings.ContainsAny(next[:1], "*_~|") {
		return noSpace
	}
	return ""
}

// discordFits chooses the mark for italics: * within words, where _ is not a mark, and _ elsewhere,
// because it does not combine with the asterisks of bold text.
func discordFits(r *renderer, s style, n ast.Node) bool {
	if s != italic {
		return true
	}
	var struck bool
	var code string
	walk(n, func(n ast.Node) {
		switch n := n.(type) {
		case *extast.Strikethrough:
			struck = true // ~~ before _ is not a mark
		case *ast.CodeSpan:
			code += r.plainText(n)
		}
	})
	before, after := r.neighbours(n)
	r.w.italic = mark{"_", "_"}
	if struck || isDiscordWord(before) || isDiscordWord(after) || strings.Contains(code, "_") {
		r.w.italic = mark{"*", "*"}
	}
	return !strings.Contains(code, r.w.italic.open)
}

// isDiscordWord reports whether "_" beside c would not be a mark of italics.
func isDiscordWord(c rune) bool { return c == '_' || isWord(c) }

// escapeDiscord writes s so that Discord shows it unchanged. It copies s in stretches from start,
// up to each character that needs an escape.
func escapeDiscord(w *writer, s string) {
	start := 0
	for i := 0; i < len(s); i++ {
		c, escaped := s[i], ""
		switch c {
		case '\\', '*', '_', '`':
			escaped = `\` + s[i:i+1]
		case '~', '|':
			escaped = `\` + s[i:i+1]
			if w.active[strike] > 0 || w.active[hidden] > 0 {
				escaped += noSpace // Discord finds the end of these styles before the escapes
			}
		case '[':
			escaped = `\[`
			if w.active[link] > 0 {
				escaped = "(" // escapes don't work there
			}
		case ']':
			if w.active[link] > 0 {
				escaped = ")"
			}
		case '<':
			if isReference(s[i:]) {
				escaped = `\<`
			}
		case '@':
			if isMention(s, i) {
				escaped = "@" + noSpace
			}
		case 'h':
			// An address is written as a whole: see discordText.
			if n := webAddress(s[i:]); n > 0 {
				w.out.WriteString(s[start:i])
				follows := i+n < len(s) && s[i+n] == '<' || i+n == len(s) && w.follows
				w.out.WriteString(discordText(w, s[i:i+n], follows))
				start, i = i+n, i+n-1
				continue
			}
		case '#':
			if i == 0 && w.fresh || w.active[heading] > 0 { // only where a heading may begin or end
				escaped = `\#`
			}
		case '>', '-', '+':
			if i == 0 && w.fresh {
				escaped = `\` + s[i:i+1]
			}
		case '.':
			if w.fresh && i > 0 && strings.Trim(s[:i], "0123456789") == "" { // "1." begins a list
				escaped = `\.`
			}
		}
		if escaped == "" {
			continue
		}
		w.out.WriteString(s[start:i])
		w.out.WriteString(escaped)
		start = i + 1
	}
	w.out.WriteString(s[start:])
}

// isMention reports whether the @ at s[i] could begin a mention.
func isMention(s string, i int) bool {
	rest := s[i+1:]
	return rest == "" || strings.HasPrefix(rest, "everyone") || strings.HasPrefix(rest, "here") ||
		i > 0 && s[i-1] == '<'
}

// isReference reports whether s, which begins with <, begins with a reference to a channel, a
// command, a time, an emoji or a place in the server.
func isReference(s string) bool {
	inner, _, ok := strings.Cut(s[1:], ">")
	kind, _, sorted := strings.Cut(inner, ":")
	return ok && (strings.HasPrefix(inner, "#") || sorted && (kind == "" || kind[0] == '/' ||
		kind == "t" || kind == "a" || kind == "id"))
}

// webAddress returns the length of the web address at the beginning of s, or 0.
func webAddress(s string) int {
	if !strings.HasPrefix(s, "http://") && !strings.HasPrefix(s, "https://") {
		return 0 // Discord ignores schemes in capitals
	}
	n := strings.IndexFunc(s, func(c rune) bool { return isBlank(c) || c == '<' })
	if n < 0 {
		n = len(s)
	}
	return n
}

// isWebAddress reports whether all of s is an address with at least one character after the scheme.
func isWebAddress(s string) bool {
	_, rest, _ := strings.Cut(s, "://")
	return rest != "" && webAddress(s) == len(s)
}

// discordText returns an address that is a link for Discord but not for Markdown, so that it ends
// in the right place even before markup.
func discordText(w *writer, address string, follows bool) string {
	scheme, rest, _ := strings.Cut(address, "://")
	rest = discordAddress(w, rest)
	switch {
	// Nothing is left that could be an address, so it is text.
	case strings.Trim(rest, `.,:;"')]`) == "":
		return scheme + `:\/\/` + rest
	case follows && !strings.Contains(rest, ">"):
		inner := withoutPunctuation(rest)
		return "<" + scheme + "://" + inner + ">" + rest[len(inner):]
	}
	return scheme + "://" + rest
}

// withoutPunctuation returns an address without the punctuation after it, and without brackets at
// its end that have no partner in it.
func withoutPunctuation(address string) string {
	unopened := map[byte]int{ // closing brackets without a partner
		')': strings.Count(address, ")") - strings.Count(address, "("),
		']': strings.Count(address, "]") - strings.Count(address, "["),
	}
	for end := len(address); ; end-- {
		switch c := address[end-1]; {
		case unopened[c] > 0:
			unopened[c]--
		case strings.IndexByte(`.,:;"'`, c) < 0:
			return address[:end]
		}
	}
}

// discordAddress returns an address in a form that does not end the surrounding construct.
func discordAddress(w *writer, address string) string {
	if w.styled() {
		return styledAddress.Replace(address)
	}
	return plainAddress.Replace(address)
}

// The addresses are encoded in percent form, which leads to the same place.
var (
	plainAddress  = strings.NewReplacer(encoded...)
	styledAddress = strings.NewReplacer(
		append(encoded, "*", "%2A", "_", "%5F", "~", "%7E", "|", "%7C")...)
	maskedAddress = strings.NewReplacer("(", "%28", ")", "%29", "<", "%3C", ">", "%3E")
)

// encoded has what is markup or a mention even in an address, with its percent form.
var encoded = []string{"@everyone", "%40everyone", "@here", "%40here", `\`, "%5C", "`", "%60"}

// discordLink writes a masked link. Discord ignores links whose label looks like an address.
func discordLink(r *renderer, n ast.Node, t target, instead string) {
	shown := cmp.Or(r.plainText(n), instead)
	isURL := strings.Contains(shown, "://")
	switch {
	case !isWebAddress(t.address) || r.w.active[link] > 0:
		linkAsText(r, n, t, instead)
	// The label adds nothing to the address.
	case !strings.ContainsFunc(shown, isVisible), isURL && shown == t.address:
		writeDiscordURL(r, t.address, n)
	// Discord would not make such a label a link, so the address follows.
	case isURL:
		r.label(n, t, instead)
		r.w.text(" ")
		writeDiscordURL(r, t.address, n)
	default:
		r.w.writeUnit(r.d.marks[masked].open)
		r.label(n, t, instead)
		address := discordAddress(&r.w, maskedAddress.Replace(t.address))
		r.w.writeUnit("](" + address + r.d.marks[masked].close)
	}
}

// writeDiscordURL writes the address of n, in angle brackets if Discord would not find its end.
func writeDiscordURL(r *renderer, address string, n ast.Node) {
	address = discordAddress(&r.w, address)
	if !endsLink(n.NextSibling(), r.src) && !strings.Contains(address, ">") {
		address = "<" + address + ">"
	}
	r.w.writeUnit(address)
}

// discordBareLink writes an address without a label.
func discordBareLink(r *renderer, n *ast.AutoLink) {
	address := cleaned(string(n.Label(r.src)))
	if !isWebAddress(address) || r.w.active[link] > 0 {
		r.w.text(address)
		return
	}
	writeDiscordURL(r, address, n)
}

// endsLink reports whether Discord sees the end of the address before n. Discord reads the inside
// of a style separately, so the end of a style ends an address, too.
func endsLink(n ast.Node, src []byte) bool {
	t, ok := n.(*ast.Text)
	if !ok {
		return n == nil
	}
	s := strings.TrimLeft(string(t.Segment.Value(src)), `.,:;"')]`)
	return strings.TrimLeftFunc(s, isBlank) != s || s == "" &&
		(t.SoftLineBreak() || t.HardLineBreak() || t.NextSibling() == nil)
}

// discordPre writes a code block. The language may have only ASCII characters.
func discordPre(w *writer, language, s string) {
	language = strings.Map(func(c rune) rune {
		if c >= utf8.RuneSelf {
			return -1
		}
		return c
	}, language)
	s = unfenced(cleaned(s))
	lines := append([]string{"```" + language}, strings.Split(s, "\n")...)
	w.lines(append(lines, "```")...)
}

// discordCode writes inline code between one or two backquotes.
func discordCode(w *writer, s string) {
	s = cleaned(s)
	if strings.TrimFunc(s, isBlank) == "" {
		w.text(s)
		return
	}
	// Discord finds the end of these styles even in code.
	for _, style := range []style{bold, strike, hidden} {
		if m := w.d.marks[style].close; w.active[style] > 0 {
			s = strings.ReplaceAll(s, m, m[:1]+noSpace+m[1:])
		}
	}
	fence := "`"
	// The fence must differ from each run of backquotes in the code. Discord knows only two fences.
	if hasRun(s, 1) {
		fence = "``"
		if hasRun(s, 2) {
			s = strings.ReplaceAll(s, "`", "`"+noSpace)
			fence = "``"
		}
	}
	if s[0] == '`' {
		s = " " + s
	}
	if s[len(s)-1] == '`' {
		s += " "
	}
	w.writeUnit(fence + s + fence)
}

// hasRun reports whether s has a run of exactly n backquotes.
func hasRun(s string, n int) bool {
	runs := strings.FieldsFunc(s, func(c rune) bool { return c != '`' })
	return slices.ContainsFunc(runs, func(run string) bool { return len(run) == n })
}
