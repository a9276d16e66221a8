package memory

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gateway/store"
	"gateway/store/plaintext"
)

// selectRows returns the query for columns of the rows of a kind with the ids in $1. It checks the
// scope although the index has returned only rows of it. The "+" stops the database from scanning
// all rows of the scope for that check.
func selectRows(kind Kind, columns string) string {
	return "SELECT id, " + columns + " FROM " + rowKinds[kind].table +
		" WHERE id IN (SELECT value FROM json_each($1)) AND +scope = $2"
}

// history returns the entries or messages that have terms, the best first.
func (s search) history(kind Kind, o HistoryOptions) ([]Hit, error) {
	m := &matcher{q: s.q, begin: prefixOf(s.scope.number, kind), kind: kind}
	m.narrow(o.Since, o.Until, o.Session, s.now)
	docs := s.scope.last
	if kind == KindMessage {
		docs = s.scope.messages
	}
	if docs == 0 {
		return nil, nil
	}
	lists, total, err := m.lists(s.terms, docs)
	if err != nil {
		return nil, err
	}
	found, err := m.candidates(lists)
	if err != nil {
		return nil, err
	}
	if found, err = s.inTime(kind, found, total, o); err != nil || len(found) == 0 {
		return nil, err
	}
	ids, weights, err := split(found)
	if err != nil {
		return nil, err
	}
	hits, err := collect(s.q, func(scan store.Scan) (h Hit, err error) {
		var id, ms int64
		var text string
		err = scan(&id, &h.ID, &ms, &h.Session, &h.Speaker, &text)
		h.Kind, h.Time = kind, time.UnixMilli(ms)
		weight, has, at := weightOf(text, lists, weights[id])
		h.Excerpt = excerpt(text, at)
		h.Foreign = kind == KindEntry && Entry{Text: text}.IsForeign()
		h.Score = weight * coverage(has, total) * decay(s.now.Sub(h.Time), fadeEntry, 3)
		return h, err
	}, selectRows(kind, rowKinds[kind].hit), ids, s.scope.number)
	if err != nil {
		return nil, err
	}
	return o.order(hits), nil
}

// inTime returns the candidates within the time range and session of the options, at most
// as many as are worth reading completely.
func (s search) inTime(
	kind Kind, found []candidate, total float64, o HistoryOptions,
) ([]candidate, error) {
	if len(found) == 0 {
		return nil, nil
	}
	ids, weights, err := split(found)
	if err != nil {
		return nil, err
	}
	type row struct {
		candidate
		time    time.Time
		session string
		score   float64
	}
	list, err := collect(s.q, func(scan store.Scan) (r row, err error) {
		var ms int64
		err = scan(&r.id, &ms, &r.session)
		r.time, r.weight = time.UnixMilli(ms), weights[r.id]
		r.score = r.weight * coverage(r.weight, total) * decay(s.now.Sub(r.time), fadeEntry, 3)
		return r, err
	}, selectRows(kind, "time_ms, session"), ids, s.scope.number)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(r row) bool {
		return !o.Since.IsZero() && r.time.Before(o.Since) ||
			!o.Until.IsZero() && !r.time.Before(o.Until) || o.Session != "" && r.session != o.Session
	})
	most := 0.0
	for _, r := range list {
		most = max(most, r.weight)
	}
	if o.Newest {
		list = slices.DeleteFunc(list, func(r row) bool { return r.weight < 0.999*most })
	}
	slices.SortFunc(list, func(a, b row) int {
		if o.Newest {
			return cmp.Or(b.time.Compare(a.time), cmp.Compare(b.id, a.id))
		}
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.id, a.id))
	})
	list = list[:min(len(list), max(2*o.Limit, minRead))]
	found = found[:0]
	for _, r := range list {
		found = append(found, r.candidate)
	}
	return found, nil
}

// maxExcerpt is the greatest length of an excerpt, in characters.
const maxExcerpt = 300

// excerpt returns the part of a text with the most matches, on one line.
func excerpt(text string, at []int) string {
	const room = maxExcerpt - 2 // for the dots
	if utf8.RuneCountInString(text) <= maxExcerpt {
		return plaintext.OneLine(text)
	}
	start, most := 0, 0
	for i, first := range at { // characters may have several bytes
		n := 1
		for n < len(at)-i && at[i+n] < first+room*2/3 {
			n++
		}
		if n > most {
			start, most = first, n
		}
	}
	// Include some text before the match, from the beginning of a word.
	for back := 0; start > 0 && back < room/4; back++ {
		_, size := utf8.DecodeLastRuneInString(text[:start])
		start -= size
	}
	if i := strings.IndexFunc(text[start:], unicode.IsSpace); start > 0 && 0 <= i && i < room/8 {
		start += i + 1
	}
	end := start
	for n := 0; end < len(text) && n < room; n++ {
		_, size := utf8.DecodeRuneInString(text[end:])
		end += size
	}
	part := plaintext.OneLine(text[start:end])
	if start > 0 {
		part = "…" + part
	}
	if end < len(text) {
		part += "…"
	}
	return part
}
