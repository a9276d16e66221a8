package config

import "cmp"

// A provider is a model API that its usual environment variable is enough to use.
type provider struct {
	name   string // of the model in the configuration
	prefix string // of PREFIX_API_KEY, PREFIX_BASE_URL and PREFIX_MODEL

	protocol          string // "" is that of OpenAI
	baseURL, model    string
	window, output    int     // tokens
	priceIn, priceOut float64 // US dollars per million tokens; 0: unknown
}

// providers are the known providers, the preferred ones first, each with a
// model that is good at tools without being its most expensive. The limits and
// prices are the published ones of November 2026, except output, which keeps an
// answer within what a chat can show. A price that nobody has looked up is left out: the ceiling of
// [prices] counts then.
var providers = [...]provider{
	{
		name: "openai", prefix: "OPENAI",
		baseURL: "https://api.openai.com/v1", model: "gpt-5.4-mini",
		window: 400_000, output: 32_000, priceIn: 0.75, priceOut: 4.50,
	},
	{
		// The router picks the model: its price is not known beforehand, and
		// the window is what all of its large models have.
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
		// The name stands for Google's newest model of this size, whose price changes with it.
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

// shorthand returns what the usual variables of model APIs and platforms stand
// for, in the form of a file.
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

// table returns the model that p's variables describe. Its limits and prices
// are left out if the variables name another model or another server.
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
