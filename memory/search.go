package memory

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gateway/store"
	"gateway/store/plaintext"
)

// A Hit is a search result.
type Hit struct {
	Kind    Kind
	Fact    Fact  // if a fact was found
	ID      int64 // cursor of an entry, or ID of a message
	Time    time.Time
	Session string // "" for a fact
	Speaker string // for a message: "user" or "assistant"
	Foreign bool   // the entry is derived from foreign text: see [MarkForeign]
	Excerpt string // text around the match of an entry or message: one line, at most 300 characters
	Score   float64
}

// HistoryOptions restrict a search of the history. The zero value returns the ten best
// hits.
type HistoryOptions struct {
	Since, Until time.Time // Since is inclusive, Until exclusive; zero: unbounded
	Session      string    // "": all
	Limit        int       // 10 by default, 100 at most
	Newest       bool      // order by time, newest first, the hits with the most words of the query
}

// Limits of a search.
const (
	defaultLimit = 10
	maxLimit     = 100
	maxQuery     = 4000 // bytes of a query that are used, of its beginning and its end
	maxTerms     = 24   // words of a query that are used
)

// A search looks for the terms of a query in the rows of one scope.
type search struct {
	q     store.Queryer
	scope state
	terms []term
	now   time.Time
}

// Search returns the facts and history entries that match query, the best first. Hits with
// all of its words come first. A word* matches all words with that beginning.
func (s *ScopedStore) Search(q store.Queryer, query string, limit int) ([]Hit, error) {
	limit = min(cmp.Or(max(limit, 0), defaultLimit), maxLimit)
	st, err := s.state(q)
	if err != nil || st.number == 0 {
		return nil, err
	}
	find := search{q, st, parse(query), s.m.now()}
	facts, err := find.facts(limit, searchRecency)
	if err != nil {
		return nil, s.scope.wrap("search", err)
	}
	entries, err := find.history(KindEntry, HistoryOptions{Limit: limit})
	if err != nil {
		return nil, s.scope.wrap("search", err)
	}
	return best(append(facts, entries...), limit), nil
}

// SearchHistory returns the archived messages and history entries that match query, the
// best first unless the options set another order.
func (s *ScopedStore) SearchHistory(
	q store.Queryer, query string, o HistoryOptions,
) ([]Hit, error) {
	o.Limit = min(cmp.Or(max(o.Limit, 0), defaultLimit), maxLimit)
	st, err := s.state(q)
	if err != nil || st.number == 0 {
		return nil, err
	}
	find := search{q, st, parse(query), s.m.now()}
	entries, err := find.history(KindEntry, o)
	if err != nil {
		return nil, s.scope.wrap("search", err)
	}
	messages, err := find.history(KindMessage, o)
	if err != nil {
		return nil, s.scope.wrap("search", err)
	}
	return o.order(append(entries, messages...)), nil
}

// order sorts and cuts the hits as the options say.
func (o HistoryOptions) order(hits []Hit) []Hit {
	if !o.Newest {
		return best(hits, o.Limit)
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return b.Time.Compare(a.Time) })
	return hits[:min(len(hits), o.Limit)]
}

// Relevant returns up to n unpinned facts that are related to text, the best first. Their
// lines (see [Render]) have at most maxChars characters in total. The call is cheap if the
// scope has no facts.
func (s *ScopedStore) Relevant(q store.Queryer, text string, n, maxChars int) ([]Fact, error) {
	c, err := s.Contents(q)
	if err != nil || !c.Facts || n <= 0 {
		return nil, err
	}
	find := search{q, c.state, parse(text), s.m.now()}
	hits, err := find.facts(maxLimit, recallRecency)
	if err != nil {
		return nil, s.scope.wrap("search", err)
	}
	var facts []Fact
	for _, h := range hits {
		size := utf8.RuneCountInString(h.Fact.String()) + 1
		if h.Fact.Pinned || size > maxChars {
			continue
		}
		facts, maxChars = append(facts, h.Fact), maxChars-size
		if len(facts) == n {
			break
		}
	}
	return facts, nil
}

// best returns the hits with the highest scores.
func best(hits []Hit, limit int) []Hit {
	slices.SortStableFunc(hits, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), b.Time.Compare(a.Time))
	})
	return hits[:min(len(hits), limit)]
}

// term is a word of a query.
type term struct {
	token
	prefix bool    // matches all words with this beginning
	weight float64 // weight of a match; set by the search
}

// parse returns the terms of a query. It drops stop words unless the query has nothing
// else.
func parse(query string) []term {
	var terms, empty []term
	if len(query) > maxQuery { // the middle of a long text matters least
		query = plaintext.Cut(query, maxQuery/2) + "\n" +
			strings.ToValidUTF8(query[len(query)-maxQuery/2:], "")
	}
	last := make(map[string]int) // the last place of each word
	tokenize(query, func(t token) bool {
		next := term{token: t, prefix: !t.gram && strings.HasPrefix(query[t.end:], "*")}
		_, seen := last[t.word()]
		switch {
		case seen:
		case stopWords[t.text] && !next.prefix:
			empty = append(empty, next)
		default:
			terms = append(terms, next)
		}
		last[t.word()] = t.start
		return true
	})
	terms = dropSingles(terms)
	if len(terms) == 0 {
		terms = empty
	}
	if len(terms) > maxTerms { // likewise: a question often repeats words of the text above it
		rest := terms[maxTerms/2:]
		slices.SortStableFunc(rest, func(a, b term) int {
			return cmp.Compare(last[a.word()], last[b.word()])
		})
		terms = slices.Delete(terms, maxTerms/2, len(terms)-maxTerms/2)
	}
	return terms
}

// dropSingles drops the single characters of runs that also have pairs, which are more
// specific.
func dropSingles(terms []term) []term {
	inPair := make(map[rune]bool)
	for _, t := range terms {
		if t.gram && utf8.RuneCountInString(t.text) == 2 {
			for _, r := range t.text {
				inPair[r] = true
			}
		}
	}
	return slices.DeleteFunc(terms, func(t term) bool {
		r, size := utf8.DecodeRuneInString(t.text)
		return t.gram && size == len(t.text) && inPair[r]
	})
}

// matches reports whether a token of a text matches the term.
func (t term) matches(other token) bool {
	if t.gram != other.gram {
		return false
	}
	return t.text == other.text || t.prefix && strings.HasPrefix(other.text, t.text)
}
