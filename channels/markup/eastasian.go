package markup

import (
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// eastAsian parses emphasis in Chinese, Japanese and Korean text as well. In CommonMark a mark
// between punctuation and a letter neither ends emphasis that the punctuation ends, nor begins
// emphasis that it begins: such a mark needs a space on its other side. These languages have no
// spaces there, so "**注意：**正文" would show its stars. Here a mark beside one of their characters
// only needs to touch the text to emphasise, as in
// https://github.com/tats-u/markdown-cjk-friendly/blob/main/specification.md.
type eastAsian struct {
	parser.InlineParser // of CommonMark
	mark                byte
}

// Trigger implements [parser.InlineParser].
func (p eastAsian) Trigger() []byte { return []byte{p.mark} }

// Parse implements [parser.InlineParser].
func (p eastAsian) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	before := block.PrecendingCharacter()
	line, _ := block.PeekLine()
	node := p.InlineParser.Parse(parent, block, pc)
	d, ok := node.(*parser.Delimiter)
	if !ok {
		return node
	}
	// Two tildes strike out. One is "about", or a range, as in 5~10.
	if d.Char == '~' && d.OriginalLength == 1 {
		d.CanOpen, d.CanClose = false, false
		return node
	}
	after, _ := utf8.DecodeRune(line[d.OriginalLength:])
	if isEastAsian(before) || isEastAsian(after) {
		d.CanOpen = d.CanOpen || !util.IsSpaceRune(after)
		d.CanClose = d.CanClose || !util.IsSpaceRune(before)
	}
	return node
}

// isEastAsian reports whether r is a letter or punctuation of Chinese, Japanese or Korean text.
func isEastAsian(r rune) bool { return r >= 0x1100 && unicode.Is(eastAsianRunes, r) }

// eastAsianRunes has whole blocks of Unicode.
var eastAsianRunes = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x11ff, 1}, // Hangul Jamo
		{0x2e80, 0xa4cf, 1}, // radicals, punctuation, kana, ideographs, Yi
		{0xa960, 0xa97f, 1}, // Hangul Jamo
		{0xac00, 0xd7ff, 1}, // Hangul
		{0xf900, 0xfaff, 1}, // ideographs
		{0xfe30, 0xfe4f, 1}, // vertical forms
		{0xff00, 0xffef, 1}, // characters of full and half width
	},
	R32: []unicode.Range32{{0x1b000, 0x1b16f, 1}, {0x20000, 0x3ffff, 1}},
}
