package telegramtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// tags maps the names that Telegram accepts to their canonical names.
var tags = map[string]string{
	"b": "b", "strong": "b", "i": "i", "em": "i", "u": "u", "ins": "u",
	"s": "s", "strike": "s", "del": "s", "a": "a", "code": "code", "pre": "pre",
	"blockquote": "blockquote", "tg-spoiler": "tg-spoiler", "span": "tg-spoiler",
	"tg-emoji": "tg-emoji",
}

// ParseHTML parses s as Telegram does with parse_mode HTML and returns the visible text. The text
// of its error follows "can't parse entities: " in Telegram's answer. The grammar is at
// https://core.telegram.org/bots/api#html-style. Where that is unclear (attributes, unknown
// references, end tags without a name) it follows tdlib's parser.
func ParseHTML(s string) (string, error) {
	text, _, err := parseHTML(s)
	return text, err
}

// entityBytes is the size of an entity without an address. It is a guess.
const entityBytes = 12

// parseHTML is like ParseHTML, and also returns the size of the entities in bytes.
func parseHTML(s string) (text string, size int, err error) {
	if !strings.ContainsAny(s, "<&") {
		return s, 0, nil
	}
	p := htmlParser{src: s}
	err = p.parse()
	return p.text.String(), p.size, err
}

// CheckHTML reports a violation of rules that Telegram documents but does not enforce: which tags
// may be nested, and references instead of "<", ">" and "&".
func CheckHTML(s string) error {
	p := htmlParser{src: s, strict: true}
	return p.parse()
}

// A syntaxError is Telegram's error about HTML. It is capitalised, unlike Go's errors.
type syntaxError string

func (e syntaxError) Error() string { return string(e) }

func syntaxErrorf(format string, args ...any) error {
	return syntaxError(fmt.Sprintf(format, args...))
}

type htmlParser struct {
	src    string
	pos    int
	text   strings.Builder
	open   []string // names of the open tags
	size   int      // of the entities so far, in bytes
	strict bool
}

func (p *htmlParser) parse() error {
	for p.pos < len(p.src) {
		var err error
		switch c := p.src[p.pos]; {
		case c == '&':
			err = p.reference()
		case c == '<' && strings.HasPrefix(p.src[p.pos:], "</"):
			err = p.endTag()
		case c == '<':
			err = p.startTag()
		case c == '>' && p.strict:
			err = syntaxErrorf("bare > at byte offset %d", p.pos)
		default:
			next := strings.IndexAny(p.src[p.pos+1:], "<&>")
			if next < 0 {
				next = len(p.src) - p.pos - 1
			}
			p.text.WriteString(p.src[p.pos : p.pos+1+next])
			p.pos += 1 + next
		}
		if err != nil {
			return err
		}
	}
	if len(p.open) > 0 {
		return syntaxErrorf("Can't find end tag corresponding to start tag %q",
			p.open[len(p.open)-1])
	}
	if !utf8.ValidString(p.text.String()) {
		return syntaxErrorf("Text contains invalid Unicode characters after decoding " +
			"HTML entities")
	}
	return nil
}

// reference decodes a character reference. An invalid reference is kept as text.
func (p *htmlParser) reference() error {
	name, value := p.src[p.pos+1:], ""
	end := strings.IndexFunc(name, func(r rune) bool {
		return r != '#' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	if end < 0 {
		end = len(name)
	}
	closed := end < len(name) && name[end] == ';'
	switch name = name[:end]; {
	case name == "lt":
		value = "<"
	case name == "gt":
		value = ">"
	case name == "amp":
		value = "&"
	case name == "quot":
		value = `"`
	case strings.HasPrefix(name, "#"):
		value = codePoint(name[1:])
	}
	switch {
	case value == "" || p.strict && !closed:
		if p.strict {
			return syntaxErrorf("bare & at byte offset %d", p.pos)
		}
		p.text.WriteByte('&')
		p.pos++
		return nil
	case closed:
		end++
	}
	p.text.WriteString(value)
	p.pos += 1 + end
	return nil
}

func codePoint(digits string) string {
	base := 10
	if hex, ok := strings.CutPrefix(digits, "x"); ok {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 32)
	if err != nil || n == 0 || n >= 0x10ffff {
		return ""
	}
	if n >= 0xd800 && n <= 0xdfff {
		return "\xed" // half a surrogate pair: invalid UTF-8, which parse reports
	}
	return string(rune(n))
}

func (p *htmlParser) endTag() error {
	begin := p.pos
	if len(p.open) == 0 {
		return syntaxErrorf("Unexpected end tag at byte offset %d", begin)
	}
	end := strings.IndexByte(p.src[begin:], '>')
	if end < 0 {
		return syntaxErrorf("Unclosed end tag at byte offset %d", begin)
	}
	name := strings.ToLower(strings.TrimRight(p.src[begin+2:begin+end], " \t\r\n"))
	expected := p.open[len(p.open)-1]
	if name != expected && (name != "" || p.strict) {
		return syntaxErrorf("Unmatched end tag at byte offset %d, "+
			"expected \"</%s>\", found \"</%s>\"", begin, expected, name)
	}
	p.open = p.open[:len(p.open)-1]
	p.pos = begin + end + 1
	return nil
}

func (p *htmlParser) startTag() error {
	begin := p.pos
	end := strings.IndexAny(p.src[begin:], "> \t\r\n")
	if end < 0 {
		return syntaxErrorf("Unclosed start tag at byte offset %d", begin)
	}
	name := strings.ToLower(p.src[begin+1 : begin+end])
	if tags[name] == "" {
		return syntaxErrorf("Unsupported start tag %q at byte offset %d", name, begin)
	}
	p.pos = begin + end
	class := ""
	for {
		key, value, err := p.attribute(name, begin)
		if err != nil {
			return err
		}
		if key == "" {
			break
		}
		switch key {
		case "class":
			class = value
		case "href":
			p.size += len(value)
		}
	}
	if name == "span" && class != "tg-spoiler" {
		return syntaxErrorf("Tag \"span\" must have class \"tg-spoiler\" at byte offset %d", begin)
	}
	if err := p.nesting(tags[name], begin); err != nil {
		return err
	}
	p.open = append(p.open, name)
	p.size += entityBytes
	return nil
}

// attribute reads the next attribute of a start tag, or the ">": key is "" then.
func (p *htmlParser) attribute(tag string, begin int) (key, value string, err error) {
	rest := strings.TrimLeft(p.src[p.pos:], " \t\r\n")
	if after, ok := strings.CutPrefix(rest, ">"); ok {
		p.pos = len(p.src) - len(after)
		return "", "", nil
	}
	eq := strings.IndexAny(rest, "= \t\r\n>")
	switch {
	case eq < 0:
		return "", "", syntaxErrorf("Unclosed start tag %q at byte offset %d", tag, begin)
	case eq == 0:
		return "", "", syntaxErrorf("Empty attribute name in the tag %q at byte offset %d",
			tag, begin)
	}
	key = rest[:eq]
	rest, ok := strings.CutPrefix(strings.TrimLeft(rest[eq:], " \t\r\n"), "=")
	if !ok {
		return "", "", syntaxErrorf("Expected equal sign in declaration of an attribute "+
			"of the tag %q at byte offset %d", tag, begin)
	}
	rest = strings.TrimLeft(rest, " \t\r\n")
	if rest == "" {
		return "", "", syntaxErrorf("Unclosed start tag %q at byte offset %d", tag, begin)
	}
	end := 0
	if q := rest[0]; q == '"' || q == '\'' {
		end = strings.IndexByte(rest[1:], q)
		if end < 0 {
			return "", "", syntaxErrorf("Unclosed start tag at byte offset %d", begin)
		}
		value, rest = rest[1:1+end], rest[2+end:]
	} else {
		end = strings.IndexAny(rest, "> \t\r\n")
		if end < 0 || strings.ContainsAny(rest[:end], `"'<=/&`) {
			return "", "", syntaxErrorf("Unexpected end of name token at byte offset %d", begin)
		}
		value, rest = rest[:end], rest[end:]
	}
	if p.strict && strings.ContainsAny(value, "<>") {
		return "", "", syntaxErrorf("bare < or > in an attribute at byte offset %d", begin)
	}
	p.pos = len(p.src) - len(rest)
	return key, value, nil
}

// nesting checks the documented rules for a new tag: nothing inside code and pre (except code
// directly in pre), no quotation in a quotation, no link in a link.
func (p *htmlParser) nesting(name string, begin int) error {
	if !p.strict || len(p.open) == 0 {
		return nil
	}
	inner := tags[p.open[len(p.open)-1]]
	switch {
	case inner == "pre" && name == "code":
		return nil
	case slices.Contains(p.open, "pre") || slices.Contains(p.open, "code"):
		return syntaxErrorf("tag %q inside code at byte offset %d", name, begin)
	case name == "blockquote" || name == "a":
		if slices.ContainsFunc(p.open, func(o string) bool { return tags[o] == name }) {
			return syntaxErrorf("tag %q inside itself at byte offset %d", name, begin)
		}
	}
	return nil
}
