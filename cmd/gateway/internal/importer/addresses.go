package importer

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"gateway/bus"
	"gateway/channels/gate"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// Address converts a session key of the other agent to an address of this gateway. Keys are, for
// example, "telegram:42", "telegram:-100:topic:7", or "agent:main:telegram:group:-100" of
// PicoClaw. account is like [Directory].Account.
func Address(key string, account func(platform string) string) (bus.Address, error) {
	parts := strings.Split(key, ":")
	if parts[0] == "agent" && len(parts) >= 5 {
		parts = slices.Delete(parts[2:], 1, 2) // removes the agent's name and "direct" or "group"
	}
	if len(parts) < 2 || parts[0] == "agent" || strings.HasPrefix(key, opaque) {
		return bus.Address{}, noChat(key)
	}
	platform, chat := parts[0], parts[1]
	a := bus.Address{Account: account(platform), Chat: chat}
	switch {
	case platform == "cli" && chat == "direct" && len(parts) == 2:
		return bus.Address{Account: account("terminal"), Chat: "main"}, nil
	case !slices.Contains(platforms, platform):
		return a, newSkipError("the gateway has no channel %q", platform)
	case len(parts) == 4 && (parts[2] == "topic" || parts[2] == "thread"):
		a.Thread = parts[3]
	case len(parts) > 2:
		return a, noChat(key)
	}
	if at := strings.IndexByte(a.Chat, '/'); at > 0 && a.Thread == "" {
		a.Chat, a.Thread = a.Chat[:at], a.Chat[at+1:]
	}
	if a.Chat == "" || strings.ContainsAny(a.Chat+a.Thread, "/\n\r") {
		return a, noChat(key)
	}
	return a, nil
}

func noChat(key string) error {
	return newSkipError("%q is not the key of a chat: choose a conversation with --as", key)
}

// platforms lists the platforms that both the other agents and this gateway support.
var platforms = []string{"telegram", "discord", "whatsapp"}

// isGroup reports whether an address is known to be a group. Telegram's groups have negative ids.
// Discord's can't be told from direct chats.
func isGroup(a bus.Address) bool {
	return strings.HasPrefix(a.Chat, "-") || strings.HasSuffix(a.Chat, "@g.us")
}

// An addressBook finds the conversations and people of this gateway to which those of the imported
// home belong.
type addressBook struct {
	Directory
	accounts []account
}

// person returns the person of a direct chat, or nil if unknown.
func (b addressBook) person(a bus.Address) *gate.Person {
	for i, p := range b.People {
		if p.Account == a.Account && p.Sender == a.Chat {
			return &b.People[i]
		}
	}
	return nil
}

// scopeOf returns the scope of a conversation. It returns "" if only the next message there can
// tell.
func (b addressBook) scopeOf(a bus.Address) memory.Scope {
	if isGroup(a) {
		return memory.OfChat(a)
	}
	if p := b.person(a); p != nil {
		return memory.OfPerson(p.ID)
	}
	if b.Owner.Chat.Chat != "" && session.KeyOf(b.Owner.Chat) == session.KeyOf(a) {
		return memory.OfPerson(b.Owner.Person)
	}
	return ""
}

// directChat returns the direct chat of a person, whose id or phone number a has as its chat. It
// returns the zero Address if the chat is not known.
func (b addressBook) directChat(
	ctx context.Context, db *store.DB, a bus.Address,
) (bus.Address, error) {
	if b.Lookup != nil {
		id, err := b.Lookup(ctx, a.Account, a.Chat)
		if err != nil || id != "" {
			a.Chat = id
			return a, err
		}
	}
	for _, p := range b.People {
		if p.Account != a.Account || p.Sender != a.Chat {
			continue
		}
		if p.ID == b.Owner.Person && b.Owner.Chat.Account == a.Account {
			return b.Owner.Chat, nil
		}
		chats, err := bus.DirectChats(db.Read(ctx), p.ID)
		for _, chat := range chats {
			if chat.Account == a.Account {
				return chat, err
			}
		}
		return bus.Address{}, err
	}
	return bus.Address{}, nil
}

// An account is an entry of PicoClaw's channel_list. A platform can have several.
type account struct{ name, platform string }

// channelList returns the accounts in channel_list.
func (s *Source) channelList() (accounts []account, err error) {
	all, err := s.config.table("channel_list")
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c, err := all.table(name)
		if err != nil {
			return nil, err
		}
		accounts = append(accounts, account{name, platformOf(cmp.Or(c.text("type"), name))})
	}
	return accounts, nil
}

// platformOf returns the platform of a PicoClaw channel type. WhatsApp has two types.
func platformOf(kind string) string {
	if kind == "whatsapp_native" {
		return "whatsapp"
	}
	return kind
}

// address is like [Address], but a key may also name an account of channel_list.
func (b addressBook) address(key string) (bus.Address, error) {
	parts, at := strings.Split(key, ":"), 0
	if parts[0] == "agent" && len(parts) >= 5 {
		at = 2
	}
	here, alike := b.Account, 0
	// A name in channel_list can be that of an account, which replaces the platform in keys.
	for _, a := range b.accounts {
		if !strings.EqualFold(a.name, parts[at]) { // PicoClaw writes session keys in lower case
			continue
		}
		for _, other := range b.accounts {
			if other.platform == a.platform {
				alike++
			}
		}
		if parts[at] = a.platform; alike > 1 { // several accounts on a platform
			here = func(string) string { return b.Account(a.name) }
		}
		return Address(strings.Join(parts, ":"), here)
	}
	parts[at] = platformOf(parts[at])
	return Address(strings.Join(parts, ":"), here)
}

// opaque is the prefix of the keys of PicoClaw's newer sessions. The rest of such a key is a
// hash.
const opaque = "sk_v1_"

// A foreignScope describes, in a .meta.json, the conversation of a session with an opaque key.
type foreignScope struct {
	Version    int               `json:"version"`
	Channel    string            `json:"channel"`
	Dimensions []string          `json:"dimensions"` // properties that separate sessions
	Values     map[string]string `json:"values"`     // by dimension
}

// key returns the key of the conversation, or an error with the reason why there is none.
func (s *foreignScope) key() (string, error) {
	kind, chat, ok := strings.Cut(s.Values["chat"], ":")
	switch {
	case s.Version != 1:
		return "", newSkipError("its scope has the version %d, and only 1 is known", s.Version)
	// Without this dimension one session is shared by all chats.
	case !slices.Contains(s.Dimensions, "chat") || !ok || chat == "" || strings.Contains(chat, ":"):
		return "", skipError("it may hold several conversations, and does not say which")
	case slices.Contains(s.Dimensions, "sender") && kind != "direct":
		return "", skipError("it holds what only one member of a group has written")
	}
	key := s.Channel + ":" + chat
	_, topic, _ := strings.Cut(s.Values["topic"], ":")
	if slices.Contains(s.Dimensions, "topic") && topic != "" && !strings.Contains(chat, "/") {
		key += "/" + topic
	}
	return key, nil
}

// place returns the address to which a session belongs. A choice of the person comes first.
func (b addressBook) place(f ForeignHeader, name string) (bus.Address, error) {
	key := cmp.Or(f.Key, KeyOfFile(name))
	if to := b.Chosen[key]; to.Chat != "" {
		return to, nil
	}
	if f.scope != nil && strings.HasPrefix(key, opaque) {
		var err error
		if key, err = f.scope.key(); err != nil {
			return bus.Address{}, err
		}
	}
	return b.address(key)
}
