//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// check holds what is in the gateway's data, and what Telegram has, against what was said.
func (tr *trial) check() {
	tr.t.Helper()
	tr.ledger.mu.Lock()
	defer tr.ledger.mu.Unlock()
	if got := tr.model.Count(); got != tr.ledger.calls {
		tr.t.Errorf("the model has refused %d of %d requests", got-tr.ledger.calls, got)
	}
	tr.look(func(db *store.DB) {
		tr.checkStates(db)
		tr.checkDeliveries(db)
		for chat, n := range tr.ledger.said {
			tr.checkTranscript(db, chat, n)
		}
	})
}

// checkStates looks for anything that has not come to its end.
func (tr *trial) checkStates(db *store.DB) {
	said := 0
	for _, n := range tr.ledger.said {
		said += n
	}
	for query, want := range map[string]int{
		"SELECT count(*) FROM inbox WHERE state = 'done'":                                   said,
		"SELECT count(*) FROM inbox WHERE state <> 'done'":                                  0,
		"SELECT count(*) FROM turns WHERE state <> 'done'":                                  0,
		"SELECT count(*) FROM outbox WHERE state <> 'sent'":                                 0,
		"SELECT count(*) FROM outbox WHERE body LIKE '%, sorry%' OR body LIKE '%given up%'": 0,
	} {
		var got int
		if err := db.Read(tr.t.Context()).QueryRow(query).Scan(&got); err != nil {
			tr.t.Fatal(err)
		}
		if got != want {
			tr.t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
}

// checkDeliveries checks that each answer is in the outbox once, that Telegram shows them in that
// order, and that none came twice but where its outcome was not known.
func (tr *trial) checkDeliveries(db *store.DB) {
	times, order := tr.executions()
	promised := make(map[int64][]string)
	answered := make(map[string]int)
	uncertain := 0
	var body []byte
	var tries, deliveries int
	for range tr.query(db, []any{&body, &tries}, "SELECT body, uncertain FROM outbox ORDER BY id") {
		m := message(tr.t, body)
		text := m.Text
		chat, _ := strconv.ParseInt(m.To.Chat, 10, 64) // the fake gives only numbers
		promised[chat] = append(promised[chat], text)
		for _, m := range marks(text) {
			answered[m]++
		}
		deliveries++
		uncertain += tries
		more := times[text] - 1
		tr.doubled += max(more, 0)
		if more < 0 || more > tries {
			tr.t.Errorf("%q came %d times; %d tries were uncertain", text, more+1, tries)
		}
		if known := tr.caught[text] + tr.ledger.lost[text]; more > known || tries > known {
			tr.t.Errorf("%q came %d times with %d uncertain tries; only %d were cut off",
				text, more+1, tries, known)
		}
	}
	for chat, n := range tr.ledger.said {
		if !slices.Equal(order[chat], promised[chat]) {
			tr.t.Errorf("chat %d shows\n%q, want\n%q", chat, order[chat], promised[chat])
		}
		tr.checkOrder(chat, n, strings.Join(promised[chat], " "))
	}
	for m, n := range answered {
		if n != 1 {
			tr.t.Errorf("%s is in %d answers", m, n)
		}
	}
	tr.report(deliveries, uncertain)
}

// checkOrder checks that text, all that was answered in a chat, names its n messages in their
// order.
func (tr *trial) checkOrder(chat int64, n int, text string) {
	tr.t.Helper()
	var got, want []string
	for _, m := range marks(text) {
		got = append(got, number(m))
	}
	for i := range n {
		want = append(want, fmt.Sprintf("%d-%d", chat, i+1))
	}
	if !slices.Equal(got, want) {
		tr.t.Errorf("chat %d: %q, want %q", chat, got, want)
	}
}

// checkTranscript checks that the n messages of a chat are in its transcript, each once and in
// order, and that each tool call is followed by one result.
func (tr *trial) checkTranscript(db *store.DB, chat int64, n int) {
	key := session.KeyOf(bus.Address{Account: "telegram", Chat: strconv.FormatInt(chat, 10)})
	var said []string
	open := make(map[string]bool) // tool calls without a result
	var body []byte
	for range tr.query(db, []any{&body},
		"SELECT body FROM messages WHERE session = $1 ORDER BY id", string(key)) {
		var m llm.Message
		if err := json.Unmarshal(body, &m); err != nil {
			tr.t.Fatal(err)
		}
		if m.Role == llm.ToolRole {
			if !open[m.ToolCallID] {
				tr.t.Errorf("%s: call %s has a result too much", key, m.ToolCallID)
			}
			delete(open, m.ToolCallID)
			continue
		}
		if len(open) > 0 {
			tr.t.Errorf("%s: %d calls have no result", key, len(open))
		}
		if m.Role == llm.User {
			said = append(said, m.Text)
		}
		for _, c := range m.ToolCalls {
			open[c.ID] = true
		}
	}
	if len(open) > 0 {
		tr.t.Errorf("%s: %d calls have no result at the end", key, len(open))
	}
	tr.checkOrder(chat, n, strings.Join(said, " "))
}
