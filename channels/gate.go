package channels

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"gateway/bus"
	"gateway/store"
	"gateway/store/fault"
)

// A Gate decides what gets into the inbox. Nobody who is not admitted leaves a trace there, and
// nothing is done for them but to offer a pairing code.
type Gate struct {
	db     *store.DB
	inbox  *bus.Inbox
	outbox *bus.Outbox
	people People
	now    func() time.Time
	log    *slog.Logger

	// Admitted is told of messages that are new in the inbox, for what people shall see of that.
	// It must not wait for anything.
	Admitted func([]bus.InboundMessage)

	pace    pace
	dropped atomic.Int64

	mu       sync.Mutex
	policies map[string]Policy // by account
	stats    map[string]*GateStats
	known    *knowledge // of the tables; reloaded when it is older than rolesAge
	read     time.Time
}

// An identity is a person, or a group, on an account.
type identity struct{ account, id string }

// rolesAge is how long a change that another process made to people may go unnoticed.
const rolesAge = time.Second

// NewGate returns a Gate.
func NewGate(db *store.DB, inbox *bus.Inbox, outbox *bus.Outbox, log *slog.Logger) *Gate {
	return &Gate{db: db, inbox: inbox, outbox: outbox, now: time.Now, log: log,
		Admitted: func([]bus.InboundMessage) {}, policies: make(map[string]Policy),
		stats: make(map[string]*GateStats)}
}

// Intake returns what the channel of an account publishes to. Until [Gate.SetPolicy] says otherwise
// p says who may write to it.
func (g *Gate) Intake(account string, p Policy) Publisher {
	g.SetPolicy(account, p)
	return &intake{g, account, g.Stats(account)}
}

type intake struct {
	gate    *Gate
	account string
	stats   *GateStats
}

// Cursors implements [Publisher].
func (in *intake) Cursors(ctx context.Context) (map[string]string, error) {
	fail := func(err error) (map[string]string, error) {
		return nil, fmt.Errorf("channels: cursors of %s: %w", in.account, err)
	}
	rows, err := in.gate.db.Read(ctx).Query("SELECT place, cursor FROM places WHERE account = $1",
		in.account)
	if err != nil {
		return fail(err)
	}
	defer rows.Close()
	cursors := make(map[string]string)
	for rows.Next() {
		var place, cursor string
		if err := rows.Scan(&place, &cursor); err != nil {
			return fail(err)
		}
		cursors[place] = cursor
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return cursors, nil
}

// Publish implements [Publisher].
func (in *intake) Publish(ctx context.Context, b Batch) error {
	g := in.gate
	sorted, err := in.sort(ctx, b)
	if err != nil {
		return err
	}
	if len(sorted) == 0 && len(b.Moved) == 0 {
		return nil // the cursor is only for what is stored
	}
	now := g.now()
	var fresh []bus.InboundMessage
	var told int
	err = g.db.Tx(ctx, func(tx *store.Tx) error {
		var err error
		if fresh, told, err = g.take(tx, sorted, now); err != nil {
			return err
		}
		if err := in.saveMoves(tx, b.Moved); err != nil {
			return err
		}
		return in.saveCursor(tx, b.Place, b.Cursor)
	})
	if err != nil {
		return err
	}
	fault.Point("accepted")
	if len(b.Moved) > 0 {
		g.forget()
	}
	if len(fresh) > 0 {
		in.stats.Received.Add(int64(len(fresh)))
		g.inbox.Wake()
		g.Admitted(fresh)
	}
	if told > 0 {
		g.outbox.Wake()
		g.log.InfoContext(ctx, "strangers, or people who write too fast, were told so: "+
			"see gateway people list", "account", in.account, "messages", told)
	}
	return nil
}

// A judged message is one with what becomes of it.
type judged struct {
	bus.InboundMessage
	verdict verdict
	demoted bool // its sender was an owner once
}

// sort decides what becomes of the messages of a batch. It returns those of which something is to
// be stored, in their order.
func (in *intake) sort(ctx context.Context, b Batch) ([]judged, error) {
	if len(b.Messages) == 0 {
		return nil, nil
	}
	g := in.gate
	ks, err := in.look(ctx, b.Moved)
	if err != nil {
		return nil, err
	}
	var kept []judged
	fresh, policy := false, g.policy(in.account)
	for _, m := range b.Messages {
		who, v := policy.judgeBy(&m, ks)
		if v < heard && !m.Group && !fresh { // perhaps they were let in a moment ago
			g.forget()
			if ks, err = in.look(ctx, b.Moved); err != nil {
				return nil, err
			}
			fresh = true
			who, v = policy.judgeBy(&m, ks)
		}
		if v == admitted {
			if ok, tell := g.pace.allow(m, policy.PerMinute); !ok {
				g.log.WarnContext(ctx, "message dropped: its sender writes too fast",
					"from", m.From.String(), "id", m.ID, "dropped", g.dropped.Add(1))
				in.stats.Dropped.Add(1)
				if !tell {
					continue
				}
				v = hasty
			}
		}
		if v == ignored || v == stranger {
			in.stats.Refused.Add(1)
		}
		if v == ignored {
			g.log.DebugContext(ctx, "message not admitted", "from", m.From.String(), "id", m.ID)
			continue
		}
		kept = append(kept, judged{m, v, who.chat != "" && m.Role != bus.Owner})
	}
	return kept, nil
}

// look returns what the gate knows with the groups that have moved, of which it is told just now:
// what is written in them since comes in the same batch.
func (in *intake) look(ctx context.Context, moved map[string]string) (*knowledge, error) {
	ks, err := in.gate.look(in.gate.db.Read(ctx))
	if err != nil || len(moved) == 0 {
		return ks, err
	}
	all := knowledge{people: ks.people, moves: maps.Clone(ks.moves)}
	for chat, before := range moved {
		if id := (identity{in.account, chat}); all.moves[id] == "" {
			all.moves[id] = before
		}
	}
	return &all, nil
}

// take stores what is to be kept of a batch. It returns the messages that are new in the inbox, and
// how many messages are in the outbox now because of it.
func (g *Gate) take(
	tx *store.Tx, list []judged, now time.Time,
) (fresh []bus.InboundMessage, told int, err error) {
	for _, j := range list {
		m, done := j.InboundMessage, false
		switch j.verdict {
		case heard:
			_, err = g.inbox.Overhear(tx, m, now)
		case stranger:
			if done, err = g.offer(tx, m, now); done {
				told++
			}
		case hasty:
			told++
			err = g.outbox.Put(tx, hastyAnswer(m), now)
		default:
			switch {
			case m.Role == bus.Owner && !m.Group:
				m.Person, err = g.people.meet(tx, m, now)
			case j.demoted:
				err = g.people.demote(tx, m.From.Account, m.Sender.ID)
			}
			if err != nil {
				return nil, 0, err
			}
			if done, err = g.inbox.Put(tx, m, now); done {
				fresh = append(fresh, m)
			}
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return fresh, told, nil
}

// hastyAnswer is what somebody is told who writes too fast.
func hastyAnswer(m bus.InboundMessage) bus.OutboundMessage {
	out := bus.OutboundMessage{To: m.From, Text: sayHasty}
	if m.Group {
		out.ReplyTo = m.ID
	}
	return out
}

const sayHasty = "You write faster than I can take it in: this message and those that follow " +
	"within the next minute may be lost. Please wait a moment and send it again."

func (in *intake) saveMoves(tx *store.Tx, moved map[string]string) error {
	for chat, before := range moved {
		_, err := tx.Exec(`INSERT INTO moves (account, chat, before) VALUES ($1, $2, $3)
			ON CONFLICT (account, chat) DO NOTHING`, in.account, chat, before)
		if err != nil {
			return fmt.Errorf("channels: group of %s that moved: %w", in.account, err)
		}
	}
	return nil
}

func (in *intake) saveCursor(tx *store.Tx, place, cursor string) error {
	if cursor == "" {
		return nil
	}
	_, err := tx.Exec(`INSERT INTO places (account, place, cursor) VALUES ($1, $2, $3)
		ON CONFLICT (account, place) DO UPDATE SET cursor = excluded.cursor`,
		in.account, place, cursor)
	if err != nil {
		return fmt.Errorf("channels: cursor of %s: %w", in.account, err)
	}
	return nil
}

// offer gives the sender of m a pairing code, and reports whether they may have one. The owners
// whose direct chats with the account are known are told.
func (g *Gate) offer(tx *store.Tx, m bus.InboundMessage, now time.Time) (bool, error) {
	code, tell, err := g.people.request(tx, m, now)
	if err != nil || code == "" {
		return false, err
	}
	err = g.outbox.Put(tx, bus.OutboundMessage{To: m.From, Text: fmt.Sprintf(
		"I don't know you yet. Your pairing code is `%s`, for ten minutes.\n\n"+
			"Whoever runs this gateway can let you in: the owner by sending me `/pair %s`, "+
			"or on the machine with\n\n`gateway people approve %s`", code, code, code)}, now)
	if err != nil || !tell {
		return err == nil, err
	}
	owners, err := g.people.owners(tx, m.From.Account)
	if err != nil {
		return false, err
	}
	for _, chat := range owners {
		err := g.outbox.Put(tx, bus.OutboundMessage{
			To: bus.Address{Account: m.From.Account, Chat: chat},
			Text: fmt.Sprintf("%s (id `%s`) asks to be let in, with the code `%s`.",
				literal(oneLine(m.Sender)), m.Sender.ID, code),
			Buttons: []bus.Button{{Label: "Let in", Text: "/pair " + code},
				{Label: "Deny", Text: "/pair deny " + code}},
		}, now)
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// oneLine names a sender for a person to read.
func oneLine(s bus.Sender) string {
	name := strings.Join(strings.Fields(s.Name), " ")
	return cmp.Or(clip(name, 64), "Somebody without a name")
}

// literal returns Markdown that shows s as it is.
func literal(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < 0x80 && r != ' ' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// clip returns the beginning of s, of at most n runes.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// A known is what the gate knows of a person.
type known struct {
	person int64
	role   bus.Role
	chat   string // direct one, if it is that of an owner
}

// A knowledge is what the gate knows of people and groups.
type knowledge struct {
	people map[identity]known
	moves  map[identity]string // earlier ids of groups
}

// look returns what the gate knows.
func (g *Gate) look(q store.Queryer) (*knowledge, error) {
	g.mu.Lock()
	ks, age := g.known, g.now().Sub(g.read)
	g.mu.Unlock()
	if ks != nil && age < rolesAge {
		return ks, nil
	}
	list, err := g.people.List(q)
	if err != nil {
		return nil, err
	}
	ks = &knowledge{people: make(map[identity]known, len(list))}
	for _, p := range list {
		if p.Role.Valid() {
			ks.people[identity{p.Account, p.Sender}] = known{p.ID, p.Role, p.chat}
		} else { // a damaged row opens no door
			g.log.Error("person has an unknown role and is not admitted",
				"person", p.ID, "role", string(p.Role))
		}
	}
	if ks.moves, err = moves(q); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known, g.read = ks, g.now()
	return ks, nil
}

// forget makes the gate look again.
func (g *Gate) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known = nil
}

// moves returns the earlier ids of groups.
func moves(q store.Queryer) (map[identity]string, error) {
	rows, err := q.Query("SELECT account, chat, before FROM moves")
	if err != nil {
		return nil, fmt.Errorf("channels: read moves: %w", err)
	}
	defer rows.Close()
	list := make(map[identity]string)
	for rows.Next() {
		var id identity
		var before string
		if err := rows.Scan(&id.account, &id.id, &before); err != nil {
			return nil, fmt.Errorf("channels: read moves: %w", err)
		}
		list[id] = before
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("channels: read moves: %w", err)
	}
	return list, nil
}
