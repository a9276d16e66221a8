// Package media stores the files that people send and receive.
//
// Files: those in the media directory, by account and chat.
package media

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gabriel-vasile/mimetype"

	"gateway/bus"
	"gateway/channels"
)

// A Store stores the files that people send and receive in one folder, by chat. It fetches received
// files on request, after their message was admitted.
type Store struct {
	root     *os.Root
	sources  map[string]channels.Fetcher // by account
	opts     Options
	slots    chan struct{}        // one per running fetch
	syncFile func(*os.File) error // [os.File.Sync]; tests replace it

	total    atomic.Int64 // bytes of all files: the last sweep's count plus later files
	tooLarge bus.Signal   // when the total is too large
}

// Options are the optional settings of a [Store]. The zero value is ready for use.
type Options struct {
	MaxFile   int64         // maximum size of a fetched file in bytes; default 20 MiB
	MaxTotal  int64         // maximum size of all files; the oldest are removed first; default 5 GiB
	Retention time.Duration // age at which files are removed; default 30 days
	Offloads  time.Duration // the same for files named bus.Offload; default Retention

	Every time.Duration // time between two sweeps; default one hour

	// TrustsClock reports whether files may be removed because of their age. By default they may.
	TrustsClock func(context.Context) bool

	Logger *slog.Logger // default discards
}

const (
	maxFetches   = 8             // concurrent fetches
	fetchTime    = time.Minute   // for all attempts at one small file
	slowest      = 64 << 10      // bytes per second that a large file gets in addition
	fetchTries   = 4             // attempts per file
	sniffedBytes = 3072          // bytes of a file that determine its type
	partSuffix   = ".part"       // suffix of incomplete files
	staleTime    = 2 * time.Hour // age at which an incomplete file is considered abandoned
	folderMode   = fs.FileMode(0o700)

	offloadPrefix = "result-" // prefix of stored files that were named bus.Offload

	exportAge = 48 * time.Hour // age at which exports are removed; deliveries are given up earlier
)

// New returns a Store in the folder root, which the caller closes. sources are the channels by
// account.
func New(root *os.Root, sources map[string]channels.Channel, opts *Options) *Store {
	m := &Store{root: root, sources: make(map[string]channels.Fetcher),
		opts: *cmp.Or(opts, new(Options)), slots: make(chan struct{}, maxFetches),
		syncFile: (*os.File).Sync, tooLarge: bus.NewSignal()}
	m.opts.MaxFile = cmp.Or(m.opts.MaxFile, 20<<20)
	m.opts.MaxTotal = cmp.Or(m.opts.MaxTotal, 5<<30)
	m.opts.Retention = cmp.Or(m.opts.Retention, 30*24*time.Hour)
	m.opts.Every = cmp.Or(m.opts.Every, time.Hour)
	m.opts.Offloads = cmp.Or(m.opts.Offloads, m.opts.Retention)
	m.opts.Logger = cmp.Or(m.opts.Logger, slog.New(slog.DiscardHandler))
	if m.opts.TrustsClock == nil {
		m.opts.TrustsClock = func(context.Context) bool { return true }
	}
	for name, ch := range sources {
		if f, ok := ch.(channels.Fetcher); ok {
			m.sources[name] = f
		}
	}
	return m
}

// Fetch fetches the files of msg and of the message that it quotes. Each attachment gets a Path or
// a Problem. Attachments that have either are skipped.
func (m *Store) Fetch(ctx context.Context, msg *bus.InboundMessage) {
	msg.Attachments = m.fetchAll(ctx, msg, msg.ID, msg.Attachments)
	if q := msg.ReplyTo; q != nil && len(q.Attachments) > 0 {
		quote := *q // msg may share the original with others
		// The quoted message may be of another chat, which has the same ids, and on WhatsApp the sender
		// can make it up. So its files get names of their own, and replace no other message's file.
		quote.Attachments = m.fetchAll(ctx, msg, msg.ID+"\x00"+q.ID, q.Attachments)
		msg.ReplyTo = &quote
	}
}

// fetchAll returns list with what was fetched. id is that of msg, or of msg and the message that it
// quotes.
func (m *Store) fetchAll(
	ctx context.Context, msg *bus.InboundMessage, id string, list []bus.Attachment,
) []bus.Attachment {
	fetched := make([]bus.Attachment, len(list))
	for i, a := range list {
		// A file that is fetched again gets the same name and replaces itself.
		name := fmt.Sprintf("%s\x00%s\x00%d", msg.From.Chat, id, i)
		if err := m.fetch(ctx, msg.From, name, &a); err != nil {
			m.opts.Logger.WarnContext(ctx, "file not fetched", "from", msg.From.String(),
				"id", msg.ID, "kind", string(a.Kind), "err", err)
			a.Problem = problem(err)
		}
		fetched[i] = a
	}
	return fetched
}

// errTooLarge reports a file larger than MaxFile.
var errTooLarge = errors.New("file is too large")

// problem describes to the model why a file is missing.
func problem(err error) string {
	switch {
	case errors.Is(err, errTooLarge):
		return "the file is too large"
	case errors.Is(err, channels.ErrDamaged):
		return "the file arrived damaged"
	case errors.Is(err, channels.ErrRefused):
		return "the platform no longer has the file"
	}
	return "the file could not be fetched"
}

// fetch fetches one file unless it was fetched before.
func (m *Store) fetch(ctx context.Context, from bus.Address, name string, a *bus.Attachment) error {
	if a.Path != "" || a.Problem != "" {
		return nil
	}
	source, ok := m.sources[from.Account]
	switch {
	case !ok || a.Ref == "":
		return fmt.Errorf("%w: nothing to fetch", channels.ErrRefused)
	case a.Size > m.opts.MaxFile:
		return errTooLarge
	}
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// The time limit begins only now, because other files may have taken all slots for long.
	ctx, cancel := context.WithTimeout(ctx, m.timeFor(a.Size))
	defer cancel()
	sum := sha256.Sum256([]byte(name))
	base := path.Join(from.Folder(), hex.EncodeToString(sum[:8]))
	wait := time.Second
	for try := 1; ; try++ {
		// Each attempt writes a file of its own, so nothing remains of a failed one.
		err := m.store(base, a, func(w io.Writer) error { return source.Fetch(ctx, a.Ref, w) })
		if err == nil || try == fetchTries ||
			errors.Is(err, channels.ErrRefused) || errors.Is(err, errTooLarge) {
			return err
		}
		if limit, ok := errors.AsType[*channels.RateError](err); ok {
			wait = max(wait, limit.After)
		}
		if !channels.Sleep(ctx, wait) {
			return err
		}
		wait *= 2
	}
}

// timeFor returns the time limit for a file of so many bytes; 0 or less means unknown.
func (m *Store) timeFor(size int64) time.Duration {
	if size <= 0 {
		size = m.opts.MaxFile
	}
	const most = 24 * 60 * 60 // seconds
	return fetchTime + time.Duration(min(size/slowest, most))*time.Second
}

// store writes a file whose name begins with base, and sets the fields of a from its content. When
// it returns, the file and its name are on the disk, because a row that names the file follows.
func (m *Store) store(base string, a *bus.Attachment, fill func(io.Writer) error) error {
	if err := m.folder(path.Dir(base)); err != nil {
		return err
	}
	part := base + "." + rand.Text()[:8] + partSuffix
	f, err := m.root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	w := &limitedWriter{w: f, left: m.opts.MaxFile}
	if err := fill(w); err != nil {
		if w.full {
			err = errTooLarge // the source may have wrapped the error differently
		}
		return errors.Join(err, f.Close(), m.root.Remove(part))
	}
	// The type comes from the content. A short file is no error.
	head := make([]byte, sniffedBytes)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return errors.Join(err, f.Close(), m.root.Remove(part))
	}
	if err := errors.Join(m.syncFile(f), f.Close()); err != nil {
		return errors.Join(err, m.root.Remove(part))
	}
	found := mimetype.Detect(head[:n])
	name := base + extension(a.Name, found)
	// A complete file appears at once under its name, so nobody reads half of one.
	if err := m.root.Rename(part, name); err != nil {
		return errors.Join(err, m.root.Remove(part))
	}
	if err := m.syncFolder(path.Dir(name)); err != nil {
		return err
	}
	a.Path, a.Size = name, m.opts.MaxFile-w.left
	describe(a, found)
	m.grow(a.Size)
	return nil
}

// folder creates a folder and its parents.
func (m *Store) folder(name string) error {
	if _, err := m.root.Stat(name); err == nil {
		return nil
	}
	if err := m.root.MkdirAll(name, folderMode); err != nil {
		return err
	}
	// Each parent may be new, so the folder above it must be synced.
	for above := path.Dir(name); ; above = path.Dir(above) {
		if err := m.syncFolder(above); err != nil || above == "." {
			return err
		}
	}
}

// syncFolder syncs a folder, on systems that support it.
func (m *Store) syncFolder(name string) error {
	f, err := m.root.Open(name)
	if err != nil {
		return err
	}
	_ = m.syncFile(f) // not supported everywhere; the file itself is synced
	return f.Close()
}

// grow counts a stored file, and starts a sweep when the total exceeds MaxTotal by 5 %. The margin
// keeps sweeps rare.
func (m *Store) grow(size int64) {
	if m.total.Add(size) > m.opts.MaxTotal+m.opts.MaxTotal/20 {
		m.tooLarge.Ring()
	}
}

// describe sets the type and the kind of a from its content, because the sender's claims may be
// wrong.
func describe(a *bus.Attachment, found *mimetype.MIME) {
	a.Type = channels.MIMEType(a.Type)
	class, _, _ := strings.Cut(a.Type, "/")
	// These types say less than a sender's claim can. An image is one only if its content says so.
	general := found.Is("application/octet-stream") || found.Is("application/zip") ||
		(found.Is("text/plain") || found.Is("text/html")) && (class == "text" || class == "application")
	if !general || class == "" || class == "image" {
		a.Type, _, _ = strings.Cut(found.String(), ";")
		class, _, _ = strings.Cut(a.Type, "/")
	}
	if a.Type == "application/ogg" && (a.Kind == bus.Voice || a.Kind == bus.Audio) {
		a.Type, class = "audio/ogg", "audio" // this container may hold sound or video
	}
	if possible, ok := classes[a.Kind]; ok && !slices.Contains(possible, class) {
		a.Kind = bus.Document
	}
}

// classes has the classes of types that a file of a kind can have. Sound in some containers is
// detected as video.
var classes = map[bus.Kind][]string{
	bus.Photo: {"image"}, bus.Sticker: {"image"},
	bus.Voice: {"audio", "video"}, bus.Audio: {"audio", "video"},
	bus.Video: {"video", "image"}, bus.Animation: {"video", "image"},
}

// plainExtension matches extensions that are safe in a file name on any system.
var plainExtension = regexp.MustCompile(`^\.[a-z0-9]{1,7}$`)

// extension returns the extension of the file name if it is plain, otherwise that of the file type.
// It is never that of an incomplete file.
func extension(name string, found *mimetype.MIME) string {
	ext := strings.ToLower(path.Ext(name))
	if plainExtension.MatchString(ext) && ext != partSuffix {
		return ext
	}
	return found.Extension()
}

// A limitedWriter accepts at most left bytes.
type limitedWriter struct {
	w    io.Writer
	left int64 // bytes
	full bool  // more was to be written
}

// Write implements [io.Writer].
func (c *limitedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > c.left {
		c.full = true
		return 0, errTooLarge
	}
	n, err := c.w.Write(p)
	c.left -= int64(n)
	return n, err
}

// Open opens the file at a Path. It reports [channels.ErrRefused] if the file no longer exists.
func (m *Store) Open(name string) (*os.File, error) {
	f, err := m.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: file %s no longer exists", channels.ErrRefused, path.Base(name))
	}
	return f, err
}

// photos are the types of pictures that all platforms show.
var photos = []string{"image/jpeg", "image/png", "image/webp"}

// Put stores a file for a chat and returns it as an attachment. The size is limited like that of a
// fetched file. A stored name can't be guessed.
func (m *Store) Put(to bus.Address, name string, r io.Reader) (bus.Attachment, error) {
	a := bus.Attachment{Kind: bus.Document, Name: name}
	base := strings.ToLower(rand.Text()[:16])
	switch name {
	case bus.Offload:
		base = offloadPrefix + base
	case bus.Export:
		base = bus.ExportPrefix + base
	}
	base = path.Join(to.Folder(), base)
	err := m.store(base, &a, func(w io.Writer) error {
		_, err := io.Copy(w, r)
		return err
	})
	if err != nil {
		return a, fmt.Errorf("media: store file %s: %w", name, err)
	}
	a.Kind = bus.KindOf(a.Type)
	if a.Kind == bus.Photo && !slices.Contains(photos, a.Type) {
		a.Kind = bus.Document
	}
	return a, nil
}

// Erase removes all files of a chat.
func (m *Store) Erase(a bus.Address) error {
	if err := m.root.RemoveAll(a.Folder()); err != nil {
		return fmt.Errorf("media: erase files of %s: %w", a, err)
	}
	return nil
}
