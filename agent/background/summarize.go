package background

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/policy"
	"gateway/agent/prompt"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
	"gateway/store/plaintext"
)

// A Summarizer makes notes of conversations: when a prompt gets too large, when a conversation is
// idle or was closed, and when somebody asks for it. The notes go into the history of the scope and
// into the summary of the session. The messages stay in the transcript and can be searched. One
// transaction writes the notes and moves the start of the session, so that no part is noted twice,
// even by concurrent work. All fields are required.
type Summarizer struct {
	DB        *store.DB
	Memory    *memory.Memory
	Model     Model
	Estimates *prompt.Estimator
	Settings  Settings
	Dreams    bool // whether Dream is enabled
	Zone      *time.Location
	Now       func() time.Time
	Logger    *slog.Logger

	tasks Store

	// thinks says that an answer has ended at the limit of notes.
	thinks atomic.Bool
}

// maxParts is the number of parts after which a task lets other tasks run.
const maxParts = 5

// chunkRead is the number of messages to read for a part. Most turns have fewer.
const chunkRead = 1000

// The number of failures after which shortened messages replace the notes. An outage may last for a
// night, and nobody waits for the notes: outageRetries are the failures of about 19 hours.
const (
	notesRetries  = 3
	outageRetries = 24

	// NotesNow is a number of failures after which shortened messages always replace the notes.
	NotesNow = math.MaxInt
)

// retriesAfter returns the number of failures after which shortened messages replace notes that
// could not be made because of err.
func retriesAfter(err error) int {
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		return notesRetries
	}
	switch e.Kind {
	case llm.Unauthorized, llm.Forbidden, llm.NotFound, llm.OutOfQuota: // until somebody mends that
		return outageRetries
	}
	if e.Kind.Temporary() {
		return outageRetries
	}
	return notesRetries
}

// Part returns the next part to note: the oldest messages of a session after a given message, about
// need bytes and none newer than to.
func (s *Summarizer) Part(
	q store.Queryer, key session.Key, after, to int64, need int,
) ([]session.Entry, error) {
	for limit := chunkRead; ; limit *= 4 { // until the messages include the end of a turn
		list, err := session.EntriesAfter(q, key, after, limit)
		if err != nil {
			return nil, err
		}
		n := slices.IndexFunc(list, func(e session.Entry) bool { return e.ID > to })
		whole := n >= 0 || len(list) < limit
		if n < 0 {
			n = len(list)
		}
		if !whole {
			n-- // the message after the part must be known
		}
		if n = countRemovable(list, n, need); n > 0 || whole {
			return fitting(prompt.WithoutRecalled(list[:n]), s.Zone, s.requestSize()), nil
		}
	}
}

// requestSize returns how many bytes of a conversation one request to the model for notes may hold.
func (s *Summarizer) requestSize() int {
	c := s.Settings.Background()
	return s.Estimates.Bytes(c.Model, c.Tokens*3/4)
}

// errMoved reports that notes of the part have been made concurrently.
var errMoved = errors.New("the start of the session has moved")

// Compact makes notes of entries, the oldest of a session, and moves its start behind them. If no
// model makes notes after the given number of earlier failures, shortened messages may replace
// them. Compact reports whether anything has changed.
func (s *Summarizer) Compact(
	ctx context.Context, key session.Key, before session.Summary, entries []session.Entry,
	who budget.Spender, failures int,
) (bool, error) {
	notes, err := s.notes(ctx, who, entries, failures)
	if err != nil {
		return false, err
	}
	fault.Point("noted")
	err = commit(ctx, s.DB, func(tx *store.Tx) error {
		cursor, err := s.keep(tx, before.Scope, key, notes, entries)
		if err != nil {
			return err
		}
		text, from := before.Text, before.From
		if all := notes.text(); all != "" {
			text, from = s.joined(key, before, cursor, all, entries)
		}
		moved, err := session.Compact(tx, key, before, entries[len(entries)-1].ID, text, from)
		if err == nil && !moved {
			err = errMoved
		}
		return err
	})
	if errors.Is(err, errMoved) {
		return true, nil // the caller continues from the new start
	}
	if err != nil {
		return false, err
	}
	fault.Point("compacted")
	s.Logger.InfoContext(ctx, "conversation compacted", "session", key,
		"messages", len(entries), "notes", len(notes.text()))
	s.sync(ctx, before.Scope)
	return true, nil
}

// A noted holds the notes of a part of a conversation; "" means none.
type noted struct {
	own     string // notes of turns that have read no foreign text
	foreign string // marked notes of the other turns
}

// text returns all notes.
func (n noted) text() string {
	return strings.TrimSpace(n.own + "\n" + n.foreign)
}

// notes asks the model for notes of entries. Turns that have read foreign text get separate notes,
// which never become lasting memory.
func (s *Summarizer) notes(
	ctx context.Context, who budget.Spender, entries []session.Entry, failures int,
) (n noted, err error) {
	own, foreign := split(entries)
	if len(own) > 0 {
		n.own, err = s.notesOf(ctx, who, own, failures)
	}
	if err == nil && len(foreign) > 0 {
		n.foreign, err = s.notesOf(ctx, who, foreign, failures)
		if n.foreign != "" {
			n.foreign = memory.MarkForeign(n.foreign)
		}
	}
	return n, err
}

// maxHalved is how often a request for notes is halved because it is too long for the model.
const maxHalved = 4

// notesOf asks the model for notes of entries.
func (s *Summarizer) notesOf(
	ctx context.Context, who budget.Spender, entries []session.Entry, failures int,
) (string, error) {
	size := s.requestSize()
	resp, err := s.ask(ctx, who, notesRequest(entries, s.Zone, size))
	for range maxHalved { // the context window of the model for notes may be smaller
		e, ok := errors.AsType[*llm.Error](err)
		if !ok || e.Kind != llm.ContextTooLong {
			break
		}
		size = min(size, prompt.TextSize(notesRequest(entries, s.Zone, size).Messages)) / 2
		resp, err = s.ask(ctx, who, notesRequest(entries, s.Zone, size))
	}
	if err == nil && resp.Finish == llm.FinishFiltered { // most of the notes are missing
		err = &llm.Error{Kind: llm.ContentRefused, Model: resp.Model}
	}
	switch {
	case err == nil && resp.Message.Text != "":
		return keptNotes(wholeLines(resp), entries), nil
	case ctx.Err() != nil, errors.Is(err, policy.ErrHalted), errors.Is(err, budget.ErrExceeded):
		return "", err
	case failures >= retriesAfter(err):
		s.Logger.WarnContext(ctx, "no notes could be made", "err", err)
		return dump(entries, s.Zone), nil
	case err == nil:
		err = &llm.Error{Kind: llm.Unavailable, Model: s.Settings.Background().ModelName}
	}
	return "", err
}

// ask makes one call for notes. It repeats the call without the limit of the answer if that ends at
// the limit, because a model may need more than that to think. Later calls then have no limit.
func (s *Summarizer) ask(
	ctx context.Context, who budget.Spender, req llm.Request,
) (*llm.Response, error) {
	if s.thinks.Load() {
		req.MaxOutput = 0
	}
	resp, err := s.Model.Ask(ctx, who, req)
	if err != nil || resp.Finish != llm.FinishLength || req.MaxOutput == 0 {
		return resp, err
	}
	s.thinks.Store(true)
	req.MaxOutput = 0
	return s.Model.Ask(ctx, who, req)
}

// keep writes notes of entries into the history of a scope and makes the messages searchable. It
// returns the cursor of the first notes.
func (s *Summarizer) keep(
	tx *store.Tx, scope memory.Scope, key session.Key, notes noted, entries []session.Entry,
) (cursor int64, err error) {
	space := s.Memory.In(scope)
	for _, text := range []string{notes.own, notes.foreign} {
		if text == "" {
			continue
		}
		at, err := space.Append(tx, memory.Entry{
			Time: entries[len(entries)-1].Time, Session: key.String(), Text: text})
		if err == nil {
			err = s.dreamLater(tx, scope)
		}
		if err != nil {
			return 0, err
		}
		cursor = cmp.Or(cursor, at)
	}
	var said []memory.Message
	for _, e := range entries {
		if r := e.Message.Role; (r == llm.User || r == llm.Assistant) && e.Message.Text != "" {
			said = append(said, memory.Message{ID: e.ID, Time: e.Time, Session: key.String(),
				Speaker: string(r), Text: e.Message.Text})
		}
	}
	return cursor, space.Archive(tx, said)
}

// dreamLater schedules Dream for the new part of a scope's history.
func (s *Summarizer) dreamLater(tx *store.Tx, scope memory.Scope) error {
	every := s.Settings.Background().Dream
	if !s.Dreams || every <= 0 {
		return nil
	}
	return s.tasks.Put(tx, Task{Work: Work{Kind: Dream, Scope: scope}}, s.Now().Add(every))
}

// sync updates the history file of a scope. Entries that can't be written now are written next
// time.
func (s *Summarizer) sync(ctx context.Context, scope memory.Scope) {
	if err := s.Memory.Sync(context.WithoutCancel(ctx), scope); err != nil {
		s.Logger.WarnContext(ctx, "history could not be written to its file", "scope", scope, "err", err)
	}
}

// maxSummary is the maximum size of a session's summary in bytes.
const maxSummary = 6000 * prompt.BytesPerToken

// noteHead matches the beginning of notes in a summary.
var noteHead = plaintext.Pattern(`(?m)^\[notes (\d+), `)

// joined returns the summary of a session with new notes, which have the given cursor. It also
// returns the cursor of the oldest notes in the summary. If there is too little room, the oldest
// notes are removed.
func (s *Summarizer) joined(
	key session.Key, before session.Summary, cursor int64, notes string, entries []session.Entry,
) (text string, from int64) {
	day := func(e session.Entry) string { return e.Time.In(s.Zone).Format(time.DateOnly) }
	first, last := day(entries[0]), day(entries[len(entries)-1])
	if first != last {
		first += " to " + last
	}
	text = fmt.Sprintf("[notes %d, %s, %s]\n%s", cursor, first, Count(len(entries), "message"),
		noteHead().ReplaceAllString(notes, "(notes $1, "))
	if before.Text != "" {
		text = before.Text + "\n\n" + text
	}
	_, tokens := s.Settings.Prompt(key)
	heads := noteHead().FindAllStringSubmatchIndex(text, -1)
	most := prompt.Share(tokens, 4, maxSummary)
	begin, oldest := 0, heads[0] // an imported summary begins with other text
	for _, head := range heads {
		if len(text)-begin <= most {
			break
		}
		begin, oldest = head[0], head
	}
	from, err := strconv.ParseInt(text[oldest[2]:oldest[3]], 10, 64)
	if err != nil {
		from = cursor // the pattern matches only digits that fit
	}
	return strings.TrimSpace(text[begin:]), from
}
