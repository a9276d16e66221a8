package agent

import (
	"container/list"
	"sync"

	"gateway/session"
	"gateway/store"
)

// maxMemory bounds what is remembered of transcripts, in bytes of their messages.
const maxMemory = 16 << 20

// histories remember the transcripts that were read last, so that a turn reads only what is new
// in its own. What they hold is always checked against the database. The zero value is ready
// for use.
type histories struct {
	mu    sync.Mutex
	known map[session.Key]*list.Element // of *history
	used  list.List                     // the one used last is in front
	size  int
}

type history struct {
	key     session.Key
	entries []session.Entry // only appended to, and never changed: turns share them
	size    int
}

// read returns what the prompt of a session holds of its transcript, no more than limit bytes.
func (h *histories) read(
	q store.Queryer, s session.Store, key session.Key, limit int,
) (*session.Transcript, error) {
	entries := h.recall(key)
	if len(entries) == 0 {
		t, err := s.Transcript(q, key, limit)
		if err == nil && !t.Truncated { // else it is not what later turns begin with
			h.remember(key, t.Entries)
		}
		return t, err
	}
	t, err := s.TranscriptAfter(q, key, entries[len(entries)-1].ID)
	if err != nil {
		return nil, err
	}
	t.Entries = append(entries, t.Entries...)
	n := 0
	for n < len(t.Entries) && t.Entries[n].ID <= t.Start {
		n++
	}
	t.Entries = t.Entries[n:]
	h.remember(key, t.Entries)
	newest := len(t.Entries) - 1 // it stays, whatever its size
	for i, room := newest, limit; i >= 0; i-- {
		if room -= t.Entries[i].Size; room < 0 && i < newest {
			t.Entries, t.Truncated = t.Entries[i+1:], true
			break
		}
	}
	return t, nil
}

func (h *histories) recall(key session.Key) []session.Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.known[key]
	if !ok {
		return nil
	}
	return e.Value.(*history).entries
}

// remember replaces what is known of a session, and forgets what was not used for longest.
func (h *histories) remember(key session.Key, entries []session.Entry) {
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
	known := &history{key: key, entries: entries}
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

func (h *histories) forget(e *list.Element) {
	known := h.used.Remove(e).(*history)
	h.size -= known.size
	delete(h.known, known.key)
}

// drop forgets a session.
func (h *histories) drop(key session.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e, ok := h.known[key]; ok {
		h.forget(e)
	}
}
