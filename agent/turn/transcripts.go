package turn

import (
	"container/list"
	"slices"
	"sync"

	"gateway/session"
	"gateway/store"
)

// maxMemory bounds what is remembered of transcripts, in bytes of their messages.
const maxMemory = 16 << 20

// Transcripts remember the transcripts that were read last, so that a turn reads only what is new
// in its own. What they hold is always checked against the database. The zero value is ready
// for use.
type Transcripts struct {
	mu    sync.Mutex
	known map[session.Key]*list.Element // of *history
	used  list.List                     // the one used last is in front
	size  int
}

type history struct {
	key     session.Key
	created int64           // of the session
	entries []session.Entry // only appended to, and never changed: turns share them
	size    int
}

// read returns what the prompt of a session holds of its transcript, no more than limit bytes.
func (h *Transcripts) read(
	q store.Queryer, s session.Store, key session.Key, limit int,
) (*session.Transcript, error) {
	entries, created := h.recall(key)
	if len(entries) == 0 {
		return h.readAnew(q, s, key, limit)
	}
	t, err := s.TranscriptAfter(q, key, entries[len(entries)-1].ID)
	if err != nil {
		return nil, err
	}
	if t.Created != created { // it was erased meanwhile
		h.Drop(key)
		return h.readAnew(q, s, key, limit)
	}
	t.Entries = append(entries, t.Entries...)
	n := 0
	for n < len(t.Entries) && t.Entries[n].ID <= t.Start {
		n++
	}
	if n > 0 { // not only hidden, or their memory would not be free
		t.Entries = slices.Clone(t.Entries[n:])
	}
	h.remember(key, created, t.Entries)
	newest := len(t.Entries) - 1 // it stays, whatever its size
	for i, room := newest, limit; i >= 0; i-- {
		if room -= t.Entries[i].Size; room < 0 && i < newest {
			t.Entries, t.Truncated = t.Entries[i+1:], true
			break
		}
	}
	return t, nil
}

func (h *Transcripts) readAnew(
	q store.Queryer, s session.Store, key session.Key, limit int,
) (*session.Transcript, error) {
	t, err := s.Transcript(q, key, limit)
	if err == nil && !t.Truncated { // else it is not what later turns begin with
		h.remember(key, t.Created, t.Entries)
	}
	return t, err
}

func (h *Transcripts) recall(key session.Key) (entries []session.Entry, created int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.known[key]
	if !ok {
		return nil, 0
	}
	known := e.Value.(*history)
	return known.entries, known.created
}

// remember replaces what is known of a session, and forgets what was not used for longest.
func (h *Transcripts) remember(key session.Key, created int64, entries []session.Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e, ok := h.known[key]; ok {
		h.forget(e)
	}
	if len(entries) == 0 {
		return
	}
	if h.known == nil {
		h.known = make(map[session.Key]*list.Element)
	}
	known := &history{key: key, created: created, entries: entries}
	for _, e := range entries {
		known.size += e.Size + entryOverhead
	}
	h.known[key] = h.used.PushFront(known)
	h.size += known.size
	for h.size > maxMemory && h.used.Len() > 1 {
		h.forget(h.used.Back())
	}
}

// entryOverhead is about what an entry takes besides its text, in bytes.
const entryOverhead = 256

func (h *Transcripts) forget(e *list.Element) {
	known := h.used.Remove(e).(*history)
	h.size -= known.size
	delete(h.known, known.key)
}

// Drop forgets a session.
func (h *Transcripts) Drop(key session.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e, ok := h.known[key]; ok {
		h.forget(e)
	}
}
