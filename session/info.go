package session

import (
	"time"

	"gateway/agent/llm"
	"gateway/store"
)

// An Info describes a session.
type Info struct {
	Key       Key
	Title     string
	QueueMode string // "": as configured
	Usage     llm.Usage
	Cost      float64 // dollars
	Context   int     // tokens in the newest prompt; 0 if unknown
	Messages  int     // number of messages in the whole transcript
	Created   time.Time
	Updated   time.Time
}

var infoQuery = `SELECT ` + keyColumns + `, title, queue_mode, input, output, cached, cost,
	context, created_ms,
	updated_ms, (SELECT count(*) FROM messages WHERE session = key AND id > ` + erasedOf("key") +
	`) FROM sessions s `

// ReadInfo returns the description of a session. If the session does not exist, only the key is
// set.
func ReadInfo(q store.Queryer, key Key) (Info, error) {
	list, err := infos(q, infoQuery+"WHERE key = $1", key.String())
	if err != nil || len(list) == 0 {
		return Info{Key: key}, err
	}
	return list[0], nil
}

// List returns up to limit sessions, most recently used first.
func List(q store.Queryer, limit int) ([]Info, error) {
	return infos(q, infoQuery+"ORDER BY updated_ms DESC LIMIT $1", limit)
}

func infos(q store.Queryer, query string, args ...any) ([]Info, error) {
	return store.Collect(q, "session: read sessions", func(scan store.Scan, i *Info) error {
		var created, updated int64
		err := scan(append(keyFields(&i.Key), &i.Title, &i.QueueMode, &i.Usage.Input,
			&i.Usage.Output, &i.Usage.Cached, &i.Cost, &i.Context, &created, &updated, &i.Messages)...)
		i.Created, i.Updated = time.UnixMilli(created), time.UnixMilli(updated)
		return err
	}, query, args...)
}
