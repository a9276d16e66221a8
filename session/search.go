package session

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"gateway/agent/llm"
	"gateway/store"
)

// A Found is a message that a search has found.
type Found struct {
	Session Key
	Time    time.Time
	Message llm.Message
}

// Search returns up to limit messages of people and of the agent that contain all words of query,
// ignoring case, newest first. It searches one session, or all if name is "". With rare words it
// reads all these messages.
func Search(q store.Queryer, query, name string, limit int) ([]Found, error) {
	words := strings.Fields(strings.ToLower(query))
	if len(words) == 0 {
		return nil, nil
	}
	// JSON may escape the characters of other words, so those can't be found in the encoded body.
	plain := slices.DeleteFunc(slices.Clone(words), func(word string) bool {
		return strings.ContainsFunc(word, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r)
		})
	})
	where := "m.session = $1"
	if name == "" {
		where = "$1 = ''"
	}
	rows, err := q.Query(`SELECT `+keyColumns+`, m.body, m.created_ms
		FROM messages m JOIN sessions s ON s.key = m.session
		WHERE `+where+` AND +m.id > `+erasedOf("m.session")+` ORDER BY m.id DESC`, name)
	if err != nil {
		return nil, fmt.Errorf("session: search: %w", err)
	}
	defer rows.Close()
	var list []Found
	for len(list) < limit && rows.Next() {
		var f Found
		var body []byte
		var at int64
		if err := rows.Scan(append(keyFields(&f.Session), &body, &at)...); err != nil {
			return nil, fmt.Errorf("session: search: %w", err)
		}
		// This is cheaper than decoding each message.
		if !containsAll(strings.ToLower(string(body)), plain) {
			continue
		}
		if err := json.Unmarshal(body, &f.Message); err != nil {
			return nil, fmt.Errorf("session: search: %w", err)
		}
		f.Time = time.UnixMilli(at)
		spoken := f.Message.Role == llm.User || f.Message.Role == llm.Assistant
		if spoken && containsAll(strings.ToLower(f.Message.Text), words) {
			list = append(list, f)
		}
	}
	err = rows.Err()
	return list, store.Wrap(err, "session: search")
}

func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}
