package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"gateway/agent/llm"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
)

// A choice is one of the providers that the person can choose from.
type choice struct {
	name     string // of the table of the model
	about    string
	provider *config.Provider // nil: the person's own server
	baseURL  string           // "": the person must give it
	models   []string         // that a server on this machine offers
}

const (
	otherChoice = "other"
	demoChoice  = "demo"
	ownModel    = "main" // table of a model on the person's own server
	mostOffers  = 8      // maximum number of models to list
)

// choices returns all choices, and the name of the one to suggest. It suggests a provider whose key
// is in the environment, else a server on this machine.
func (w *wizard) choices(ctx context.Context) (list []choice, first string) {
	for _, p := range config.Providers() {
		list = append(list, choice{name: p.Name, about: p.Model, provider: &p,
			baseURL: cmp.Or(os.Getenv(p.Variable("_BASE_URL")), p.BaseURL)})
		if first == "" && os.Getenv(p.Variable("_API_KEY")) != "" {
			first = p.Name
		}
	}
	if !w.offline {
		for _, s := range app.LocalServers(ctx, os.Getenv("OLLAMA_HOST")) {
			list = append(list, choice{name: s.Name, baseURL: s.BaseURL, models: s.Models,
				about: "runs on this machine: " + offers(s.Models)})
			first = cmp.Or(first, s.Name)
		}
	}
	list = append(list,
		choice{name: otherChoice, about: "any server with the protocol of OpenAI"},
		choice{name: demoChoice, about: "no model yet: the built-in demo answers"})
	return list, cmp.Or(first, list[0].name)
}

// offers returns the first mostOffers models as text.
func offers(models []string) string {
	if len(models) > mostOffers {
		models = append(slices.Clone(models[:mostOffers]), "…")
	}
	return display.Lines(strings.Join(models, ", "))
}

// modelFlags are the flags that answer the questions about the model.
var modelFlags = []string{"provider", "base-url", "key", "model"}

// askModel asks which model answers. It changes nothing if the person keeps the present model, or
// chooses the demo where it answers anyway.
func (w *wizard) askModel(ctx context.Context) error {
	if w.isSkipped(modelFlags...) {
		return nil
	}
	w.printf("\nModel")
	// A model that only variables name is not in the file, so nothing is there to be kept.
	if name := w.cfg.Agent.Model; name != demoChoice && w.before.has("models", name) {
		change, err := w.changes(ctx, fmt.Sprintf("%s answers, which is %s.", name,
			w.cfg.Models[name].Model), modelFlags...)
		if err != nil || !change {
			return err
		}
	}
	c, local, err := w.askProvider(ctx)
	switch {
	case err != nil:
		return err
	case c.name != demoChoice:
		return w.askModelOf(ctx, c)
	case w.cfg.Agent.Model != demoChoice, local && !w.before.has("agent", "model"):
		w.set(demoChoice, "agent", "model")
	}
	return nil
}

// askProvider asks which provider's model the agent uses. local reports whether a server on this
// machine would answer if no model was configured.
func (w *wizard) askProvider(ctx context.Context) (chosen choice, local bool, err error) {
	list, first := w.choices(ctx)
	local = slices.ContainsFunc(list, func(c choice) bool { return c.models != nil })
	if !w.quiet && !w.answered("provider") {
		for i, c := range list {
			w.printf("  %2d  %-11s %s", i+1, c.name, c.about)
		}
	}
	q := question{text: "Provider, by number or name [" + first + "]", flag: "provider",
		fallback: first}
	err = w.askUntil(ctx, q, func(answer string) error {
		for i, c := range list {
			if strings.EqualFold(c.name, answer) || strconv.Itoa(i+1) == answer {
				chosen = c
				return nil
			}
		}
		if slices.Contains(app.LocalNames, strings.ToLower(answer)) {
			why := "no server of it answers on this machine"
			if w.offline {
				why = "servers on this machine are not looked for with --offline"
			}
			return fmt.Errorf("%s: %s; %q takes the address of any server", answer, why, otherChoice)
		}
		return fmt.Errorf("there is no provider %q", answer)
	})
	return chosen, local, err
}

// A modelSetup is a model that is being set up.
type modelSetup struct {
	*wizard
	choice
	table string // [models.TABLE]
	key   string // "": as it was, or none
	model string
	prior config.Model // model in this table before; zero: none
	known bool         // the table existed before
}

// askModelOf asks for a model of the provider c, tries it, and stores it.
func (w *wizard) askModelOf(ctx context.Context, c choice) error {
	d := &modelSetup{wizard: w, choice: c, table: c.name}
	if c.name == otherChoice {
		d.table = ownModel
	}
	d.known = w.before.has("models", d.table)
	d.prior = w.cfg.Models[d.table]
	if err := d.askAddress(ctx); err != nil {
		return err
	}
	// A server on this machine needs no key.
	for ask := d.models == nil; ; {
		if ask {
			if err := d.askKey(ctx); err != nil {
				return err
			}
		}
		if err := d.askName(ctx); err != nil {
			return err
		}
		next, err := d.try(ctx)
		switch {
		case err != nil:
			return err
		case next == "":
			d.store()
			return nil
		}
		ask = next == "key"
	}
}

// askAddress asks for the address of the person's own server. A flag replaces the address of every
// other provider, too.
func (d *modelSetup) askAddress(ctx context.Context) error {
	if d.name != otherChoice && !d.answered("base-url") {
		return nil
	}
	q := question{text: "Address of its API, such as http://127.0.0.1:8080/v1", flag: "base-url"}
	if d.known && d.name == otherChoice {
		q.text, q.fallback = "Address of its API ["+d.prior.BaseURL+"]", d.prior.BaseURL
	}
	return d.askUntil(ctx, q, func(answer string) error {
		u, err := url.Parse(answer)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return errors.New("it begins with https:// or http://")
		}
		d.baseURL = strings.TrimRight(config.BaseURL(answer), "/")
		return nil
	})
}

// askKey asks for the key of a model. An empty answer keeps the one that is there.
func (d *modelSetup) askKey(ctx context.Context) error {
	q := question{text: "Key of " + d.name + ", hidden while you type", flag: "key", hidden: true}
	present := d.prior.Key.Reveal()
	variable := ""
	if d.provider != nil {
		variable = d.provider.Variable("_API_KEY")
	}
	switch {
	case variable != "" && os.Getenv(variable) != "":
		q.text += " (Enter: the one in " + variable + ")"
		q.fallback = strings.TrimSpace(os.Getenv(variable))
	case d.known && present != "":
		q.text += " (Enter: keep it)"
	case d.provider == nil:
		q.text += " (Enter: none)"
	}
	return d.askUntil(ctx, q, func(key string) error {
		// Only the known providers are sure to want a key.
		if d.key = key; key == "" && present == "" && d.provider != nil {
			return fmt.Errorf("the provider %s needs a key", d.name)
		}
		return nil
	})
}

// askName asks for the name that the provider gives the model.
func (d *modelSetup) askName(ctx context.Context) error {
	if d.models == nil && d.provider == nil && !d.offline {
		d.models = app.OfferedModels(ctx, d.baseURL, cmp.Or(d.key, d.prior.Key.Reveal()))
	}
	if len(d.models) > 0 {
		d.printf("It offers %s.", offers(d.models))
	}
	first := ""
	switch {
	case d.model != "" && d.provider == nil: // it is asked again
	case d.known && d.prior.Model != "":
		first = d.prior.Model
	case d.provider != nil:
		first = cmp.Or(os.Getenv(d.provider.Variable("_MODEL")), d.provider.Model)
	case len(d.models) > 0:
		first = d.models[0]
	}
	q := question{text: "Model", flag: "model", fallback: first}
	if first != "" {
		q.text += " [" + first + "]"
	}
	return d.askUntil(ctx, q, func(name string) error {
		if d.model = name; name == "" {
			return errors.New("please give the name that the provider has for the model")
		}
		return nil
	})
}

// try sends the model a short request. It returns what to ask the person for again: "key" or
// "model". It returns "" if the model answers, or if the person keeps it as it is.
func (d *modelSetup) try(ctx context.Context) (again string, err error) {
	if d.offline {
		return "", nil
	}
	m := d.config()
	for {
		d.printf("Testing %s …", d.model)
		err := app.TryModel(ctx, d.table, &m)
		if err == nil {
			d.printf("It answers.")
			return "", nil
		}
		if ctx.Err() != nil {
			return "", errStopped
		}
		text, again := d.explain(ctx, &m, err)
		// Nobody can correct the answer.
		if d.quiet {
			return "", errors.New(text)
		}
		d.printf("%s.", capitalize(text))
		if again != "" {
			return again, nil
		}
		retry, err := d.confirm(ctx, tryAgain, true)
		if err != nil || !retry {
			return "", err
		}
	}
}

// explain returns why a model does not answer, and what to ask the person for again: "key",
// "model", or "" for nothing.
func (d *modelSetup) explain(
	ctx context.Context, m *config.Model, failure error,
) (text, again string) {
	var e *llm.Error
	if !errors.As(failure, &e) {
		return display.Lines(failure.Error()), ""
	}
	switch e.Kind {
	case llm.Unauthorized, llm.Forbidden:
		// A key is never asked for a server on this machine.
		if d.name == otherChoice || d.provider != nil {
			again = "key"
		}
		return "the provider refuses the key: take care to copy all of it, or make a new one there", again
	case llm.NotFound:
		text = fmt.Sprintf("the provider has no model %q", d.model)
		if list := app.OfferedModels(ctx, m.BaseURL, m.Key.Reveal()); len(list) > 0 {
			text += ", but " + offers(list)
		}
		return text, "model"
	case llm.OutOfQuota:
		return "the provider takes the key, but the account has no credit left: add some there", ""
	case llm.RateLimited, llm.Overloaded:
		return "the provider takes no more requests at the moment: wait a little", ""
	case llm.Unavailable, llm.TimedOut:
		return fmt.Sprintf("%s can't be reached: %s", d.baseURL, display.Lines(failure.Error())), ""
	}
	return display.Lines(failure.Error()), ""
}

// config returns the model with the settings that the gateway will use.
func (d *modelSetup) config() config.Model {
	m := d.cfg.Models[demoChoice] // has the defaults of all other keys
	if d.known {
		m = d.prior
	}
	m.Provider, m.Model, m.BaseURL = "openai", d.model, d.baseURL
	if p, ok := d.settings()["provider"].(string); ok {
		m.Provider = p
	}
	if d.key != "" {
		m.Key, m.Keys = secret(d.key), nil
	}
	return m
}

// settings returns the keys of the model's table, without its secret.
func (d *modelSetup) settings() map[string]any {
	switch {
	case d.provider != nil:
		return d.provider.Settings(d.model, d.baseURL)
	case d.name != otherChoice:
		return app.LocalSettings(d.model, d.baseURL)
	}
	return map[string]any{"model": d.model, "base_url": d.baseURL}
}

// modelKeys are the keys of a model's table in the order in which they are written.
var modelKeys = []string{"provider", "model", "base_url", "context_window", "max_output",
	"price_in", "price_out", "free", "images", "idle_timeout"}

// store sets the model in the new text of the configuration. If only the secret has changed, the
// other keys stay as they are.
func (d *modelSetup) store() {
	table := []string{"models", d.table}
	// Other keys may be the person's own, so they are set only for another model.
	same := d.known && d.prior.Model == d.model &&
		strings.TrimRight(d.prior.BaseURL, "/") == d.baseURL
	settings := d.settings()
	for _, key := range modelKeys {
		path := append(slices.Clone(table), key)
		value := settings[key]
		switch {
		case same:
		// The default holds for such a key. An earlier value belonged to another model.
		case value == nil || value == int64(0) || value == 0.0:
			if d.before.has(path...) {
				d.edited(path)(d.text.remove(path...))
			}
		default:
			d.set(value, path...)
		}
	}
	if d.key != "" {
		d.setSecret(d.key, d.table+".key", append(table, "key")...)
	}
	if !d.before.has("agent", "model") || d.cfg.Agent.Model != d.table {
		d.set(d.table, "agent", "model")
	}
}
