package memory

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gateway/store"
)

var benchEntries = flag.Int("entries", 50_000, "history entries of BenchmarkSearch")

// A vocabulary creates texts whose words have frequencies as in a natural language: a few words
// are in most texts, and most words are in few texts.
type vocabulary struct {
	r    *rand.Rand
	zipf *rand.Zipf
}

func newVocabulary() *vocabulary {
	r := rand.New(rand.NewPCG(1, 2))
	return &vocabulary{r, rand.NewZipf(r, 1.07, 3, 200_000)}
}

// word returns the n-th most common word. Common words are short.
func word(n uint64) string {
	const syllables = "kalomirusetanobidupefagoviheruzyqaxentorliska"
	var b strings.Builder
	for n += 3; n > 0; n /= 22 {
		i := n % 22 * 2
		b.WriteString(syllables[i : i+2])
	}
	return b.String()
}

func (v *vocabulary) text(words int) string {
	list := make([]string, words)
	for i := range list {
		list[i] = word(v.zipf.Uint64())
	}
	return strings.Join(list, " ")
}

// query returns a search for words of some text, as a person who remembers the text would search.
// Sometimes it has other words or the beginning of a word.
func (v *vocabulary) query() string {
	list := strings.Fields(v.text(30))
	list = list[:1+v.r.IntN(4)]
	switch v.r.IntN(10) {
	case 0:
		if w := list[0]; len(w) > 4 {
			list[0] = w[:4] + "*"
		}
	case 1:
		list = append(list, "nowhere")
	case 2:
		list = append(list, word(uint64(v.r.IntN(200_000))))
	}
	return strings.Join(list, " ")
}

// BenchmarkSearch searches in many entries that are all in one scope, or spread over a thousand
// scopes. With -entries=1000000 it takes some minutes.
func BenchmarkSearch(b *testing.B) {
	for _, scopes := range []int{1, 1000} {
		b.Run(fmt.Sprintf("entries=%d/scopes=%d", *benchEntries, scopes), func(b *testing.B) {
			f := newFixture(b)
			f.now = start.AddDate(3, 0, 0)
			v := newVocabulary()
			began := time.Now()
			f.fill(v, *benchEntries, scopes)
			b.Logf("built in %v", time.Since(began).Round(time.Second))
			var took []time.Duration
			for b.Loop() {
				query := v.query()
				s := OfPerson(int64(v.r.IntN(scopes) + 1))
				began := time.Now()
				if _, err := f.In(s).SearchHistory(f.q(), query, HistoryOptions{}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
				if d := took[len(took)-1]; d > 50*time.Millisecond {
					b.Logf("%v for %q", d, query)
				}
			}
			slices.Sort(took)
			for _, p := range []int{50, 95, 99} {
				ms := float64(took[(len(took)-1)*p/100].Microseconds()) / 1000
				b.ReportMetric(ms, fmt.Sprintf("p%d-ms", p))
			}
			b.ReportMetric(float64(rss())/(1<<20), "rss-MB")
			info, err := os.Stat(filepath.Join(f.dir, "m.db"))
			f.ok(errors.Join(err))
			b.ReportMetric(float64(info.Size())/(1<<20), "db-MB")
		})
	}
}

// fill adds entries of 10 to 40 words over three years.
func (f *fixture) fill(v *vocabulary, entries, scopes int) {
	f.Helper()
	const group = 1000
	step := f.now.Sub(start) / time.Duration(entries)
	for n := 0; n < entries; n += group {
		f.ok(f.db.Tx(f.Context(), func(tx *store.Tx) error {
			for i := n; i < min(n+group, entries); i++ {
				_, err := f.In(OfPerson(int64(i%scopes+1))).Append(tx, Entry{
					Time: start.Add(time.Duration(i) * step), Session: fmt.Sprint("test/", i%7),
					Text: v.text(10 + v.r.IntN(31))})
				if err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// rss returns the resident memory of the process in bytes, or 0 if the system does not report it.
func rss() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// BenchmarkAppend measures the time that a turn needs for a history entry, without the commit.
func BenchmarkAppend(b *testing.B) {
	f := newFixture(b)
	v := newVocabulary()
	for b.Loop() {
		f.ok(f.db.Tx(b.Context(), func(tx *store.Tx) error {
			for range 100 {
				if _, err := f.In(anna).Append(tx, Entry{Text: v.text(30)}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/100, "µs/entry")
}

// BenchmarkRelevant measures the time that a turn needs to find the facts for its message.
func BenchmarkRelevant(b *testing.B) {
	for _, facts := range []int{0, 10, MaxFacts} {
		b.Run(fmt.Sprint("facts=", facts), func(b *testing.B) {
			f := newFixture(b)
			v := newVocabulary()
			f.add(anna, "so that the scope is known")
			f.ok(f.db.Tx(b.Context(), func(tx *store.Tx) error {
				for i := range facts {
					fact := Fact{Key: fmt.Sprintf("%s %d", v.text(2), i), Value: v.text(10)}
					if err := f.In(anna).Set(tx, fact); err != nil {
						return err
					}
				}
				return nil
			}))
			for b.Loop() {
				_, err := f.In(anna).Relevant(f.q(), v.text(20), 5, 2000)
				f.ok(err)
			}
		})
	}
}
