package app

import (
	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/cmd/gateway/internal/config"
)

// budgetOptions returns the limits on the use of models.
func budgetOptions(cfg *config.Config) *budget.Options {
	b := cfg.Budget
	return &budget.Options{
		Turn:     budget.Limit{Tokens: b.TurnTokens, Dollars: b.TurnDollars},
		Session:  budget.Limit{Tokens: b.SessionTokens, Dollars: b.SessionDollars},
		Person:   budget.Limit{Tokens: b.PersonTokens, Dollars: b.PersonDollars},
		Day:      budget.Limit{Tokens: b.DayTokens, Dollars: b.DayDollars},
		Price:    prices(cfg),
		Location: cfg.Gateway.Location,
	}
}

// prices returns a function that computes the cost of a usage in dollars from the configured
// prices per million tokens. A model without a price costs the maximum, so that it can't bypass a
// budget.
func prices(cfg *config.Config) func(model string, u llm.Usage) float64 {
	return func(model string, u llm.Usage) float64 {
		m := cfg.Models[model]
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
		return (float64(u.Input-u.Cached)*in + float64(u.Cached)*cached + float64(u.Output)*out) / 1e6
	}
}
