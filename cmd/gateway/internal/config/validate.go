package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"gateway/agent/suggest"
	"gateway/store/plaintext"
)

// A validator reports mistakes in values that have a valid form.
type validator struct {
	*problems
	cfg *Config
}

// validate reports the mistakes in all tables.
func (v validator) validate() {
	c := v.cfg
	if c.Gateway.Name == "" {
		v.report([]string{"gateway", "name"}, "want a name")
	}
	v.checkModels([]string{"memory", "model"}, optional(c.Memory.Model))
	v.checkModels([]string{"heartbeat", "model"}, optional(c.Heartbeat.Model))
	v.checkModels([]string{"agent", "model"}, optional(c.Agent.Model))
	v.checkModels([]string{"agent", "task_model"}, optional(c.Agent.TaskModel))
	for name, m := range Sorted(c.Models) {
		v.validateModel(name, m)
	}
	v.findCycles()
	v.validateTools()
	v.validateOps()
	v.validatePolicies()
	for _, s := range []struct{ table, model, baseURL string }{
		{"transcription", c.Transcription.Model, c.Transcription.BaseURL},
		{"media.speech", c.Media.Speech.Model, c.Media.Speech.BaseURL},
		{"media.images", c.Media.Images.Model, c.Media.Images.BaseURL},
	} {
		if s.model != "" && !isHTTP(s.baseURL) {
			v.report(strings.Split(s.table+".base_url", "."), wantHTTP)
		}
	}
	tokens := make(map[string]string) // account by token
	for name, ch := range Sorted(c.Channels) {
		v.validateChannel(name, ch, tokens)
	}
}

// optional returns the value of a key that may be "" as a list.
func optional(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

// noAccount returns the problem of an account that does not exist.
func noAccount(name string, c *Config) string {
	return fmt.Sprintf("there is no [channels.%s]%s", name,
		suggest.Hint(name, slices.Sorted(maps.Keys(c.Channels))))
}

// checkModels reports a problem of the key at path if one of names is not a model.
func (v validator) checkModels(path, names []string) {
	known := slices.Sorted(maps.Keys(v.cfg.Models))
	var texts []string
	remedy := ""
	for _, name := range names {
		if _, ok := v.cfg.Models[name]; !ok {
			hint := suggest.Hint(name, known)
			texts = append(texts, fmt.Sprintf("there is no [models.%s]%s", name, hint))
			if hint == "" {
				remedy = fmt.Sprintf("; want the name of a table (%s), whose key model says which model "+
					"of a provider it is", strings.Join(known, ", "))
			}
		}
	}
	if len(texts) > 0 {
		v.report(path, strings.Join(texts, "; ")+remedy)
	}
}

// validateModel reports the mistakes in [models.NAME]. The demo has no server to check.
func (v validator) validateModel(name string, m Model) {
	path := func(key string) []string { return []string{"models", name, key} }
	if m.Provider != "demo" {
		if m.Model == "" {
			v.report(path("model"), "want the provider's name of the model")
		}
		if !isHTTP(m.BaseURL) {
			v.report(path("base_url"), wantHTTP)
		}
	}
	for field := range m.Body {
		if key, ok := bodyKeys[field]; ok {
			v.report(append(path("body"), field), "the gateway sets this field itself"+key)
		}
	}
	v.checkModels(path("fallback"), m.Fallback)
}

// bodyKeys lists the request fields that the gateway sets itself, with the key to use instead.
var bodyKeys = map[string]string{
	"model": "; use model", "messages": "", "system": "", "tools": "", "stream": "",
	"stream_options": "",
	"max_tokens":     "; use max_output", "max_completion_tokens": "; use max_output",
	"temperature": "; use temperature", "reasoning_effort": "; use reasoning_effort",
}

// wantToken returns advice for an account without a token.
func wantToken(name, platform string) string {
	const want = `want the bot's token, best as "env:NAME" or "file:PATH"`
	variable := tokenVariables[platform]
	if name != platform || variable == "" {
		return want
	}
	return want + "; or export " + variable
}

// variableNote returns a note about the variable that creates an account which is not in the
// file, or "".
func variableNote(written places, account string) string {
	if written.of([]string{"channels", account}) != (place{}) {
		return ""
	}
	for path, at := range Sorted(written) {
		if strings.HasPrefix(path, "channels"+delimiter+account+delimiter) {
			return fmt.Sprintf("; the variable %s sets up this account", at.variable)
		}
	}
	return ""
}

// findCycles reports each cycle of fallbacks once.
func (v validator) findCycles() {
	models := v.cfg.Models
	done := make(map[string]bool)
	var visit func(name string, trail []string)
	visit = func(name string, trail []string) {
		if i := slices.Index(trail, name); i >= 0 {
			cycle := append(slices.Clone(trail[i:]), name)
			v.report([]string{"models", name, "fallback"},
				"leads back to itself: "+strings.Join(cycle, " -> "))
			return
		}
		// Everything behind this model was visited already.
		if done[name] {
			return
		}
		for _, next := range models[name].Fallback {
			visit(next, append(slices.Clip(trail), name))
		}
		done[name] = true
	}
	for name := range Sorted(models) {
		visit(name, nil)
	}
}

// TimeOfDay is the form of a time of day, for [time.Parse].
const TimeOfDay = "15:04"

// validateChannel reports the mistakes in [channels.NAME]. tokens has the tokens of the accounts
// before it: two accounts with one token would take messages from each other.
func (v validator) validateChannel(name string, ch Channel, tokens map[string]string) {
	path := func(key string) []string { return []string{"channels", name, key} }
	if _, err := time.Parse(TimeOfDay, ch.SessionReset); err != nil && ch.SessionReset != "" {
		v.report(path("session_reset"), `want a time of day such as "04:00", or "" for never`)
	}
	field, _ := reflect.TypeFor[Channel]().FieldByName("Type")
	if types := strings.Fields(field.Tag.Get("allowed")); !slices.Contains(types, ch.Type) {
		v.report(path("type"), fmt.Sprintf("want %s; without this key the account's name is its type, "+
			"and %q is not a type", oneOf(types), ch.Type))
		return
	}
	if ch.Type == "terminal" {
		if name != "terminal" {
			v.report(path("type"), `the terminal has the name "terminal", and there is only one`)
		}
		if ch.Access != "open" {
			v.report(path("access"), "a terminal is always open")
		}
		return
	}
	if ch.APIURL != "" && !isHTTP(ch.APIURL) {
		v.report(path("api_url"), wantHTTP)
	}
	// An account that is switched off may be incomplete.
	if !ch.Enabled {
		return
	}
	if token := ch.Token.Reveal(); ch.Type == "whatsapp" {
		if token != "" {
			v.report(path("token"), "WhatsApp has none: link the account with gateway pair "+name)
		}
	} else if token == "" {
		v.report(path("token"), wantToken(name, ch.Type)+variableNote(v.places, name))
	} else if other, ok := tokens[token]; ok {
		v.report(path("token"), "is also that of channels."+other)
	} else {
		tokens[token] = name
	}
	if ch.Type == "discord" {
		v.validateDiscord(path, ch)
	}
	if ch.Access == "allow" && len(ch.Allow)+len(ch.Owners)+len(ch.Groups) == 0 {
		v.report(path("allow"), `nobody may speak; want ids here, or access = "pairing"`)
	}
	v.validateTransport(path, ch)
}

// validateDiscord reports mistakes that make an account connect but receive nothing.
func (v validator) validateDiscord(path func(string) []string, ch Channel) {
	token := ch.Token.Reveal()
	if strings.HasPrefix(token, "Bot ") || strings.ContainsFunc(token, unicode.IsSpace) {
		v.report(path("token"), `want the token alone, without "Bot " before it and without blanks`)
	}
	for _, id := range ch.Groups {
		if id == "*" {
			continue
		}
		if _, err := strconv.ParseUint(id, 10, 64); err != nil {
			v.report(path("groups"), fmt.Sprintf(`want the numbers of channels, not %q: in Discord's `+
				"settings switch on Developer Mode, then Copy Channel ID from the channel's menu", id))
		}
	}
}

// validateTransport checks the settings for sending and receiving messages.
func (v validator) validateTransport(path func(string) []string, ch Channel) {
	if p := ch.Proxy.Reveal(); p != "" && !isProxy(p) {
		// The message omits the value, which may contain a password.
		v.report(path("proxy"), `want a URL that begins with "http://", "https://" or "socks5://"`)
	}
	if ch.WebhookURL == "" {
		return
	}
	switch u, err := url.Parse(ch.WebhookURL); {
	case ch.Type != "telegram":
		v.report(path("webhook_url"), "is for Telegram only")
	case err != nil || u.Scheme != "https" || u.Host == "":
		v.report(path("webhook_url"), `want the public URL that begins with "https://"`)
	}
	if secret := ch.WebhookSecret.Reveal(); len(secret) > 256 || !secretToken().MatchString(secret) {
		v.report(path("webhook_secret"),
			`want 16 to 256 letters, digits, "_" and "-", which only Telegram and this gateway know`)
	}
	if _, err := listenHost(ch.WebhookListen); err != nil {
		v.report(path("webhook_listen"), `want an address such as "127.0.0.1:8443"`)
	}
}

// secretToken matches secrets that Telegram accepts and nobody can guess. Telegram allows up to
// 256 bytes: https://core.telegram.org/bots/api#setwebhook.
var secretToken = plaintext.Pattern(`^[A-Za-z0-9_-]{16,}$`)

func isProxy(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" &&
		(u.Scheme == "http" || u.Scheme == "https" || u.Scheme == "socks5")
}

const wantHTTP = `want a URL that begins with "https://" or "http://"`

func isHTTP(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}

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
	if c.wrongTZ != "" {
		list = append(list, warning{[]string{"gateway", "timezone"}, fmt.Sprintf("the zone is UTC, "+
			`because the variable TZ is %q: want a name such as "Europe/Berlin" here or there`, c.wrongTZ)})
	}
	for name, ch := range Sorted(c.Channels) {
		if !ch.Enabled {
			continue
		}
		at := func(key string) []string { return []string{"channels", name, key} }
		token := ch.Token.Reveal()
		if ch.Type == "telegram" && token != "" && !telegramToken().MatchString(token) {
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
	for name, h := range c.Hooks {
		if h.Enabled && c.HTTP.Listen == "" {
			list = append(list, warning{[]string{"hooks", name},
				`no program can post to it, because listen of [http] is ""`})
		}
	}
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
var telegramToken = plaintext.Pattern(`^[0-9]+:[A-Za-z0-9_-]+$`)

// ids has the form of the ids of people and groups on each platform.
var ids = map[string]struct {
	form func() *regexp.Regexp
	want string
}{
	"telegram": {plaintext.Pattern(`^-?[0-9]+$`), "the number that /whoami shows"},
	"discord":  {plaintext.Pattern(`^[0-9]+$`), "the number that /whoami shows"},
	"whatsapp": {plaintext.Pattern(`^\+[0-9]{7,}$|^[0-9-]+@[a-z.]+$`),
		`a phone number such as "+4915112345678", or the id that /whoami shows`},
}

// CanBeChat reports whether a chat on the account's platform can have this id. It checks only the
// form of the id.
func (c *Config) CanBeChat(account, chat string) bool {
	switch platform := c.Channels[account].Type; platform {
	case "telegram", "discord":
		return ids[platform].form().MatchString(chat)
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
		if !known.form().MatchString(id) && (key != "groups" || id != "*") {
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
