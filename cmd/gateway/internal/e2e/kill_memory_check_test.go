//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	docversion "gateway/memory/version"
	"gateway/session"
	"gateway/store"
)

// checkAnswers checks that each message and each command was answered once.
func (k *memoryTrial) checkAnswers(db *store.DB) {
	k.t.Helper()
	got := make(map[string]int)
	var body []byte
	for range k.query(db, []any{&body}, "SELECT body FROM outbox") {
		m := outbound(k.t, body)
		list := marks(m.Text)
		if strings.HasPrefix(m.Text, "answer to ") {
			for _, mark := range list {
				got[mark]++
			}
			continue
		}
		known := false
		for name, reply := range replies {
			if reply.MatchString(m.Text) {
				got[fmt.Sprint(name, " in ", m.To.Chat)]++
				known = true
			}
		}
		if !known {
			k.t.Errorf("%q was sent to %s, which answers nothing", m.Text, m.To)
		}
	}
	for name, n := range k.commands {
		if got[name] != n {
			k.t.Errorf("%s was sent %d times and answered %d times", name, n, got[name])
		}
	}
	for chat, n := range k.ledger.said {
		for i := range n {
			if mark := fmt.Sprintf("m%d-%dr0", chat, i+1); got[mark] != 1 {
				k.t.Errorf("%s was answered %d times, want once", mark, got[mark])
			}
		}
	}
}

// checkMemory checks the memory of a chat.
func (k *memoryTrial) checkMemory(db *store.DB, chat int64, key session.Key, scope memory.Scope) {
	k.t.Helper()
	space := memory.New(db, nil, nil).In(scope)
	read := db.Read(k.t.Context())
	entries, err := space.Entries(read, 0, 1<<20)
	if err != nil {
		k.t.Fatal(err)
	}
	dreamed, err := space.Dreamed(read)
	if err != nil {
		k.t.Fatal(err)
	}
	summary, err := session.ReadSummary(read, key)
	if err != nil {
		k.t.Fatal(err)
	}
	said := k.inPrompt(db, key, summary.Start)
	var remembered []string // marks that Dream should have kept
	for i, e := range entries {
		if e.Cursor != int64(i+1) || e.Session != key.String() {
			k.t.Errorf("entry %d of %s has the cursor %d and is of %s", i+1, scope, e.Cursor,
				e.Session)
		}
		noted := noted(e.Text)
		said = append(said, noted...)
		if e.Cursor <= dreamed {
			remembered = append(remembered, noted...)
		}
	}
	k.checkOnce(fmt.Sprintf("the notes and the prompt of chat %d", chat), said, chat,
		k.ledger.said[chat])
	if k.t.Failed() {
		for _, e := range entries {
			k.t.Logf("entry %d of %s: %q", e.Cursor, scope, e.Text)
		}
		k.t.Logf("in the prompt of %s after message %d: %q", key, summary.Start,
			k.inPrompt(db, key, summary.Start))
	}
	k.checkFile(scope, entries)
	text, err := os.ReadFile(filepath.Join(k.home, "memory", string(scope), document.Memory))
	if err != nil && !os.IsNotExist(err) {
		k.t.Fatal(err)
	}
	got := marks(string(text))
	slices.Sort(got)
	slices.Sort(remembered)
	if !slices.Equal(got, remembered) {
		k.t.Errorf("MEMORY.md of %s has %q, want %q", scope, got, remembered)
	}
	k.checkVersions(db, scope, dreamed)
}

// noted returns the marks in the first line of a text, which has the noted messages. Later lines
// can contain the marks of an answer whose question is in an earlier note.
func noted(text string) []string {
	first, _, _ := strings.Cut(text, "\n")
	return marks(first)
}

// inPrompt returns the person's messages that the prompt contains word for word.
func (k *memoryTrial) inPrompt(db *store.DB, key session.Key, start int64) (said []string) {
	k.t.Helper()
	var body []byte
	for range k.query(db, []any{&body}, "SELECT body FROM messages WHERE session = $1 AND id > $2 "+
		"ORDER BY id", key.String(), start) {
		var m llm.Message
		if err := json.Unmarshal(body, &m); err != nil {
			k.t.Fatal(err)
		}
		if m.Role == llm.User {
			said = append(said, marks(m.Text)...)
		}
	}
	return said
}

// checkOnce checks that a list contains the mark of each of the n messages of a chat once.
func (k *memoryTrial) checkOnce(what string, list []string, chat int64, n int) {
	k.t.Helper()
	count := make(map[string]int)
	for _, mark := range list {
		count[mark]++
	}
	for i := range n {
		if mark := fmt.Sprintf("m%d-%dr0", chat, i+1); count[mark] != 1 {
			k.t.Errorf("%s have %s %d times, want once", what, mark, count[mark])
		}
	}
	if len(list) != n && len(count) != n {
		k.t.Errorf("%s have %d marks, want %d", what, len(count), n)
	}
}

// checkFile checks that the history file contains each entry as a line.
func (k *memoryTrial) checkFile(scope memory.Scope, entries []memory.Entry) {
	k.t.Helper()
	text, err := os.ReadFile(filepath.Join(k.home, "memory", string(scope), "history.jsonl"))
	if err != nil && (!os.IsNotExist(err) || len(entries) > 0) {
		k.t.Error(err)
		return
	}
	lines := slices.Collect(strings.Lines(string(text)))
	if len(lines) != len(entries) {
		k.t.Errorf("history.jsonl of %s has %d lines, want %d", scope, len(lines), len(entries))
		return
	}
	for i, line := range lines {
		var got struct {
			Cursor               int64
			Time                 time.Time
			Scope, Session, Text string
		}
		err := json.Unmarshal([]byte(line), &got)
		e := entries[i]
		if err != nil || !strings.HasSuffix(line, "\n") || got.Cursor != e.Cursor ||
			!got.Time.Equal(e.Time) || got.Scope != string(scope) || got.Session != e.Session ||
			got.Text != e.Text {
			k.t.Errorf("line %d of history.jsonl of %s is %q (%v), want %+v", i+1, scope, line,
				err, e)
		}
	}
}

// dreamRange matches the beginning of the reason of Dream's versions.
var dreamRange = regexp.MustCompile(`^Dream over the entries (\d+) to (\d+)\n`)

// checkVersions checks that each run of Dream has one complete version, that the runs have read
// the entries in order without gaps, and that the newest version equals the document.
func (k *memoryTrial) checkVersions(db *store.DB, scope memory.Scope, dreamed int64) {
	k.t.Helper()
	folder := filepath.Join(k.home, "memory", string(scope))
	tree := docversion.New(db, nil).Tree(string(scope), folder,
		document.IsVersioned)
	list, err := tree.Log(k.t.Context(), 10_000)
	if err != nil {
		k.t.Fatal(err)
	}
	at := int64(0)
	for _, v := range slices.Backward(list) {
		m := dreamRange.FindStringSubmatch(v.Reason)
		if m == nil {
			if v.Author == "Dream" {
				k.t.Errorf("a version of %s has the reason %q", scope, v.Reason)
			}
			continue
		}
		from, _ := strconv.ParseInt(m[1], 10, 64) // the pattern matches only digits
		to, _ := strconv.ParseInt(m[2], 10, 64)
		if from != at+1 || to < from {
			k.t.Errorf("Dream has read the entries %d to %d of %s after entry %d", from, to, scope,
				at)
		}
		at = to
	}
	if at != dreamed {
		k.t.Errorf("the versions of %s go up to entry %d, the cursor to %d", scope, at, dreamed)
	}
	v, err := tree.Commit(k.t.Context(), docversion.Change{Author: "the test"})
	if err != nil {
		k.t.Fatal(err)
	}
	if v.ID == "" {
		return // the newest version equals the documents
	}
	if diff, err := tree.Show(k.t.Context(), v.ID); strings.Contains(diff, document.Memory) {
		k.t.Errorf("the newest version of %s is not as MEMORY.md, %v:\n%s", scope, err, diff)
	}
}

// telegramChat returns the address of a chat on Telegram.
func telegramChat(chat int64) bus.Address {
	return bus.Address{Account: "telegram", Chat: strconv.FormatInt(chat, 10)}
}
