package memory

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"gateway/store/plaintext"
)

// token is a word of a text in the form of the index.
type token struct {
	text       string // folded
	gram       bool   // one or two characters of a script that has no spaces between words
	start, end int    // byte offsets in the text
}

// maxWord is the number of bytes of a folded word that are used.
const maxWord = 64

// class is the kind of a character for the tokenizer.
type class int

const (
	separator class = iota
	letter          // part of a word
	ideograph       // from a script without spaces between words
	symbol          // a word of its own, such as an emoji
	joiner          // part of the preceding character, ignored
)

// unspaced are the scripts whose words can't be separated without a dictionary. Hangul has
// spaces, but its words carry particles.
var unspaced = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana,
	unicode.Hangul, unicode.Bopomofo, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar}

func classify(r rune) class {
	switch {
	case r < utf8.RuneSelf:
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return letter
		}
		return separator
	case r >= '\u0e00' && (unicode.In(r, unspaced...) || strings.ContainsRune("ーｰﾞﾟ", r)):
		return ideograph
	case unicode.IsLetter(r), unicode.IsNumber(r):
		return letter
	case unicode.IsMark(r), unicode.Is(unicode.Cf, r):
		return joiner
	case unicode.Is(unicode.So, r):
		return symbol
	}
	return separator
}

// tokenize calls yield with each token of text in order until yield returns false.
//
// Words are folded: case, accents and width make no difference. In runs without spaces
// each character and each pair of neighbours is a token, so that any part of a run can be
// found.
func tokenize(text string, yield func(token) bool) {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		kind := classify(r)
		end := i + size
		for kind != separator && end < len(text) {
			r, size := utf8.DecodeRuneInString(text[end:])
			if next := classify(r); next != joiner && (next != kind || kind == symbol) {
				break
			}
			end += size
		}
		ok := true
		switch word := text[i:end]; kind {
		case letter, symbol:
			if folded := plaintext.Cut(fold(word), maxWord); folded != "" {
				ok = yield(token{folded, false, i, end})
			}
		case ideograph:
			ok = grams(word, i, yield)
		}
		if !ok {
			return
		}
		i = end
	}
}

// grams yields the tokens of a run that begins at the byte offset at.
func grams(run string, at int, yield func(token) bool) bool {
	folded := fold(run)
	// Folding rarely changes the length of a character. If it does, each token gets the
	// offsets of the whole run.
	exact := len(folded) == len(run)
	before := -1 // offset of the previous character
	for i, r := range folded {
		end := i + utf8.RuneLen(r)
		start, stop := at, at+len(run)
		if exact {
			start, stop = at+i, at+end
		}
		if before >= 0 {
			first := start
			if exact {
				first = at + before
			}
			if !yield(token{folded[before:end], true, first, stop}) {
				return false
			}
		}
		if !yield(token{folded[i:end], true, start, stop}) {
			return false
		}
		before = i
	}
	return true
}

// accents are the marks that folding removes. The marks of other scripts are vowels.
var accents = &unicode.RangeTable{R16: []unicode.Range16{
	{Lo: 0x0300, Hi: 0x036f, Stride: 1}, {Lo: 0x0483, Hi: 0x0489, Stride: 1},
	{Lo: 0x0591, Hi: 0x05c7, Stride: 1}, {Lo: 0x0610, Hi: 0x061a, Stride: 1},
	{Lo: 0x0640, Hi: 0x0640, Stride: 1}, {Lo: 0x064b, Hi: 0x065f, Stride: 1},
	{Lo: 0x0670, Hi: 0x0670, Stride: 1}, {Lo: 0x06d6, Hi: 0x06dc, Stride: 1},
	{Lo: 0x06df, Hi: 0x06e8, Stride: 1}, {Lo: 0x06ea, Hi: 0x06ed, Stride: 1},
	{Lo: 0x1ab0, Hi: 0x1aff, Stride: 1}, {Lo: 0x1dc0, Hi: 0x1dff, Stride: 1},
	{Lo: 0x20d0, Hi: 0x20ff, Stride: 1}, {Lo: 0xfe00, Hi: 0xfe0f, Stride: 1},
	{Lo: 0xfe20, Hi: 0xfe2f, Stride: 1},
}}

// unaccented maps letters whose accents Unicode does not decompose.
var unaccented = strings.NewReplacer("ß", "ss", "æ", "ae", "œ", "oe", "ø", "o", "đ", "d",
	"ð", "d", "þ", "th", "ħ", "h", "ı", "i", "ł", "l", "ŧ", "t", "ς", "σ")

// fold returns the comparable form of a word. It keeps only letters, digits, marks and
// symbols.
func fold(word string) string {
	ascii := true
	for i := 0; i < len(word) && ascii; i++ {
		ascii = word[i] < utf8.RuneSelf
	}
	if ascii {
		return strings.ToLower(word)
	}
	word = strings.Map(func(r rune) rune {
		r = unicode.ToLower(r)
		known := unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) ||
			unicode.Is(unicode.So, r)
		if !known || r == utf8.RuneError || unicode.Is(accents, r) {
			return -1
		}
		return r
	}, norm.NFKD.String(word))
	return norm.NFC.String(unaccented.Replace(word))
}

// stop are folded stop words of languages that are often used with agents. They are used
// only if a query has no other words.
var stopWords = func() map[string]bool {
	words := make(map[string]bool)
	for w := range strings.FieldsSeq(`
a about all also am an and any are as at be been but by can could d did do does for from had has
have he her here him his how i if in into is it its just ll m me my no not of on or our out please
re s she so some t that the their them then there these they this to too up us ve was we were what
when where which who why will with would you your aber als am an auch auf aus bei bin bist bitte
da das dass dein dem den der des die dir doch du ein eine einem einen einer es fur hab habe haben
hat ich ihr im in ist ja kann mein meine meinem meinen meiner mich mir mit nach nicht noch nur
oder sich sie sind so uber um und uns von war was wenn wer wie wir wird wo zu zum zur al au avec
ce ces com como con d de del della des di do dos du e el elle em en es est et eu fue gli ha il j
je jest ka l la le les lo los lui ma mais me mes mi moi mon na ne nei nie nous o ou para par pas
per pero por pour qu que qui quel se ses sie son sono su sur ta te ten to tu ty um un una une uno
vous w y в во да для до его ее и из как к ко ли мне мои моя мы на не нет но о об он она они от по
с со так то ты у что это я
`) {
		words[w] = true
	}
	return words
}()
