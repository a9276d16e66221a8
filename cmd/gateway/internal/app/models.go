package app

import (
	"cmp"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"gateway/agent/attachment"
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
	for _, name := range chain(cfg, name) {
		m := cfg.Models[name]
		entries = append(entries, failover.Entry{Name: name, Model: anyKey(name, &m, log)})
	}
	return failover.New(entries, &failover.Options{Logger: log})
}

// anyKey returns a model that tries each of its keys.
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
		return demo.New(name, nil)
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

// newPainter returns the generator of pictures.
func newPainter(cfg *config.Config, log *slog.Logger) *openai.Painter {
	i := cfg.Media.Images
	return openai.NewPainter(i.Model, &openai.Options{BaseURL: i.BaseURL, Key: i.Key.Reveal(),
		Logger: log})
}

// chain returns the names of a model, its fallbacks and their fallbacks, each once.
func chain(cfg *config.Config, first string) []string {
	names := []string{first}
	for i := 0; i < len(names); i++ {
		for _, next := range cfg.Models[names[i]].Fallback {
			if !slices.Contains(names, next) {
				names = append(names, next)
			}
		}
	}
	return names
}

// modelName describes the chain of a model for /status.
func modelName(cfg *config.Config, first string) string {
	var list []string
	for _, name := range chain(cfg, first) {
		if id := cfg.Models[name].Model; id != "" && id != name {
			name += " (" + id + ")"
		}
		list = append(list, name)
	}
	return strings.Join(list, ", then ")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Limits of the search for a local model server.
const (
	localTime   = 20 * time.Second // a port without a listener refuses at once
	localAnswer = 1 << 20          // bytes
	localWindow = 32_768           // assumed context window of the server, in tokens
	localIdle   = 10 * time.Minute
)

// UseLocalModel makes a model of a local Ollama or LM Studio the default model if the
// configuration chooses none and a server answers. Otherwise it changes nothing. It connects only
// if the configuration chooses no model.
func UseLocalModel(cfg *config.Config, ollamaHost string) {
	if !cfg.Agent.Undecided {
		return
	}
	for _, server := range []struct{ name, address string }{
		{"ollama", ollamaAddress(ollamaHost)}, {"lmstudio", "127.0.0.1:1234"},
	} {
		base := "http://" + server.address + "/v1"
		id := localModel(base)
		if id == "" {
			continue
		}
		m := cfg.Models[demoModel] // for the defaults of all other keys
		m.Provider, m.Model, m.BaseURL = "openai", id, base
		m.ContextWindow, m.IdleTimeout, m.Images = localWindow, localIdle, false
		cfg.Models[server.name] = m
		cfg.Agent.Model = server.name
		return
	}
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

// localModel returns the first model in a server's list that is not an embedding model, or "".
func localModel(base string) string {
	client := &http.Client{
		Timeout: localTime, Transport: &http.Transport{DisableKeepAlives: true},
	}
	resp, err := client.Get(base + "/models")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, localAnswer)).Decode(&list)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	for _, m := range list.Data {
		if !strings.Contains(m.ID, "embed") {
			return m.ID
		}
	}
	return ""
}
