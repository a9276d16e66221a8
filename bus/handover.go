package bus

import (
	"encoding/json"
	"sync"
	"time"

	"gateway/store"
)

// A handover passes newly committed rows to the reader of their table, so that the reader need not
// query the table. The table remains the source of truth. Ids grow in the order of the commits, so
// no row can be missing between two consecutive ids. The reader therefore uses the rows only while
// their ids follow its last one without a gap. After a gap (a row of another process, a message
// that came twice, or too many rows) it queries the table.
//
// The zero value is ready for use.
type handover[T any] struct {
	mu      sync.Mutex
	reading bool // a reader exists
	rows    []numbered[T]
	size    int // bytes of the rows since the queue was last empty
}

// A numbered is a row with its id.
type numbered[T any] struct {
	id  int64
	row T
}

// maxHandover is the maximum size of the rows in memory, in bytes. Beyond it the reader queries the
// table.
const maxHandover = 1 << 20

// put offers the row with the given id, which takes size bytes. It must be called in the order of
// the ids, as the functions of [store.Tx.After] are.
func (h *handover[T]) put(id int64, row T, size int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.reading {
		return
	}
	if h.size += size + 256; h.size > maxHandover { // 256: approximate overhead per row
		h.rows, h.size = nil, 0
		return
	}
	h.rows = append(h.rows, numbered[T]{id, row})
}

// drain returns the rows that follow after without a gap. more reports whether other rows remain.
func (h *handover[T]) drain(after int64) (rows []T, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reading = true
	n := 0
	for ; n < len(h.rows) && h.rows[n].id <= after+1; n++ {
		if h.rows[n].id <= after { // the reader found it in the table already
			continue
		}
		after++
		rows = append(rows, h.rows[n].row)
	}
	if h.rows = h.rows[n:]; len(h.rows) == 0 {
		h.rows, h.size = nil, 0
	}
	return rows, len(h.rows) > 0
}

// A freshMessage is a row that was just inserted into the inbox. Without a body, it does not wait
// for a turn.
type freshMessage struct {
	body []byte
	at   time.Time
}

// Next returns waiting messages whose Seq is above after, in order, and the Seq up to which there
// are no others. more reports whether there may be others beyond that. Its error is like that of
// [Inbox.Waiting]. Only the single reader of [Inbox.C] may call it.
func (in *Inbox) Next(q store.Queryer, after int64) (
	list []Received, upTo int64, more bool, err error,
) {
	rows, more := in.fresh.drain(after)
	list = make([]Received, 0, len(rows))
	for i, row := range rows {
		if row.body == nil {
			continue
		}
		r := Received{Seq: after + int64(i) + 1, At: row.at}
		if json.Unmarshal(row.body, &r.Message) != nil {
			rows, list = nil, nil // the query reports the error
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

// A freshDelivery is a row that was just inserted into the outbox. Its message has only the
// address; the rest is in body.
type freshDelivery struct {
	Delivery
	body []byte
}

// Next returns deliveries that are waiting or sending and whose id is above after, in order, and
// the id up to which there are no others. more reports whether there may be others beyond that. Its
// error is like that of [Outbox.Open]. Only the single reader of [Outbox.C] may call it.
func (out *Outbox) Next(q store.Queryer, after int64) (
	list []Delivery, upTo int64, more bool, err error,
) {
	rows, more := out.fresh.drain(after)
	list = make([]Delivery, 0, len(rows))
	for _, row := range rows {
		d, to := row.Delivery, row.Message.To
		if json.Unmarshal(row.body, &d.Message) != nil {
			break // the query reports the error, now or the next time
		}
		d.Message.To = to
		list = append(list, d)
	}
	if len(list) > 0 {
		return list, list[len(list)-1].ID, more || len(list) < len(rows), nil
	}
	list, err = out.Open(q, after)
	if len(list) > 0 {
		after = list[len(list)-1].ID
	}
	return list, after, len(list) == ReadLimit, err
}
