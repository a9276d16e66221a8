package importer

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"gateway/bus"
)

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
func (m *run) address(key string) (bus.Address, error) {
	parts, at := strings.Split(key, ":"), 0
	if parts[0] == "agent" && len(parts) >= 5 {
		at = 2
	}
	here, alike := m.Account, 0
	for _, a := range m.accounts {
		if !strings.EqualFold(a.name, parts[at]) { // PicoClaw writes session keys in lower case
			continue
		}
		for _, b := range m.accounts {
			if b.platform == a.platform {
				alike++
			}
		}
		if parts[at] = a.platform; alike > 1 { // several accounts on a platform
			here = func(string) string { return m.Account(a.name) }
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

// place returns the address to which a session belongs.
func (m *run) place(f ForeignHeader, name string) (bus.Address, error) {
	key := cmp.Or(f.Key, KeyOfFile(name))
	if to := m.Chosen[key]; to.Chat != "" {
		return to, nil
	}
	if f.scope != nil && strings.HasPrefix(key, opaque) {
		var err error
		if key, err = f.scope.key(); err != nil {
			return bus.Address{}, err
		}
	}
	return m.address(key)
}
