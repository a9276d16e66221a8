package gate

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
	"gateway/store"
)

// A Gate decides which messages get into the inbox. It stores nothing about people who are not
// admitted except a pairing request.
type Gate struct {
	db     *store.DB
	inbox  *bus.Inbox
	outbox *bus.Outbox
	people People
	now    func() time.Time
	log    *slog.Logger

	listeners []Listener

	rates        rateLimiter // for messages, by sender
	pairingRates rateLimiter // for pairing requests
	groupRates   rateLimiter // for questions about unlisted groups
	recheckRates rateLimiter // for checks whether a person was approved a moment ago
	backlog      backlog
	dropped      atomic.Int64
	moves        *moves

	mu       sync.Mutex
	policies map[string]Policy // by account
	stats    map[string]*Stats
	unlisted map[bus.Address]bool // unlisted groups that were logged
	profileCache
}

// A profileCache has profiles that were read lately.
type profileCache struct {
	profiles      map[writer]cachedProfile // cleared every profileAge
	profilesSince time.Time                // when profiles was cleared
	generation    int                      // how often profiles was cleared
}

// An identity is a person or a chat on an account.
type identity struct{ account, id string }

// profileAge is the maximum delay until the gate sees a change that another process makes to
// people. Before it refuses a person it reads the tables again, because they may have been approved
// a moment ago. One sender can cause three such reads in ten minutes. After that their profile may
// be recheckAge old, so there are at most 20 reads per second.
const (
	profileAge = time.Second
	recheckAge = 50 * time.Millisecond
)

// New returns a Gate.
func New(db *store.DB, inbox *bus.Inbox, outbox *bus.Outbox, log *slog.Logger) *Gate {
	return &Gate{db: db, inbox: inbox, outbox: outbox, now: time.Now, log: log,
		policies: make(map[string]Policy), stats: make(map[string]*Stats),
		unlisted: make(map[bus.Address]bool), moves: newMoves()}
}

// A Listener is told about new messages in the inbox.
type Listener interface {
	// Admitted is called after the transaction that stored the messages. It is not called for
	// overheard messages. It must not block.
	Admitted(messages []bus.InboundMessage)
}

// Notify adds listeners. Call it before the first channel runs.
func (g *Gate) Notify(listeners ...Listener) { g.listeners = append(g.listeners, listeners...) }

// A decided message is a message with the decision on it.
type decided struct {
	bus.InboundMessage
	decision decision
	demoted  bool   // the sender is stored as an owner but no longer is one
	back     bool   // it is from a group that the account had left
	undo     func() // gives the token back to the sender's rate
}

// decideAll decides on each message of a batch. It returns the messages that need a row in the
// database, in order. For the others it fills unanswered with texts for the senders, by message ID.
func (in *intake) decideAll(
	ctx context.Context, b channels.Batch, unanswered map[string]string,
) ([]decided, error) {
	if len(b.Messages) == 0 && len(b.Joined) == 0 {
		return nil, nil
	}
	read := in.gate.db.Read(ctx)
	kept, err := in.decideJoined(read, b)
	if err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done {
			undoAll(kept)
		}
	}()
	policy := in.gate.policy(in.account)
	kept = slices.Grow(kept, len(b.Messages))
	for _, m := range b.Messages {
		who, d, err := in.decideRecent(read, policy, &m, b.Migrated)
		undo, joins := func() {}, false
		if err == nil && d == ambient {
			joins, err = continues(read, &m, kept)
		}
		if err == nil && (d == admitted || joins) {
			d, undo, err = in.limit(ctx, policy, &m, joins, unanswered)
		}
		if err != nil {
			return nil, err
		}
		if d < ambient {
			d, undo = in.refuse(ctx, m, d, unanswered)
		}
		if d != ignored && d != dropped {
			kept = append(kept, decided{m, d, who.chat != "" && m.Role != bus.Owner,
				who.wasReadded(&m), undo})
		}
	}
	done = true
	return kept, nil
}

// decideRecent decides on m as [Gate.decide] does. Before it refuses a direct message it reads the
// sender's profile again, because the sender may have been approved a moment ago.
func (in *intake) decideRecent(
	q store.Queryer, p Policy, m *bus.InboundMessage, moved map[string]string,
) (profile, decision, error) {
	g := in.gate
	who, d, err := g.decide(q, p, m, moved, profileAge)
	if err != nil || d >= ambient || m.Group {
		return who, d, err
	}
	maxAge := recheckAge
	if ok, _ := g.recheckRates.allowRare(identity{in.account, m.Sender.ID}, g.now()); ok {
		maxAge = 0
	}
	return g.decide(q, p, m, moved, maxAge)
}

// refuse counts m, which is not admitted because of its sender or its group. It returns d, or
// ignored if no pairing code and no question to the owners may follow now. undo gives the token
// back that a code takes from the sender's rate.
func (in *intake) refuse(
	ctx context.Context, m bus.InboundMessage, d decision, unanswered map[string]string,
) (_ decision, undo func()) {
	g := in.gate
	in.stats.Refused.Add(1)
	// The gateway stores nothing about a stranger, and a pairing code would change that. The platform
	// may also repeat the message after the gateway has erased its sender.
	if d == stranger && !asksToBeForgotten(m.Text) {
		ok, undo := g.pairingRates.allowRare(identity{in.account, m.Sender.ID}, g.now())
		if ok {
			return stranger, undo
		}
	}
	unanswered[m.ID] = textNotHere
	if !m.Group {
		unanswered[m.ID] = textNotYou
	}
	in.logIgnored(ctx, m)
	if d == unlisted && (m.Role == bus.Owner || in.mayAsk(m.From)) {
		return unlisted, func() {}
	}
	return ignored, func() {}
}

// undoAll gives the senders of a batch that was not stored their tokens back. The batch will be
// published again.
func undoAll(list []decided) {
	for _, d := range list {
		d.undo()
	}
}

// maxUnlisted is the maximum number of unlisted groups that the log names.
const maxUnlisted = 100

// logIgnored logs that m is ignored. For each group it does so once at level INFO, with the id that
// is needed to list the group.
func (in *intake) logIgnored(ctx context.Context, m bus.InboundMessage) {
	g := in.gate
	g.mu.Lock()
	news := m.Group && !g.unlisted[m.From] && len(g.unlisted) < maxUnlisted
	if news {
		g.unlisted[m.From] = true
	}
	g.mu.Unlock()
	if !news {
		g.log.DebugContext(ctx, "message not admitted", "from", m.From.String(), "id", m.ID)
		return
	}
	g.log.InfoContext(ctx, "message in a group that is not listed is ignored: to answer there, "+
		"add its id to groups of the account", "account", in.account, "group", m.From.Chat,
		"title", m.ChatTitle)
}

// mayAsk reports whether owners may now be asked about a group. Strangers can cause one query per
// group in ten minutes.
func (in *intake) mayAsk(a bus.Address) bool {
	ok, _ := in.gate.groupRates.allowRare(identity{a.Account, a.Chat}, in.gate.now())
	return ok
}

// asksToBeForgotten reports whether text is the command to forget its sender.
func asksToBeForgotten(text string) bool {
	words := strings.Fields(strings.ToLower(text))
	return len(words) > 0 && words[0] == "/forget"
}

// replies counts the messages that save put into the outbox.
type replies struct{ codes, dropped int }

// save stores the outcome of a batch. It returns the new messages in the inbox, and counts the
// replies that it put into the outbox. If hold is set, the messages are held, and save returns
// none. It adds to unanswered the strangers who get no code.
func (g *Gate) save(
	tx *store.Tx, list []decided, hold bool, now time.Time, unanswered map[string]string,
) (fresh []bus.InboundMessage, sent replies, err error) {
	fresh = make([]bus.InboundMessage, 0, len(list))
	for i := range list {
		d := &list[i]
		m, done := d.InboundMessage, false
		switch d.decision {
		case ambient:
			_, err = g.inbox.PutAmbient(tx, m, now)
		case stranger:
			delete(unanswered, m.ID) // set by an earlier run of this transaction
			if done, err = g.offerPairing(tx, m, now); done {
				sent.codes++
			} else {
				unanswered[m.ID] = textNotYet
			}
		case unlisted:
			err = g.askGroup(tx, m, now)
		case tooFast:
			sent.dropped++
			err = g.outbox.Put(tx, notice(m, textTooFast), now)
		case inboxFull:
			sent.dropped++
			err = g.outbox.Put(tx, notice(m, textInboxFull), now)
		default:
			switch {
			case m.Role == bus.Owner && !m.Group:
				err = g.people.noteOwner(tx, &m, now)
			case d.demoted:
				err = g.people.demote(tx, m.From.Account, m.Sender.ID)
			}
			if d.back && err == nil {
				tx.After(g.Invalidate)
				err = Groups{}.forget(tx, m.From)
			}
			if err != nil {
				return nil, replies{}, err
			}
			if hold {
				_, err = g.inbox.PutHeld(tx, m, now)
			} else {
				fresh, err = admit(tx, g.inbox, m, fresh, now)
			}
		}
		if err != nil {
			return nil, replies{}, err
		}
	}
	return fresh, sent, nil
}

// admit puts m into the inbox. Earlier messages that accompany it and were stored as context come
// before it: only m says that they are for the agent. admit appends the new messages to fresh.
func admit(
	tx *store.Tx, inbox *bus.Inbox, m bus.InboundMessage, fresh []bus.InboundMessage, now time.Time,
) (_ []bus.InboundMessage, err error) {
	var parts []bus.InboundMessage
	if m.Group && m.Edits == "" && m.VoiceState != bus.Overheard {
		parts, err = bus.TakeAmbient(tx, m.From, func(o *bus.InboundMessage) bool {
			return accompanies(o, &m)
		})
	}
	for _, part := range append(parts, m) {
		// The sender's number and role may have changed since a part was stored.
		part.Person, part.Role, part.Origin.Former = m.Person, m.Role, m.Origin.Former
		added := false
		if err == nil {
			added, err = inbox.Put(tx, part, now)
		}
		if added {
			fresh = append(fresh, part)
		}
	}
	return fresh, err
}

// notice returns a reply to the sender of m, which was not accepted.
func notice(m bus.InboundMessage, text string) bus.OutboundMessage {
	out := bus.OutboundMessage{To: m.From, Text: text}
	if m.Group {
		out.ReplyTo = m.ID
	}
	return out
}

// Texts that only the sender of a message sees, on platforms that support that.
const (
	textNotHere = "I don't answer in this channel. The owner of this gateway can add it to `groups`."
	textNotYou  = "I answer only people whom the owner of this gateway has listed."
	textNotYet  = "You are not approved yet. The owner of this gateway can approve your code."
)

const textTooFast = "You write too fast: I may lose this message and those that follow " +
	"within the next minute. Please wait a moment and send it again."

const textInboxFull = "Too many messages are waiting for me, so I can't accept this one or " +
	"those that follow for now. Please try again in an hour."

func (in *intake) saveCursor(tx *store.Tx, place, cursor string) error {
	if cursor == "" {
		return nil
	}
	_, err := tx.Exec(`INSERT INTO places (account, place, cursor) VALUES ($1, $2, $3)
		ON CONFLICT (account, place) DO UPDATE SET cursor = excluded.cursor`,
		in.account, place, cursor)
	return store.Wrap(err, "gate: cursor of %s", in.account)
}

// dropCursor deletes the cursor of a place. If only is not "", it deletes no other cursor.
func (in *intake) dropCursor(tx *store.Tx, place, only string) error {
	_, err := tx.Exec(`DELETE FROM places WHERE account = $1 AND place = $2
		AND cursor = CASE WHEN $3 = '' THEN cursor ELSE $3 END`, in.account, place, only)
	return store.Wrap(err, "gate: forget cursor of %s", in.account)
}

// tell sends a message to several chats.
func tell(
	tx *store.Tx, outbox *bus.Outbox, chats []bus.Address, m bus.OutboundMessage, now time.Time,
) error {
	for _, m.To = range chats {
		if err := outbox.Put(tx, m, now); err != nil {
			return err
		}
	}
	return nil
}

// pairingChats returns the direct chats in which owners learn of the strangers of an account: those
// with this account, or else, if no owner has one, those with other accounts.
func pairingChats(tx *store.Tx, g *Gate, account string) (list []bus.Address, err error) {
	list, err = g.people.owners(tx, account)
	if err != nil || len(list) > 0 {
		return list, err
	}
	return g.people.OwnersBeside(tx, bus.Address{}, func(account string) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		p, ok := g.policies[account]
		return ok && !p.ShowsPairings
	})
}

// offerPairing sends the sender of m a pairing code and reports whether it did. It also tells the
// owners, unless many strangers ask at once.
func (g *Gate) offerPairing(tx *store.Tx, m bus.InboundMessage, now time.Time) (bool, error) {
	code, tell, err := g.people.requestPairing(tx, m, now)
	if err != nil || code == "" {
		return false, err
	}
	err = g.outbox.Put(tx, bus.OutboundMessage{To: m.From, Text: fmt.Sprintf(
		"Hello! I only answer people I know. Your pairing code is `%[1]s`, valid for ten minutes.\n\n"+
			"Send it to the person who runs me. They let you in by sending me `/pair %[1]s`, or on "+
			"my machine with\n\n`gateway people approve %[1]s`", code)}, now)
	if err != nil || !tell {
		return err == nil, err
	}
	owners, err := pairingChats(tx, g, m.From.Account)
	if err != nil {
		return false, err
	}
	for _, chat := range owners {
		where := ""
		if chat.Account != m.From.Account {
			where = " on " + m.From.Account
		}
		err := g.outbox.Put(tx, bus.OutboundMessage{
			To: chat,
			Text: fmt.Sprintf("%s (id `%s`) wants to talk to me%s (code `%s`). Let them in?",
				markup.Literal(channels.SenderName(m.Sender)), m.Sender.ID, where, code),
			Buttons: []bus.Button{{Label: "Let in", Text: "/pair " + code},
				{Label: "Deny", Text: "/pair deny " + code}},
		}, now)
		if err != nil {
			return false, err
		}
	}
	return true, nil
}
