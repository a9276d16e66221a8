//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// check compares the gateway's data, and what people see, with the messages that were sent.
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

// checkStates checks that no message, turn or delivery is unfinished.
func (tr *trial) checkStates(db *store.DB) {
	tr.t.Helper()
	for _, want := range []struct {
		rows string
		n    int
	}{
		{"inbox WHERE state = 'done'", tr.said()},
		{"inbox WHERE state <> 'done'", 0},
		{"turns WHERE state <> 'done'", 0},
		{"outbox WHERE state <> 'sent'", 0},
		{"outbox WHERE body NOT LIKE '%answer to m%'", 0}, // for example an apology
		{"previews", 0},
	} {
		if got := tr.count(db, want.rows); got != want.n {
			tr.t.Errorf("%s: %d rows, want %d", want.rows, got, want.n)
		}
	}
	var row string // columns of each row that is wrong
	for range tr.query(db, []any{&row}, "SELECT concat_ws(' ', id, state, crashes, error, body) "+
		"FROM outbox WHERE state <> 'sent' OR body NOT LIKE '%answer to m%'") {
		tr.t.Log("in the outbox: ", row)
	}
}

// said returns how many messages people wrote. The caller holds the lock of the ledger.
func (tr *trial) said() (n int) {
	for _, said := range tr.ledger.said {
		n += said
	}
	return n
}

// A delivery is a row of the outbox.
type delivery struct {
	text      string
	uncertain int
}

// deliveries returns the rows of the outbox by chat.
func (tr *trial) deliveries(db *store.DB) map[int64][]delivery {
	list := make(map[int64][]delivery)
	chats := make(map[bus.Address]int64)
	for chat := range tr.ledger.said {
		chats[tr.platform.address(chat)] = chat
	}
	var body []byte
	var tries int
	for range tr.query(db, []any{&body, &tries}, "SELECT body, uncertain FROM outbox ORDER BY id") {
		m := outbound(tr.t, body)
		chat, ok := chats[m.To]
		if !ok {
			tr.t.Errorf("%q is for %s, where nobody said anything", m.Text, m.To)
		}
		list[chat] = append(list[chat], delivery{m.Text, tries})
	}
	return list
}

// checkDeliveries checks that each message is answered in one delivery, and that people see the
// deliveries in order. A delivery may come twice only if the outcome of a send was unknown.
func (tr *trial) checkDeliveries(db *store.DB) {
	tr.t.Helper()
	all := tr.deliveries(db)
	var answers, uncertain int
	for chat, n := range tr.ledger.said {
		var promised []string
		for _, d := range all[chat] {
			promised = append(promised, d.text)
		}
		tr.checkOrder(chat, n, strings.Join(promised, " "))
		times, order := tr.executions(chat, promised)
		if !slices.Equal(order, promised) {
			tr.t.Errorf("chat %d shows\n%q, want\n%q", chat, order, promised)
		}
		for _, d := range all[chat] {
			answers++
			uncertain += d.uncertain
			more := times[d.text] - 1
			for ; tr.ledger.slow && more > d.uncertain; more-- {
				tr.orphan(chat, d.text) // the preview already had the whole answer
			}
			tr.doubled += max(more, 0)
			cut := tr.caught[d.text] + tr.ledger.lost[d.text]
			if more > 0 && tr.platform.remembers() {
				tr.t.Errorf("%q is seen %d times, want once", d.text, more+1)
			}
			if more > d.uncertain+tr.unnoted[d.text] || more > cut || d.uncertain > cut {
				tr.t.Errorf("%q came %d times; of its tries %d were cut off and %d count as uncertain",
					d.text, more+1, cut, d.uncertain)
			}
		}
	}
	tr.report(answers, uncertain)
}

// checkOrder checks that text, which contains all answers of a chat, names its n messages in
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

// checkTranscript checks that the transcript of a chat contains its n messages once and in order,
// and that one result follows each tool call.
func (tr *trial) checkTranscript(db *store.DB, chat int64, n int) {
	key := session.KeyOf(tr.platform.address(chat))
	var said []string
	open := make(map[string]bool) // tool calls without a result
	var body []byte
	for range tr.query(db, []any{&body},
		"SELECT body FROM messages WHERE session = $1 ORDER BY id", key.String()) {
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
