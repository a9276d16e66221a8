package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gateway/agent/background"
	"gateway/agent/budget"
	"gateway/agent/compact"
	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// What was said becomes notes when it does not fit into the prompt any more, when a conversation
// was left, and when somebody asks for it. The notes go into the history of the scope and into the
// summary of the session; the words themselves stay in the transcript and can be searched. The
// start of the session moves in the transaction that writes the notes, so that nothing is noted
// twice, whoever works on the same session.

// maxCompactions is how many parts of a conversation become notes before one turn.
const maxCompactions = 5

// chunkRead is how many messages are looked at for a part: more than most turns have.
const chunkRead = 1000

// fit makes the prompt fit: notes take the place of the oldest messages until it has half the
// budget. Where that is not to be had, those are left out. It does nothing while there is room, but
// for force.
func (t *turn) fit(ctx context.Context, force bool) error {
	err := t.makeRoom(ctx, force)
	t.cut()
	return err
}

// makeRoom has notes made until the prompt fits or nothing more can go.
func (t *turn) makeRoom(ctx context.Context, force bool) error {
	most, aim := t.room()
	enough := most
	for range maxCompactions {
		size := t.size()
		if size <= enough && !t.truncated && !force {
			return nil
		}
		need := t.d.estimates.Bytes(t.config().ModelID, size-aim)
		if force {
			need = max(need, prompt.TextSize(t.history)/2)
		}
		if t.truncated {
			need = math.MaxInt
		}
		moved, err := t.compactOlder(ctx, need)
		if err != nil || !moved {
			return err
		}
		if err := t.load(ctx); err != nil {
			return err
		}
		enough, force = aim, false
	}
	return nil
}

// room returns how many tokens a prompt may have, and how many it shall have once notes were made:
// half as many. Where the system prompt and the tools leave little of that, half of what they leave
// is for the conversation, or notes would be made of it with every message.
func (t *turn) room() (most, aim int) {
	budget := t.config().contextBudget()
	bare := len(t.system) + prompt.ToolsSize(t.tools.Specs())
	with := func(n int) int { return t.d.estimates.Tokens(t.config().ModelID, bare+n) }
	most, aim = max(budget-1, with(leastHistory)), budget/2
	if with(leastHistory/2) > aim {
		aim = (with(0) + most) / 2
	}
	return most, aim
}

// cut leaves the oldest turns out of a prompt that is too large all the same, because no notes
// could be made, or not yet of all. They are not lost: the start of the session stays before them.
func (t *turn) cut() {
	if most, _ := t.room(); t.size() <= most {
		return
	}
	from, size := t.older, prompt.TextSize(t.history[t.older:])
	for i := from - 1; i >= 0; i-- {
		if size += prompt.TextSize(t.history[i : i+1]); size > t.historySize() {
			break
		}
		if t.history[i].Role == llm.User {
			from = i
		}
	}
	if from > 0 {
		t.history, t.older, t.truncated = t.history[from:], t.older-from, true
	}
}

// size estimates how many tokens the next prompt of the turn has.
func (t *turn) size() int {
	bytes := len(t.system) + prompt.TextSize(t.history) + prompt.ToolsSize(t.tools.Specs())
	return t.d.estimates.Tokens(t.config().ModelID, bytes)
}

// compactOlder makes notes of the oldest part of the conversation, of about need bytes, and reports
// whether there was one. Nothing of this turn goes.
func (t *turn) compactOlder(ctx context.Context, need int) (bool, error) {
	if t.Scope == "" {
		return false, nil
	}
	read := t.d.DB.Read(context.WithoutCancel(ctx))
	first, err := t.d.sessions.TurnStart(read, &t.Turn)
	if err != nil {
		return false, err
	}
	before, err := t.d.sessions.Summary(read, t.Session)
	if err != nil {
		return false, err
	}
	entries, err := t.d.part(read, t.Session, before.Start, first-1, need)
	if err != nil || len(entries) == 0 {
		return false, err
	}
	t.show(t.partial, "Making notes …")
	moved, err := t.d.compact(ctx, t.Session, before, entries, t.spender(), true)
	if ctx.Err() != nil || errors.Is(err, errHalt) || isSpent(err) {
		return false, nil // shows at the next model call, which ends the turn as is due
	}
	return moved, err
}

// part returns the oldest messages of a session after a message, as they were said, of about need
// bytes, that can go at once and none of which is newer than to.
func (d *Dispatcher) part(
	q store.Queryer, key session.Key, after, to int64, need int,
) ([]session.Entry, error) {
	for limit := chunkRead; ; limit *= 4 { // until the end of a turn is found
		list, err := d.sessions.After(q, key, after, limit)
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
		if n = compact.Pick(list, n, need); n > 0 || whole {
			return compact.Fitting(prompt.AsSaid(list[:n]), d.opts.Location, d.notesSize()), nil
		}
	}
}

// notesSize is how many bytes of a conversation the model for notes is asked about at once.
func (d *Dispatcher) notesSize() int {
	return d.estimates.Bytes(d.config().NotesID, d.config().contextBudget()*3/4)
}

// errMoved reports that somebody else has made notes of a part.
var errMoved = errors.New("the start of the session has moved")

// compact makes notes of entries, the oldest of a session, and moves its start behind them. If no
// model makes notes, dump says that the messages themselves, cut short, take their place. It
// reports false if nothing has changed.
func (d *Dispatcher) compact(
	ctx context.Context, key session.Key, before session.Summary, entries []session.Entry,
	who budget.Spender, dump bool,
) (bool, error) {
	notes, err := d.notes(ctx, who, entries, dump)
	if err != nil {
		return false, err
	}
	fault.Point("noted")
	err = d.tx(ctx, func(tx *store.Tx) error {
		cursor, err := d.keepNotes(tx, before.Scope, key, notes, entries)
		if err != nil {
			return err
		}
		text, from := before.Text, before.From
		if all := notes.text(); all != "" {
			text, from = d.joined(key, before, cursor, all, entries)
		}
		moved, err := d.sessions.Compact(tx, key, before, entries[len(entries)-1].ID, text, from)
		if err == nil && !moved {
			err = errMoved
		}
		return err
	})
	if errors.Is(err, errMoved) {
		return true, nil // what is to be done next is seen from there
	}
	if err != nil {
		return false, err
	}
	fault.Point("compacted")
	d.opts.Logger.InfoContext(ctx, "conversation compacted", "session", key,
		"messages", len(entries), "notes", len(notes.text()))
	d.syncHistory(ctx, before.Scope)
	return true, nil
}

// A noted is what was noted of a part of a conversation, each "" if nothing was.
type noted struct {
	own     string // of what was said without reading what others have written
	foreign string // of the rest, marked
}

// text returns all of it.
func (n noted) text() string {
	return strings.TrimSpace(n.own + "\n" + n.foreign)
}

// notes asks the model for notes of entries: of what others may have had a say in by themselves, so
// that nothing lasting comes of it. dump says what to do if it makes none.
func (d *Dispatcher) notes(
	ctx context.Context, who budget.Spender, entries []session.Entry, dump bool,
) (n noted, err error) {
	own, foreign := compact.Split(entries)
	if len(own) > 0 {
		n.own, err = d.notesOf(ctx, who, own, dump)
	}
	if err == nil && len(foreign) > 0 {
		n.foreign, err = d.notesOf(ctx, who, foreign, dump)
		if n.foreign != "" {
			n.foreign = memory.MarkForeign(n.foreign)
		}
	}
	return n, err
}

// notesOf asks the model for notes of entries.
func (d *Dispatcher) notesOf(
	ctx context.Context, who budget.Spender, entries []session.Entry, dump bool,
) (string, error) {
	size := d.notesSize()
	resp, err := d.consult(ctx, who, compact.Request(entries, d.opts.Location, size))
	for range maxHalved { // the window of the model for notes may be smaller
		e, ok := errors.AsType[*llm.Error](err)
		if !ok || e.Kind != llm.ContextTooLong {
			break
		}
		size = min(size, prompt.TextSize(compact.Request(entries, d.opts.Location, size).Messages)) / 2
		resp, err = d.consult(ctx, who, compact.Request(entries, d.opts.Location, size))
	}
	switch {
	case err == nil && resp.Message.Text != "":
		return compact.Notes(resp.Message.Text, entries), nil
	case ctx.Err() != nil, errors.Is(err, errHalt), isSpent(err):
		return "", err
	case dump:
		d.opts.Logger.WarnContext(ctx, "no notes were made", "err", err)
		return compact.Dump(entries, d.opts.Location), nil
	case err == nil:
		err = &llm.Error{Kind: llm.Unavailable, Model: d.config().ModelName}
	}
	return "", err
}

// maxHalved is how often a model for notes is asked with less, because it was too much for it.
const maxHalved = 4

// keepNotes writes notes of entries into the history of a scope, and makes what they say
// searchable. It returns the cursor of the first of the notes.
func (d *Dispatcher) keepNotes(
	tx *store.Tx, s memory.Scope, key session.Key, notes noted, entries []session.Entry,
) (cursor int64, err error) {
	space := d.Memory.In(s)
	for _, text := range []string{notes.own, notes.foreign} {
		if text == "" {
			continue
		}
		at, err := space.Append(tx, memory.Entry{
			Time: entries[len(entries)-1].Time, Session: string(key), Text: text})
		if err == nil {
			err = d.dreamLater(tx, s)
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
func (d *Dispatcher) dreamLater(tx *store.Tx, s memory.Scope) error {
	if d.Documents == nil || d.config().DreamEvery <= 0 {
		return nil
	}
	return d.chores.Put(tx, background.Task{Work: background.Work{Kind: background.Dream, Scope: s}},
		d.opts.Now().Add(d.config().DreamEvery))
}

// syncHistory brings the file with the history of a scope up to date. What can't be written now is
// written the next time.
func (d *Dispatcher) syncHistory(ctx context.Context, s memory.Scope) {
	if err := d.Memory.Sync(context.WithoutCancel(ctx), s); err != nil {
		d.opts.Logger.WarnContext(ctx, "history not written to its file", "scope", s, "err", err)
	}
}

// maxSummary is how long the summary of a session may become, in bytes.
const maxSummary = 6000 * prompt.BytesPerToken

// noteHead is what notes in a summary begin with.
var noteHead = regexp.MustCompile(`(?m)^\[notes (\d+), `)

// joined returns the summary of a session with new notes, which have the given cursor, and the
// cursor of the oldest notes in it: what has become too old goes.
func (d *Dispatcher) joined(
	key session.Key, before session.Summary, cursor int64, notes string, entries []session.Entry,
) (text string, from int64) {
	day := func(e session.Entry) string { return e.Time.In(d.opts.Location).Format(time.DateOnly) }
	first, last := day(entries[0]), day(entries[len(entries)-1])
	if first != last {
		first += " to " + last
	}
	text = fmt.Sprintf("[notes %d, %s, %s]\n%s", cursor, first, count(len(entries), "message"),
		noteHead.ReplaceAllString(notes, "(notes $1, "))
	if before.Text != "" {
		text = before.Text + "\n\n" + text
	}
	heads := noteHead.FindAllStringSubmatchIndex(text, -1)
	i, most := 0, d.configOf(key).partOf(4, maxSummary)
	for i < len(heads)-1 && len(text)-heads[i][0] > most {
		i++
	}
	from, err := strconv.ParseInt(text[heads[i][2]:heads[i][3]], 10, 64)
	if err != nil {
		from = cursor // a cursor is a number that fits
	}
	return strings.TrimSpace(text[heads[i][0]:]), from
}
