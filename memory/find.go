package memory

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gateway/store"
	"gateway/store/plaintext"
)

// Limits of a search. They make its cost independent of the size of the memory.
const (
	maxList       = 1000   // newest rows per word
	maxScan       = 30_000 // occurrences of common words that are compared
	maxCandidates = 150    // rows whose times are read; maxList if times matter
	minRead       = 20     // least number of rows whose texts are read
	minPrefix     = 3      // characters; beginSize if there are more than manyRows
	manyRows      = 100_000
)

// list holds the rows that have a term.
type list struct {
	term  term
	query string
	ids   []int64 // newest first
	whole bool    // ids is complete
	count float64 // number of rows; an estimate unless whole
}

// candidate is a row that has some of the terms.
type candidate struct {
	id     int64
	weight float64 // of the terms that it is known to contain
}

// lists asks the index for each term. A term without matches is tried as the beginning of
// words, and otherwise left out. total is the weight of all terms.
func (m *matcher) lists(terms []term, docs int64) (lists []list, total float64, err error) {
	limit := maxList
	if n := len(terms); n > 2 && !m.timed && m.read == nil {
		limit = max(2*maxList/n, maxList/8)
	}
	if m.least = minPrefix; docs > manyRows {
		m.least = beginSize
	}
	all := make([]list, len(terms))
	var missing []*list
	for i, t := range terms {
		all[i].term = t
		missing = append(missing, &all[i])
	}
	for attempt := range tries {
		if missing, err = m.tryTerms(attempt, missing, limit); err != nil {
			return nil, 0, err
		}
	}
	for _, l := range all {
		n := float64(docs)
		l.count = min(l.count, n)
		l.term.weight = math.Log(1 + (n-l.count+0.5)/(l.count+0.5))
		total += l.term.weight
		if len(l.ids) > 0 {
			lists = append(lists, l)
		}
	}
	// Rarest first: rare terms are the most specific, and the index iterates over the rows of
	// the first.
	slices.SortStableFunc(lists, func(a, b list) int { return cmp.Compare(a.count, b.count) })
	return lists, total, nil
}

// tries is the number of ways to look up a term: as it is, as the beginning of a word, and
// as a beginning without its last one or two characters. The last two find other endings:
// cats, cat; Katzen, Katze.
const tries = 4

// tryTerms fills the lists of terms, and returns the empty lists for which another try makes
// sense.
func (m *matcher) tryTerms(attempt int, lists []*list, limit int) (missing []*list, err error) {
	var queries []string
	for _, l := range lists {
		t := &l.term
		size := utf8.RuneCountInString(t.text)
		switch {
		case attempt == 0:
			t.prefix = t.prefix && size >= m.least
		case attempt == 1:
			t.prefix = true
		default:
			_, last := utf8.DecodeLastRuneInString(t.text)
			t.text = t.text[:len(t.text)-last]
		}
		l.query = m.query(*t)
		queries = append(queries, l.query)
	}
	found, err := m.find(lists, queries, limit)
	if err != nil {
		return nil, err
	}
	for i, l := range lists {
		l.fill(found[i], limit)
		size := utf8.RuneCountInString(l.term.text)
		again := attempt == 0 && size >= m.least || size > beginSize
		if again && len(l.ids) == 0 && !l.term.gram {
			missing = append(missing, l)
		}
	}
	return missing, nil
}

// find returns the rows in lists that match these queries.
func (m *matcher) find(lists []*list, queries []string, limit int) ([][]int64, error) {
	if m.read == nil {
		return m.rows(queries, 0, limit)
	}
	found := make([][]int64, len(lists))
	for _, r := range m.read {
		for i, l := range lists {
			if slices.ContainsFunc(r.tokens, l.term.matches) {
				found[i] = append(found[i], r.id)
			}
		}
	}
	return found, nil
}

// fill sets the rows of a list. limit is the limit of the query that found them.
func (l *list) fill(ids []int64, limit int) {
	l.ids, l.whole, l.count = ids, len(ids) < limit, float64(len(ids))
	if !l.whole { // extrapolate from the density of these rows
		newest, oldest := ids[0], ids[len(ids)-1]
		l.count *= float64(newest) / float64(max(newest-oldest, 1))
	}
}

// candidates returns rows that have the terms, ordered by the number of terms and then the
// newest first.
func (m *matcher) candidates(lists []list) ([]candidate, error) {
	weights := make(map[int64]float64)
	sum := 0.0
	for _, l := range lists {
		sum += l.term.weight
		for _, id := range l.ids {
			weights[id] += l.term.weight
		}
	}
	if common := slices.ContainsFunc(lists, func(l list) bool { return !l.whole }); common &&
		len(lists) > 1 {
		ids, err := m.all(lists)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			weights[id] = sum
		}
	}
	found := make([]candidate, 0, len(weights))
	for id, weight := range weights {
		found = append(found, candidate{id, weight})
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(b.id, a.id))
	})
	return found[:min(len(found), m.maxRows())], nil
}

// maxRows returns the number of rows that the search continues with.
func (m *matcher) maxRows() int {
	if m.timed {
		return maxList
	}
	return maxCandidates
}

// all returns the newest rows that have all terms. It examines only the newest rows of the
// rarest term. If all terms are common, it examines only so many rows that at most maxScan
// occurrences are visited.
func (m *matcher) all(lists []list) ([]int64, error) {
	var queries []string
	var density float64 // occurrences per row
	var newest int64
	for _, l := range lists {
		queries = append(queries, l.query)
		newest = max(newest, l.ids[0])
		density += float64(len(l.ids)) / float64(max(l.ids[0]-l.ids[len(l.ids)-1], 1))
	}
	above := int64(0)
	if rarest := lists[0]; !rarest.whole {
		above = max(0, newest-int64(maxScan/density))
	} else if len(rarest.ids) > m.maxRows() {
		above = rarest.ids[m.maxRows()]
	}
	found, err := m.rows([]string{strings.Join(queries, " AND ")}, above, m.maxRows())
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// weightOf returns the BM25 weight of the terms in a text, the weight of those that it
// contains, and their positions. known is a lower bound for the weight of the contained
// terms, because a long text may not be read to its end.
func weightOf(text string, lists []list, known float64) (weight, has float64, at []int) {
	counts := make([]int, len(lists))
	length, adjacent, before := 0, 0, -1
	tokenize(plaintext.Cut(text, maxRead), func(t token) bool {
		length++
		found := -1
		for i := range lists {
			if lists[i].term.matches(t) {
				found = i
				counts[i]++
				at = append(at, t.start)
				break
			}
		}
		if found >= 0 && before >= 0 && found != before {
			adjacent++
		}
		if found >= 0 || !t.gram {
			before = found
		}
		return true
	})
	for i, n := range counts {
		if n == 0 {
			continue
		}
		const k, b, usual = 1.2, 0.5, 60 // usual is a text length in words
		tf := float64(n) * (k + 1) / (float64(n) + k*(1-b+b*float64(min(length, 4*usual))/usual))
		weight += lists[i].term.weight * tf
		has += lists[i].term.weight
	}
	if has < known {
		weight += (known - has) / 2
	}
	return weight * (1 + 0.1*float64(min(adjacent, 3))), max(has, known), at
}

// maxRead is the part of a long text that is read for ranking, in bytes.
const maxRead = 32 << 10

// coverage ranks a row that has all terms above a row that repeats one of them.
func coverage(has, total float64) float64 {
	if total <= 0 {
		return 1
	}
	share := min(has/total, 1)
	return share * share
}

// The half-lives of ranking.
const (
	fadeFact  = 30 * 24 * time.Hour
	fadeEntry = 180 * 24 * time.Hour
)

// recallRecency is the recency factor of a fact that is recalled without a search. It halves for
// each 30 days since the last use. After half a year it stays constant, so that the best
// of the old facts can still win.
func recallRecency(age time.Duration) float64 { return decay(age, fadeFact, 6) }

// searchRecency is the recency factor of a fact that is searched for. It falls less than
// recallRecency, because searches want old facts, too.
func searchRecency(age time.Duration) float64 { return decay(age, fadeFact, 2) }

// decay halves for each half-life, at most the given number of times.
func decay(age, halfLife time.Duration, times float64) float64 {
	return math.Pow(0.5, min(max(float64(age)/float64(halfLife), 0), times))
}

// fewFacts is the number of facts up to which all are read instead of using the index.
const fewFacts = 200

// facts returns the facts that have terms, the best first.
func (s search) facts(limit int, recency func(time.Duration) float64) ([]Hit, error) {
	number := s.scope.number
	m := &matcher{q: s.q, begin: prefixOf(number, KindFact), kind: KindFact}
	docs, err := factTable{number}.count(s.q)
	if err != nil || docs == 0 || len(s.terms) == 0 {
		return nil, err
	}
	var facts []storedFact
	if docs <= fewFacts {
		if facts, err = selectFacts(s.q, "WHERE scope = $1 ORDER BY id DESC", number); err != nil {
			return nil, err
		}
		for _, f := range facts {
			m.read = append(m.read, f.tokens())
		}
	}
	lists, total, err := m.lists(s.terms, int64(docs))
	if err != nil {
		return nil, err
	}
	found, err := m.candidates(lists)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	ids, weights, err := split(found)
	if err == nil && docs > fewFacts {
		facts, err = selectFacts(s.q,
			"WHERE id IN (SELECT value FROM json_each($1)) AND +scope = $2", ids, number)
	}
	if err != nil {
		return nil, err
	}
	var hits []Hit
	for _, f := range facts {
		if weights[f.id] == 0 {
			continue
		}
		weight, has, _ := weightOf(f.doc().text, lists, weights[f.id])
		hits = append(hits, Hit{Kind: KindFact, Fact: f.Fact, Time: f.Created,
			Score: weight * coverage(has, total) *
				float64(f.Importance) / defaultRank * recency(s.now.Sub(f.Used))})
	}
	return best(hits, limit), nil
}

func selectFacts(q store.Queryer, where string, args ...any) ([]storedFact, error) {
	return collect(q, scanFact, "SELECT "+factColumns+" FROM memory_facts "+where, args...)
}

func (f storedFact) tokens() tokens {
	list := tokens{id: f.id}
	tokenize(f.doc().text, func(t token) bool {
		list.tokens = append(list.tokens, t)
		return true
	})
	return list
}

// split returns the ids of candidates as JSON, and their weights by id.
func split(found []candidate) (string, map[int64]float64, error) {
	ids := make([]int64, len(found))
	weights := make(map[int64]float64, len(found))
	for i, c := range found {
		ids[i], weights[c.id] = c.id, c.weight
	}
	text, err := json.Marshal(ids)
	return string(text), weights, err
}
