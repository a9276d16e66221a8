package document

import (
	"bytes"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/ledongthuc/pdf"
)

// The parser makes room for as much as a number in the file says, counts as far, and follows
// references without end. Files that would break it are refused here, before and after it has read
// the table of objects. Where the check can't be sure, the file is refused too.

const (
	mostObjects = 2_000_000
	mostColumns = 1 << 20   // bytes of a line of a predictor
	mostWidths  = 128 << 20 // bytes of an entry of the table of objects
)

// How PDF may be written: between tokens there are blanks and comments, and characters of
// names stand as #xx if the writer likes.
const (
	between   = `(?:[\s\x00]|%[^\r\n]*[\r\n])*`
	integer   = `([-+]?\d+)`
	reference = `\d+` + between + `\d+` + between + `R`
)

// named returns a pattern for a name.
func named(name string) string {
	var b strings.Builder
	b.WriteString("/")
	for _, c := range []byte(name) {
		b.WriteString("(?:" + string(c) + "|(?i:#" + strconv.FormatInt(int64(c), 16) + "))")
	}
	return b.String()
}

var (
	encryptName = regexp.MustCompile(named("Encrypt"))

	// Forms that nobody writes, but that would lead to where nothing can be checked.
	devious = regexp.MustCompile(named("Type") + between + reference +
		`|` + named("Columns") + between + reference +
		`|` + named("DecodeParms") + between + `(?:` + reference + `|\[[^\]]*R)` +
		`|` + named("Filter") + between + `\[[^\]]{300}`)

	sizes          = regexp.MustCompile(named("Size") + between + integer)
	columns        = regexp.MustCompile(named("Columns") + between + integer)
	counts         = regexp.MustCompile(named("N") + between + integer + `(?:[\s\x00]*[/>])`)
	countElsewhere = regexp.MustCompile(named("N") + between + reference)
	indices        = regexp.MustCompile(named("Index") + between + `\[([^\]]*)\]`)
	widths         = regexp.MustCompile(named("W") + between + `\[([^\[\]]*)\]`)
	digits         = regexp.MustCompile(`\d+`)

	holderName = regexp.MustCompile(named("ObjStm"))
	dictEnd    = regexp.MustCompile(`>>[\s\x00]*stream`)

	// longNumber matches numbers that no map of characters has.
	longNumber = regexp.MustCompile(`(?:^|[\s\x00+])\d{6,}(?:$|[\s\x00%])`)
)

// checkPDF refuses a file that the parser can't stand.
func checkPDF(raw []byte) error {
	switch {
	case encryptName.Match(raw):
		return errEncrypted
	case devious.Match(raw),
		!allAtMost(sizes, raw, mostObjects),
		!allAtMost(columns, raw, mostColumns),
		!allListsAtMost(indices, raw, mostObjects),
		!allListsAtMost(widths, raw, mostWidths),
		!checkHolders(raw), !checkTables(raw):
		return errBadPDF
	}
	return nil
}

// allAtMost reports whether the number in each match is at most so large.
func allAtMost(pattern *regexp.Regexp, raw []byte, most uint64) bool {
	for _, m := range pattern.FindAllSubmatch(raw, -1) {
		if n, err := strconv.ParseUint(strings.TrimPrefix(string(m[1]), "+"), 10, 64); err != nil ||
			n > most {
			return false
		}
	}
	return true
}

// allListsAtMost reports whether the sum of the numbers in each match is at most so large.
func allListsAtMost(pattern *regexp.Regexp, raw []byte, most uint64) bool {
	for _, m := range pattern.FindAllSubmatch(raw, -1) {
		sum := uint64(0)
		for _, d := range digits.FindAll(m[1], -1) {
			n, err := strconv.ParseUint(string(d), 10, 64)
			if sum += n; err != nil || n > most || sum > most {
				return false
			}
		}
	}
	return true
}

// checkHolders looks at the streams that hold other objects: how many they hold must be written
// in their dictionary, in plain sight.
func checkHolders(raw []byte) bool {
	const far = 8 << 10
	for _, at := range holderName.FindAllIndex(raw, -1) {
		from := max(0, at[0]-far)
		if i := bytes.LastIndex(raw[from:at[0]], []byte("obj")); i >= 0 {
			from += i
		}
		rest := raw[at[1]:min(len(raw), at[1]+far)]
		end := dictEnd.FindIndex(rest)
		if end == nil {
			return false
		}
		dict := raw[from : at[1]+end[1]]
		if bytes.ContainsAny(dict, "%(") || countElsewhere.Match(dict) || !counts.Match(dict) ||
			!allAtMost(counts, dict, mostObjects) {
			return false
		}
	}
	return true
}

// checkTables looks at the tables of objects that are written as text: no number of an object
// may be beyond bounds.
func checkTables(raw []byte) bool {
	for {
		i := bytes.Index(raw, []byte("xref"))
		if i < 0 {
			return true
		}
		raw = raw[i+len("xref"):]
		t := tokens(raw)
		for {
			first, ok1 := t.integer()
			count, ok2 := t.integer()
			if !ok1 || !ok2 {
				break
			}
			var entries int64
			for entries < count && t.entry() {
				entries++
			}
			if entries > 0 && (first > mostObjects || first+entries > mostObjects) {
				return false
			}
			if entries < count {
				break
			}
		}
	}
}

// tokens are what is left of a file to be split into tokens.
type tokens []byte

// next returns the next token: what is between blanks and comments.
func (t *tokens) next() string {
	const blanks = " \t\r\n\f\x00"
	b := bytes.TrimLeft(*t, blanks)
	for len(b) > 0 && b[0] == '%' {
		end := bytes.IndexAny(b, "\r\n")
		if end < 0 {
			end = len(b)
		}
		b = bytes.TrimLeft(b[end:], blanks)
	}
	end := bytes.IndexAny(b[:min(len(b), 64)], blanks+"%()<>[]{}/")
	if end < 0 {
		end = min(len(b), 64)
	}
	*t = b[end:]
	return string(b[:end])
}

func (t *tokens) integer() (int64, bool) {
	n, err := strconv.ParseInt(t.next(), 10, 64)
	return n, err == nil
}

// entry reads an offset, a generation and whether the object is in use.
func (t *tokens) entry() bool {
	_, ok1 := t.integer()
	_, ok2 := t.integer()
	kind := t.next()
	return ok1 && ok2 && (kind == "n" || kind == "f")
}

// checkObjects refuses a table of objects that would send the parser round in circles: what
// holds other objects may not itself be held. The table is accessible only by reflection.
func checkObjects(r *pdf.Reader) error {
	table := reflect.ValueOf(r).Elem().FieldByName("xref")
	if table.Kind() != reflect.Slice {
		return errBadPDF
	}
	for i := range table.Len() {
		entry := table.Index(i)
		if !entry.FieldByName("inStream").Bool() {
			continue
		}
		holder := entry.FieldByName("stream").FieldByName("id").Uint()
		if holder < uint64(table.Len()) && table.Index(int(holder)).FieldByName("inStream").Bool() {
			return errBadPDF
		}
	}
	return nil
}
