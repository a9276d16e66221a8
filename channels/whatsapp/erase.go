package whatsapp

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mau.fi/whatsmeow/types"
)

// Erase implements [channels.Eraser]. If an erased person writes again, the client gets their keys
// from WhatsApp as for a new person: their phone sends the message a second time. WhatsApp may send
// the phone's contacts and the members of our groups to the client again at any time.
func (c *Channel) Erase(ctx context.Context, chats []string) error {
	err := c.store.use(ctx, func(st *storage, alone exclusive) error {
		for _, chat := range chats {
			// The messages in memory go first, so that none of them is quoted meanwhile.
			c.recent.drop(chat)
		}
		return st.erase(ctx, chats, alone)
	})
	if err != nil {
		return fmt.Errorf("whatsapp: erase people of %s: %w", c.name, err)
	}
	return nil
}

// erase deletes what the client stores about chats. During that, alone keeps the client from its
// sessions. Then it rewrites the file, so that nothing remains in free pages.
func (st *storage) erase(ctx context.Context, chats []string, alone exclusive) error {
	err := alone(ctx, func() error {
		// The database has one connection, for which these queries would wait forever during the
		// transaction.
		var subjects []subject
		for _, chat := range chats {
			s, err := st.subject(ctx, chat)
			if err != nil {
				return err
			}
			subjects = append(subjects, s)
		}
		tx, err := st.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		for _, s := range subjects {
			if err := s.erase(ctx, tx); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
		return tx.Commit()
	})
	if err != nil {
		return err
	}
	// VACUUM rewrites the file without free pages. The write-ahead log keeps copies of old pages
	// until it is truncated.
	if _, err := st.db.ExecContext(ctx, "VACUUM"); err != nil {
		return err
	}
	var busy, frames, moved int
	err = st.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved)
	if err == nil && busy != 0 {
		err = errors.New("the write-ahead log of the store still has a reader")
	}
	return err
}

// A subject is a group or a person to erase, with the known names of the person. The zero subject
// is nothing.
type subject struct{ group, lid, phone string }

// subject returns the other side of a chat. It returns the zero subject for a chat that is not on
// WhatsApp and for the account itself. It asks the client's map in memory, because that may still
// contain ids that were erased from the database and that the client does not write again.
func (st *storage) subject(ctx context.Context, chat string) (s subject, err error) {
	j, err := parseChat(chat)
	if err != nil {
		return subject{}, nil
	}
	if j.Server == types.GroupServer {
		return subject{group: j.String()}, nil
	}
	// The account itself must stay. The addresses in this table also name a device and perhaps an
	// agent: "user.agent:device@server".
	var own int
	err = st.db.QueryRowContext(ctx, "SELECT count(*) FROM whatsmeow_device "+
		"WHERE jid GLOB $1 || '[:.@]*' OR lid GLOB $1 || '[:.@]*'", j.User).Scan(&own)
	if err != nil || own > 0 {
		return subject{}, err
	}
	var other types.JID
	if j.Server == types.DefaultUserServer {
		other, err = st.container.LIDMap.GetLIDForPN(ctx, j)
		return subject{lid: other.User, phone: j.User}, err
	}
	other, err = st.container.LIDMap.GetPNForLID(ctx, j)
	return subject{lid: j.User, phone: other.User}, err
}

// erase deletes the rows about the subject.
func (s subject) erase(ctx context.Context, tx *sql.Tx) error {
	if s == (subject{}) {
		return nil
	}
	// A name that is unknown gives an address without a user, which no row has.
	_, err := tx.ExecContext(ctx, "DELETE FROM gateway_timers WHERE chat IN ($1, $2, $3)", s.group,
		s.lid+"@"+types.HiddenUserServer, s.phone+"@"+types.DefaultUserServer)
	if err != nil {
		return err
	}
	if s.group != "" {
		return deleteMatching(ctx, tx, []string{s.group}, slices.Concat(aboutChats, aboutGroups))
	}
	addresses := slices.Concat(patterns(s.lid, types.HiddenUserServer, types.HostedLIDServer),
		patterns(s.phone, types.DefaultUserServer, types.HostedServer, types.LegacyUserServer))
	keys := slices.Concat(keyPatterns(s.lid, types.HiddenUserServer, types.HostedLIDServer),
		keyPatterns(s.phone, types.DefaultUserServer, types.HostedServer))
	err = deleteMatching(ctx, tx, addresses, slices.Concat(aboutChats, aboutPeople))
	if err == nil {
		err = deleteMatching(ctx, tx, keys, aboutKeys)
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, "DELETE FROM whatsmeow_lid_map WHERE lid = $1 OR pn = $2",
			s.lid, s.phone)
	}
	return err
}

// These columns of the client's tables identify the owner of a row, each with its table. Keys are
// stored by addresses of the Signal protocol.
var (
	aboutChats = [][2]string{{"chat_settings", "chat_jid"}, {"message_secrets", "chat_jid"},
		{"retry_buffer", "chat_jid"}}
	aboutGroups = [][2]string{{"sender_keys", "chat_id"}}
	aboutPeople = [][2]string{{"message_secrets", "sender_jid"}, {"contacts", "their_jid"},
		{"privacy_tokens", "their_jid"}}
	aboutKeys = [][2]string{{"sessions", "their_id"}, {"identity_keys", "their_id"},
		{"sender_keys", "sender_id"}}
)

// deleteMatching deletes the rows in which one of the columns matches one of the GLOB patterns. The
// names of tables and columns are those above, so they can be part of the statement.
func deleteMatching(
	ctx context.Context, tx *sql.Tx, patterns []string, columns [][2]string,
) error {
	for _, c := range columns {
		var args []any
		var where []string
		for i, pattern := range patterns { // together, because each DELETE reads the whole table
			args = append(args, pattern)
			where = append(where, fmt.Sprintf("%s GLOB $%d", c[1], i+1))
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("DELETE FROM whatsmeow_%s WHERE %s", c[0],
			strings.Join(where, " OR ")), args...)
		if err != nil {
			return fmt.Errorf("delete from %s: %w", c[0], err)
		}
	}
	return nil
}

// patterns returns the patterns for a user of servers, on all devices. An address may name an agent
// after ".", and a device after ":".
func patterns(user string, servers ...string) (list []string) {
	for _, server := range servers {
		if user != "" {
			list = append(list, user+"@"+server, user+"[:.]*@"+server)
		}
	}
	return list
}

// keyPatterns returns the patterns under which the keys of such a user are stored.
func keyPatterns(user string, servers ...string) (list []string) {
	for _, server := range servers {
		if user != "" {
			list = append(list, types.NewJID(user, server).SignalAddressUser()+":*")
		}
	}
	return list
}
