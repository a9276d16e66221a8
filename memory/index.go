package memory

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"gateway/store"
)

// A Kind is the kind of a search result.
type Kind string

// The kinds of search results.
const (
	KindFact    Kind = "fact"
	KindEntry   Kind = "entry"
	KindMessage Kind = "message"
)

// doc is the content of a row in the index.
type doc struct {
	kind    Kind
	text    string
	time    time.Time // unused for facts
	session string    // unused for facts
}

// A word of the index consists of the number of its scope, a letter for the kind of row, a
// letter for the kind of word, and the token: 42ewhello is the word "hello" in a history
// entry of scope 42. Words of different scopes or kinds therefore differ, and each has its
// own short list of rows.
//
// Tokens contain only ASCII letters and digits. The tokenizer of FTS5, which splits at
// everything else, takes them unchanged, and no token can be a part of its query language.
const (
	isWord    = "w"
	isBegin   = "b" // the first four characters of a longer word
	isGram    = "g" // one or two characters of a script without spaces
	isYear    = "y" // the year of the row
	isMonth   = "m" // its month, as 202611
	isSession = "s" // a hash of the session
)

// A rowKind describes the table of a kind of rows, and the kind's letters in the index.
type rowKind struct {
	letter string
	number int64 // part of the index's row numbers, because the rows of all tables share one index
	table  string
	doc    string // columns of a [doc], after the id
	hit    string // columns of a [Hit], after the id
}

var rowKinds = map[Kind]rowKind{
	KindFact: {"f", 1, "memory_facts", "", ""},
	KindEntry: {"e", 2, "memory_entries", "time_ms, session, text",
		"cursor, time_ms, session, '', text"},
	KindMessage: {"m", 3, "memory_messages", "time_ms, session, text",
		"message, time_ms, session, speaker, text"},
}

const perRow = 4 // greater than the number of kinds

func rowid(kind Kind, id int64) int64 { return id*perRow + rowKinds[kind].number }

// prefixOf returns the prefix of all words of a kind in a scope.
func prefixOf(number int64, kind Kind) string {
	return strconv.FormatInt(number, 10) + rowKinds[kind].letter
}

func yearWord(t time.Time) string { return isYear + t.UTC().Format("2006") }

func monthWord(t time.Time) string { return isMonth + t.UTC().Format("200601") }

func sessionWord(session string) string {
	sum := sha256.Sum256([]byte(session))
	return isSession + hex.EncodeToString(sum[:8])
}

func (t token) word() string {
	if t.gram {
		return isGram + t.text
	}
	return isWord + t.text
}

// beginSize is the length of a word's beginning that is indexed as a word of its own, in
// characters. FTS5 can search for prefixes itself, but then visits all rows of frequent
// words.
const beginSize = 4

// firstRunes returns the first n characters of s.
func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// words returns all words of a row, separated by spaces.
func (d doc) words(number int64) string {
	begin := prefixOf(number, d.kind)
	var b strings.Builder
	b.Grow(2 * len(d.text))
	add := func(word string) {
		b.WriteString(begin)
		b.WriteString(word)
		b.WriteByte(' ')
	}
	tokenize(d.text, func(t token) bool {
		add(t.word())
		if begin := firstRunes(t.text, beginSize); !t.gram && len(begin) < len(t.text) {
			add(isBegin + begin)
		}
		return true
	})
	if d.kind != KindFact {
		add(yearWord(d.time))
		add(monthWord(d.time))
		add(sessionWord(d.session))
	}
	return b.String()
}

// matcher queries the index for rows of one kind in one scope.
type matcher struct {
	q     store.Queryer
	begin string // prefix of all words
	kind  Kind
	where string // additional condition for all rows, or ""
	timed bool   // matching rows may still be outside the time range

	least int // characters of a beginning; set by lists

	// read, unless nil, holds all rows, the newest first. They are examined instead of the
	// index.
	read []tokens
}

// tokens is a row and all its tokens.
type tokens struct {
	id     int64
	tokens []token
}

// narrow restricts the matcher to rows of a session, unless it is "", and of the months or
// years from since to until. The caller checks the exact times of the rows.
func (m *matcher) narrow(since, until time.Time, session string, now time.Time) {
	if session != "" {
		m.where += " AND " + m.exactQuery(sessionWord(session))
	}
	if since.IsZero() && until.IsZero() {
		return
	}
	m.timed = true
	if latest := now.AddDate(1, 0, 0); until.IsZero() || until.After(latest) { // clocks differ
		until = latest
	}
	if since, until = since.UTC(), until.UTC(); since.Year() < until.Year()-maxYears {
		since = until.AddDate(-maxYears, 0, 0)
	}
	var times []string
	next := time.Date(since.Year(), since.Month(), 1, 0, 0, 0, 0, time.UTC)
	for !next.After(until) {
		if year := next.AddDate(1, 0, 0); next.Month() == time.January && !year.After(until) {
			times, next = append(times, m.exactQuery(yearWord(next))), year
			continue
		}
		times, next = append(times, m.exactQuery(monthWord(next))), next.AddDate(0, 1, 0)
	}
	if len(times) == 0 {
		times = []string{m.exactQuery(isYear)} // matches no row
	}
	m.where += " AND (" + strings.Join(times, " OR ") + ")"
}

// maxYears is how many years a search with an end but without a beginning goes back.
const maxYears = 30

// exactQuery returns the query for a word.
func (m *matcher) exactQuery(word string) string { return `"` + m.begin + word + `"` }

// query returns the query for a term.
func (m *matcher) query(t term) string {
	query := m.exactQuery(t.word())
	switch size := utf8.RuneCountInString(t.text); {
	case !t.prefix:
		return query
	case size == beginSize:
		return "(" + query + " OR " + m.exactQuery(isBegin+t.text) + ")"
	}
	return query + "*"
}

// rows returns, for each query, the ids of matching rows above the given row: the newest
// limit ids, descending.
func (m *matcher) rows(queries []string, above int64, limit int) ([][]int64, error) {
	whole := make([]string, len(queries))
	for i, query := range queries {
		whole[i] = "(" + query + ")" + m.where
	}
	asked, err := json.Marshal(whole)
	if err != nil || len(queries) == 0 {
		return nil, err
	}
	// A few long rows cost much less than many short ones, and one query less than several.
	found := make([][]int64, len(queries))
	return found, store.Each(m.q, "memory: search", func(scan store.Scan) error {
		var i int
		var list sql.RawBytes
		if err := scan(&i, &list); err != nil {
			return err
		}
		found[i], err = parseRows(list)
		return err
	}, `SELECT asked.key, (SELECT coalesce(group_concat(rowid), '') FROM
			(SELECT rowid FROM memory_index WHERE memory_index MATCH asked.value AND rowid > $1
				ORDER BY rowid DESC LIMIT $2))
		FROM json_each($3) asked`, rowid(m.kind, above), limit, string(asked))
}

// parseRows reads row numbers of the index and returns the ids, descending.
func parseRows(list []byte) ([]int64, error) {
	if len(list) == 0 {
		return nil, nil
	}
	ids := make([]int64, 0, bytes.Count(list, []byte(","))+1)
	for s := range bytes.SplitSeq(list, []byte(",")) {
		n, err := strconv.ParseInt(string(s), 10, 64)
		if err != nil {
			return nil, err
		}
		ids = append(ids, n/perRow)
	}
	slices.SortFunc(ids, func(a, b int64) int { return cmp.Compare(b, a) })
	return ids, nil
}
