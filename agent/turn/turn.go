package turn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"gateway/agent/llm"
	"gateway/agent/persona"
	"gateway/agent/prompt"
	"gateway/agent/question"
	"gateway/agent/schedule"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// A turn holds the people and settings of a turn. Its parts share it and do the work, each with one
// concern: costs, preview, conversation, modelCaller, reader, permissions, toolRound. A part holds
// the parts that it uses. The runner has them all.
type turn struct {
	session.Turn
	env      *Env
	mailbox  Mailbox
	settings *Settings

	trigger    bus.InboundMessage // first message; its Origin says why the turn began
	joined     bool               // a person has written to the turn
	voiced     bool               // the newest message is a voice message
	location   *time.Location     // time zone that the people have set, or nil
	sender     bus.Sender         // author of the newest message
	person     int64              // author of the newest message
	role       bus.Role           // lowest role among the authors
	tools      *tool.Registry     // tools that this role may use
	loaded     *knowledge         // documents, skills and memory that the turn has loaded
	group      bool               // several people read the chat
	chatTitle  string             // title of the group, as the platform says
	title      string             // title of the group, cleaned; "" in a direct chat
	answers    []string           // platform's ids of the messages that the next answer answers
	unanswered []string           // platform's ids of messages that an interrupted turn left
	chats      []bus.Address      // all direct chats of the person whose conversation this is
}

// A runner runs a turn from its beginning to its end.
type runner struct {
	*turn
	costs   *costs
	preview *preview
	conv    *conversation
	model   *modelCaller
	reader  *reader
	round   *toolRound

	lease     store.Lease
	began     time.Time
	continued int           // how often the answer hit the output limit
	blanks    int           // number of answers without text
	ended     session.State // set when the turn has ended
	refused   bool          // the first messages were answered without a turn
	resetAt   *time.Duration
	reset     bool // the session began anew with the turn
}

var (
	errDraining    = errors.New("the gateway is stopping")
	errTurnTimeout = errors.New("the turn takes too long")
)

// MaxAttempts is how often a turn may be begun or resumed before it is given up. Attempts that
// ended because the process was stopping do not count.
const MaxAttempts = 4

// run begins the turn with batch, or resumes it if batch is nil, and runs it to its end.
func (t *runner) run(ctx context.Context, batch []bus.Received) error {
	if err := t.identify(ctx, batch); err != nil {
		return err
	}
	if batch != nil {
		if err := t.begin(ctx, batch); err != nil {
			return err
		}
	} else if over, err := t.checkResume(ctx); over || err != nil {
		return err
	}
	if err := t.conv.restore(ctx); err != nil {
		return err
	}
	if isClosed(t.conv.history) {
		return session.ErrEnded // by /stop, after begin or checkResume
	}
	if batch == nil {
		if err := t.countRounds(ctx); err != nil {
			return err
		}
		waited, err := t.round.resumeTools(ctx)
		if err == nil && waited {
			err = t.boundary(ctx)
		}
		if err != nil {
			return err
		}
	}
	t.preview.showBegin()
	for {
		resp, err := t.model.ask(ctx)
		if err != nil {
			if done, err := t.failed(ctx, err); done || err != nil {
				return err
			}
			continue
		}
		if done, err := t.step(ctx, resp); done || err != nil {
			return err
		}
	}
}

// isClosed reports whether a transcript ends with the last message of a turn, so that no model call
// is due.
func isClosed(history []llm.Message) bool {
	n := len(history)
	return n > 0 && history[n-1].Role == llm.Assistant && len(history[n-1].ToolCalls) == 0
}

// checkResume returns an error for a turn that was stopped before its worker ran. It ends a turn
// that was resumed too often, and then reports over.
func (t *runner) checkResume(ctx context.Context) (over bool, err error) {
	// Unlike [turn.txSoon], this call does not end the trial of a suspected turn.
	err = t.env.DB.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		return t.conv.append(tx, &t.Turn, nil, nil)
	})
	if err != nil || t.Attempts-t.Handed <= MaxAttempts {
		return false, err
	}
	t.conv.history, err = session.TurnMessages(t.env.DB.Read(context.WithoutCancel(ctx)), &t.Turn)
	if err != nil {
		return false, err
	}
	return true, t.fail(ctx, SayGaveUp)
}

// identify determines for whom the turn works. For a resumed turn it reads the messages that the
// turn has claimed.
func (t *runner) identify(ctx context.Context, batch []bus.Received) error {
	resumed := batch == nil
	if resumed {
		var err error
		batch, err = t.env.Inbox.ClaimedBy(t.env.DB.Read(context.WithoutCancel(ctx)), t.ID)
		if err != nil || len(batch) == 0 {
			return err
		}
	}
	t.Scope = memory.ScopeOf(batch[len(batch)-1].Message)
	t.setTrigger(batch[0].Message)
	// The people may have been unlinked meanwhile, or the group may have moved.
	if resumed || t.trigger.Origin.Standalone() || t.trigger.Group {
		if err := t.useConversationScope(ctx); err != nil {
			return err
		}
	}
	if err := t.findZone(ctx); err != nil {
		return err
	}
	if id := t.Session.Person; id != 0 {
		var err error
		t.chats, err = bus.ChatsOf(t.env.DB.Read(context.WithoutCancel(ctx)), id)
		if err != nil {
			return err
		}
	}
	t.loadKnowledge()
	t.addWriters(batch)
	if resumed { // a suspended turn may also answer messages of an interrupted one
		for _, id := range t.unanswered {
			if !slices.Contains(t.answers, id) {
				t.answers = append(t.answers, id)
			}
		}
		t.unanswered = nil
	}
	if m := batch[len(batch)-1].Message; m.Group {
		t.group, t.chatTitle = true, m.ChatTitle
		t.title = prompt.Name(m.ChatTitle, "without a title")
	}
	return nil
}

// setTrigger sets the first message of the turn, and with it the settings of the turn. A resumed
// turn keeps its persona.
func (t *turn) setTrigger(first bus.InboundMessage) {
	t.trigger = first
	if at := persona.PlaceOf(&first); t.ID == 0 {
		t.settings = t.settings.ForPlace(at)
		t.Persona = t.settings.Here.ID()
	} else {
		t.settings = t.settings.resumed(at, t.Persona)
	}
	if c := t.settings.Models[first.Origin.Kind]; c != nil && t.settings.Here.Model == "" {
		t.settings = t.settings.With(c)
	}
}

// addWriters records the authors of batch, which the turn claims. The turn may do only what each
// author may do.
func (t *runner) addWriters(batch []bus.Received) {
	t.restrict(batch)
	t.round.offerTools() // A repeated call can make sense after a new message.
	for i := range batch {
		m := &batch[i].Message
		if t.tools == nil || !m.Role.AtLeast(t.role) {
			t.role = m.Role
			t.tools = t.toolsFor(t.role)
		}
		t.sender, t.person = m.Sender, m.Person
		t.voiced = isVoice(m)
		if m.Origin.Kind == bus.Person {
			t.joined = true
			t.answers = append(t.answers, m.ID)
		}
	}
}

// countRounds counts the work of earlier attempts.
func (t *runner) countRounds(ctx context.Context) error {
	read := t.env.DB.Read(context.WithoutCancel(ctx))
	messages, err := session.TurnMessages(read, &t.Turn)
	if err != nil {
		return err
	}
	t.round.recount(messages)
	t.conv.addSources(messages)
	return nil
}

// step acts on an answer of the model. done reports that the turn has ended.
func (t *runner) step(ctx context.Context, resp *llm.Response) (done bool, err error) {
	m := resp.Message
	switch {
	case len(m.ToolCalls) > 0 && t.model.closing == "":
		markCut(resp)
		if err := t.round.useTools(ctx, m); err != nil {
			return false, err
		}
		t.continued = 0
		return false, t.boundary(ctx)

	case resp.Finish == llm.FinishFiltered:
		refused := &llm.Error{Kind: llm.ContentRefused, Model: resp.Model}
		if showsNothing(t.preview.partial + m.Text) { // an earlier message may be the reason
			return t.failed(ctx, refused)
		}
		t.preview.partial += m.Text
		return true, t.fail(ctx, ErrorText(refused))

	case resp.Finish == llm.FinishLength && m.Text != "" && t.continued < maxContinued:
		t.continued++
		t.preview.partial += m.Text
		return false, nil

	case showsNothing(t.preview.partial+m.Text) && t.mayBeSilent():
		return t.answer(ctx, llm.Message{Role: llm.Assistant, Text: silent})

	case showsNothing(t.preview.partial + m.Text):
		if t.blanks++; t.blanks == 2 {
			t.model.closing = AskAnswer
		} else if t.blanks > 2 {
			return true, t.fail(ctx, SayBlank)
		}
		return false, nil
	}
	m.Text, m.ToolCalls = t.preview.partial+m.Text, nil
	return t.answer(ctx, m)
}

// showsNothing reports whether text has no visible character. Platforms refuse such a text as
// empty: spaces, control and format characters such as U+200B and U+FEFF, marks without a letter,
// and letters and symbols that Unicode defines as blank.
func showsNothing(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsPrint(r) && !unicode.IsSpace(r) && !unicode.IsMark(r) &&
			!strings.ContainsRune("\u115f\u1160\u2800\u3164\uffa0", r)
	})
}

// maxContinued is how often an answer that hit the output limit is continued.
const maxContinued = 3

// answer ends the turn with m as its answer. What the person has written in the meantime gets
// another turn, with limits of its own.
func (t *runner) answer(ctx context.Context, m llm.Message) (done bool, err error) {
	out := t.preview.outbound(t.visibleText(m.Text))
	later, spoken := false, false
	now := t.env.Now()
	err = t.costs.tx(ctx, func(tx *store.Tx) error {
		if err := t.deliver(tx, out); err != nil {
			return err
		}
		if spoken, err = t.costs.addSpeech(tx, out); err != nil {
			return err
		}
		if later, err = t.addCompaction(tx); err != nil {
			return err
		}
		return t.end(tx, &t.Turn, session.Done, m)
	})
	if err != nil {
		return false, err
	}
	fault.Point("finished")
	t.env.Logger.InfoContext(ctx, "answer ready", "session", t.Session, "turn", t.ID,
		"took", now.Sub(t.began), "rounds", t.round.rounds,
		"input", t.costs.used.Input, "output", t.costs.used.Output)
	if t.isTask() {
		t.env.Inbox.Wake() // a sub-agent has put its outcome into the inbox
	}
	t.preview.showEnd(false)
	if later || spoken {
		t.env.Background.Wake()
	}
	return true, nil
}

// boundary runs between two steps, when all calls have their results. The turn then claims the
// messages that the person has written in the meantime.
func (t *runner) boundary(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil // the next model call reports it
	}
	batch := t.mailbox.Next()
	if len(batch) == 0 {
		return nil
	}
	err := t.reader.recordStart(ctx, batch)
	var messages []llm.Message
	var r recalled
	if err == nil {
		t.restrict(batch)
		messages, r, err = t.reader.addRecalled(ctx, batch, t.reader.userMessages(ctx, batch))
	}
	if err == nil && ctx.Err() != nil { // files may be missing only because of that
		t.mailbox.Claimed(ctx, ErrGone)
		return nil // the messages keep waiting, and the next model call reports it
	}
	if err != nil {
		t.mailbox.Claimed(ctx, err)
		return err
	}
	joined := t.Turn
	joined.ReplyTo = QuoteID(batch[len(batch)-1].Message)
	err = t.costs.txSoon(ctx, func(tx *store.Tx) error {
		if err := r.touch(tx); err != nil {
			return err
		}
		return t.conv.append(tx, &joined, batch, messages)
	})
	if errors.Is(err, ErrGone) { // the messages were dropped
		return t.boundary(ctx)
	}
	if err != nil {
		return err
	}
	t.Turn = joined
	t.conv.recall(messages...)
	t.addWriters(batch)
	return nil
}

// end ends st in tx with its last messages.
func (t *runner) end(tx *store.Tx, st *session.Turn, s session.State, last ...llm.Message) error {
	if err := session.EndTurn(tx, st, s, t.env.Now(), last...); err != nil {
		return err
	}
	t.ended = s
	said := schedule.Answer{}
	if len(last) > 0 {
		said.Text = last[len(last)-1].Text
	}
	if strings.TrimSpace(said.Text) != silent { // no foreign text can be in these words
		said.Foreign, said.Rights = t.conv.foreign() != "", t.conv.overheard()
	}
	if err := t.endRun(tx, s, said); err != nil {
		return err
	}
	if err := t.round.addVersion(tx); err != nil {
		return err
	}
	if t.preview.woken {
		if err := question.EndAll(tx, st.ID); err != nil {
			return err
		}
	}
	return t.env.Inbox.Finish(tx, st.ID)
}

// fail ends the turn with an explanation for the person instead of an answer.
func (t *runner) fail(ctx context.Context, say string) error {
	out := t.preview.outbound(say)
	if t.preview.partial != "" { // keep readable the text that people have seen
		out.Text = t.visibleText(t.preview.partial + "\n\n" + say)
	}
	last := append(prompt.FillMissingResults(t.conv.history, ResultFailed),
		llm.Message{Role: llm.Assistant, Text: MarkFailed})
	err := t.costs.tx(ctx, func(tx *store.Tx) error {
		if err := t.deliverFailure(tx, out); err != nil {
			return err
		}
		return t.end(tx, &t.Turn, session.Failed, last...)
	})
	if err == nil {
		t.preview.showEnd(false)
		t.env.Inbox.Wake() // a sub-agent has put its outcome into the inbox
	}
	return err
}

// failed handles a failed model call. done reports that the turn has ended; otherwise the caller
// repeats the call.
func (t *runner) failed(ctx context.Context, err error) (done bool, _ error) {
	switch cause := context.Cause(ctx); {
	case errors.Is(err, errDraining):
		return true, errDraining
	case errors.Is(cause, ErrStopped):
		return true, session.ErrEnded
	case errors.Is(cause, ErrInterrupted):
		return true, t.interrupted(ctx)
	case errors.Is(cause, errTurnTimeout):
		return true, t.fail(ctx, SayTimeout)
	case cause != nil:
		return true, errDraining
	case errors.Is(err, errNoSlot):
		return true, t.fail(ctx, SayBusy)
	}
	if e, ok := errors.AsType[*llm.Error](err); ok {
		if again, err := t.model.adapt(ctx, e); again || err != nil {
			return false, err
		}
	}
	t.logger().WarnContext(ctx, "model call failed", "err", err)
	return true, t.fail(ctx, ErrorText(err))
}

// interrupted ends the turn in favour of a newer message.
func (t *runner) interrupted(ctx context.Context) error {
	last := append(prompt.FillMissingResults(t.conv.history, ResultStopped),
		llm.Message{Role: llm.Assistant, Text: MarkInterrupted})
	err := t.costs.tx(ctx, func(tx *store.Tx) error {
		return t.end(tx, &t.Turn, session.Stopped, last...)
	})
	if err == nil {
		t.unanswered = append(t.unanswered, t.answers...)
		t.preview.showEnd(true)
	}
	return err
}

// QuoteID returns the platform's id of m if an answer must quote m, because it is in a group.
func QuoteID(m bus.InboundMessage) string {
	if m.Group && m.Origin.Kind == bus.Person {
		return m.ID
	}
	return ""
}

// ErrInterrupted is the cause when a newer message ends a turn's context; ErrStopped is the cause
// when a person does.
var (
	ErrInterrupted = errors.New("interrupted by a newer message")
	ErrStopped     = errors.New("stopped by a person")
)
