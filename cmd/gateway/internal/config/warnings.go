package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Warnings returns an error with one line for each valid setting that can have no effect, such as a
// person's name where the platform uses numbers. It returns nil if there are none.
func (c *Config) Warnings() error {
	var errs []error
	for _, d := range c.warnings() {
		errs = append(errs, fmt.Errorf("%s: %s", strings.Join(d.path, "."), d.text))
	}
	return errors.Join(errs...)
}

// A warning describes one setting without effect.
type warning struct {
	path []string
	text string
}

// warnings returns the settings that [Config.Warnings] reports.
func (c *Config) warnings() (list []warning) {
	for _, name := range slices.Sorted(maps.Keys(c.Channels)) {
		ch := c.Channels[name]
		if !ch.Enabled {
			continue
		}
		at := func(key string) []string { return []string{"channels", name, key} }
		token := ch.Token.Reveal()
		if ch.Type == "telegram" && token != "" && !telegramToken.MatchString(token) {
			list = append(list, warning{at("token"), "this is not a token of Telegram, which looks like " +
				"123456789:AAE…; @BotFather shows it"})
		}
		for key, ids := range map[string][]string{"allow": ch.Allow, "owners": ch.Owners,
			"groups": ch.Groups} {
			if text := badIDs(ch.Type, key, ids); text != "" {
				list = append(list, warning{at(key), text})
			}
		}
	}
	list = append(list, c.policyWarnings()...)
	for name, m := range c.Models {
		n := len(m.Keys)
		if m.Key.Reveal() != "" {
			n++
		}
		if len(m.AllKeys()) < n && !slices.ContainsFunc(m.Keys, isEmpty) {
			list = append(list, warning{[]string{"models", name, "keys"}, "a key occurs twice here: " +
				"each further one must be different"})
		}
	}
	slices.SortFunc(list, func(a, b warning) int { return slices.Compare(a.path, b.path) })
	return list
}

// isEmpty reports whether a secret is empty, for example because its reference leads to nothing.
func isEmpty(s Secret) bool { return s.Reveal() == "" }

// telegramToken matches the form of Telegram bot tokens.
var telegramToken = regexp.MustCompile(`^[0-9]+:[A-Za-z0-9_-]+$`)

// ids has the form of the ids of people and groups on each platform.
var ids = map[string]struct {
	form *regexp.Regexp
	want string
}{
	"telegram": {regexp.MustCompile(`^-?[0-9]+$`), "the number that /whoami shows"},
	"discord":  {regexp.MustCompile(`^[0-9]+$`), "the number that /whoami shows"},
	"whatsapp": {regexp.MustCompile(`^\+[0-9]{7,}$|^[0-9-]+@[a-z.]+$`),
		`a phone number such as "+4915112345678", or the id that /whoami shows`},
}

// CanBeChat reports whether a chat on the account's platform can have this id. It checks only the
// form of the id.
func (c *Config) CanBeChat(account, chat string) bool {
	switch platform := c.Channels[account].Type; platform {
	case "telegram", "discord":
		return ids[platform].form.MatchString(chat)
	}
	return true
}

// badIDs describes the ids in a list that are not valid on a platform, or returns "".
func badIDs(platform, key string, list []string) string {
	known, ok := ids[platform]
	if !ok {
		return ""
	}
	var bad []string
	for _, id := range list {
		if !known.form.MatchString(id) && (key != "groups" || id != "*") {
			bad = append(bad, fmt.Sprintf("%q", id))
		}
	}
	if bad == nil {
		return ""
	}
	what := "nobody has the id"
	switch key {
	case "groups":
		what = "no group has the id"
	case "chats":
		what = "no chat has the id"
	}
	return fmt.Sprintf("%s %s on %s: want %s", what, strings.Join(bad, ", "), platform, known.want)
}
