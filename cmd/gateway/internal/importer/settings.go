package importer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A provider is an API of models that both sides know.
type provider struct{ name, url, variable string }

// providers are the known ones; others need a URL in the other configuration.
var providers = []provider{
	{"openai", "https://api.openai.com/v1", "OPENAI_API_KEY"},
	{"openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"},
	{"deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY"},
	{"anthropic", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"},
	{"groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"},
	{"gemini", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"},
	{"moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"},
}

// Settings returns a configuration in TOML with the channels, the people and the model of the other
// one; "" if that has none. It has no secrets in it: they are references to
// the environment, and comments say where each of them is. Settings that can't be converted are
// comments.
func (s *Source) Settings() (string, error) {
	if s.config == nil {
		return "", nil
	}
	w := &settings{source: s, variables: make(map[string]bool)}
	for _, write := range []func() error{w.channels, w.models, w.servers} {
		if err := write(); err != nil {
			return "", fmt.Errorf("import: %s: %w", s.shown("config.json"), err)
		}
	}
	return w.String(), nil
}

// settings is a configuration that is being written.
type settings struct {
	strings.Builder
	source    *Source
	variables map[string]bool // of the environment, that a server has
}

func (w *settings) line(format string, args ...any) {
	fmt.Fprintf(&w.Builder, format+"\n", args...)
}

// secrets returns the file with a secret. If it isn't in config.json, it may be in the file that
// PicoClaw has for them, which is never read here.
func (s *Source) secrets(inConfig bool) string {
	if !inConfig && s.isFile(".security.yml") {
		return s.shown(".security.yml")
	}
	return s.shown("config.json")
}

// quoted returns a string of TOML: one of JSON is one.
func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		return `""` // no string fails
	}
	return strings.ReplaceAll(string(text), "\x7f", `\u007f`) // which only TOML wants
}

// quotedList returns a list of strings.
func quotedList(list []string) string {
	var quotes []string
	for _, s := range list {
		quotes = append(quotes, quoted(s))
	}
	return "[" + strings.Join(quotes, ", ") + "]"
}

// comment writes a text that may be anybody's as a comment, in which control characters are none.
func (w *settings) comment(format string, args ...any) {
	between := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	text := strings.ToValidUTF8(fmt.Sprintf(format, args...), "�")
	w.line("# %s", strings.Join(strings.FieldsFunc(text, between), " "))
}

// channels writes the accounts.
func (w *settings) channels() error {
	all, err := w.source.config.table("channels")
	if err != nil {
		return err
	}
	accounts, err := w.source.channelList()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c, err := all.table(name)
		again := func(a listed) bool { return a.name == name }
		if err == nil && !slices.ContainsFunc(accounts, again) { // else a switch, or an older one
			accounts = append(accounts, listed{name, name, name, c})
		}
	}
	var others []string
	for _, a := range accounts {
		switch {
		case !a.settings.flag("enabled", false):
		case slices.Contains(platforms, a.platform):
			w.account(a)
		default:
			others = append(others, a.there)
		}
	}
	if len(others) > 0 {
		w.comment("There are no such channels here: %s", strings.Join(others, ", "))
	}
	return nil
}

// account writes one account.
func (w *settings) account(a listed) {
	c := a.settings
	w.line("[channels.%s]", a.name)
	if a.name != a.platform {
		w.line("type = %s", quoted(a.platform))
	}
	if a.platform != "whatsapp" {
		w.comment("The token is in %s, for the channel %s: put it into the environment.",
			w.source.secrets(c.text("token") != ""), a.there)
		w.line("token = %s", quoted("env:"+unique(w.variables, variable(a.name, "bot_token"))))
	} else {
		w.comment("Link it with the phone: gateway pair %s", a.name)
	}
	ids, odd := people(a.platform, c.texts("allowFrom", "allow_from"))
	switch {
	case slices.Contains(odd, "*"):
		w.comment(`Everybody could write to it. That is access = "open" here; with "pairing" an ` +
			"owner lets people in.")
		w.line(`access = "pairing"`)
	case len(ids) == 0:
		w.comment("Nobody was listed: an owner lets people in.")
		w.line(`access = "pairing"`)
	default:
		w.line(`access = "allow"`)
	}
	if len(ids) > 0 {
		w.line("allow = %s", quotedList(ids))
	}
	if odd = slices.DeleteFunc(odd, func(s string) bool { return s == "*" }); len(odd) > 0 {
		w.comment("No ids, so that they are left out: %s", strings.Join(odd, ", "))
	}
	if len(ids) == 1 {
		w.line("owners = %s", quotedList(ids))
	}
	if groups := c.texts("groupAllowFrom", "group_allow_from"); len(groups) > 0 {
		w.line("groups = %s", quotedList(groups))
	}
	if c.text("groupPolicy", "group_policy") == "open" {
		w.line(`activation = "always"`)
	}
	if c.text("proxy") != "" {
		w.comment("It has a proxy: set it in proxy, best as \"env:NAME\".")
	}
	w.line("")
}

var (
	digits   = regexp.MustCompile(`^\d{1,20}$`)
	jid      = regexp.MustCompile(`^(\d{5,20})@(s\.whatsapp\.net|lid)$`)
	phone    = regexp.MustCompile(`^\+?(\d{5,20})$`)
	plainKey = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

	otherLetters = regexp.MustCompile(`[^A-Za-z0-9]+`)
)

// people returns the ids of an allow list as they are written here, and what are none.
func people(platform string, list []string) (ids, odd []string) {
	for _, entry := range list {
		id, _, _ := strings.Cut(entry, "|") // telegram's id|username
		switch {
		case platform != "whatsapp" && digits.MatchString(id):
			ids = append(ids, id)
		case platform == "whatsapp" && jid.MatchString(id):
			if m := jid.FindStringSubmatch(id); m[2] == "lid" {
				ids = append(ids, id)
			} else {
				ids = append(ids, "+"+m[1])
			}
		case platform == "whatsapp" && phone.MatchString(id):
			ids = append(ids, "+"+phone.FindStringSubmatch(id)[1])
		default:
			odd = append(odd, entry)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), odd
}

// models writes the model that answers.
func (w *settings) models() error {
	agents, err := w.source.config.table("agents")
	if err != nil {
		return err
	}
	defaults, err := agents.table("defaults")
	if err != nil {
		return err
	}
	name := defaults.text("model_name", "modelName", "model")
	if name == "" {
		return nil
	}
	if listed, ok := w.listed(name); ok {
		w.model(listed)
		return nil
	}
	found, err := w.provided(name, defaults.text("provider"))
	if err != nil {
		return err
	}
	w.model(found)
	return nil
}

// A served is a model and where it is.
type served struct {
	model, url string
	provider   provider
	file, key  string // where the key is; "" if it has none
}

// listed looks a model up in PicoClaw's model_list.
func (w *settings) listed(name string) (f served, ok bool) {
	var list []object
	if json.Unmarshal(w.source.config["model_list"], &list) != nil {
		return f, false
	}
	for i, o := range list {
		if o.text("model_name") != name {
			continue
		}
		f = locate(o.text("model"), "")
		f.url = cmp.Or(o.text("api_base"), f.url)
		f.file = w.source.secrets(o.raw([]string{"api_key", "api_keys"}) != nil)
		f.key = fmt.Sprintf("model_list[%d].api_key", i)
		if filepath.Base(f.file) == ".security.yml" {
			f.key = "model_list." + name + ".api_keys"
		}
		return f, true
	}
	return f, false
}

// provided looks up the provider that nanobot would take for a model.
func (w *settings) provided(name, wanted string) (served, error) {
	all, err := w.source.config.table("providers")
	if err != nil {
		return served{}, err
	}
	if wanted == "auto" {
		wanted = ""
	}
	candidates := []string{wanted, locate(name, "").provider.name, "openrouter"}
	for _, p := range append(candidates, slices.Sorted(maps.Keys(all))...) {
		t, err := all.table(p)
		if err != nil {
			return served{}, err
		}
		if t.text("apiKey", "api_key") == "" && t.text("apiBase", "api_base") == "" {
			continue
		}
		f := locate(name, p)
		f.url = cmp.Or(t.text("apiBase", "api_base"), f.url)
		if t.text("apiKey", "api_key") != "" {
			f.file, f.key = w.source.shown("config.json"), "providers."+p+".apiKey"
		}
		return f, nil
	}
	return locate(name, wanted), nil
}

// locate splits "provider/model", where the provider is known or given.
func locate(name, given string) served {
	first, rest, ok := strings.Cut(name, "/")
	wanted := given
	if wanted == "" && ok {
		wanted = first
	}
	f := served{model: name, provider: provider{name: wanted}}
	for _, p := range providers {
		if p.name == wanted {
			f.provider, f.url = p, p.url
		}
	}
	if ok && first == wanted && wanted != "openrouter" {
		f.model = rest
	}
	return f
}

// hasSecret reports whether a URL has what may be a secret: a password, parameters or a fragment.
func hasSecret(address string) bool {
	u, err := url.Parse(address)
	return err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != ""
}

// model writes a model as the one that answers.
func (w *settings) model(f served) {
	name := f.provider.name
	if !plainKey.MatchString(name) {
		name = "imported"
	}
	if hasSecret(f.url) {
		w.comment("Its URL in %s may have a secret in it.", w.source.shown("config.json"))
		f.url = ""
	}
	if f.url == "" {
		w.comment("The model was %s. Add it with its URL: [models.%s]", f.model, name)
		return
	}
	w.line("[agent]")
	w.line("model = %s", quoted(name))
	w.line("")
	w.line("[models.%s]", name)
	w.line("model = %s", quoted(f.model))
	w.line("base_url = %s", quoted(f.url))
	if f.key != "" {
		variable := cmp.Or(f.provider.variable,
			strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"_API_KEY")
		w.comment("The key is in %s, %s: put it into the environment.",
			f.file, f.key)
		w.line("key = %s", quoted("env:"+variable))
	}
}

// servers names the servers of the Model Context Protocol that were on. Their settings may hold
// secrets anywhere, so that they are set up again by hand.
func (w *settings) servers() error {
	tools, err := w.source.config.table("tools")
	if err != nil {
		return err
	}
	all, err := tools.table("mcpServers", "mcp_servers")
	if w.source.kind == PicoClaw {
		var mcp object
		if mcp, err = tools.table("mcp"); err != nil || !mcp.flag("enabled", false) {
			return err
		}
		all, err = mcp.table("servers")
	}
	if err != nil {
		return err
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s, err := all.table(name)
		if err != nil {
			return err
		}
		if s.flag("enabled", w.source.kind == Nanobot) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		w.comment("Set its MCP servers up again, under [mcp.NAME]: %s", strings.Join(names, ", "))
	}
	return nil
}

// variable returns the name of the variable in the environment for a secret of an account.
func variable(account, key string) string {
	name := strings.ToUpper(otherLetters.ReplaceAllString(account+"_"+key, "_"))
	if name[0] <= '9' || strings.HasPrefix(name, "GATEWAY_") { // these are the gateway's own
		return "BOT_" + name
	}
	return name
}

// unique returns a name, or one with a number after it if it is taken, and takes it.
func unique(taken map[string]bool, name string) string {
	free := name
	for n := 2; taken[free]; n++ {
		free = name + "_" + strconv.Itoa(n)
	}
	taken[free] = true
	return free
}

// accountName returns a name that an account may have here.
func accountName(name string) string {
	if plainKey.MatchString(name) && len(name) <= maxAccountName {
		return name
	}
	name = strings.Trim(otherLetters.ReplaceAllString(name, "-"), "-")
	if name = strings.TrimRight(name[:min(len(name), maxAccountName-4)], "-"); name == "" {
		return "imported"
	}
	return name
}

// maxAccountName is how long the name of an account may be, in bytes.
const maxAccountName = 32
