package bus

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"gateway/store"
)

// A SentLog records which messages a platform has just accepted, until the outbox records that,
// too. It serves platforms that can't recognise a repeated message. After a kill, the gateway sends
// them again each message whose acceptance is recorded nowhere.
//
// A transaction waits for the transactions before it, and for the disk. An entry of the log takes
// some microseconds, because it is a write to a file that waits for neither. A kill can't undo the
// write. A power loss can, as it can undo a transaction of [store.DB.TxSoon].
//
// Each entry has a line of the file. The line is used again once the outbox has the entry. An entry
// stays true for ever, because a platform does not take back an accepted message. So what remains
// in a line does no harm: OpenSentLog compares it with the outbox. The methods of SentLog are safe
// for concurrent use.
type SentLog struct {
	file *os.File

	mu   sync.Mutex
	free []int // lines whose entries the outbox has
	used int   // number of lines that were used
}

// Size of a SentLog: the length of a line in bytes, and the number of lines. There are as many as
// the router has workers for an account. All accounts share them. If no line is free, the router
// waits for the outbox instead.
const (
	sentLine  = 256
	sentLines = 1024
)

// errSentLog reports that an entry does not fit into the log.
var errSentLog = errors.New("bus: the log of sent messages has no room")

// A sentEntry says that a platform has accepted a part of a delivery.
type sentEntry struct {
	Delivery int64  `json:"delivery"`
	Key      string `json:"key"` // of the delivery, in case another database is used with the log
	Part     int    `json:"part"`
	ID       string `json:"id"` // platform's id of the message
}

// OpenSentLog opens the log at path, which only its owner can read. It creates the log if it is
// missing, or if this user can't open it. It adds to the outbox in db what an earlier process has
// recorded in the log only, and empties the log. It returns the number of these parts. No router
// may run yet.
func OpenSentLog(
	ctx context.Context, path string, db *store.DB, now time.Time,
) (l *SentLog, recovered int, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrPermission) { // root has run the gateway of another user, and owns the log
		if err = os.Remove(path); err == nil {
			f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("bus: log of sent messages: %w", err)
	}
	l = &SentLog{file: f}
	if recovered, err = l.recover(ctx, db, now); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("bus: log of sent messages: %w", err), f.Close())
	}
	return l, recovered, nil
}

// Record records that the platform has accepted the next part of d under the given id. The caller
// must call done once the outbox has that id. If Record returns an error, it has made no entry.
func (l *SentLog) Record(d *Delivery, id string) (done func(), err error) {
	text, err := json.Marshal(sentEntry{d.ID, d.key, len(d.IDs), id})
	if err != nil {
		return nil, err
	}
	if len(text) >= sentLine {
		return nil, errSentLog
	}
	line, err := l.takeLine()
	if err != nil {
		return nil, err
	}
	text = append(text, bytes.Repeat([]byte{' '}, sentLine-1-len(text))...)
	if _, err = l.file.WriteAt(append(text, '\n'), int64(line)*sentLine); err != nil {
		l.putBack(line)
		return nil, fmt.Errorf("bus: log of sent messages: %w", err)
	}
	return func() { l.putBack(line) }, nil
}

// takeLine returns a line that may be written.
func (l *SentLog) takeLine() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		line := l.free[n-1]
		l.free = l.free[:n-1]
		return line, nil
	}
	if l.used == sentLines {
		return 0, errSentLog
	}
	l.used++
	return l.used - 1, nil
}

func (l *SentLog) putBack(line int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, line)
}

// recover adds the entries to the outbox and empties the log.
func (l *SentLog) recover(ctx context.Context, db *store.DB, now time.Time) (n int, err error) {
	entries, err := l.entries()
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	err = db.Tx(ctx, func(tx *store.Tx) error {
		n = 0
		for _, e := range entries {
			added, err := e.add(tx, now)
			if err != nil {
				return err
			}
			if added {
				n++
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, l.file.Truncate(0)
}

// entries reads the log, in the order of the deliveries and their parts. It skips lines that a
// power loss has damaged.
func (l *SentLog) entries() (list []sentEntry, err error) {
	text, err := io.ReadAll(io.NewSectionReader(l.file, 0, sentLine*sentLines))
	if err != nil {
		return nil, err
	}
	for line := range slices.Chunk(text, sentLine) {
		var e sentEntry
		if json.Unmarshal(line, &e) == nil {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b sentEntry) int {
		return cmp.Or(cmp.Compare(a.Delivery, b.Delivery), cmp.Compare(a.Part, b.Part))
	})
	return list, nil
}

// add adds the part of e to its delivery. It reports false if the delivery has ended, has the part
// already, or is another one. The delivery then waits: the router ends it, or sends its next part.
func (e *sentEntry) add(tx *store.Tx, now time.Time) (bool, error) {
	d, err := first(readOutbox(tx, "id = $1 AND "+isOpen, e.Delivery))
	if _, bad := store.RowErrors(err); bad && err != nil {
		return false, nil // the router sets the row aside
	}
	if err != nil || d == nil || d.key != e.Key || len(d.IDs) != e.Part {
		return false, err
	}
	d.IDs = append(d.IDs, e.ID)
	d.State, d.Attempts, d.Crashes, d.Error = Waiting, 0, 0, ""
	return NewOutbox().Save(tx, d, now)
}

// Close closes the log. It empties the log if the outbox has all entries, so that the next process
// need not compare them.
func (l *SentLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if len(l.free) == l.used {
		err = l.file.Truncate(0)
	}
	return errors.Join(err, l.file.Close())
}
