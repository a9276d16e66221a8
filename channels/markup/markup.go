// Package markup converts Markdown, which models write, to the markup of chat platforms, and splits
// it into pieces that fit their limits.
//
// [Telegram], [Discord], [WhatsApp], [ANSI] and [Plain] render, [TelegramLen], [DiscordLen] and
// [WhatsAppLen] measure, [SplitFirst] splits. All are pure functions.
//
// The input is CommonMark with tables, ~~strikethrough~~, bare links and ||spoilers||. In Chinese,
// Japanese and Korean text, marks beside punctuation begin and end emphasis, too. Stars in formulas
// such as 2*3*4 are shown, and so is raw HTML. Elements that a platform can't show become readable
// text: bold headings, aligned tables, links instead of images. A text is shown unchanged if
// rendering it would take far more time or memory than its length suggests, for example a table of
// more than 20,000 cells.
package markup

import (
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// markdown returns the parser of the dialect of this package. It is safe for concurrent use.
var markdown = sync.OnceValue(func() parser.Parser {
	return parser.NewParser(
		parser.WithBlockParsers(parser.DefaultBlockParsers()...),
		parser.WithInlineParsers(append(parser.DefaultInlineParsers(),
			util.Prioritized(eastAsian{parser.NewEmphasisParser(), '*'}, 499), // before the default
			util.Prioritized(eastAsian{extension.NewStrikethroughParser(), '~'}, 500),
			util.Prioritized(spoilerParser{}, 500),
			// A bare link is shown unchanged, and the characters in it are not markup.
			util.Prioritized(extension.NewLinkifyParser(
				extension.WithLinkifyURLRegexp(regexp.MustCompile(bareLink))), 999),
		)...),
		parser.WithParagraphTransformers(append(parser.DefaultParagraphTransformers(),
			util.Prioritized(extension.NewTableParagraphTransformer(), 200),
		)...),
		parser.WithASTTransformers(util.Prioritized(extension.NewTableASTTransformer(), 0)),
	)
})

// bareLink matches an address without a label. The library's own pattern has only ASCII characters.
// In scripts without spaces, text may follow an address directly. So their characters belong to it
// only after a separator, as in https://ja.wikipedia.org/wiki/日本.
const bareLink = `^(?:http|https|ftp)://[-a-zA-Z0-9@:%._+~#=]{1,256}\.[a-z]+` +
	`(?::\d+)?(?:[/#?]` + unspaced + `*(?:[/#?=&_(-]` + unspaced + `+|` + spaced + `)*)?`

const (
	// unspaced matches a character of a script without spaces, or of Korean, whose particles follow
	// a word directly: Thai, Lao, Myanmar, Khmer, Hangul, kana and ideographs.
	unspaced = `[\x{e00}-\x{eff}\x{1000}-\x{109f}\x{1100}-\x{11ff}\x{1780}-\x{17ff}` +
		`\x{3005}-\x{3007}\x{3041}-\x{a4cf}\x{ac00}-\x{d7ff}\x{f900}-\x{faff}\x{20000}-\x{3ffff}]`

	// spaced matches an ASCII character of an address, or a letter of another script. It leaves out
	// the punctuation of Arabic and of Indian scripts.
	spaced = `[-a-zA-Z0-9@:%_+.~#$!?&/=();,'">^{}\[\]` + "`" +
		`\x{c0}-\x{60b}\x{620}-\x{6d3}\x{6d5}-\x{963}\x{966}-\x{dff}\x{1e00}-\x{1fff}]`
)

// render renders md in a dialect.
func render(md string, d *dialect) *writer { return renderIn(md, d, 0) }

// renderIn renders md in a dialect. If the dialect wraps and width is not 0, it wraps lines to
// width.
func renderIn(md string, d *dialect, width int) *writer {
	md = strings.ToValidUTF8(md, "\uFFFD")
	r := newRenderer([]byte(md), d)
	r.w.width = width
	r.w.out.Grow(len(md) + len(md)/4)
	if !isTooComplex(md) {
		r.blocks(markdown().Parse(text.NewReader(r.src)))
	}
	// Nothing of md would be seen, or it was not parsed. The person gets the source instead.
	if !r.w.visible && strings.TrimSpace(md) != "" {
		r = newRenderer(nil, d)
		r.w.width = width
		r.flow(func(r *renderer) { r.w.text(strings.TrimSpace(md)) })
	}
	r.w.finish()
	return &r.w
}

// isPlain reports whether md renders to itself. It may return false although it does: most chat
// messages need no parser, and the others get one.
func isPlain(md string) bool {
	lineStart := true
	for i := 0; i < len(md); i++ {
		c := md[i]
		switch class[c] {
		case special:
			return false
		case marker:
			if lineStart {
				return false
			}
		case newline:
			if lineStart && (i < 2 || md[i-2] == '\n') || i+1 == len(md) || md[i-1] == ' ' {
				return false // blank lines collapse and trailing blanks disappear
			}
			lineStart = true
			continue
		}
		lineStart = false
	}
	return len(md) > 0 && md[len(md)-1] != ' ' && utf8.ValidString(md) &&
		strings.ContainsFunc(md, isVisible) // otherwise its blanks are cut
}

// Classes of bytes for isPlain.
const (
	special = iota + 1 // may be markup anywhere, or must be escaped
	marker             // may be markup at the beginning of a line
	newline
)

// class maps each byte to its class, or to 0 if the byte is always plain.
var class = func() (class [256]byte) {
	for c := range 0x20 {
		class[c] = special
	}
	class[0x7f] = special
	class['\n'] = newline
	for _, c := range "*_`~[<>|\\&" {
		class[c] = special
	}
	for _, c := range " -+=#:0123456789" {
		class[c] = marker
	}
	return class
}()

// units returns the length of s, which must be valid UTF-8, in UTF-16 units.
func units(s string) int {
	n := 0
	for i := range len(s) {
		n += unitsOf(s[i])
	}
	return n
}

// unitsOf returns the number of UTF-16 units of the character that begins with byte c, or 0 if c is
// a continuation byte.
func unitsOf(c byte) int {
	switch {
	case c < 0x80 || c >= 0xC0 && c < 0xF0:
		return 1
	case c >= 0xF0:
		return 2
	}
	return 0
}

// A spoiler is ||hidden text||.
type spoiler struct{ ast.BaseInline }

// spoilerKind is the kind of spoilers in a tree of goldmark.
var spoilerKind = ast.NewNodeKind("Spoiler")

func (*spoiler) Kind() ast.NodeKind { return spoilerKind }

func (n *spoiler) Dump(source []byte, level int) { ast.DumpHelper(n, source, level, nil, nil) }

// A spoilerParser finds ||spoilers||. Unlike emphasis, they must be separate from words, so that
// code such as (a||b) stays unchanged.
type spoilerParser struct{}

func (spoilerParser) Trigger() []byte { return []byte{'|'} }

// Parse adds a pair of bars to the delimiters. goldmark later finds pairs that belong together and
// calls OnMatch for them.
func (p spoilerParser) Parse(_ ast.Node, block text.Reader, pc parser.Context) ast.Node {
	before := block.PrecendingCharacter()
	line, segment := block.PeekLine()
	d := parser.ScanDelimiter(line, before, 2, p)
	if d == nil || d.OriginalLength != 2 || before == '|' {
		return nil
	}
	after := rune(' ') // the end of a line counts as a blank
	if len(line) > 2 {
		after, _ = utf8.DecodeRune(line[2:])
	}
	d.CanOpen = d.CanOpen && (util.IsSpaceRune(before) || util.IsPunctRune(before))
	d.CanClose = d.CanClose && (util.IsSpaceRune(after) || util.IsPunctRune(after))
	d.Segment = segment.WithStop(segment.Start + 2)
	block.Advance(2)
	pc.PushDelimiter(d)
	return d
}

func (spoilerParser) IsDelimiter(b byte) bool { return b == '|' }

func (spoilerParser) CanOpenCloser(opener, closer *parser.Delimiter) bool {
	return opener.Char == closer.Char
}

func (spoilerParser) OnMatch(int) ast.Node { return new(spoiler) }
