package importer

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"gateway/session"
	"gateway/store"
)

// Since July 2026 OpenClaw keeps the conversations of an agent in a SQLite database. The rows of
// transcript_events are the lines of the former files. The index was session_entries at first, and
// is session_nodes now.

// Limits of a database of OpenClaw.
const (
	maxBase         = 8 << 30 // bytes; of its write-ahead log likewise
	maxClawSessions = 100_000
)

// clawIndexes maps the tables that have the index, newest first, to their queries.
var clawIndexes = []struct{ table, query string }{
	{"session_nodes", "SELECT session_key, current_session_id FROM session_nodes " +
		"WHERE octet_length(session_key) < 1000 AND octet_length(current_session_id) < 1000 " +
		"ORDER BY session_key LIMIT $1"},
	{"session_entries", "SELECT session_key, session_id FROM session_entries " +
		"WHERE octet_length(session_key) < 1000 AND octet_length(session_id) < 1000 " +
		"ORDER BY session_key LIMIT $1"},
}

// A clawBase reads a copy of a database of OpenClaw.
type clawBase struct {
	q    store.Queryer
	dir  string // temporary, with the copy
	size int64  // of the copy in bytes
}

// importClawBase imports the conversations in a database of OpenClaw, if it exists, and returns the
// keys of its sessions.
func importClawBase(ctx context.Context, m *mover, name string) map[string]bool {
	keys := make(map[string]bool)
	if !m.isFile(name) {
		return keys
	}
	err := withClawBase(ctx, m.Source, name, func(b *clawBase) error {
		list, err := b.sessions()
		for _, s := range list {
			keys[s.key] = true
		}
		for _, s := range list {
			if ctx.Err() == nil {
				m.session(ctx, transcript{name + ": " + s.key, s.key,
					func() (io.ReadSeekCloser, error) { return b.transcript(s.id) }, readClaw})
			}
		}
		return err
	})
	if err != nil {
		m.failed("session", name, err)
	}
	return keys
}

// withClawBase calls fn with a copy of a database, so that nothing is written beside the original
// and a write-ahead log, which OpenClaw leaves when it is killed, counts.
func withClawBase(
	ctx context.Context, s *Source, name string, fn func(*clawBase) error,
) (err error) {
	if info, err := s.stat(name + "-journal"); err == nil && info.Size() > 0 {
		return errors.New("OpenClaw has not ended a change of it: start OpenClaw once, and stop it")
	}
	b := &clawBase{}
	if b.dir, err = os.MkdirTemp("", "gateway-import-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	to := filepath.Join(b.dir, "agent.sqlite")
	for _, suffix := range []string{"", "-wal"} {
		n, err := copyFile(s, name+suffix, to+suffix)
		if b.size += n; err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return store.Inspect(ctx, to, func(q store.Queryer) error {
		b.q = q
		return fn(b)
	})
}

// copyFile copies a file of the home and returns its size.
func copyFile(s *Source, name, to string) (n int64, err error) {
	from, err := s.open(name)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(f, io.LimitReader(from, maxBase+1))
	if err == nil && n > maxBase {
		err = fmt.Errorf("it has more than %d bytes", int64(maxBase))
	}
	return n, errors.Join(err, f.Close())
}

// has reports whether the database has a table that holds what it shows: no view, no virtual table
// and no computed columns.
func (b *clawBase) has(table string) (has bool, err error) {
	err = b.q.QueryRow(`SELECT EXISTS (SELECT 1 FROM sqlite_schema
		WHERE type = 'table' AND name = $1 AND rootpage > 0) AND NOT EXISTS (
		SELECT 1 FROM pragma_table_xinfo($1) WHERE hidden <> 0)`, table).Scan(&has)
	return has, err
}

// clawKey is a session in the index.
type clawKey struct{ key, id string }

// sessions returns the sessions in the database; none if it is older than they are.
func (b *clawBase) sessions() ([]clawKey, error) {
	events, err := b.has("transcript_events")
	if err != nil || !events {
		return nil, err
	}
	for _, index := range clawIndexes {
		if has, err := b.has(index.table); err != nil {
			return nil, err
		} else if has {
			return store.Collect(b.q, "its index", func(scan store.Scan, s *clawKey) error {
				return scan(&s.key, &s.id)
			}, index.query, maxClawSessions)
		}
	}
	return nil, errors.New("it has no index of sessions that is known here")
}

// transcript writes the lines of a session to a file and opens it.
func (b *clawBase) transcript(id string) (f io.ReadSeekCloser, err error) {
	file, err := os.OpenFile(filepath.Join(b.dir, "transcript.jsonl"),
		os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	var total int64
	err = store.Each(b.q, "its lines", func(scan store.Scan) error {
		var text sql.NullString
		if err := scan(&text); err != nil {
			return err
		}
		total += int64(len(text.String))
		switch {
		case !text.Valid:
			return fmt.Errorf("a line has more than %d bytes", session.MaxLine)
		case total > 2*b.size: // UTF-16 may be shorter
			return errors.New("the database is damaged: they are longer than all of it")
		}
		line.Reset()
		if err := json.Compact(&line, []byte(text.String)); err != nil {
			return err
		}
		line.WriteByte('\n')
		_, err := file.Write(line.Bytes())
		return err
	}, `SELECT CASE WHEN octet_length(event_json) <= $1 THEN event_json END FROM transcript_events
		WHERE session_id = $2 ORDER BY seq LIMIT $3`, session.MaxLine, id, maxEntries+2)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
