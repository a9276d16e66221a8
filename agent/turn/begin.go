package turn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"gateway/agent/attachment"
	"gateway/agent/background"
	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// ErrGone reports that a message was dropped before its turn began, was left to the next process,
// or must be handed out again.
var ErrGone = errors.New("the message is no longer waiting")

// A GoneError is ErrGone with the messages that no longer wait for this session.
type GoneError []int64

func (GoneError) Error() string { return ErrGone.Error() }

// Is reports whether target is [ErrGone].
func (GoneError) Is(target error) bool { return target == ErrGone }

// errScopeMoved reports that the memory of a group has another scope since the turn has read it.
var errScopeMoved = errors.New("the memory of the group has moved")

// begin claims the messages and writes them to the transcript as the turn's first step. If that
// fails, the messages keep waiting.
func (t *runner) begin(ctx context.Context, batch []bus.Received) (err error) {
	defer func() {
		if err != nil {
			t.mailbox.Claimed(ctx, err)
		}
	}()
	if hasSuspect(batch) {
		t.logger().ErrorContext(ctx, "message given up: processes crash while they work on it",
			"seq", batch[0].Seq)
		return cmp.Or(t.refuse(ctx, batch, SayGaveUp), ErrGone)
	}
	if err := t.reader.recordStart(ctx, batch); err != nil {
		return err
	}
	messages := t.reader.userMessages(ctx, batch)
	fault.Point("perceived")
	if isCutShort(ctx) {
		return ErrGone
	}
	messages, gone, err := t.commitFirst(ctx, batch, messages)
	for errors.Is(err, errScopeMoved) { // in the seconds in which the files were loaded
		if err = cmp.Or(t.useConversationScope(ctx), t.findZone(ctx)); err == nil {
			t.loadKnowledge()
			messages, gone, err = t.commitFirst(ctx, batch, messages)
		}
	}
	if err != nil {
		return err
	}
	t.mailbox.Claimed(ctx, nil)
	if gone {
		return ErrGone
	}
	addUnanswered(t.turn)
	t.reader.numbered = false
	t.env.Logger.DebugContext(ctx, "turn begun", "session", t.Session, "turn", t.ID,
		"from", t.Address.String(), "seq", batch[0].Seq, "messages", len(batch))
	fault.Point("begun")
	if t.Moved != "" {
		t.loadKnowledge() // include the documents and skills that have moved
		t.env.Background.Wake()
	}
	if t.reset {
		t.env.Background.Wake()
	}
	t.conv.recall(messages...)
	return nil
}

// addUnanswered makes t also answer the messages that an interrupted turn left.
func addUnanswered(t *turn) {
	if !t.trigger.Origin.Standalone() {
		t.answers, t.unanswered = append(t.unanswered, t.answers...), nil
	}
}

// commitFirst runs the transaction of begin. It adds recalled facts to messages and returns them as
// all. gone reports that the turn must not begin.
func (t *runner) commitFirst(
	ctx context.Context, batch []bus.Received, messages []llm.Message,
) (all []llm.Message, gone bool, err error) {
	all, r, err := t.reader.addRecalled(ctx, batch, messages)
	if err != nil {
		return messages, false, err
	}
	var begun session.Turn // set on t only after the commit
	// t.tx is not needed: there is no usage to write and no message to route yet.
	err = t.env.DB.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		ok, err := t.beginRun(tx)
		if gone = err == nil && !ok; err != nil || gone {
			return t.dropAll(tx, batch, err)
		}
		begun = t.Turn
		if err := t.writeFirst(tx, &begun, batch, all); err != nil {
			return err
		}
		if err := r.touch(tx); err != nil {
			return err
		}
		if err := t.conv.claim(tx, &begun, batch); err != nil {
			return err
		}
		if !begun.First {
			t.conv.news, err = t.env.Transcripts.readNews(tx, t.Session)
		}
		return err
	})
	if err != nil {
		return messages, false, err
	}
	if !gone {
		t.Turn = begun
	}
	return all, gone, nil
}

// isCutShort reports whether the loading of messages has ended early, so that files may be missing
// only because of that. The messages then keep waiting, and a later turn loads them. A turn that
// takes too long fails instead, because a later turn would not be faster.
func isCutShort(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTurnTimeout)
}

// writeFirst writes the turn with its first messages. If the person was linked with another or
// became known since the last turn, it moves their data. It reports errScopeMoved if the memory of
// the group has moved.
func (t *runner) writeFirst(
	tx *store.Tx, begun *session.Turn, batch []bus.Received, messages []llm.Message,
) error {
	if t.trigger.Group {
		s, err := conversationScope(tx, t.turn)
		if err == nil && s != "" && s != t.Scope {
			err = errScopeMoved
		}
		if err != nil {
			return err
		}
	}
	now, first := t.env.Now(), &batch[0].Message
	title := first.ChatTitle
	if !first.Origin.Session.IsZero() {
		title = first.Origin.Label
	}
	// Otherwise the prompt of a job's own session would grow with each run.
	if o := &t.trigger.Origin; o.Standalone() && !o.Session.IsZero() {
		if err := session.Reset(tx, t.Session, now); err != nil {
			return err
		}
	}
	if err := t.resetDaily(tx, now); err != nil {
		return err
	}
	written, err := session.BeginTurn(tx, begun, title, t.lease, now, messages...)
	if err != nil {
		return err
	}
	if t.conv.news = (newMessages{}); begun.First && begun.Moved == "" && t.Session.IsConversation() {
		t.conv.news.read = &session.Transcript{Entries: written}
	}
	if begun.Moved == "" {
		return nil
	}
	return t.env.Merger.Move(tx, t.Session, begun.Moved, t.Scope)
}

// resetDaily begins the conversation anew, as /new does, if it began before the newest reset time
// of the account. A turn that runs at that time continues. Outcomes of sub-agents do not begin the
// conversation anew either.
func (t *runner) resetDaily(tx *store.Tx, now time.Time) (err error) {
	t.reset = false
	if t.resetAt == nil || !t.Session.IsConversation() || t.trigger.Origin.Kind == bus.Outcome {
		return nil
	}
	limit := lastTime(now.In(t.zone()), *t.resetAt)
	if t.reset, err = session.StartedBefore(tx, t.Session, limit); err != nil || !t.reset {
		return err
	}
	archiver := background.Archiver{Summarizer: t.env.Summarizer}
	if err := archiver.Add(tx, t.Session); err != nil {
		return err
	}
	return session.Reset(tx, t.Session, now)
}

// lastTime returns the last time up to now at which a clock showed a time of day. of is that time
// of day, as the time since midnight.
func lastTime(now time.Time, of time.Duration) time.Time {
	year, month, day := now.Date()
	for ; ; day-- {
		// Count minutes of the day: 4:00 is 4:00 also on a day when the clocks change.
		t := time.Date(year, month, day, 0, int(of.Minutes()), 0, 0, now.Location())
		if !t.After(now) {
			return t
		}
	}
}

// MaxCrashes is the number of crashes after which a message whose turn has not begun is given up.
// Before the last of them, the message was tried alone.
const MaxCrashes = 3

// hasSuspect reports whether batch has a message that must be given up.
func hasSuspect(batch []bus.Received) bool {
	for i := range batch {
		if batch[i].Crashes >= MaxCrashes {
			return true
		}
	}
	return false
}

// recordStart records that the turn of batch is about to begin. If the process crashes now, the
// crash counts against batch.
func (t *reader) recordStart(ctx context.Context, batch []bus.Received) error {
	counted := t.env.Now().Before(t.env.CountUntil)
	if !counted && !slices.ContainsFunc(batch, func(r bus.Received) bool {
		return attachment.HasFiles(r.Message)
	}) {
		return nil
	}
	return t.env.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		return t.env.Inbox.MarkStarted(tx, batch)
	})
}
