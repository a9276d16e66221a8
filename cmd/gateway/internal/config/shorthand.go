package config

import "cmp"

// A provider is a model API that needs no configuration besides its usual environment variables.
type provider struct {
	name   string // name of the model in the configuration
	prefix string // prefix of _API_KEY, _BASE_URL and _MODEL

	protocol          string // "": OpenAI
	baseURL, model    string
	window, output    int     // tokens
	priceIn, priceOut float64 // US dollars per million tokens; 0: unknown
}

// providers lists the known providers in the order of preference. Each has a model that is good
// at using tools and not the most expensive one. The limits and prices are those published in
// November 2026, except output, which limits an answer to what a chat can show. A model without a
// known price counts with the ceiling in [prices].
var providers = [...]provider{
	{
		name: "openai", prefix: "OPENAI",
		baseURL: "https://api.openai.com/v1", model: "gpt-5.4-mini",
		window: 400_000, output: 32_000, priceIn: 0.75, priceOut: 4.50,
	},
	{
		// The router picks the model, so the price is not known in advance. All of its large
		// models have at least this window.
		name: "openrouter", prefix: "OPENROUTER",
		baseURL: "https://openrouter.ai/api/v1", model: "openrouter/auto",
		window: 128_000,
	},
	{
		name: "deepseek", prefix: "DEEPSEEK",
		baseURL: "https://api.deepseek.com", model: "deepseek-v4-flash",
		window: 1_000_000, output: 32_000, priceIn: 0.14, priceOut: 0.28,
	},
	{
		name: "anthropic", prefix: "ANTHROPIC", protocol: "anthropic",
		baseURL: "https://api.anthropic.com/v1", model: "claude-sonnet-5-5",
		window: 1_000_000, output: 32_000, priceIn: 2, priceOut: 10,
	},
	{
		// This name is the newest Gemini Flash model, whose price changes with each new one.
		name: "gemini", prefix: "GEMINI",
		baseURL: "https://generativelanguage.googleapis.com/v1beta/openai",
		model:   "gemini-flash-latest", window: 1_000_000, output: 32_000,
	},
	{
		name: "groq", prefix: "GROQ",
		baseURL: "https://api.groq.com/openai/v1", model: "openai/gpt-oss-120b",
		window: 131_072, output: 16_000,
	},
	{
		name: "mistral", prefix: "MISTRAL",
		baseURL: "https://api.mistral.ai/v1", model: "mistral-medium-latest",
		window: 128_000, output: 16_000,
	},
	{
		name: "moonshot", prefix: "MOONSHOT",
		baseURL: "https://api.moonshot.ai/v1", model: "kimi-k2.6",
		window: 256_000, output: 32_000,
	},
	{
		name: "xai", prefix: "XAI",
		baseURL: "https://api.x.ai/v1", model: "grok-4.3",
		window: 256_000, output: 32_000,
	},
	{
		name: "together", prefix: "TOGETHER",
		baseURL: "https://api.together.xyz/v1", model: "openai/gpt-oss-120b",
		window: 131_072, output: 16_000,
	},
}

// shorthand returns the settings from the usual variables of model APIs and platforms, in the
// form of a configuration file.
func shorthand(vars map[string]string) map[string]any {
	models, channels := map[string]any{}, map[string]any{}
	for _, p := range providers {
		if vars[p.prefix+"_API_KEY"] != "" {
			models[p.name] = p.table(vars)
		}
	}
	for platform, name := range map[string]string{
		"telegram": "TELEGRAM_BOT_TOKEN", "discord": "DISCORD_BOT_TOKEN",
	} {
		if vars[name] != "" {
			channels[platform] = map[string]any{"token": "env:" + name}
		}
	}
	return map[string]any{"models": models, "channels": channels}
}

// table returns the model from the variables of p. It omits the limits and prices if the
// variables set another model or another server.
func (p provider) table(vars map[string]string) map[string]any {
	t := map[string]any{
		"model":    cmp.Or(vars[p.prefix+"_MODEL"], p.model),
		"base_url": cmp.Or(vars[p.prefix+"_BASE_URL"], p.baseURL),
		"key":      "env:" + p.prefix + "_API_KEY",
	}
	if p.protocol != "" {
		t["provider"] = p.protocol
	}
	if t["model"] == p.model && t["base_url"] == p.baseURL {
		t["context_window"] = int64(p.window)
		t["max_output"] = int64(p.output)
		t["price_in"] = p.priceIn
		t["price_out"] = p.priceOut
	}
	return t
}
