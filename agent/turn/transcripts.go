package turn

import (
	"container/list"
	"slices"
	"sync"

	"gateway/session"
	"gateway/store"
)

// maxMemory is the maximum size of all cached transcripts, in bytes of memory.
const maxMemory = 16 << 20

// Transcripts caches recently read transcripts, so that a turn reads only new messages from the
// database. Each turn checks the cache against the database. The zero value is ready for use.
type Transcripts struct {
	mu    sync.Mutex
	known map[session.Key]*list.Element // of *history
	used  list.List                     // most recently used in front
	size  int
}

type history struct {
	key     session.Key
	entries []session.Entry // never changes, because turns and commands share it
	size    int
}

// newMessages are the messages of a transcript after the newest one in the cache.
type newMessages struct {
	after int64               // id of the message in the cache; 0 if nothing was read
	read  *session.Transcript // for one call of Transcripts.read
}

// readNews reads, in a transaction, the rows that [Transcripts.read] would read after it. The
// writing connection has their pages in memory and needs no further lock.
func (h *Transcripts) readNews(
	tx *store.Tx, key session.Key,
) (n newMessages, err error) {
	if entries := h.recall(key); len(entries) > 0 {
		n.after = entries[len(entries)-1].ID
		n.read, err = session.ReadTranscriptAfter(tx, key, n.after)
	}
	return n, err
}

// begin caches a transcript that consists of n, unless n has none.
func (h *Transcripts) begin(key session.Key, n newMessages) {
	if n.read != nil {
		h.remember(key, n.read.Entries)
	}
}

// read returns the transcript for the prompt of a session, up to limit bytes. It reads the database
// unless n has all new messages.
func (h *Transcripts) read(
	q store.Queryer, key session.Key, limit int, n newMessages,
) (*session.Transcript, error) {
	entries := h.recall(key)
	if len(entries) == 0 {
		return h.readAnew(q, key, limit)
	}
	t := n.read
	if last := entries[len(entries)-1].ID; t == nil || n.after != last {
		var err error
		if t, err = session.ReadTranscriptAfter(q, key, last); err != nil {
			return nil, err
		}
	}
	if !t.Follows { // the session was erased, and may have begun anew or have been imported
		h.Drop(key)
		return h.readAnew(q, key, limit)
	}
	t.Entries = append(slices.Clip(entries), t.Entries...) // others may append to entries now
	old := 0
	for old < len(t.Entries) && t.Entries[old].ID <= t.Start {
		old++
	}
	if old > 0 { // clone, so that the memory of the others is freed
		t.Entries = slices.Clone(t.Entries[old:])
	}
	h.remember(key, t.Entries)
	newest := len(t.Entries) - 1 // always returned, whatever its size
	for i, room := newest, limit; i >= 0; i-- {
		if room -= t.Entries[i].Size; room < 0 && i < newest {
			t.Entries, t.Truncated = t.Entries[i+1:], true
			break
		}
	}
	return t, nil
}

func (h *Transcripts) readAnew(
	q store.Queryer, key session.Key, limit int,
) (*session.Transcript, error) {
	t, err := session.ReadTranscript(q, key, limit)
	if err == nil && !t.Truncated { // a truncated transcript does not begin where later turns begin
		h.remember(key, t.Entries)
	}
	return t, err
}

func (h *Transcripts) recall(key session.Key) []session.Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e, ok := h.known[key]; ok {
		return e.Value.(*history).entries
	}
	return nil
}

// remember caches the entries of a session and evicts the least recently used ones.
func (h *Transcripts) remember(key session.Key, entries []session.Entry) {
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
	known := &history{key: key, entries: entries, size: historyOverhead}
	for _, e := range entries {
		known.size += e.Size + entryOverhead
	}
	h.known[key] = h.used.PushFront(known)
	h.size += known.size
	for h.size > maxMemory && h.used.Len() > 1 {
		h.forget(h.used.Back())
	}
}

// The approximate sizes of a transcript besides its entries, and of an entry besides its text, in
// bytes. Most of the former is the key, which is in the map, too.
const (
	historyOverhead = 512
	entryOverhead   = 256
)

func (h *Transcripts) forget(e *list.Element) {
	known := h.used.Remove(e).(*history)
	h.size -= known.size
	delete(h.known, known.key)
}

// Drop removes a session from the cache.
func (h *Transcripts) Drop(key session.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e, ok := h.known[key]; ok {
		h.forget(e)
	}
}
