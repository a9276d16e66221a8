package memory

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"gateway/store"
)

func TestSearchScripts(t *testing.T) {
	f := newFixture(t)
	texts := []string{"Das Gespräch über die Übergröße", "Кошка спит на ёлке", "كِتَابٌ جديد",
		"明天下午三点开会议", "東京タワーに行きました", "오늘 회의가 있습니다", "party 🎉 at Zoë's",
		"ประชุมพรุ่งนี้", "the meeting was cancelled", "invoice INV-2026-0042 paid"}
	f.add(anna, texts...)
	for query, want := range map[string]int{
		"gesprach": 0, "UBERGROSSE": 0, "Übergröße": 0, "ubergr*": 0, "кошка": 1, "Елке": 1, "кош*": 1,
		"кошку": 1, "كتاب": 2, "会": 3, "会议": 3, "三点开会": 3, "タワー": 4, "東京タワー": 4, "회의": 5,
		"🎉": 6, "zoe": 6, "พรุ่ง": 7, "meetings": 8, "cancel*": 8, "meeting cancelled": 8, "inv 0042": 9,
		"INV-2026-0042": 9, "wasp": -1, "x*": -1, "": -1, "*": -1, "!?": -1,
	} {
		got, expected := f.found(anna, query), []string(nil)
		if want >= 0 {
			expected = texts[want : want+1]
		}
		same(t, query, fmt.Sprintf("%.1q", got), fmt.Sprintf("%.1q", expected))
	}
}

// An entry with all words comes before an entry with some of them. A newer entry comes before an
// older one.
func TestSearchOrder(t *testing.T) {
	f := newFixture(t)
	f.add(anna, "apples and pears", "apples apples apples", "pears", "some other text", "and another")
	f.now = f.now.AddDate(2, 0, 0)
	f.add(anna, "pears once more")
	same(t, "order", f.found(anna, "pears apples"),
		[]string{"apples and pears", "pears once more", "apples apples apples", "pears"})
	same(t, "limit", len(f.found(anna, "pears apples")), 4)
}

func TestSearchHistory(t *testing.T) {
	f := newFixture(t)
	day := func(n int) time.Time { return start.AddDate(0, 0, n) }
	var list []Message
	for n := range 100 { // over five months
		list = append(list, Message{ID: int64(n), Time: day(n * 3 / 2), Session: fmt.Sprint("test/", n%2),
			Speaker: "user", Text: fmt.Sprintf("number %d has a word", n)})
	}
	f.archive(anna, list...)
	f.archive(anna, list[7], Message{ID: 1000, Text: " "}) // one of them again, and an empty one
	f.now = day(200)
	search := func(o HistoryOptions) (ids []int64) {
		o.Newest, o.Limit = true, 100
		hits, err := f.In(anna).SearchHistory(f.q(), "word", o)
		f.ok(err)
		for _, h := range hits {
			ids = append(ids, h.ID)
		}
		return ids
	}
	for _, test := range []struct {
		o    HistoryOptions
		keep func(m Message) bool
	}{
		{HistoryOptions{}, func(m Message) bool { return true }},
		{HistoryOptions{Session: "test/1"}, func(m Message) bool { return m.Session == "test/1" }},
		{HistoryOptions{Session: "test/2"}, func(m Message) bool { return false }},
		{HistoryOptions{Since: day(30)}, func(m Message) bool { return !m.Time.Before(day(30)) }},
		{HistoryOptions{Until: day(30)}, func(m Message) bool { return m.Time.Before(day(30)) }},
		{HistoryOptions{Since: day(30), Until: day(33)},
			func(m Message) bool { return !m.Time.Before(day(30)) && m.Time.Before(day(33)) }},
		{HistoryOptions{Since: day(-9999), Until: day(9999), Session: "test/0"},
			func(m Message) bool { return m.Session == "test/0" }},
		{HistoryOptions{Since: day(150)}, func(m Message) bool { return false }},
	} {
		var want []int64
		for _, m := range list {
			if test.keep(m) {
				want = append(want, m.ID)
			}
		}
		slices.Reverse(want)
		same(t, fmt.Sprintf("%+v", test.o), search(test.o), want)
	}
	infos, err := f.Scopes(f.q())
	f.ok(err)
	same(t, "archived", infos[0].Messages, 100)
}

func TestExcerpt(t *testing.T) {
	f := newFixture(t)
	filler := strings.Repeat("lörem ipsum 会 ", 200)
	f.archive(anna, Message{ID: 1, Speaker: "assistant", Session: "s",
		Text: filler + "the\n needle and the haystack " + filler + " a needle alone " + filler})
	hits, err := f.In(anna).SearchHistory(f.q(), "needle haystack", HistoryOptions{})
	f.ok(err)
	if len(hits) != 1 || hits[0].ID != 1 || hits[0].Speaker != "assistant" ||
		hits[0].Kind != KindMessage {
		t.Fatalf("found %+v", hits)
	}
	got := hits[0].Excerpt
	n := utf8.RuneCountInString(got)
	if !strings.Contains(got, "the needle and the haystack") || n > maxExcerpt || n < maxExcerpt/2 ||
		!strings.HasPrefix(got, "…") || !strings.HasSuffix(got, "…") || !utf8.ValidString(got) {
		t.Errorf("excerpt of %d characters: %q", n, got)
	}
}

// After any changes, the index finds the same entries as a check of each entry.
func TestSearchFindsAll(t *testing.T) {
	f := newFixture(t)
	vocabulary := []string{"apple", "Äpfel", "pear", "кот", "会议", "议题", "x1", "naïve", "🎉", "a", "s"}
	n := int64(0)
	rapid.Check(t, func(rt *rapid.T) {
		n += 2
		texts := rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom(vocabulary), 1, 5), 1, 12)
		mine, others := texts.Draw(rt, "mine"), texts.Draw(rt, "others")
		for i, list := range [][][]string{mine, others} {
			var joined []string
			for _, words := range list {
				joined = append(joined, strings.Join(words, " "))
			}
			f.once(func(tx *store.Tx) error {
				return f.append(tx, OfPerson(n+int64(i)), joined...)
			})
		}
		gone := rapid.IntRange(0, len(mine)-1).Draw(rt, "gone")
		f.once(func(tx *store.Tx) error {
			return f.In(OfPerson(n)).remove(tx, []int64{int64(gone + 1)})
		})
		query := rapid.SliceOfN(rapid.SampledFrom(vocabulary), 1, 3).Draw(rt, "query")
		hits, err := f.In(OfPerson(n)).SearchHistory(f.q(), strings.Join(query, " "),
			HistoryOptions{Limit: 100, Newest: true})
		f.ok(err)
		found := make(map[int64]bool)
		for _, h := range hits {
			found[h.ID] = true
			if h.Excerpt != strings.Join(mine[h.ID-1], " ") {
				rt.Errorf("%q finds %+v", query, h)
			}
		}
		sought := slices.DeleteFunc(slices.Clone(query), func(w string) bool { return stopWords[w] })
		if len(sought) == 0 {
			sought = query
		}
		for i, words := range mine {
			all := true
			for _, w := range sought {
				all = all && slices.Contains(words, w)
			}
			if all && i != gone && !found[int64(i+1)] {
				rt.Errorf("%q does not find %q, but %v", query, words, hits)
			}
		}
		if found[int64(gone+1)] {
			rt.Errorf("%q finds what was removed", query)
		}
	})
}

// A search for words that are in very many entries finds the newest entries. If it also has a
// rare word, it always finds the entry with that word.
func TestSearchCommonWords(t *testing.T) {
	f := newFixture(t)
	const n = maxList * 3 / 2
	f.once(func(tx *store.Tx) error {
		for i := range n {
			text := fmt.Sprintf("common usual n%d", i)
			if i == 5 {
				text += " needle"
			}
			if i%2 == 0 {
				text += " even"
			}
			_, err := f.In(anna).Append(tx, Entry{Text: text, Time: start.Add(time.Duration(i) * time.Hour)})
			if err != nil {
				return err
			}
		}
		return nil
	})
	f.now = start.Add(n * time.Hour)
	newest := fmt.Sprintf("common usual n%d", n-1)
	for query, want := range map[string]string{
		"common": newest, "common usual": newest, "needle": "common usual n5 needle",
		"common usual needle": "common usual n5 needle", "n5 common": "common usual n5 needle",
		"usual even":  fmt.Sprintf("common usual n%d even", n-2),
		"n8 even":     "common usual n8 even",
		"common n7 x": "common usual n7",
	} {
		got := f.found(anna, query)
		if len(got) == 0 || got[0] != want {
			t.Errorf("%q finds %.3q, want %q first", query, got, want)
		}
	}
	for _, until := range []time.Time{start.Add(time.Hour), start.AddDate(0, 1, 0)} {
		f.now = f.now.AddDate(3, 0, 0)
		hits, err := f.In(anna).SearchHistory(f.q(), "common", HistoryOptions{Until: until, Newest: true})
		f.ok(err)
		if len(hits) == 0 || !hits[0].Time.Equal(until.Add(-time.Hour)) {
			t.Errorf("until %v: found %+v", until, hits)
		}
	}
}

// No query causes an error of the database or finds anything in another scope.
func FuzzSearch(f *testing.F) {
	for _, s := range []string{"word", `"word" OR secret`, "word*", "NEAR(word secret)", "terms:word",
		"word AND NOT x", "^word", "1ewsecret", "secret 2ewsecret", "{a b}:word", "-word", "(", "会*",
		"\x00", "word' OR 1=1 --", "w? % _", "\xff"} {
		f.Add(s)
	}
	x := newFixture(f)
	x.add(anna, "a word of mine 会议")
	x.add(bert, "a secret word 会议")
	x.set(anna, Fact{Key: "word", Value: "mine"})
	x.set(bert, Fact{Key: "word", Value: "secret"})
	f.Fuzz(func(t *testing.T, query string) {
		hits, err := x.In(anna).Search(x.db.Read(t.Context()), query, 100)
		more, err2 := x.In(anna).SearchHistory(x.db.Read(t.Context()), query,
			HistoryOptions{Session: query, Since: start.Add(-time.Hour)})
		facts, err3 := x.In(anna).Relevant(x.db.Read(t.Context()), query, 5, 100)
		if err := errors.Join(err, err2, err3); err != nil {
			t.Fatalf("%q: %v", query, err)
		}
		if all := fmt.Sprint(hits, more, facts); strings.Contains(all, "secret") {
			t.Errorf("%q finds %s", query, all)
		}
	})
}

// The index can be rebuilt.
func TestReindex(t *testing.T) {
	f := newFixture(t)
	f.set(anna, Fact{Key: "dog", Value: "Bello"})
	f.add(bert, "one thing", "another thing")
	f.archive(bert, Message{ID: 1, Text: "a third thing"})
	words := f.words()
	f.tx(func(tx *store.Tx) error {
		_, err := tx.Exec("INSERT INTO memory_index (memory_index) VALUES ('delete-all')")
		return err
	})
	same(t, "found without an index", len(f.found(bert, "thing")), 0)
	f.ok(f.Reindex(t.Context()))
	same(t, "words", f.words(), words)
	same(t, "found", f.found(bert, "another"), []string{"another thing"})
}
