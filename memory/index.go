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

// A Kind says what was found.
type Kind string

// The kinds of what can be found.
const (
	KindFact    Kind = "fact"
	KindEntry   Kind = "entry"
	KindMessage Kind = "message"
)

// A doc is what the index knows of a row.
type doc struct {
	kind    Kind
	text    string
	time    time.Time // unused for facts
	session string    // unused for facts
}

// A word of the index is the number of its scope, a letter for the kind of row, one for what it
// is, and the token: 42ewhello is the word "hello" in a history entry of scope 42. So words of
// different scopes or kinds are different, and each has its own, short list of rows.
//
// Tokens have no ASCII characters but letters and digits, so that the tokenizer of FTS5, which
// splits at all others, takes them as they are, and none can be a part of its query language.
const (
	isWord    = "w"
	isBegin   = "b" // the first four characters of a longer word
	isGram    = "g" // of a script without spaces
	isYear    = "y" // the year of the row
	isMonth   = "m" // its month, as 202611
	isSession = "s" // a hash of the session
)

// letters are those of the kinds. Their places are in the index's row numbers, too: rows of the
// tables share one index.
var letters = map[Kind]string{KindFact: "f", KindEntry: "e", KindMessage: "m"}

var places = map[Kind]int64{KindFact: 1, KindEntry: 2, KindMessage: 3}

const perRow = 4 // more than there are kinds

func rowid(kind Kind, id int64) int64 { return id*perRow + places[kind] }

// prefixOf returns what words of a kind begin with in a scope.
func prefixOf(number int64, kind Kind) string {
	return strconv.FormatInt(number, 10) + letters[kind]
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

// beginSize is how many characters of a word are a word of the index, too. The index finds
// beginnings by itself, but then it goes through all rows that have words of which there are many.
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

// index adds a row to the index.
func (m *Memory) index(tx *store.Tx, id, number int64, d doc) error {
	_, err := tx.Exec("INSERT INTO memory_index (rowid, terms) VALUES ($1, $2)",
		rowid(d.kind, id), d.words(number))
	return err
}

// unindex takes a row out of the index; d is what it was put in with.
func (m *Memory) unindex(tx *store.Tx, id, number int64, d doc) error {
	_, err := tx.Exec("INSERT INTO memory_index (memory_index, rowid, terms) "+
		"VALUES ('delete', $1, $2)", rowid(d.kind, id), d.words(number))
	return err
}

// A matcher asks the index for rows of one kind of one scope.
type matcher struct {
	q     store.Queryer
	begin string // of all words
	kind  Kind
	where string // what all rows must match besides; "": nothing
	timed bool   // some of the rows that match may be of the wrong time

	least int // characters of a beginning; set by lists

	// read, unless it is nil, are all rows that there are, the newest first. They are looked at
	// instead of the index.
	read []tokens
}

// A tokens is a row and all its tokens.
type tokens struct {
	id     int64
	tokens []token
}

// narrow lets the matcher find only rows of a session, unless it is "", and of the months or years
// from since to until. It is no more exact: rows are looked at one by one anyhow.
func (m *matcher) narrow(since, until time.Time, session string, now time.Time) {
	if session != "" {
		m.where += " AND " + m.exact(sessionWord(session))
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
			times, next = append(times, m.exact(yearWord(next))), year
			continue
		}
		times, next = append(times, m.exact(monthWord(next))), next.AddDate(0, 1, 0)
	}
	if len(times) == 0 {
		times = []string{m.exact(isYear)} // nothing has it
	}
	m.where += " AND (" + strings.Join(times, " OR ") + ")"
}

// maxYears is how far back a search without a beginning looks, if it has an end.
const maxYears = 30

// exact returns the query for a word.
func (m *matcher) exact(word string) string { return `"` + m.begin + word + `"` }

// query returns the query for a term.
func (m *matcher) query(t term) string {
	query := m.exact(t.word())
	switch size := utf8.RuneCountInString(t.text); {
	case !t.prefix:
		return query
	case size == beginSize:
		return "(" + query + " OR " + m.exact(isBegin+t.text) + ")"
	}
	return query + "*"
}

// rows returns for each query the ids of rows that match, those above a row, the newest limit of
// them, descending.
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
