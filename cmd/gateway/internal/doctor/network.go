package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"gateway/channels/whatsapp"
	"gateway/cmd/gateway/internal/config"
)

// examineNetwork tests the credentials of channels and models.
func (c Case) examineNetwork(ctx context.Context) []Finding {
	var checks []func(context.Context) []Finding
	for name, ch := range config.Sorted(c.Config.Channels) {
		if ch.Enabled {
			checks = append(checks, func(ctx context.Context) []Finding {
				return c.examineChannel(ctx, name, ch)
			})
		}
	}
	for _, name := range c.usedModels() {
		checks = append(checks, func(ctx context.Context) []Finding {
			return examineKeys(ctx, c, name, c.Config.Models[name])
		})
	}
	return runChecks(ctx, checks)
}

// usedModels returns the models in use and their fallbacks. Other models need no valid key, so they
// are not tested.
func (c Case) usedModels() []string {
	others := []string{c.Config.Memory.Model, c.Config.Heartbeat.Model, c.Config.Agent.TaskModel}
	for _, p := range config.Sorted(c.Config.Policies) {
		others = append(others, p.Model, c.Config.Personas[p.Persona].Model)
	}
	others = slices.DeleteFunc(others, func(name string) bool { return name == "" })
	return c.Config.WithFallbacks(append([]string{c.Config.Agent.Model}, others...)...)
}

// An Identity describes the bot that a token belongs to.
type Identity struct {
	Name             string // of the bot; "": unknown
	Refused          bool   // the platform does not take the token
	Owner, OwnerName string // id and name of the bot's owner; "": the platform does not say
}

// TryChannel checks the token of the Telegram or Discord account with a name. Each request takes at
// most c.Timeout. The Identity is zero as far as it is unknown.
func TryChannel(ctx context.Context, c Case, name string) (Identity, []Finding) {
	defer c.setDefaults()()
	ch := c.Config.Channels[name]
	if ch.Type == "telegram" {
		return c.examineTelegram(ctx, name, ch)
	}
	return c.examineDiscord(ctx, name, ch)
}

// examineChannel tests the account with a name. It finds nothing for a terminal, which has no
// credentials.
func (c Case) examineChannel(ctx context.Context, name string, ch config.Channel) []Finding {
	about := subject{"channel." + name, "Channel " + name}
	switch {
	case ch.Type == "terminal":
		return nil
	case ch.Type == "whatsapp":
		return c.examineWhatsApp(ctx, name)
	case c.Offline:
		return about.note("not tried")
	}
	_, list := TryChannel(ctx, c, name)
	return list
}

// An answer is the response of a server.
type answer struct {
	status int
	body   []byte
	date   time.Time // time of the server's clock; zero if unknown
}

// maxAnswer is the most that is read of a response, in bytes.
const maxAnswer = 1 << 20

// maxOffers is the most model names that a finding suggests for an unknown model.
const maxOffers = 5

// ask sends one GET request. Its errors don't contain the URL, which may contain a token. proxy is
// the URL of the account's own proxy, or "" for the proxy of the environment.
func (c Case) ask(
	ctx context.Context, address string, header http.Header, proxy string,
) (answer, error) {
	limit := cmp.Or(c.Timeout, networkTime)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return answer{}, errors.New("its address is not valid")
	}
	req.Header.Set("User-Agent", "gateway-doctor")
	maps.Copy(req.Header, header)
	transport := c.Transport
	if u, err := url.Parse(proxy); err == nil && u.Host != "" {
		transport = transport.Clone()
		transport.Proxy = http.ProxyURL(u)
		defer transport.CloseIdleConnections()
	}
	// Following a redirect would send the credentials to another server.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := (&http.Client{Transport: transport, CheckRedirect: stay}).Do(req)
	// A url.Error has the URL in its text.
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %s", limit)
		}
		return answer{}, err
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		a.date = date
	}
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return a, err
}

// discordAgent is the User-Agent. Discord may refuse clients whose User-Agent has another form:
// https://discord.com/developers/docs/reference#user-agent.
const discordAgent = "DiscordBot (https://github.com/bwmarrin/discordgo, 0.29.0)"

// authorization returns a header with an Authorization value.
func authorization(value string) http.Header {
	return http.Header{"Authorization": {value}}
}

// unreachable returns the finding for a server that doesn't answer.
func (s subject) unreachable(err error) []Finding {
	return s.bad("can't be reached: "+err.Error(),
		"Check this machine's network, DNS and proxy; gateway doctor --offline skips this.")
}

// unexpectedStatus returns the finding for an unexpected HTTP status.
func (s subject) unexpectedStatus(status int) []Finding {
	return s.bad(fmt.Sprintf("answers with status %d", status),
		"Try again later, and see its status page.")
}

// clock compares the clock of a server with the local clock.
func (c Case) clock(what string, a answer) []Finding {
	if a.date.IsZero() {
		return nil
	}
	if off := c.Now().Sub(a.date).Abs(); off > clockSlack {
		return subject{"clock.network", "Clock"}.bad(
			fmt.Sprintf("%s from that of %s", off.Truncate(time.Second), what), setClock)
	}
	return nil
}

// examineTelegram asks for the bot that a token belongs to. The request getMe changes nothing.
func (c Case) examineTelegram(
	ctx context.Context, name string, ch config.Channel,
) (who Identity, list []Finding) {
	about := subject{"channel." + name, "Channel " + name}
	base := strings.TrimRight(cmp.Or(ch.APIURL, "https://api.telegram.org"), "/")
	a, err := c.ask(ctx, base+"/bot"+ch.Token.Reveal()+"/getMe", nil, ch.Proxy.Reveal())
	if err != nil {
		return who, about.unreachable(err)
	}
	list = c.clock(about.what, a)
	switch a.status {
	case http.StatusOK:
		var me struct {
			Result struct {
				Username string `json:"username"`
				Groups   bool   `json:"can_read_all_group_messages"`
			} `json:"result"`
		}
		if json.Unmarshal(a.body, &me) != nil {
			return who, append(list, about.unexpectedStatus(a.status)...)
		}
		who.Name = me.Result.Username
		list = append(list, about.ok("is @"+who.Name)...)
		// The setting needs all messages of a group, and Telegram withholds them in privacy mode.
		if ch.Activation == "always" && !me.Result.Groups {
			list = append(list, about.part("privacy").bad("receives only messages to it in "+
				`groups, and activation is "always"`, "Send /setprivacy to @BotFather, choose the bot and "+
				"Disable, and add it to the groups anew.")...)
		}
		return who, list
	case http.StatusUnauthorized, http.StatusNotFound:
		who.Refused = true
		return who, append(list, about.bad("Telegram refuses the token",
			"Get the token of the bot from @BotFather, and set it in [channels."+name+"].")...)
	}
	return who, append(list, about.unexpectedStatus(a.status)...)
}

// examineDiscord asks for the bot that a token belongs to, and for its application. It uses the
// version of the API that discordgo uses.
func (c Case) examineDiscord(
	ctx context.Context, name string, ch config.Channel,
) (who Identity, list []Finding) {
	about := subject{"channel." + name, "Channel " + name}
	base := strings.TrimRight(cmp.Or(ch.APIURL, "https://discord.com"), "/") + "/api/v9/"
	header := authorization("Bot " + ch.Token.Reveal())
	header.Set("User-Agent", discordAgent)
	ask := func(path string) (answer, error) {
		return c.ask(ctx, base+path, header, ch.Proxy.Reveal())
	}
	a, err := ask("users/@me")
	if err != nil {
		return who, about.unreachable(err)
	}
	list = c.clock(about.what, a)
	switch a.status {
	case http.StatusOK:
	case http.StatusUnauthorized:
		who.Refused = true
		return who, append(list, about.bad("Discord refuses the token",
			"Reset the token under Bot in the developer portal, and set it in [channels."+name+"].")...)
	default:
		return who, append(list, about.unexpectedStatus(a.status)...)
	}
	var me struct {
		Username string `json:"username"`
	}
	if json.Unmarshal(a.body, &me) != nil {
		return who, append(list, about.unexpectedStatus(a.status)...)
	}
	who.Name = me.Username
	list = append(list, about.ok("is "+who.Name)...)
	// Without this answer the token is still good, so an error is no finding.
	a, err = ask("applications/@me")
	var app struct {
		Flags *int `json:"flags"`
		Owner struct {
			ID       string `json:"id"`
			Username string `json:"username"`
		} `json:"owner"`
		Team struct {
			Owner string `json:"owner_user_id"`
		} `json:"team"`
	}
	if err != nil || json.Unmarshal(a.body, &app) != nil {
		return who, list
	}
	// If a team owns the application, Discord names a user that stands for the team as the owner.
	who.Owner, who.OwnerName = app.Owner.ID, app.Owner.Username
	if app.Team.Owner != "" {
		who.Owner, who.OwnerName = app.Team.Owner, "the owner of its team"
	}
	if app.Flags == nil {
		return who, list
	}
	const contents = 1<<18 | 1<<19 // GATEWAY_MESSAGE_CONTENT, and _LIMITED
	if *app.Flags&contents == 0 {
		list = append(list, about.part("intents").bad("does not get the text of messages",
			"In the developer portal, under Bot, Privileged Gateway Intents, switch on the Message "+
				"Content Intent.")...)
	}
	return who, list
}

// examineWhatsApp checks whether an account is linked, without connecting.
func (c Case) examineWhatsApp(ctx context.Context, name string) []Finding {
	about := subject{"channel." + name, "Channel " + name}
	file := c.WhatsApp(name)
	switch linked, err := whatsapp.IsLinked(ctx, file); {
	case err != nil:
		return about.bad("its keys can't be read: "+err.Error(), "Move "+file+" away and link the "+
			"account again: gateway pair "+name)
	case !linked:
		return about.bad("is not linked with a phone", "Link it: gateway pair "+name)
	}
	return about.ok("is linked with a phone")
}

// modelsURL returns the URL that lists the models of a provider.
func modelsURL(m config.Model) string {
	base := strings.TrimRight(m.BaseURL, "/")
	// The base URL may end in the version already.
	if m.Provider == "anthropic" && !strings.HasSuffix(base, "/v1") {
		base += "/v1"
	}
	return base + "/models"
}

// modelHeader returns the headers that authenticate a request to the provider of a model.
func modelHeader(m config.Model, key string) http.Header {
	header := http.Header{}
	switch {
	case m.Provider == "anthropic":
		header.Set("X-Api-Key", key)
		header.Set("Anthropic-Version", "2023-06-01")
	case key != "":
		header = authorization("Bearer " + key)
	}
	// Configured headers replace those of the protocol.
	for name, value := range m.Headers {
		header.Set(name, value.Reveal())
	}
	return header
}

// examineKeys tests a model with each of its keys.
func examineKeys(ctx context.Context, c Case, name string, m config.Model) (list []Finding) {
	about := subject{"model." + name, "Model " + name}
	keys := m.AllKeys()
	if len(keys) == 0 || c.Offline || m.Provider == "demo" {
		return c.examineModel(ctx, about, name, "")
	}
	for i, key := range keys {
		// With several keys, people must know which one is meant.
		if len(keys) > 1 {
			about.what = fmt.Sprintf("Model %s, %s", name, config.KeyName(i+1, key))
		}
		list = append(list, c.examineModel(ctx, about, name, key)...)
	}
	return list
}

// examineModel tests a model with one key.
func (c Case) examineModel(ctx context.Context, about subject, name, key string) []Finding {
	m := c.Config.Models[name]
	switch {
	case m.Provider == "demo":
		return about.note("is the built-in demo, which is not a language model")
	case c.Offline:
		return about.note("not tried")
	}
	a, err := c.ask(ctx, modelsURL(m), modelHeader(m, key), "")
	if err != nil {
		return about.unreachable(err)
	}
	list := c.clock(about.what, a)
	switch a.status {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return append(list, about.bad("its provider refuses the key",
			"Set a key that is valid in [models."+name+"], or in the variable that it names.")...)
	// Not every server has a list of models.
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return append(list, about.note("its provider answers, and lists no models")...)
	case http.StatusTooManyRequests, http.StatusPaymentRequired:
		return append(list, about.bad("its provider says that the quota is used up",
			"Check the account there, or add a fallback to [models."+name+"].")...)
	default:
		return append(list, about.unexpectedStatus(a.status)...)
	}
	var models struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.Unmarshal(a.body, &models) != nil || len(models.Data) == 0 {
		return append(list, about.ok("its provider accepts the key")...)
	}
	var offers []string
	for _, known := range models.Data {
		// Some servers list their models with a prefix, and Ollama lists them with a tag.
		if known.ID == m.Model || known.ID == "models/"+m.Model || known.ID == m.Model+":latest" {
			return append(list, about.ok(m.Model+" is there")...)
		}
		if len(offers) < maxOffers {
			offers = append(offers, known.ID)
		}
	}
	// Some providers accept names that they do not list, such as aliases.
	return append(list, about.note(fmt.Sprintf("its provider accepts the key, but lists no model "+
		"%q; it offers %s: if calls fail, set model in [models.%s]", m.Model, strings.Join(offers, ", "),
		name))...)
}
