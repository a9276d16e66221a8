package markup

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// SplitFirst splits Markdown into pieces that each measure at most limit, in the units of measure,
// and returns at most the first n pieces. The time depends on the returned text, and on the length
// of the input only if the input defines links. It splits between paragraphs if possible, otherwise
// between lines, sentences, words, or grapheme clusters. A limit of 0 or less means no limit.
//
// White space at a split is dropped, and so are blank lines before the first piece, but not its
// indentation. Joining the pieces with white space restores the text, with these exceptions:
//
//   - A code fence that must be split is closed in one piece and reopened in the next with the same
//     info string. There, one line break is dropped at a split between lines, and nothing at other
//     splits, and the lines after a reopened fence lose its indentation.
//   - If an item of a list must be split, the rest of it loses the item's indentation.
//   - The items of a list get the numbers with which they are shown.
//   - If a line of a quotation must be split, the rest gets the marks of the quotation again.
//   - Bold text without other markup in it is closed and reopened.
//   - A piece that begins with another row of a table gets the names of the columns again.
//   - A piece with a reference link gets the definition that the link needs. A piece that would
//     have definitions alone is left out.
//
// No piece has more than eight bytes of source per unit of the limit, even if measure counts less,
// and as many of definitions. If a piece can't fit, because a single character or a fence around it
// exceeds the limit, it is split between code points, without its fence, and may be too long in the
// worst case.
func SplitFirst(markdown string, limit, n int, measure func(string) int) []string {
	if strings.TrimSpace(markdown) == "" {
		return nil
	}
	if limit <= 0 {
		return []string{markdown}
	}
	definitions := findDefinitions(markdown)
	if limit <= 1<<20 && n < 1<<10 && len(markdown) > (n+1)*8*limit {
		markdown = markdown[:(n+1)*8*limit] // n pieces can't hold more
	}
	s := newSplitter(markdown, limit, measure)
	s.definitions = definitions
	return s.split(n)
}

// split returns the first most pieces.
func (s *splitter) split(most int) []string {
	var pieces []string
	for pos := s.begin(); pos < len(s.src) && len(pieces) < most; {
		var piece string
		piece, pos = s.next(pos)
		if len(pieces) == 0 || !s.isDefinitions(piece) {
			pieces = append(pieces, piece)
		}
		pos = s.skip(pos)
	}
	return pieces
}

// A splitter cuts one text. Positions are byte offsets in src.
type splitter struct {
	src     string
	limit   int
	measure func(string) int
	fences  []fence
	strongs []span // in the order of the text
	tables  []tableSource
	ratio   float64 // bytes of source per unit in the last piece, to estimate the next
	bare    bool    // split fences without closing and reopening them
	indent  int     // of the list item in which the current piece begins: see itemIndent

	definitions []definition // of the whole text
}

// newSplitter returns a splitter of markdown without definitions.
func newSplitter(markdown string, limit int, measure func(string) int) *splitter {
	limit = min(limit, 1<<40) // so that eight times limit does not overflow
	s := &splitter{src: numbered(markdown), limit: limit, measure: measure, ratio: 1}
	s.fences = findFences(s.src)
	// The marks of bold text that is longer than any piece are not worth keeping.
	s.strongs = findStrong(s.src, s.fences, 8*limit)
	s.tables = findTables(s.src, s.fences)
	return s
}

const blanks = " \t\r\n"

// begin returns the start of the first piece: the first non-blank line.
func (s *splitter) begin() int {
	text := len(s.src) - len(strings.TrimLeft(s.src, blanks))
	return strings.LastIndexByte(s.src[:text], '\n') + 1
}

// skip returns the start of the piece after a cut at pos.
func (s *splitter) skip(pos int) int {
	if f := s.inside(pos); f != nil {
		if s.src[pos] == '\n' {
			pos++
		}
		if pos < f.close {
			return pos
		}
		pos = f.end // only the closing line is left
	}
	return len(s.src) - len(strings.TrimLeft(s.src[pos:], blanks))
}

// next returns the piece that begins at pos, and its end.
func (s *splitter) next(pos int) (piece string, end int) {
	s.bare, s.indent = false, s.itemIndent(pos)
	piece, end = s.fit(pos)
	if end == pos {
		s.bare = true
		piece, end = s.fit(pos)
	}
	// Not even a bare piece fits. One code point is returned nevertheless, so that split ends.
	if end == pos {
		_, size := utf8.DecodeRuneInString(s.src[pos:])
		return s.src[pos : pos+size], pos + size
	}
	return piece, end
}

// fit returns a piece from pos that fits and nearly fills the limit, or end == pos if none fits.
// Measuring requires parsing, so it measures few candidates: the previous piece suggests the first
// one, and each result suggests the next.
func (s *splitter) fit(pos int) (piece string, end int) {
	most := min(len(s.src)-pos, 8*s.limit)
	size := min(most, max(1, int(float64(s.limit)*s.ratio)))
	if most <= 2*size { // the whole rest may fit
		size = most
	}
	end = pos
	fits, fails := 0, most+1 // sizes
	for range 40 {
		cut := s.cut(pos, s.runeStart(pos, pos+size))
		guess := size // don't measure sizes with a known result again
		switch {
		// The cut is that of the piece that is known to fit.
		case cut == end:
			fits = max(fits, size)
		// A piece of this length is known not to fit.
		case cut-pos >= fails:
			fails = size
		default:
			candidate := s.piece(pos, cut)
			m := max(1, s.measure(candidate))
			guess = int(float64(cut-pos) / float64(m) * float64(s.limit))
			if m > s.limit {
				fails = min(size, cut-pos)
				guess = min(guess, size*7/8)
				break
			}
			piece, end = candidate, cut
			fits = max(size, cut-pos)
			// A little less than what fitted makes the first guess for the next piece likely to
			// fit.
			s.ratio = 0.95 * float64(cut-pos) / float64(m)
			if size >= guess-guess/5 { // a longer piece would end at a worse place
				return piece, end
			}
		}
		if size = between(fits, min(guess, 4*size), fails); size <= fits {
			break
		}
	}
	return piece, end
}

// between returns guess if it lies between fits and fails, otherwise their middle, or fits if
// nothing lies between them.
func between(fits, guess, fails int) int {
	if guess <= fits || guess >= fails {
		return fits + (fails-fits)/2
	}
	return guess
}

// piece returns the text that is sent for src[pos:end].
func (s *splitter) piece(pos, end int) string {
	text := s.fenced(pos, end)
	if s.bare {
		return text
	}
	// At a cut inside bold text, this piece closes it and the next one opens it again.
	if s.strong(pos) {
		text = strongMark + text
	}
	if s.strong(end) {
		text += strongMark
	}
	return s.defined(s.header(pos) + s.quotation(pos) + text)
}

// fenced returns src[pos:end] with the necessary fences.
func (s *splitter) fenced(pos, end int) string {
	// from is the fence in which the piece begins, and to the one in which it ends; nil: none.
	from, to := s.inside(pos), s.inside(end)
	body := pos
	if f := s.around(pos); f != nil && pos < f.body && f.quote == "" && f.body < end {
		from, body = f, f.body // skip removed the indentation of the opening line
	}
	if s.bare {
		return strings.TrimRight(s.src[pos:end], blanks)
	}
	if from == nil && to == nil {
		text, _ := s.dedented(pos, end)
		return strings.TrimRight(text, blanks)
	}
	var b strings.Builder
	b.WriteString(s.src[pos:body])
	pos = body
	if from != nil {
		if b.Len() == 0 {
			b.WriteString(from.quote + from.marker + from.info + "\n")
		}
		from.code(&b, s.src, pos, end)
		pos = min(from.end, end)
	}
	text, indent := s.dedented(pos, end)
	b.WriteString(text)
	if to == nil {
		return strings.TrimRight(b.String(), blanks)
	}
	b.WriteString("\n" + to.quote)
	if from != to && to.quote == "" { // in a list, if this piece has its beginning
		b.WriteString(strings.Repeat(" ", max(0, to.indent-indent)))
	}
	b.WriteString(to.marker)
	return b.String()
}

// cut returns the best place in src[pos:end] for a cut, or end if nothing is left to cut off. It
// ignores better kinds of places in the first quarter. Line breaks and the end of a sentence
// directly after end count, too, because white space there would be dropped.
func (s *splitter) cut(pos, end int) int {
	if end == len(s.src) {
		return end
	}
	floor := pos + (end-pos)/4
	at := s.paragraph(floor, end)
	if at <= floor {
		at = s.line(floor, end)
	}
	if at <= floor && s.inside(end) == nil {
		at = floor + sentence(s.src[floor:end+1])
	}
	if at <= floor {
		at = floor + 1 + strings.LastIndexAny(s.src[floor+1:end], " \t")
	}
	if at <= floor {
		at = s.character(pos, end)
	}
	return s.tidy(pos, at)
}

// tidy moves a cut in a fence to the fence's edge if nothing else is between them, and a cut before
// the first row of a table to the table's beginning.
func (s *splitter) tidy(pos, at int) int {
	f, t := s.around(at), s.tableAt(at)
	switch {
	case t != nil && at <= t.body && t.head > pos && !s.bare:
		return t.head
	case f == nil || s.bare:
	case at <= f.body && f.open > pos:
		return f.open
	case at >= f.close-1 && f.close < f.end:
		return f.end
	}
	return at
}

// paragraph returns the last blank line or fence edge in src[floor:end], or floor.
func (s *splitter) paragraph(floor, end int) int {
	best := floor
	for end > floor {
		f := s.around(end)
		if f == nil {
			i := strings.LastIndex(s.src[floor:min(end+2, len(s.src))], "\n\n")
			if g := s.before(end); g != nil && g.end > floor+i {
				return max(best, g.end) // the end of a fence comes after the blank line
			}
			return max(best, floor+i)
		}
		if f.open > floor {
			return f.open
		}
		end = f.open
	}
	return best
}

// line returns the end of the last line in src[floor:end], or floor.
func (s *splitter) line(floor, end int) int {
	return max(floor, floor+strings.LastIndexByte(s.src[floor:end+1], '\n'))
}

// sentence returns the end of the last sentence in s, or 0. The last byte of s only serves as
// context.
func sentence(s string) int {
	for i := len(s) - 1; i > 0; i-- {
		switch c := s[i]; {
		case c == ' ' && strings.IndexByte(".!?", s[i-1]) >= 0:
			return i
		case i == len(s)-1:
		case c == 0x82 || c == 0x81 || c == 0x9f: // how 。！？ end
			if strings.HasSuffix(s[:i+1], "。") || strings.HasSuffix(s[:i+1], "！") ||
				strings.HasSuffix(s[:i+1], "？") {
				return i + 1
			}
		}
	}
	return 0
}

// character returns the last boundary between grapheme clusters in src[pos:end], or between code
// points if there is only one cluster.
func (s *splitter) character(pos, end int) int {
	const lookBack, lookAhead = 512, 256
	// There is always a boundary between two ASCII characters, so the search can begin there.
	at := end
	for at > pos && (s.src[at-1] >= 0x80 || s.src[at] >= 0x80 || s.src[at] < ' ') {
		at--
		if end-at > lookBack {
			at = pos
		}
	}
	if at == end && at > pos {
		return at
	}
	rest, last, state := s.src[at:min(len(s.src), end+lookAhead)], at, -1
	for len(rest) > 0 {
		var cluster string
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if at += len(cluster); at > end {
			break
		}
		last = at
	}
	if last > pos {
		return last
	}
	if at = s.runeStart(pos, end); at > pos {
		return at
	}
	_, size := utf8.DecodeRuneInString(s.src[pos:])
	return pos + size
}

// runeStart returns the start of the rune in src[pos:] that contains at, or at if none does.
func (s *splitter) runeStart(pos, at int) int {
	for i := at; i < len(s.src) && i > max(pos, at-utf8.UTFMax); i-- {
		if utf8.RuneStart(s.src[i]) {
			return i
		}
	}
	return at
}

// A definition says where the reference links with a label lead.
type definition struct {
	use    string // what the source of a link has, such as "[label]", in the form of normalized
	has    string // what a piece with the definition has, in that form
	source string // what gives a piece the definition
}

// normalized returns s in a form in which labels that mean the same are equal.
func normalized(s string) string { return util.ToLinkReference([]byte(s)) }

// findDefinitions returns the definitions of links in md, or nil if md has nothing else.
func findDefinitions(md string) []definition {
	if !strings.Contains(md, "]:") || isTooComplex(md) {
		return nil
	}
	doc := markdown().Parse(text.NewReader([]byte(md)))
	if hasOnlyDefinitions(doc) {
		return nil
	}
	var found []definition
	walk(doc, func(n ast.Node) {
		d, ok := n.(*ast.LinkReferenceDefinition)
		if !ok || bytes.ContainsAny(d.Destination, `<>\`) {
			return
		}
		label, lines := "["+string(d.Label)+"]", d.Lines()
		found = append(found, definition{
			use:    normalized(label),
			has:    normalized(string(lines.Value([]byte(md)))),
			source: label + ": <" + string(d.Destination) + ">",
		})
	})
	return found
}

// hasOnlyDefinitions reports whether doc has nothing but definitions of links.
func hasOnlyDefinitions(doc ast.Node) bool {
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		if n.Kind() != ast.KindLinkReferenceDefinition {
			return false
		}
	}
	return true
}

// isDefinitions reports whether a piece has nothing but definitions of links, which nobody sees.
func (s *splitter) isDefinitions(piece string) bool {
	return len(s.definitions) > 0 && strings.Contains(piece, "]:") && !isTooComplex(piece) &&
		hasOnlyDefinitions(markdown().Parse(text.NewReader([]byte(piece))))
}

// defined returns a piece with the definitions that its links need and that it does not have.
func (s *splitter) defined(piece string) string {
	if len(s.definitions) == 0 {
		return piece
	}
	shown := normalized(piece)
	var b strings.Builder
	for _, d := range s.definitions {
		if strings.Count(shown, d.use) > strings.Count(shown, d.use+":") &&
			!strings.Contains(shown, d.has) && b.Len() < 8*s.limit {
			b.WriteString("\n" + d.source)
		}
	}
	if b.Len() == 0 || isTooComplex(piece+b.String()) {
		return piece
	}
	return piece + "\n" + b.String()
}
