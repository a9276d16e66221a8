package memory

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gateway/store"
)

// A Hit is what a search has found.
type Hit struct {
	Kind    Kind
	Fact    Fact  // of a fact
	ID      int64 // the cursor of an entry, the ID of a message
	Time    time.Time
	Session string // "" of a fact
	Speaker string // of a message: "user" or "assistant"
	Excerpt string // of an entry or message, around the match: on one line, 300 characters at most
	Score   float64
}

// HistoryOptions narrow a search of the history. The zero value finds the ten best.
type HistoryOptions struct {
	Since, Until time.Time // the first is included, the second not; zero: unbounded
	Session      string    // "": all
	Limit        int       // 10 by default, 100 at most
	Newest       bool      // by time, the newest first, of what has the most words of the query
}

// The bounds of a search.
const (
	defaultLimit = 10
	maxLimit     = 100
	maxQuery     = 4000 // bytes of a query that count
	maxTerms     = 24   // words of a query that count
)

// Search returns the facts and history entries that fit query best, the best first. Those that have
// all of its words come first; a word* stands for all words that begin so.
func (s *ScopedStore) Search(q store.Queryer, query string, limit int) ([]Hit, error) {
	limit = min(cmp.Or(max(limit, 0), defaultLimit), maxLimit)
	st, err := s.state(q)
	if err != nil || st.number == 0 {
		return nil, err
	}
	terms := parse(query)
	facts, err := s.findFacts(q, st, terms, limit, patient)
	if err != nil {
		return nil, err
	}
	entries, err := s.find(q, st, KindEntry, terms, HistoryOptions{Limit: limit})
	if err != nil {
		return nil, err
	}
	return best(append(facts, entries...), limit), nil
}

// SearchHistory returns the archived messages and history entries that fit query, the best first
// unless the options say otherwise.
func (s *ScopedStore) SearchHistory(
	q store.Queryer, query string, o HistoryOptions,
) ([]Hit, error) {
	o.Limit = min(cmp.Or(max(o.Limit, 0), defaultLimit), maxLimit)
	st, err := s.state(q)
	if err != nil || st.number == 0 {
		return nil, err
	}
	terms := parse(query)
	entries, err := s.find(q, st, KindEntry, terms, o)
	if err != nil {
		return nil, err
	}
	messages, err := s.find(q, st, KindMessage, terms, o)
	if err != nil {
		return nil, err
	}
	return o.order(append(entries, messages...)), nil
}

// order returns the hits that are asked for.
func (o HistoryOptions) order(hits []Hit) []Hit {
	if !o.Newest {
		return best(hits, o.Limit)
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return b.Time.Compare(a.Time) })
	return hits[:min(len(hits), o.Limit)]
}

// Relevant returns up to n facts, none of them pinned, that have to do with text, the best first.
// Their lines (see [Render]) have no more than maxChars characters together. It costs little if
// there are no facts.
func (s *ScopedStore) Relevant(q store.Queryer, text string, n, maxChars int) ([]Fact, error) {
	c, err := s.Contents(q)
	if err != nil || !c.Facts || n <= 0 {
		return nil, err
	}
	hits, err := s.findFacts(q, c.state, parse(text), maxLimit, fade)
	if err != nil {
		return nil, err
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

// A term is a word that is sought.
type term struct {
	token
	prefix bool    // all words that begin so
	weight float64 // how much a match is worth; set by the search
}

// parse returns the terms of a query. Words that say nothing are left out if there are others.
func parse(query string) []term {
	var terms, empty []term
	query = cut(query, maxQuery)
	seen := make(map[string]bool)
	tokenize(query, func(t token) bool {
		next := term{token: t, prefix: !t.gram && strings.HasPrefix(query[t.end:], "*")}
		switch {
		case seen[t.word()]:
		case stop[t.text] && !next.prefix:
			empty = append(empty, next)
		default:
			terms = append(terms, next)
		}
		seen[t.word()] = true
		return true
	})
	terms = withoutSingles(terms)
	if len(terms) == 0 {
		terms = empty
	}
	if len(terms) > maxTerms { // the middle of a long text says least
		terms = slices.Delete(terms, maxTerms/2, len(terms)-maxTerms/2)
	}
	return terms
}

// withoutSingles drops the single characters of runs that have pairs, which say more.
func withoutSingles(terms []term) []term {
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

// matches reports whether a token of a text is what is sought.
func (t term) matches(other token) bool {
	if t.gram != other.gram {
		return false
	}
	return t.text == other.text || t.prefix && strings.HasPrefix(other.text, t.text)
}
