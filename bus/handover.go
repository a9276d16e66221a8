package bus

import (
	"encoding/json"
	"sync"
	"time"

	"gateway/store"
)

// A handover brings rows that were just committed to the reader of their table, so that it need
// not read them from the table. The table stays the truth: the reader takes what is here only
// while the ids go on without a gap from what it has seen: ids grow in the order of the commits, so
// that nothing can be missing between two that follow each other. A gap may be a row of another
// process, one that is not here yet, or a message that came twice. Then the table is read. The zero
// value is ready for use.
type handover[T any] struct {
	mu      sync.Mutex
	reading bool // there is a reader
	rows    map[int64]T
	size    int // bytes of the rows since they were last all taken
}

// maxHandover is how many bytes of rows may be in memory. If there are more, the table is read.
const maxHandover = 1 << 20

// put offers the row with an id, which takes so many bytes.
func (h *handover[T]) put(id int64, row T, size int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.reading {
		return
	}
	if h.size += size + 256; h.size > maxHandover { // 256 is about what it takes besides
		h.rows, h.size = nil, 0
		return
	}
	if h.rows == nil {
		h.rows = make(map[int64]T)
	}
	h.rows[id] = row
}

// take returns the rows that follow after, without a gap. more reports that there are others.
func (h *handover[T]) take(after int64) (rows []T, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reading = true
	for {
		row, ok := h.rows[after+1]
		if !ok {
			break
		}
		after++
		delete(h.rows, after)
		rows = append(rows, row)
	}
	for id := range h.rows {
		if id <= after { // it was read from the table before it was offered
			delete(h.rows, id)
		}
	}
	if len(h.rows) == 0 {
		h.rows, h.size = nil, 0
	}
	return rows, len(h.rows) > 0
}

// A freshMessage is one that was put into the inbox; without a body, one that waits for no turn.
type freshMessage struct {
	body []byte
	at   time.Time
}

// Next returns messages that wait and whose Seq is above after, in their order, and the Seq up to
// which there are no others. more reports that there may be others after that. Its error is like
// that of [Inbox.Waiting]. Only the one reader of [Inbox.C] may call it.
func (in *Inbox) Next(q store.Queryer, after int64) (
	list []Received, upTo int64, more bool, err error,
) {
	rows, more := in.fresh.take(after)
	for i, row := range rows {
		if row.body == nil {
			continue
		}
		r := Received{Seq: after + int64(i) + 1, At: row.at}
		if json.Unmarshal(row.body, &r.Message) != nil {
			rows, list = nil, nil // the table says what is wrong
			break
		}
		list = append(list, r)
	}
	if len(rows) > 0 {
		return list, after + int64(len(rows)), more, nil
	}
	list, err = in.Waiting(q, after)
	if len(list) > 0 {
		after = list[len(list)-1].Seq
	}
	return list, after, len(list) == ReadLimit, err
}

// Next returns deliveries that are waiting or sending and whose id is above after, in their order,
// and the id up to which there are no others. more reports that there may be others after that. Its
// error is like that of [Outbox.Open]. Only the one reader of [Outbox.C] may call it.
func (out *Outbox) Next(q store.Queryer, after int64) (
	list []Delivery, upTo int64, more bool, err error,
) {
	if list, more = out.fresh.take(after); len(list) > 0 {
		return list, list[len(list)-1].ID, more, nil
	}
	list, err = out.Open(q, after)
	if len(list) > 0 {
		after = list[len(list)-1].ID
	}
	return list, after, len(list) == ReadLimit, err
}
