package bus

import (
	"encoding/json"
	"fmt"
	"time"

	"gateway/store"
)

// A Preview is what is noted of the messages that show an answer while it grows.
type Preview struct {
	IDs []string // platform's
	Key string   // of one more message that is on its way, or ""
}

// SavePreview notes what shows a stream.
func (out *Outbox) SavePreview(tx *store.Tx, stream string, p Preview, now time.Time) error {
	_, err := tx.Exec("INSERT INTO previews (stream, ids, key, updated_ms) VALUES ($1, $2, $3, $4) "+
		"ON CONFLICT (stream) DO UPDATE SET ids = excluded.ids, key = excluded.key, "+
		"updated_ms = excluded.updated_ms", stream, list(p.IDs), p.Key, now.UnixMilli())
	if err != nil {
		return fmt.Errorf("bus: save preview %s: %w", stream, err)
	}
	return nil
}

// ForgetPreview removes the note of a stream that has ended.
func (out *Outbox) ForgetPreview(tx *store.Tx, stream string) error {
	if _, err := tx.Exec("DELETE FROM previews WHERE stream = $1", stream); err != nil {
		return fmt.Errorf("bus: forget preview %s: %w", stream, err)
	}
	return nil
}

// PrunePreviews removes what was last noted before a time: of streams that have ended without a
// message and without a word of it.
func (out *Outbox) PrunePreviews(tx *store.Tx, before time.Time) error {
	_, err := tx.Exec("DELETE FROM previews WHERE updated_ms < $1", before.UnixMilli())
	if err != nil {
		return fmt.Errorf("bus: prune previews: %w", err)
	}
	return nil
}

// Previews returns what is noted, by stream, and the streams of which it can't be read.
func (out *Outbox) Previews(
	q store.Queryer,
) (previews map[string]Preview, bad []string, err error) {
	previews = make(map[string]Preview)
	err = store.Each(q, "bus: read previews", func(scan store.Scan) error {
		var stream string
		var text []byte
		var p Preview
		if err := scan(&stream, &text, &p.Key); err != nil {
			return err
		}
		if len(text) > 0 && json.Unmarshal(text, &p.IDs) != nil { // empty: there are none
			bad = append(bad, stream)
			return nil
		}
		previews[stream] = p
		return nil
	}, "SELECT stream, ids, key FROM previews")
	return previews, bad, err
}
