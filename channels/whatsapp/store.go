package whatsapp

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	wastore "go.mau.fi/whatsmeow/store"
	"go.mau.fi/whatsmeow/store/sqlstore"
	"go.mau.fi/whatsmeow/types"
	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"gateway/store"
)

// A storage is the open store of one account: its keys, sessions and names.
type storage struct {
	db        *sql.DB
	container *sqlstore.Container
	unlock    func() error // releases the lock file
}

// lockPatience is how long openStore waits for another process: a child that this gateway is
// starting may hold the file for a moment.
const lockPatience = time.Second

// openStore opens or creates the store at path and locks it.
func openStore(ctx context.Context, path string, log *slog.Logger) (_ *storage, err error) {
	st := &storage{}
	if st.unlock, err = store.LockWithin(ctx, path+".lock", lockPatience); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	// SQLite would create the file readable for others, but it holds private keys.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
		return nil, err
	}
	// The library refuses a database without foreign keys. A lost update of keys would make phones
	// drop messages, so every commit is synced. The timeout is in milliseconds.
	st.db, err = sql.Open("sqlite", dsn(path, "busy_timeout(10000)", "foreign_keys(1)",
		"journal_mode(WAL)", "synchronous(FULL)"))
	if err != nil {
		return nil, err
	}
	st.db.SetMaxOpenConns(1) // a second writer could find it busy and lose a message
	st.container = sqlstore.NewWithDB(st.db, "sqlite", newLog(log, "store", never))
	if err := st.container.Upgrade(ctx); err != nil {
		return nil, err
	}
	for _, query := range []string{timersTable, unlinkedTable} {
		if _, err := st.db.ExecContext(ctx, query); err != nil {
			return nil, err
		}
	}
	return st, nil
}

// never is the argument of newLog for a log that is always written.
func never() bool { return false }

// Adopt prepares a store that comes from a backup. Phones have seen messages since then whose keys
// its sessions would use again, and they silently drop such messages. Adopt therefore makes new
// sessions begin; messages under an old one are requested again. It leaves a store alone that a
// Channel has open.
func Adopt(ctx context.Context, path string) (err error) {
	st, err := openStore(ctx, path, slog.New(slog.DiscardHandler))
	if err != nil {
		return fmt.Errorf("whatsapp: adopt store: %w", err)
	}
	defer func() { err = errors.Join(err, st.close()) }()
	for _, query := range []string{
		"DELETE FROM whatsmeow_sessions", "DELETE FROM whatsmeow_sender_keys",
	} {
		if _, err := st.db.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("whatsapp: adopt store: %w", err)
		}
	}
	return nil
}

// dsn returns the address of a database file for the driver. Each transaction takes the write lock
// at its beginning, so it can't fail when it begins to write.
func dsn(path string, pragmas ...string) string {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()}
	u.RawQuery = url.Values{"_pragma": pragmas, "_txlock": {"immediate"}}.Encode()
	return u.String()
}

// device returns the linked device, or nil if there is none. A store belongs to one account, so
// there is at most one.
func (st *storage) device(ctx context.Context) (*wastore.Device, error) {
	all, err := st.container.GetAllDevices(ctx)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all[0], nil
}

// unlinkedTable holds the reason why there is no device any more, in at most one row.
const unlinkedTable = "CREATE TABLE IF NOT EXISTS gateway_unlinked (reason INTEGER NOT NULL)"

// forget deletes a logged-out device and stores the reason. The client also deletes it, but at an
// unknown time.
func (st *storage) forget(ctx context.Context, own types.JID, reason unlinked) error {
	// The end of Run may be the cause of the call. The reason must be stored nevertheless.
	ctx = context.WithoutCancel(ctx)
	for _, query := range []string{"DELETE FROM gateway_unlinked",
		fmt.Sprintf("INSERT INTO gateway_unlinked (reason) VALUES (%d)", reason)} {
		if _, err := st.db.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	return st.container.DeleteDevice(ctx, &wastore.Device{ID: &own})
}

// unlinked returns why there is no device.
func (st *storage) unlinked(ctx context.Context) (reason unlinked, err error) {
	err = st.db.QueryRowContext(ctx, "SELECT reason FROM gateway_unlinked").Scan(&reason)
	if errors.Is(err, sql.ErrNoRows) {
		return neverLinked, nil
	}
	return reason, err
}

// sentAt returns when a message of ours was sent. The client keeps our messages for a week, unless
// they are removed or erased. The time of another message is zero.
func (st *storage) sentAt(ctx context.Context, id types.MessageID) (time.Time, error) {
	var ms int64
	err := st.db.QueryRowContext(ctx,
		"SELECT timestamp FROM whatsmeow_retry_buffer WHERE message_id = $1", id).Scan(&ms)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	return time.UnixMilli(ms), err
}

// dropSent records that a message of ours is removed.
func (st *storage) dropSent(ctx context.Context, id types.MessageID) error {
	_, err := st.db.ExecContext(ctx, "DELETE FROM whatsmeow_retry_buffer WHERE message_id = $1", id)
	return err
}

// close closes and unlocks the store. The database does not wait for queries of the client, so
// close does.
func (st *storage) close() error {
	if st.db == nil {
		return st.unlock()
	}
	err := st.db.Close()
	if !await(closeWait, func() bool { return st.db.Stats().OpenConnections == 0 }) {
		err = errors.Join(err, errors.New("whatsapp: the store is still in use"))
	}
	return errors.Join(err, st.unlock())
}

// closeWait is how long close waits for queries.
const closeWait = 10 * time.Second

// IsLinked reports whether the store at path has a linked device. It does not lock the store,
// because a pairing in another process may hold the lock.
func IsLinked(ctx context.Context, path string) (bool, error) {
	var n int
	err := readStore(ctx, path, &n, "SELECT count(*) FROM whatsmeow_device")
	// The file exists before the account is linked for the first time.
	if errors.Is(err, fs.ErrNotExist) || err != nil && strings.Contains(err.Error(), "no such table") {
		return false, nil
	}
	return n > 0, err
}

// Lookup returns the address of the direct chat with a phone number, or "" if the store of the
// account at path does not know it. It only reads the store, also while a Channel has it open.
func Lookup(ctx context.Context, path, number string) (string, error) {
	phone, err := parseChat("+" + strings.TrimPrefix(number, "+"))
	if err != nil {
		return "", nil // no phone number
	}
	var user string
	err = readStore(ctx, path, &user, "SELECT lid FROM whatsmeow_lid_map WHERE pn = $1", phone.User)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, sql.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("whatsapp: look up: %w", err)
	}
	return types.NewJID(user, types.HiddenUserServer).String(), nil
}

// readStore reads one value from the store at path, which others may have open.
func readStore(ctx context.Context, path string, value any, query string, args ...any) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn(path, "busy_timeout(2000)", "query_only(1)"))
	if err != nil {
		return err
	}
	return errors.Join(db.QueryRowContext(ctx, query, args...).Scan(value), db.Close())
}

// A patientBuffer is the store in which the client decrypts messages. While the store is unusable,
// for example because the disk is full, decrypting waits. The client would take the error for a
// lost key: it would acknowledge the message and ask for it again, four times at most.
type patientBuffer struct {
	wastore.EventBuffer
	ended <-chan struct{} // closed when no message is accepted any more
	log   *slog.Logger
}

// How long a patientBuffer waits between two attempts.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = time.Second
)

// GetBufferedEvent returns a message that was decrypted, but not handled.
func (b *patientBuffer) GetBufferedEvent(
	ctx context.Context, hash [32]byte,
) (e *wastore.BufferedEvent, err error) {
	err = b.persist(ctx, func() (err error) {
		e, err = b.EventBuffer.GetBufferedEvent(ctx, hash)
		return err
	})
	return e, err
}

// DoDecryptionTxn decrypts a message. After an error the transaction has changed no key, so f can
// be called again.
func (b *patientBuffer) DoDecryptionTxn(
	ctx context.Context, f func(context.Context) error,
) error {
	return b.persist(ctx, func() error { return b.EventBuffer.DoDecryptionTxn(ctx, f) })
}

// persist calls try until it succeeds or fails for a reason other than an unusable store. If it
// returns [context.Canceled], the client does not acknowledge the message, and WhatsApp delivers it
// again.
func (b *patientBuffer) persist(ctx context.Context, try func() error) error {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := try()
		if !store.IsUnusable(err) {
			return err
		}
		if wait == firstWait {
			b.log.WarnContext(ctx, "a message waits: its keys can't be stored", "err", err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
		case <-b.ended:
		}
		timer.Stop()
		return context.Canceled
	}
}
