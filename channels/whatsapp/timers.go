package whatsapp

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.mau.fi/whatsmeow/proto/waE2E"
	"go.mau.fi/whatsmeow/types"
	"google.golang.org/protobuf/proto"
)

// A timer says after how long the messages of a chat disappear. Phones don't apply it to messages
// of others: each message carries it.
type timer struct {
	seconds uint32 // 0: never
	set     int64  // when a person chose it, in Unix seconds; 0: unknown
}

// timersTable holds the timers of chats, with the time of the message in which each was seen.
const timersTable = `CREATE TABLE IF NOT EXISTS gateway_timers (
	chat TEXT PRIMARY KEY, seconds INTEGER NOT NULL, chosen INTEGER NOT NULL, seen INTEGER NOT NULL)`

// timer returns the timer of a chat.
func (st *storage) timer(ctx context.Context, chat types.JID) (t timer, err error) {
	err = st.db.QueryRowContext(ctx, "SELECT seconds, chosen FROM gateway_timers WHERE chat = $1",
		chat.String()).Scan(&t.seconds, &t.set)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return timer{}, fmt.Errorf("read timer of %s: %w", chat, err)
	}
	return t, nil
}

// setTimer stores the timer of a chat, unless a newer one is known.
func (st *storage) setTimer(ctx context.Context, chat types.JID, t timer, seen time.Time) error {
	known, err := st.timer(ctx, chat)
	if err != nil || known == t {
		return err
	}
	_, err = st.db.ExecContext(ctx, `INSERT INTO gateway_timers (chat, seconds, chosen, seen)
		VALUES ($1, $2, $3, $4) ON CONFLICT (chat) DO UPDATE SET seconds = excluded.seconds,
			chosen = excluded.chosen, seen = excluded.seen WHERE excluded.seen >= seen`,
		chat.String(), t.seconds, t.set, seen.Unix())
	if err != nil {
		return fmt.Errorf("note timer of %s: %w", chat, err)
	}
	return nil
}

// timers are those of an account's chats. They are kept in the store, because a message from the
// gateway must carry the right one after a restart, too.
type timers struct {
	st     *storage
	people *addressBook
	log    *slog.Logger
}

// note reads the timer of a direct chat from a message. Each message of the other side carries that
// side's timer. A group reports its timer itself: what a member writes into a message must not make
// our messages to all members disappear.
func (ts *timers) note(ctx context.Context, info *types.MessageInfo, m *waE2E.Message) {
	if info.IsGroup {
		return
	}
	var t timer
	if p := m.GetProtocolMessage(); p != nil {
		// Other messages of this kind, such as edits and deletions, carry no timer.
		if p.GetType() != waE2E.ProtocolMessage_EPHEMERAL_SETTING {
			return
		}
		t = timer{p.GetEphemeralExpiration(), info.Timestamp.Unix()}
	} else {
		parsed, ok := read(m)
		if !ok {
			return
		}
		t = timer{parsed.context.GetExpiration(), parsed.context.GetEphemeralSettingTimestamp()}
		if t.seconds == 0 && info.IsFromMe {
			return // some clients omit it
		}
	}
	// The key is the address that the gateway uses for the chat: see inbound.
	chat := info.Chat.ToNonAD()
	switch {
	case ts.people.me.is(chat):
		chat = ts.people.me.person().id
	case info.IsFromMe:
		chat = ts.people.person(ctx, info.Chat, info.RecipientAlt).id
	default:
		chat = ts.people.person(ctx, info.Sender, info.SenderAlt).id
	}
	ts.set(ctx, chat, t, info.Timestamp)
}

// set stores the timer of a chat. If that fails, messages are sent without it.
func (ts *timers) set(ctx context.Context, chat types.JID, t timer, seen time.Time) {
	if t.seconds == 0 {
		t.set = 0
	}
	if err := ts.st.setTimer(ctx, chat, t, seen); err != nil {
		ts.log.ErrorContext(ctx, "timer of disappearing messages could not be stored", "err", err)
	}
}

// expiring adds the timer of a chat to the context of a message, which may be nil. The result is
// info itself if messages of the chat don't disappear.
func (ts *timers) expiring(
	ctx context.Context, to types.JID, info *waE2E.ContextInfo,
) (*waE2E.ContextInfo, error) {
	t, err := ts.st.timer(ctx, to)
	if err != nil || t.seconds == 0 {
		return info, err
	}
	info = cmp.Or(info, new(waE2E.ContextInfo))
	info.Expiration = &t.seconds
	if t.set != 0 {
		info.EphemeralSettingTimestamp = proto.Int64(t.set)
	}
	return info, nil
}
