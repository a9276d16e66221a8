package memory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gateway/store"
	"gateway/store/plaintext"
)

// Limits of facts.
const (
	MaxFacts    = 2000 // per scope
	maxKey      = 100  // bytes; also for a category or tag
	maxValue    = 2000 // characters
	maxTags     = 10
	defaultRank = 3 // the importance if a fact does not set one
)

// A Fact is something that the agent was told to remember. Its key is one line of at most
// 100 bytes, its value has at most 2,000 characters, and a scope has at most [MaxFacts]
// facts.
type Fact struct {
	Key        string    `json:"key"` // unique within the scope, ignoring case
	Value      string    `json:"value"`
	Category   string    `json:"category,omitempty"`
	Tags       []string  `json:"tags,omitempty"`
	Importance int       `json:"importance"` // 1 to 5; 0 means 3
	Pinned     bool      `json:"pinned,omitempty"`
	Created    time.Time `json:"created"` // when it was set; zero means now
	Used       time.Time `json:"used"`    // last use, for ranking; zero means now
}

// A RefusedError explains to the model why a fact or entry is not stored.
type RefusedError struct{ Reason string }

// Error implements error.
func (e *RefusedError) Error() string { return e.Reason }

func refuse(format string, args ...any) error {
	return &RefusedError{fmt.Sprintf(format, args...)}
}

// Check returns the fact in the form that [ScopedStore.Set] stores, or a [RefusedError].
func (f Fact) Check() (Fact, error) {
	f.Key, f.Category = plaintext.OneLine(f.Key), plaintext.OneLine(f.Category)
	f.Value = strings.TrimSpace(strings.ToValidUTF8(f.Value, "�"))
	var tags []string
	for _, t := range f.Tags {
		if t = plaintext.OneLine(t); t != "" && !slices.Contains(tags, t) {
			tags = append(tags, t)
		}
	}
	f.Tags, f.Importance = tags, cmp.Or(f.Importance, defaultRank)
	n := utf8.RuneCountInString(f.Value)
	switch {
	case f.Key == "":
		return f, refuse("a fact needs a key, such as \"name of the dog\"")
	case len(f.Key) > maxKey:
		return f, refuse("the key has %d bytes, more than %d; choose a shorter one", len(f.Key), maxKey)
	case f.Value == "":
		return f, refuse("the fact %q has no value; say what is to be remembered", f.Key)
	case n > maxValue:
		return f, refuse("the value has %d characters, more than %d; shorten it, or make several "+
			"facts of it", n, maxValue)
	case f.Importance < 1 || f.Importance > 5:
		return f, refuse("importance %d: want 1 (trivial) to 5 (vital)", f.Importance)
	case len(f.Category) > maxKey:
		return f, refuse("the category is longer than %d bytes; choose a shorter one", maxKey)
	case len(f.Tags) > maxTags:
		return f, refuse("%d tags are more than %d; leave some out", len(f.Tags), maxTags)
	}
	for _, t := range f.Tags {
		if len(t) > maxKey {
			return f, refuse("a tag is longer than %d bytes; choose a shorter one", maxKey)
		}
	}
	return f, nil
}

// foldKey returns the form in which keys are compared.
func foldKey(key string) string { return strings.ToLower(plaintext.OneLine(key)) }

// Set stores f and replaces a fact with the same key. It returns a [RefusedError] if f
// exceeds a limit.
func (s *ScopedStore) Set(tx *store.Tx, f Fact) error {
	f, err := f.Check()
	if err != nil {
		return err
	}
	number, err := s.number(tx)
	if err != nil {
		return err
	}
	now := s.m.now()
	if f.Created.IsZero() {
		f.Created = now
	}
	if f.Used.IsZero() {
		f.Used = now
	}
	facts := factTable{number}
	old, err := facts.get(tx, f.Key)
	if err != nil {
		return s.scope.wrap("read fact of", err)
	}
	if old == nil {
		n, err := facts.count(tx)
		if err != nil {
			return s.scope.wrap("set fact in", err)
		}
		if n >= MaxFacts {
			return refuse("there are %d facts already, which is the limit; forget or join some that "+
				"no longer matter", n)
		}
	}
	return s.scope.wrap("set fact in", facts.put(tx, old, f))
}

// Fact returns the fact with a key. The boolean reports whether it exists.
func (s *ScopedStore) Fact(q store.Queryer, key string) (Fact, bool, error) {
	st, err := s.state(q)
	if err != nil {
		return Fact{}, false, err
	}
	f, err := factTable{st.number}.get(q, key)
	if err != nil || f == nil {
		return Fact{}, false, s.scope.wrap("read fact of", err)
	}
	return f.Fact, true, nil
}

// Forget removes a fact and reports whether it existed.
func (s *ScopedStore) Forget(tx *store.Tx, key string) (bool, error) {
	st, err := s.state(tx)
	if err != nil {
		return false, err
	}
	facts := factTable{st.number}
	f, err := facts.get(tx, key)
	if err != nil || f == nil {
		return false, s.scope.wrap("read fact of", err)
	}
	err = facts.remove(tx, f)
	return err == nil, s.scope.wrap("forget fact of", err)
}

// Pin sets or clears the pin of a fact, and reports whether the fact exists.
func (s *ScopedStore) Pin(tx *store.Tx, key string, pinned bool) (bool, error) {
	st, err := s.state(tx)
	if err != nil {
		return false, err
	}
	n, err := tx.Exec("UPDATE memory_facts SET pinned = $1 WHERE scope = $2 AND folded = $3",
		pinned, st.number, foldKey(key))
	return n == 1, s.scope.wrap("pin fact of", err)
}

// MarkUsed records that facts are used now. It ignores unknown keys.
func (s *ScopedStore) MarkUsed(tx *store.Tx, keys ...string) error {
	st, err := s.state(tx)
	if err != nil {
		return err
	}
	now := s.m.now().UnixMilli()
	for _, key := range keys {
		_, err := tx.Exec("UPDATE memory_facts SET used_ms = $1 "+
			"WHERE scope = $2 AND folded = $3 AND used_ms < $4", now, st.number, foldKey(key), now)
		if err != nil {
			return s.scope.wrap("touch fact of", err)
		}
	}
	return nil
}

// Facts returns up to limit facts of a category, or of all categories if it is "", the
// most recently used first.
func (s *ScopedStore) Facts(q store.Queryer, category string, limit int) ([]Fact, error) {
	st, err := s.state(q)
	if err != nil || st.number == 0 {
		return nil, err
	}
	most := limit
	if category = plaintext.OneLine(category); category != "" {
		most = -1 // no limit: the database folds the case of ASCII letters only
	}
	list, err := factTable{st.number}.list(q, `SELECT `+factColumns+` FROM memory_facts
		WHERE scope = $1 ORDER BY used_ms DESC, id DESC LIMIT $2`, most)
	list = slices.DeleteFunc(list, func(f Fact) bool {
		return category != "" && !strings.EqualFold(f.Category, category)
	})
	return list[:min(len(list), limit)], s.scope.wrap("read facts of", err)
}

// A Category is a category with its number of facts.
type Category struct {
	Name  string // "" for facts without a category
	Facts int
}

// Categories lists the categories of the facts, the largest first.
func (s *ScopedStore) Categories(q store.Queryer) ([]Category, error) {
	st, err := s.state(q)
	if err != nil || st.number == 0 {
		return nil, err
	}
	found, err := collect(q, func(scan store.Scan) (c Category, err error) {
		return c, scan(&c.Name, &c.Facts)
	}, "SELECT category, count(*) FROM memory_facts WHERE scope = $1 GROUP BY category "+
		"ORDER BY category", st.number)
	var list []Category
	for _, c := range found { // the database folds the case of ASCII letters only
		i := slices.IndexFunc(list, func(l Category) bool { return strings.EqualFold(l.Name, c.Name) })
		if i < 0 {
			list = append(list, c)
		} else {
			list[i].Facts += c.Facts
		}
	}
	slices.SortStableFunc(list, func(a, b Category) int {
		return cmp.Or(cmp.Compare(b.Facts, a.Facts), strings.Compare(foldKey(a.Name), foldKey(b.Name)))
	})
	return list, s.scope.wrap("read categories of", err)
}

// Contents lists the kinds of rows that a scope has.
type Contents struct {
	state
	Facts bool // the scope has facts
}

// Any reports whether the scope has, or ever had, any rows.
func (c Contents) Any() bool { return c.number != 0 }

// Contents returns the kinds of rows that the scope has. It costs much less than a search.
func (s *ScopedStore) Contents(q store.Queryer) (c Contents, err error) {
	if _, err := ParseScope(string(s.scope)); err != nil {
		return c, fmt.Errorf("memory: %w", err)
	}
	err = q.QueryRow(`SELECT id, last, synced, dreamed, messages,
		EXISTS (SELECT 1 FROM memory_facts f WHERE f.scope = s.id)
		FROM memory_scopes s WHERE name = $1`, string(s.scope)).
		Scan(&c.number, &c.last, &c.synced, &c.dreamed, &c.messages, &c.Facts)
	return c, s.scope.wrap("read", store.Optional(err))
}
