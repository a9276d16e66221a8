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
// is session_nodes now. Another database has the jobs.

// Limits of a database of OpenClaw.
const (
	maxBase         = 8 << 30 // bytes; of its write-ahead log likewise
	maxClawSessions = 100_000
)

// clawIndexes are the tables with the current sessions and with all sessions, newest first.
var clawIndexes = []struct{ current, id, all string }{
	{"session_nodes", "current_session_id", "session_windows"},
	{"session_entries", "session_id", "sessions"},
}

// A clawBase reads a copy of a database of OpenClaw.
type clawBase struct {
	q    store.Queryer
	dir  string // temporary, with the copy
	size int64  // of the copy in bytes
}

// withClawBase calls fn with a copy of a database. The copy includes the write-ahead log that
// OpenClaw leaves when it is killed, and keeps SQLite from writing beside the original.
func withClawBase(
	ctx context.Context, s *Source, name string, fn func(*clawBase) error,
) (err error) {
	// SQLite would roll this change back when it opens the database, and the copy lacks the
	// journal.
	if info, err := s.stat(name + "-journal"); err == nil && info.Size() > 0 {
		return errors.New("OpenClaw has not finished a change of the database: start OpenClaw " +
			"once, and stop it")
	}
	b := &clawBase{}
	if b.dir, err = os.MkdirTemp("", "gateway-import-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	to := filepath.Join(b.dir, "agent.sqlite")
	// The write-ahead log need not exist.
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

// has reports whether the database has an ordinary table with certain columns: no view, no virtual
// table and no computed columns. A view or a computed column could run any expression when it is
// read.
func (b *clawBase) has(table string, columns ...string) (has bool, err error) {
	err = b.q.QueryRow(`SELECT EXISTS (SELECT 1 FROM sqlite_schema
		WHERE type = 'table' AND name = $1 AND rootpage > 0) AND NOT EXISTS (
		SELECT 1 FROM pragma_table_xinfo($1) WHERE hidden <> 0)`, table).Scan(&has)
	for _, column := range columns {
		if has && err == nil {
			err = b.q.QueryRow("SELECT EXISTS (SELECT 1 FROM pragma_table_info($1) WHERE name = $2)",
				table, column).Scan(&has)
		}
	}
	return has, err
}

// A clawKey is a session in the index.
type clawKey struct {
	key, id string
	old     bool // not the current session of the key
	rows    bool // its lines are in the database; otherwise they may be in an archive
}

// sessions returns the current sessions in the database, and then the old ones. It returns none if
// the database is from a version that kept its sessions in files.
func (b *clawBase) sessions() (list []clawKey, err error) {
	// The limits keep a damaged or hostile database from filling the memory.
	read := func(as clawKey, keys string) error {
		found, err := store.Collect(b.q, "its index", func(scan store.Scan, s *clawKey) error {
			*s = as
			return scan(&s.key, &s.id)
		}, "SELECT key, id FROM ("+keys+") WHERE octet_length(key) < 1000 AND "+
			"octet_length(id) < 1000 ORDER BY key, id LIMIT $1", maxClawSessions)
		list = append(list, found...)
		return err
	}
	events, err := b.has("transcript_events")
	if err != nil || !events {
		return nil, err
	}
	// Only the newest index that exists counts.
	for _, index := range clawIndexes {
		if has, err := b.has(index.current); err != nil {
			return nil, err
		} else if !has {
			continue
		}
		err := read(clawKey{rows: true}, fmt.Sprintf("SELECT session_key AS key, %s AS id FROM %s",
			index.id, index.current))
		if has, problem := b.has(index.all, "session_key"); err == nil && problem == nil && has {
			err = read(clawKey{old: true, rows: true}, fmt.Sprintf(`SELECT session_key AS key,
				session_id AS id FROM %s AS s WHERE EXISTS (SELECT 1 FROM transcript_events AS e
				WHERE e.session_id = s.session_id)`, index.all))
		}
		if has, problem := b.has(index.current, "entry_json"); err == nil && problem == nil && has {
			err = read(clawKey{old: true}, fmt.Sprintf(`SELECT session_key AS key, e.value AS id
				FROM %s, json_each(CASE WHEN octet_length(entry_json) < %d AND json_valid(entry_json)
					THEN entry_json ELSE '{}' END, '$.usageFamilySessionIds') AS e
				WHERE e.type = 'text'`, index.current, maxJSON))
		}
		return list, err
	}
	return nil, errors.New("its list of sessions has an unknown form")
}

// maxClawJobs is the maximum number of jobs that are read from a database of OpenClaw.
const maxClawJobs = 10_000

// jobs returns the jobs in the database as the former file had them. It returns none if the
// database has no table of jobs.
func (b *clawBase) jobs() ([]json.RawMessage, error) {
	has, err := b.has("cron_jobs", "job_json", "enabled", "sort_order")
	if err != nil || !has {
		return nil, err
	}
	read := func(scan store.Scan, j *json.RawMessage) error { return scan((*[]byte)(j)) }
	// OpenClaw switches a job off in the column only. A text that is no object is reported later.
	return store.Collect(b.q, "its jobs", read, `SELECT CASE WHEN octet_length(job_json) >= $1
			THEN '' WHEN json_valid(job_json) THEN json_set(job_json, '$.enabled',
			json(CASE enabled WHEN 0 THEN 'false' ELSE 'true' END)) ELSE job_json END
		FROM cron_jobs ORDER BY sort_order, job_id LIMIT $2`, maxJSON, maxClawJobs)
}

// transcript writes the lines of a session to a file and opens it. It overwrites the file of the
// call before, so that one must have been read.
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
		// A row can have line breaks, and each entry must be one line.
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
