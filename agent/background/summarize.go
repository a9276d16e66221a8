package background

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/policy"
	"gateway/agent/prompt"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// A Summarizer summarises conversations into notes: when a prompt gets too large, when a
// conversation is idle or was left, and when somebody asks for it. The notes go into the history of
// the scope and into the summary of the session; the messages themselves stay in the transcript and
// can be searched. The start of the session moves in the transaction that writes the notes, so that
// nothing is noted twice, whoever works on the same session. All fields are required.
type Summarizer struct {
	DB        *store.DB
	Memory    *memory.Memory
	Model     Model
	Estimates *prompt.Estimator
	Settings  Settings
	Dreams    bool // Dream looks at notes
	Zone      *time.Location
	Now       func() time.Time
	Logger    *slog.Logger

	sessions session.Store
	tasks    Store
}

// maxParts is how many parts of a conversation become notes before other tasks have their turn.
const maxParts = 5

// chunkRead is how many messages are looked at for a part: more than most turns have.
const chunkRead = 1000

// notesRetries is after how many failures the messages themselves stand in for notes of them.
const notesRetries = 3

// Part returns the oldest messages of a session after a message, as they were said, of about need
// bytes, that can go at once and none of which is newer than to.
func (s *Summarizer) Part(
	q store.Queryer, key session.Key, after, to int64, need int,
) ([]session.Entry, error) {
	for limit := chunkRead; ; limit *= 4 { // until the end of a turn is found
		list, err := s.sessions.After(q, key, after, limit)
		if err != nil {
			return nil, err
		}
		n := slices.IndexFunc(list, func(e session.Entry) bool { return e.ID > to })
		whole := n >= 0 || len(list) < limit
		if n < 0 {
			n = len(list)
		}
		if !whole {
			n-- // what comes next must be known
		}
		if n = pick(list, n, need); n > 0 || whole {
			return fitting(prompt.AsSaid(list[:n]), s.Zone, s.requestSize()), nil
		}
	}
}

// requestSize is how many bytes of a conversation the model for notes is asked about at once.
func (s *Summarizer) requestSize() int {
	c := s.Settings.Background()
	return s.Estimates.Bytes(c.Model, c.Tokens*3/4)
}

// errMoved reports that somebody else has made notes of a part.
var errMoved = errors.New("the start of the session has moved")

// Compact makes notes of entries, the oldest of a session, and moves its start behind them. If no
// model makes notes and dump is set, the messages themselves, cut short, take their place. It
// reports false if nothing has changed.
func (s *Summarizer) Compact(
	ctx context.Context, key session.Key, before session.Summary, entries []session.Entry,
	who budget.Spender, dump bool,
) (bool, error) {
	notes, err := s.notes(ctx, who, entries, dump)
	if err != nil {
		return false, err
	}
	fault.Point("noted")
	err = s.tx(ctx, func(tx *store.Tx) error {
		cursor, err := s.keep(tx, before.Scope, key, notes, entries)
		if err != nil {
			return err
		}
		text, from := before.Text, before.From
		if all := notes.text(); all != "" {
			text, from = s.joined(key, before, cursor, all, entries)
		}
		moved, err := s.sessions.Compact(tx, key, before, entries[len(entries)-1].ID, text, from)
		if err == nil && !moved {
			err = errMoved
		}
		return err
	})
	if errors.Is(err, errMoved) {
		return true, nil // the next step begins where the start is now
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

// noted is what was noted of a part of a conversation, each "" if nothing was.
type noted struct {
	own     string // of what was said without reading what others have written
	foreign string // of the rest, marked
}

// text returns all of it.
func (n noted) text() string {
	return strings.TrimSpace(n.own + "\n" + n.foreign)
}

// notes asks the model for notes of entries: of turns that have read foreign text by themselves, so
// that nothing lasting comes of it.
func (s *Summarizer) notes(
	ctx context.Context, who budget.Spender, entries []session.Entry, dump bool,
) (n noted, err error) {
	own, foreign := split(entries)
	if len(own) > 0 {
		n.own, err = s.notesOf(ctx, who, own, dump)
	}
	if err == nil && len(foreign) > 0 {
		n.foreign, err = s.notesOf(ctx, who, foreign, dump)
		if n.foreign != "" {
			n.foreign = memory.MarkForeign(n.foreign)
		}
	}
	return n, err
}

// maxHalved is how often a model for notes is asked with less, because it was too much for it.
const maxHalved = 4

// notesOf asks the model for notes of entries.
func (s *Summarizer) notesOf(
	ctx context.Context, who budget.Spender, entries []session.Entry, dumps bool,
) (string, error) {
	size := s.requestSize()
	resp, err := s.Model.Ask(ctx, who, notesRequest(entries, s.Zone, size))
	for range maxHalved { // the window of the model for notes may be smaller
		e, ok := errors.AsType[*llm.Error](err)
		if !ok || e.Kind != llm.ContextTooLong {
			break
		}
		size = min(size, prompt.TextSize(notesRequest(entries, s.Zone, size).Messages)) / 2
		resp, err = s.Model.Ask(ctx, who, notesRequest(entries, s.Zone, size))
	}
	switch {
	case err == nil && resp.Message.Text != "":
		return keptNotes(resp.Message.Text, entries), nil
	case ctx.Err() != nil, errors.Is(err, policy.ErrHalted), errors.Is(err, budget.ErrSpent):
		return "", err
	case dumps:
		s.Logger.WarnContext(ctx, "no notes were made", "err", err)
		return dump(entries, s.Zone), nil
	case err == nil:
		err = &llm.Error{Kind: llm.Unavailable, Model: s.Settings.Background().ModelName}
	}
	return "", err
}

// keep writes notes of entries into the history of a scope, and makes the messages searchable. It
// returns the cursor of the first of the notes.
func (s *Summarizer) keep(
	tx *store.Tx, scope memory.Scope, key session.Key, notes noted, entries []session.Entry,
) (cursor int64, err error) {
	space := s.Memory.In(scope)
	for _, text := range []string{notes.own, notes.foreign} {
		if text == "" {
			continue
		}
		at, err := space.Append(tx, memory.Entry{
			Time: entries[len(entries)-1].Time, Session: string(key), Text: text})
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
			said = append(said, memory.Message{ID: e.ID, Time: e.Time, Session: string(key),
				Speaker: string(r), Text: e.Message.Text})
		}
	}
	return cursor, space.Archive(tx, said)
}

// dreamLater lets Dream look at what is new in the history of a scope.
func (s *Summarizer) dreamLater(tx *store.Tx, scope memory.Scope) error {
	every := s.Settings.Background().Dream
	if !s.Dreams || every <= 0 {
		return nil
	}
	return s.tasks.Put(tx, Task{Work: Work{Kind: Dream, Scope: scope}}, s.Now().Add(every))
}

// sync brings the file with the history of a scope up to date. Entries that can't be written now
// are written the next time.
func (s *Summarizer) sync(ctx context.Context, scope memory.Scope) {
	if err := s.Memory.Sync(context.WithoutCancel(ctx), scope); err != nil {
		s.Logger.WarnContext(ctx, "history not written to its file", "scope", scope, "err", err)
	}
}

// maxSummary is how long the summary of a session may become, in bytes.
const maxSummary = 6000 * prompt.BytesPerToken

// noteHead is what notes in a summary begin with.
var noteHead = regexp.MustCompile(`(?m)^\[notes (\d+), `)

// joined returns the summary of a session with new notes, which have the given cursor, and the
// cursor of the oldest notes in it. The oldest notes go if there is no room for them.
func (s *Summarizer) joined(
	key session.Key, before session.Summary, cursor int64, notes string, entries []session.Entry,
) (text string, from int64) {
	day := func(e session.Entry) string { return e.Time.In(s.Zone).Format(time.DateOnly) }
	first, last := day(entries[0]), day(entries[len(entries)-1])
	if first != last {
		first += " to " + last
	}
	text = fmt.Sprintf("[notes %d, %s, %s]\n%s", cursor, first, Count(len(entries), "message"),
		noteHead.ReplaceAllString(notes, "(notes $1, "))
	if before.Text != "" {
		text = before.Text + "\n\n" + text
	}
	_, tokens := s.Settings.Prompt(key)
	heads := noteHead.FindAllStringSubmatchIndex(text, -1)
	i, most := 0, prompt.Share(tokens, 4, maxSummary)
	for i < len(heads)-1 && len(text)-heads[i][0] > most {
		i++
	}
	from, err := strconv.ParseInt(text[heads[i][2]:heads[i][3]], 10, 64)
	if err != nil {
		from = cursor // a cursor is a number that fits
	}
	return strings.TrimSpace(text[heads[i][0]:]), from
}

// tx runs fn in a transaction, which is finished also while the process ends.
func (s *Summarizer) tx(ctx context.Context, fn func(tx *store.Tx) error) error {
	return s.DB.Tx(context.WithoutCancel(ctx), fn)
}
