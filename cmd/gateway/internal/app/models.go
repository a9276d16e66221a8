package app

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"gateway/agent/attachment"
	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/llm/anthropic"
	"gateway/agent/llm/demo"
	"gateway/agent/llm/failover"
	"gateway/agent/llm/openai"
	"gateway/agent/speech"
	"gateway/channels/markup"
	"gateway/cmd/gateway/internal/config"
)

// newModel returns the model with a name. It includes the fallback models.
func newModel(cfg *config.Config, name string, log *slog.Logger) llm.Model {
	var entries []failover.Entry
	for _, name := range cfg.WithFallbacks(name) {
		m := cfg.Models[name]
		entries = append(entries, failover.Entry{Name: name, Model: anyKey(name, &m, log),
			MaxOutput: m.MaxOutput})
	}
	return failover.New(entries, &failover.Options{Logger: log})
}

// anyKey returns a model that tries each of its keys. A model without a key is used too, because
// local servers want none.
func anyKey(name string, m *config.Model, log *slog.Logger) llm.Model {
	keys := m.AllKeys()
	if len(keys) == 0 {
		return oneModel(name, m, "", log)
	}
	if len(keys) == 1 {
		return oneModel(name, m, keys[0], log)
	}
	var entries []failover.Entry
	for i, key := range keys {
		entries = append(entries, failover.Entry{
			Name: config.KeyName(i+1, key), Model: oneModel(name, m, key, log)})
	}
	return failover.NewKeys(name, entries, &failover.Options{Logger: log})
}

// oneModel returns a model that uses one key.
func oneModel(name string, m *config.Model, key string, log *slog.Logger) llm.Model {
	switch m.Provider {
	case "demo":
		return demo.New(name, demo.DefaultDelay)
	case "anthropic":
		return anthropic.New(name, m.Model, claudeOptions(m, key, log))
	}
	return openai.New(name, m.Model, modelOptions(m, key, log))
}

// modelOptions returns the options of a model with the OpenAI protocol.
func modelOptions(m *config.Model, key string, log *slog.Logger) *openai.Options {
	o := &openai.Options{
		BaseURL: m.BaseURL, Key: key, Headers: reveal(m.Headers),
		IdleTimeout: m.IdleTimeout, ReasoningBack: m.ReasoningBack, Logger: log,
	}
	// The zero value of the option means automatic.
	if m.MaxOutputField != "auto" {
		o.MaxTokensField = openai.MaxTokensField(m.MaxOutputField)
	}
	o.Fields = bodyFields(m)
	if m.ReasoningEffort != "" {
		o.Fields["reasoning_effort"] = json.RawMessage(strconv.Quote(m.ReasoningEffort))
	}
	return o
}

// claudeOptions returns the options of a model with Anthropic's API.
func claudeOptions(m *config.Model, key string, log *slog.Logger) *anthropic.Options {
	fields := bodyFields(m)
	if m.ReasoningEffort != "" {
		fields["output_config"] = json.RawMessage(`{"effort":` + strconv.Quote(m.ReasoningEffort) + "}")
	}
	return &anthropic.Options{
		BaseURL: m.BaseURL, Key: key, Headers: reveal(m.Headers), Fields: fields,
		IdleTimeout: m.IdleTimeout, Logger: log,
	}
}

// bodyFields returns the additional request fields that all protocols share.
func bodyFields(m *config.Model) map[string]json.RawMessage {
	fields := make(map[string]json.RawMessage)
	for name, value := range m.Body {
		fields[name] = json.RawMessage(value)
	}
	// -1 leaves the temperature to the provider, and 0 is a temperature.
	if m.Temperature >= 0 {
		fields["temperature"] = json.RawMessage(strconv.FormatFloat(m.Temperature, 'f', -1, 64))
	}
	return fields
}

// newTranscriber returns the transcriber of voice messages, or nil if none is configured.
func newTranscriber(cfg *config.Config, log *slog.Logger) attachment.Transcriber {
	if cfg.Transcription.Model == "" {
		return nil
	}
	return openai.NewTranscriber(cfg.Transcription.Model, &openai.Options{
		BaseURL: cfg.Transcription.BaseURL, Key: cfg.Transcription.Key.Reveal(), Logger: log})
}

// newVoice returns the voice for answers, or nil if none is configured. Answers for which
// withholds is true are not spoken.
func newVoice(
	cfg *config.Config, withholds func(text string) bool, log *slog.Logger,
) *speech.Voice {
	s := cfg.Media.Speech
	if s.Model == "" {
		return nil
	}
	return &speech.Voice{
		Synthesizer: openai.NewSpeaker(s.Model, s.Voice, s.Format, &openai.Options{
			BaseURL: s.BaseURL, Key: s.Key.Reveal(), Logger: log}),
		Readable: markup.Spoken, Withholds: withholds,
		Plays: func(account string) bool {
			c, ok := cfg.Channels[account]
			return ok && c.Type != "terminal"
		},
		MaxText: s.MaxText, Cost: s.PriceMillion / 1e6,
	}
}

// modelName describes the chain of a model for /status.
func modelName(cfg *config.Config, first string) string {
	var list []string
	for _, name := range cfg.WithFallbacks(first) {
		if id := cfg.Models[name].Model; id != "" && id != name {
			name += " (" + id + ")"
		}
		list = append(list, name)
	}
	return strings.Join(list, ", then ")
}

// Limits of the search for a local model server.
const (
	localTime   = 30 * time.Second // a port without a listener refuses at once
	localAnswer = 1 << 20          // bytes
	localWindow = 32_768           // assumed context window of the server, in tokens
	localIdle   = 10 * time.Minute
)

// A LocalServer is a model server on this machine.
type LocalServer struct {
	Name    string // "ollama" or "lmstudio"
	BaseURL string
	Models  []string // the models that it offers for conversations; not empty
}

// LocalNames are the names of the model servers that [LocalServers] knows.
var LocalNames = []string{"ollama", "lmstudio"}

// LocalServers returns the model servers on this machine that answer on their usual ports.
// ollamaHost is the value of OLLAMA_HOST, or "".
func LocalServers(ctx context.Context, ollamaHost string) (list []LocalServer) {
	for _, s := range []LocalServer{
		{Name: LocalNames[0], BaseURL: ollamaAddress(ollamaHost)},
		{Name: LocalNames[1], BaseURL: "127.0.0.1:1234"},
	} {
		s.BaseURL = "http://" + s.BaseURL + "/v1"
		if s.Models = OfferedModels(ctx, s.BaseURL, ""); len(s.Models) > 0 {
			list = append(list, s)
		}
	}
	return list
}

// LocalSettings returns the keys of [models.NAME] for a model on a local server. They agree with
// the settings that [UseLocalModel] makes without a file.
func LocalSettings(model, baseURL string) map[string]any {
	return map[string]any{"model": model, "base_url": baseURL, "free": true, "images": false,
		"context_window": int64(localWindow), "idle_timeout": "10m"}
}

// UseLocalModel makes a model of a local Ollama or LM Studio the default model if the
// configuration chooses none and a server answers. Otherwise it changes nothing. It connects only
// if the configuration chooses no model.
func UseLocalModel(ctx context.Context, cfg *config.Config, ollamaHost string) {
	if !cfg.Agent.Undecided {
		return
	}
	list := LocalServers(ctx, ollamaHost)
	if list == nil {
		return
	}
	m := cfg.Models[demoModel] // for the defaults of all other keys
	m.Provider, m.Model, m.BaseURL = "openai", list[0].Models[0], list[0].BaseURL
	m.ContextWindow, m.IdleTimeout, m.Images = localWindow, localIdle, false
	cfg.Models[list[0].Name] = m
	cfg.Agent.Model = list[0].Name
}

// keepLocalModel makes next continue with the local model of current if neither configuration
// chooses a model and no local server has answered for next. A model server that restarts must not
// leave people to the demo.
func keepLocalModel(current, next *config.Config) {
	name := current.Agent.Model
	if current.Agent.Undecided && next.Agent.Undecided && next.Agent.Model == demoModel {
		next.Models[name], next.Agent.Model = current.Models[name], name
	}
}

// TryModel sends a model a short request, as a turn does. If the model does not answer, it returns
// an error, which wraps an *llm.Error if the provider or the network is the reason.
func TryModel(ctx context.Context, name string, m *config.Model) error {
	const words = 64 // tokens; some models think before they answer
	req := llm.Request{MaxOutput: words, Messages: []llm.Message{
		{Role: llm.System, Text: "Answer with one word."}, {Role: llm.User, Text: "Are you there?"},
	}}
	for _, err := range anyKey(name, m, slog.New(slog.DiscardHandler)).Stream(ctx, req) {
		if err != nil {
			return err
		}
	}
	return nil
}

// ollamaAddress returns the host and port of a value of OLLAMA_HOST.
func ollamaAddress(variable string) string {
	variable = strings.TrimPrefix(variable, "http://")
	host, port, err := net.SplitHostPort(strings.TrimSuffix(variable, "/"))
	if err != nil {
		host, port = strings.TrimSuffix(variable, "/"), "11434"
	}
	if host == "0.0.0.0" || host == "::" { // an address to listen on, not to connect to
		host = ""
	}
	return net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)
}

// OfferedModels returns the models that a server with the OpenAI protocol lists, without those for
// embeddings. It returns nil if the server does not answer.
func OfferedModels(ctx context.Context, base, key string) (models []string) {
	client := &http.Client{
		Timeout: localTime, Transport: &http.Transport{
			DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/models", nil)
	if err != nil {
		return nil
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, localAnswer)).Decode(&list)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	for _, m := range list.Data {
		// The protocol does not say what a model is for, so its name has to.
		if !strings.Contains(m.ID, "embed") {
			models = append(models, m.ID)
		}
	}
	return models
}

// budgetOptions returns the limits on the use of models, which have the prices in models.
func budgetOptions(cfg *config.Config, models map[string]config.Model) *budget.Options {
	b := cfg.Budget
	return &budget.Options{
		Turn:     budget.Limit{Tokens: b.TurnTokens, Dollars: b.TurnDollars},
		Session:  budget.Limit{Tokens: b.SessionTokens, Dollars: b.SessionDollars},
		Person:   budget.Limit{Tokens: b.PersonTokens, Dollars: b.PersonDollars},
		Day:      budget.Limit{Tokens: b.DayTokens, Dollars: b.DayDollars},
		Price:    prices(cfg, models),
		Location: cfg.Gateway.Location,
	}
}

// prices returns a function that computes the cost of a usage in dollars from the prices of models
// per million tokens. A model without a price costs the maximum, so that it can't bypass a
// budget.
func prices(
	cfg *config.Config, models map[string]config.Model,
) func(model string, u llm.Usage) float64 {
	return func(model string, u llm.Usage) float64 {
		m := models[model]
		if m.Free {
			return 0
		}
		in, out := m.PriceIn, m.PriceOut
		if in == 0 && out == 0 {
			in, out = cfg.Prices.CeilingIn, cfg.Prices.CeilingOut
		}
		cached := in
		if m.PriceCached > 0 {
			cached = m.PriceCached
		}
		// Input includes Cached, except for servers that count the two separately.
		fresh := u.Input - u.Cached
		if fresh < 0 {
			fresh = u.Input
		}
		return (float64(fresh)*in + float64(u.Cached)*cached + float64(u.Output)*out) / 1e6
	}
}
