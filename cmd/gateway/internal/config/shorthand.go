package config

import (
	"cmp"
	"slices"
	"strings"
)

// A Provider is a model API that needs no configuration besides its usual environment variables.
type Provider struct {
	Name    string // name of the model in the configuration
	BaseURL string
	Model   string // the provider's name of the model

	protocol          string  // "": OpenAI
	window, output    int     // tokens
	priceIn, priceOut float64 // US dollars per million tokens; 0: unknown
}

// Variable returns the name of the usual variable that ends in _API_KEY, _BASE_URL or _MODEL.
func (p Provider) Variable(end string) string { return strings.ToUpper(p.Name) + end }

// Providers returns the known providers in the order of preference.
func Providers() []Provider { return slices.Clone(providers[:]) }

// providers lists the known providers in the order of preference. Each has a model that is good
// at using tools and not the most expensive one. The limits and prices are those published in
// November 2026, except output, which limits an answer to what a chat can show. A model without a
// known price counts with the ceiling in [prices].
var providers = [...]Provider{
	{
		Name: "openai", BaseURL: "https://api.openai.com/v1", Model: "gpt-5.4-mini",
		window: 400_000, output: 32_000, priceIn: 0.75, priceOut: 4.50,
	},
	{
		// The router picks the model, so the price is not known in advance. All of its large
		// models have at least this window.
		Name: "openrouter", BaseURL: "https://openrouter.ai/api/v1", Model: "openrouter/auto",
		window: 128_000,
	},
	{
		Name: "deepseek", BaseURL: "https://api.deepseek.com", Model: "deepseek-v4-flash",
		window: 1_000_000, output: 32_000, priceIn: 0.14, priceOut: 0.28,
	},
	{
		Name: "anthropic", BaseURL: "https://api.anthropic.com/v1", Model: "claude-sonnet-5-5",
		protocol: "anthropic", window: 1_000_000, output: 32_000, priceIn: 2, priceOut: 10,
	},
	{
		// This name is the newest Gemini Flash model, whose price changes with each new one.
		Name: "gemini", BaseURL: "https://generativelanguage.googleapis.com/v1beta/openai",
		Model: "gemini-flash-latest", window: 1_000_000, output: 32_000,
	},
	{
		Name: "groq", BaseURL: "https://api.groq.com/openai/v1", Model: "openai/gpt-oss-120b",
		window: 131_072, output: 16_000,
	},
	{
		Name: "mistral", BaseURL: "https://api.mistral.ai/v1", Model: "mistral-medium-latest",
		window: 128_000, output: 16_000,
	},
	{
		Name: "moonshot", BaseURL: "https://api.moonshot.ai/v1", Model: "kimi-k2.6",
		window: 256_000, output: 32_000,
	},
	{
		Name: "xai", BaseURL: "https://api.x.ai/v1", Model: "grok-4.3",
		window: 256_000, output: 32_000,
	},
	{
		Name: "together", BaseURL: "https://api.together.xyz/v1", Model: "openai/gpt-oss-120b",
		window: 131_072, output: 16_000,
	},
}

// tokenVariables has the usual variable of each platform whose bots have a token.
var tokenVariables = map[string]string{
	"telegram": "TELEGRAM_BOT_TOKEN", "discord": "DISCORD_BOT_TOKEN",
}

// shorthand returns the settings from the usual variables of model APIs and platforms, in the
// form of a configuration file.
func shorthand(vars map[string]string) map[string]any {
	models, channels := map[string]any{}, map[string]any{}
	for _, p := range providers {
		if vars[p.Variable("_API_KEY")] != "" {
			t := p.Settings(cmp.Or(vars[p.Variable("_MODEL")], p.Model),
				cmp.Or(vars[p.Variable("_BASE_URL")], p.BaseURL))
			t["key"] = "env:" + p.Variable("_API_KEY")
			models[p.Name] = t
		}
	}
	for platform, name := range tokenVariables {
		if vars[name] != "" {
			channels[platform] = map[string]any{"token": "env:" + name}
		}
	}
	return map[string]any{"models": models, "channels": channels}
}

// Settings returns the settings of a model of p, without its key. It omits the limits and prices if
// this is another model than that of p, or on another server.
func (p Provider) Settings(model, baseURL string) map[string]any {
	t := map[string]any{"model": model, "base_url": baseURL}
	if p.protocol != "" {
		t["provider"] = p.protocol
	}
	if model == p.Model && baseURL == p.BaseURL {
		t["context_window"] = int64(p.window)
		t["max_output"] = int64(p.output)
		t["price_in"] = p.priceIn
		t["price_out"] = p.priceOut
	}
	return t
}
