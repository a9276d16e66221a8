package importer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"gateway/memory"
	"gateway/session"
	"gateway/store"
	"gateway/store/plaintext"
)

// An event is an entry of the imported history.
type event struct {
	memory.Entry
	read    bool // the Dream of the imported agent has processed the entry
	damaged bool // it is a line that is no JSON, and has no text
}

// history imports the history of the other agent into the history of the scope.
type history struct{ *run }

// importAll imports the entries of all files.
func (m history) importAll(ctx context.Context) {
	known, err := m.known(ctx)
	if err != nil {
		m.failed("history", m.in("memory"), err)
		return
	}
	files, err := m.notes()
	if err != nil {
		m.failed("history", m.in("memory"), err)
		return
	}
	// The order is that of the appended entries: the notes of days come last.
	for _, name := range append([]string{"memory/HISTORY.md", "memory/history.jsonl"}, files...) {
		name = m.in(name)
		if _, err := m.stat(name); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := m.events(ctx, name, known); err != nil {
			m.failed("history", name, err)
		}
	}
	if m.dry {
		return
	}
	// The rows are in the database. This writes them to the history file, too.
	if err := m.Memory.Sync(ctx, m.Scope); err != nil {
		m.failed("history", m.in("memory"), err)
	}
}

// maxHistory is the maximum size of the entries in a file, in bytes. They are held in memory.
const maxHistory = 256 << 20

// A fingerprint identifies an entry by its time and text. The cursors of the other agent mean
// nothing here.
type fingerprint [sha256.Size]byte

func fingerprintOf(e memory.Entry) fingerprint {
	return sha256.Sum256([]byte(strconv.FormatInt(e.Time.UnixMilli(), 10) + "\n" + e.Text))
}

// known returns the fingerprints of the entries in the history of the scope.
func (m history) known(ctx context.Context) (map[fingerprint]bool, error) {
	known := make(map[fingerprint]bool)
	space := m.Memory.In(m.Scope)
	for after := int64(0); ; {
		const page = 500
		list, err := space.Entries(m.DB.Read(ctx), after, page)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			known[fingerprintOf(e)] = true
			after = e.Cursor
		}
		if len(list) < page {
			return known, nil
		}
	}
}

// events imports one file. It reads the whole file first, so that an unreadable file adds
// nothing.
func (m history) events(ctx context.Context, name string, known map[fingerprint]bool) error {
	var fresh []event
	all, size, damaged := 0, 0, 0
	for e, err := range m.entries(name) {
		if err != nil {
			return err
		}
		if e.damaged {
			damaged++
			continue
		}
		all++
		if size += len(e.Text); size > maxHistory {
			return fmt.Errorf("its entries have more than %d bytes", maxHistory)
		}
		if !known[fingerprintOf(e.Entry)] {
			fresh = append(fresh, e)
		}
	}
	to := string(m.Scope) + "/history.jsonl"
	note := ""
	if damaged > 0 {
		note = fmt.Sprintf(", %d damaged lines left out", damaged)
	}
	if len(fresh) == 0 {
		m.report("history", name, to, Same, fmt.Sprintf("%d entries%s", all, note))
		return nil
	}
	// Small transactions do not delay other writers for long.
	for batch := range slices.Chunk(fresh, 256) {
		batch = slices.DeleteFunc(batch, func(e event) bool {
			p := fingerprintOf(e.Entry)
			twice := known[p]
			known[p] = true
			return twice
		})
		if m.dry {
			continue
		}
		if err := m.DB.Tx(ctx, func(tx *store.Tx) error { return m.put(tx, batch) }); err != nil {
			return err
		}
	}
	m.report("history", name, to, New, fmt.Sprintf("%d entries of %d%s", len(fresh), all, note))
	return nil
}

// put adds entries. Entries that the other agent's Dream has processed are marked as processed,
// unless older entries of this gateway still wait for Dream.
func (m history) put(tx *store.Tx, batch []event) error {
	space := m.Memory.In(m.Scope)
	last, err := space.Last(tx)
	if err != nil {
		return err
	}
	dreamed, err := space.Dreamed(tx)
	if err != nil {
		return err
	}
	// Dream has one mark for all entries, so it can only pass entries in order.
	done := last == dreamed
	for _, e := range batch {
		cursor, err := space.Append(tx, e.Entry)
		if err != nil {
			return err
		}
		if done = done && e.read; done {
			dreamed = cursor
		}
	}
	return space.SetDreamed(tx, dreamed)
}

// entries reads the entries of one file.
func (m history) entries(name string) iter.Seq2[event, error] {
	return func(yield func(event, error) bool) {
		f, err := m.open(name)
		if err != nil {
			yield(event{}, err)
			return
		}
		defer f.Close()
		var list iter.Seq2[event, error]
		switch base := path.Base(name); {
		case base == "history.jsonl":
			list = m.lines(f, m.cursor(path.Dir(name)))
		case base == "HISTORY.md":
			list = paragraphs(f, m.Location)
		default:
			list = readDay(f, base, m.Location)
		}
		for e, err := range list {
			e.Text = cut(e.Text)
			if !yield(e, err) {
				return
			}
		}
	}
}

// cut shortens a text to the maximum length of a history entry.
func cut(text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "�"))
	const end = " […]"
	if len(text) > memory.MaxEntry {
		text = strings.ToValidUTF8(text[:memory.MaxEntry-len(end)], "") + end
	}
	return text
}

// cursor returns the cursor of nanobot's Dream: it has processed the entries up to there.
func (s *Source) cursor(dir string) int64 {
	text, err := s.read(path.Join(dir, ".dream_cursor"), 100)
	if err != nil {
		return 0 // Dream has never run
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// lines reads the entries of history.jsonl. Other programs than nanobot may have written odd
// cursors and times: such an entry counts as processed, or has no time.
func (m history) lines(r io.Reader, dreamed int64) iter.Seq2[event, error] {
	return parseLines(r, func(line []byte) (e event, use bool, err error) {
		var j struct {
			Cursor    int64  `json:"cursor"`
			Timestamp string `json:"timestamp"`
			Content   string `json:"content"`
			Session   string `json:"session_key"`
		}
		err = json.Unmarshal(line, &j)
		if _, other := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !other {
			return event{damaged: true}, true, nil
		}
		at, _ := parseTime(j.Timestamp, m.Location)
		e.Entry = memory.Entry{Time: cmp.Or(at, time.UnixMilli(0)), Text: j.Content}
		e.read = j.Cursor <= dreamed
		if a, err := m.book.address(j.Session); err == nil {
			e.Session = a.String()
		}
		return e, strings.TrimSpace(j.Content) != "", nil
	})
}

// stamp matches the time at the beginning of a paragraph in HISTORY.md.
var stamp = plaintext.Pattern(`^\[(\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2})?)?)[^\]]*\]`)

// paragraphs reads the entries of HISTORY.md. Each entry begins with a time. Text before the
// first entry is a heading and is skipped.
func paragraphs(r io.Reader, loc *time.Location) iter.Seq2[event, error] {
	return func(yield func(event, error) bool) {
		next := session.ReadLines(r, session.MaxLine)
		var current event
		last := 0
		for {
			text, n, err := next()
			ended := errors.Is(err, io.EOF)
			if err != nil && !ended {
				yield(event{}, &session.LineError{Line: n, Err: err})
				return
			}
			var at time.Time // zero if the line does not begin with a time that exists
			if match := stamp().FindSubmatch(text); match != nil {
				at, _ = parseTime(string(match[1]), loc)
			}
			if (ended || !at.IsZero()) && current.Text != "" {
				if !yield(current, nil) {
					return
				}
			}
			if ended {
				return
			}
			if !at.IsZero() {
				// These entries have no cursor. They count as processed.
				current = event{Entry: memory.Entry{Time: at, Text: string(text)}, read: true}
			} else if current.Text != "" && len(current.Text) <= memory.MaxEntry {
				gap := "\n"
				// ReadLines skips blank lines, so a gap in the numbers is a new paragraph.
				if n > last+1 {
					gap = "\n\n"
				}
				current.Text += gap + string(text)
			}
			last = n
		}
	}
}

// dayName matches the names of daily notes: 2026-02-16.md or 202602/20260216.md. OpenClaw gives the
// notes of an ended conversation a name, too: 2026-02-16-vendor-pitch.md.
var dayName = plaintext.Pattern(
	`^(\d{4})-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])(?:-.+)?\.md$`)

// notes returns the files with daily notes in the memory folder.
func (s *Source) notes() (list []string, err error) {
	entries, err := s.list(s.in("memory"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		switch {
		case dayName().MatchString(e.Name()):
			list = append(list, "memory/"+e.Name())
		case e.IsDir() && len(e.Name()) == len("202602"):
			days, err := s.list(s.in("memory/" + e.Name()))
			if err != nil {
				return nil, err
			}
			for _, d := range days {
				if dayName().MatchString(d.Name()) {
					list = append(list, "memory/"+e.Name()+"/"+d.Name())
				}
			}
		}
	}
	return list, nil
}

// readDay reads the notes of a day as one entry.
func readDay(r io.Reader, name string, loc *time.Location) iter.Seq2[event, error] {
	return func(yield func(event, error) bool) {
		d := dayName().FindStringSubmatch(name)
		at, err := parseTime(d[1]+"-"+d[2]+"-"+d[3], loc)
		if err != nil {
			yield(event{}, err)
			return
		}
		text, err := io.ReadAll(io.LimitReader(r, memory.MaxEntry+1))
		if err != nil || strings.TrimSpace(string(text)) != "" {
			yield(event{Entry: memory.Entry{Time: at, Text: string(text)}, read: true}, err)
		}
	}
}
