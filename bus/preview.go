package bus

import (
	"encoding/json"
	"time"

	"gateway/store"
)

// A Preview records the messages that show a growing answer, so that they can be removed later.
type Preview struct {
	IDs []string // platform's ids
	Key string   // idempotency key of one more message under way, or ""

	Saved time.Time // when it was last saved; set by Previews
}

// SavePreview stores the preview of a stream.
func (out *Outbox) SavePreview(tx *store.Tx, stream string, p Preview, now time.Time) error {
	_, err := tx.Exec("INSERT INTO previews (stream, ids, key, updated_ms) VALUES ($1, $2, $3, $4) "+
		"ON CONFLICT (stream) DO UPDATE SET ids = excluded.ids, key = excluded.key, "+
		"updated_ms = excluded.updated_ms", stream, list(p.IDs), p.Key, now.UnixMilli())
	return store.Wrap(err, "bus: save preview %s", stream)
}

// ForgetPreview deletes the preview of a stream that has ended.
func (out *Outbox) ForgetPreview(tx *store.Tx, stream string) error {
	_, err := tx.Exec("DELETE FROM previews WHERE stream = $1", stream)
	return store.Wrap(err, "bus: forget preview %s", stream)
}

// PrunePreviews deletes previews that were last saved before a time: those of streams that ended
// without a message.
func (out *Outbox) PrunePreviews(tx *store.Tx, before time.Time) error {
	_, err := tx.Exec("DELETE FROM previews WHERE updated_ms < $1", before.UnixMilli())
	return store.Wrap(err, "bus: prune previews")
}

// Previews returns all previews by stream, and the streams whose preview can't be read.
func (out *Outbox) Previews(
	q store.Queryer,
) (previews map[string]Preview, bad []string, err error) {
	previews = make(map[string]Preview)
	err = store.Each(q, "bus: read previews", func(scan store.Scan) error {
		var stream string
		var text []byte
		var p Preview
		var saved int64
		if err := scan(&stream, &text, &p.Key, &saved); err != nil {
			return err
		}
		p.Saved = time.UnixMilli(saved)
		if len(text) > 0 && json.Unmarshal(text, &p.IDs) != nil { // empty: no ids
			bad = append(bad, stream)
			return nil
		}
		previews[stream] = p
		return nil
	}, "SELECT stream, ids, key, updated_ms FROM previews")
	return previews, bad, err
}
