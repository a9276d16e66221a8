package config

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"time"
)

const sqliteScheme = "sqlite:"

// finish sets the values that depend on others: absolute paths, secrets, the model and the types
// of channels.
func (l *loader) finish(c *Config) {
	g := &c.Gateway
	g.Home = l.path(g.Home, "", "gateway", "home")
	g.Workspace = l.path(g.Workspace, g.Home, "gateway", "workspace")
	if Within(g.Home, g.Workspace) {
		l.problem([]string{"gateway", "workspace"}, "this is or contains the data directory, where the "+
			"gateway's secrets and everybody's memories are")
	}
	l.finishStore(c)
	var err error
	if g.Location, err = time.LoadLocation(g.Timezone); err != nil || g.Timezone == "" {
		l.problem([]string{"gateway", "timezone"}, fmt.Sprintf(
			`want a zone such as "Europe/Berlin", "UTC" or "Local", not %q`, g.Timezone))
	}
	if c.Web.Search == "off" {
		c.Web.SearchKey = Secret{} // an unused reference need not exist
	}
	l.resolveSecrets(reflect.ValueOf(c).Elem(), nil, true, g.Home)
	for name, m := range c.Models {
		m.inferProvider()
		c.Models[name] = m
	}
	for name, ch := range c.Channels {
		c.Channels[name] = l.finishChannel(name, ch, g.Home)
	}
	l.finishTools(c)
	if c.Log.File != "" {
		c.Log.File = l.path(c.Log.File, g.Home, "log", "file")
	}
	l.chooseModel(c)
}

// path returns the absolute path for the value of a key.
func (l *loader) path(path, base string, key ...string) string {
	abs, err := expand(path, base, l.vars)
	if path == "" {
		err = errors.New("want a path")
	}
	if err != nil {
		l.problem(key, err.Error())
	}
	return abs
}

// Base URLs of providers.
const (
	openAI    = "https://api.openai.com/v1"
	claude    = "https://api.anthropic.com"
	claudesV1 = claude + "/v1"
)

// inferProvider sets the protocol from the URL, or the URL from the protocol.
func (m *Model) inferProvider() {
	base := strings.TrimSuffix(m.BaseURL, "/")
	switch {
	case m.Provider == "auto" && (base == claude || base == claudesV1):
		m.Provider = "anthropic"
	case m.Provider == "auto":
		m.Provider = "openai"
	case m.Provider == "anthropic" && base == openAI: // the default URL
		m.BaseURL = claudesV1
	}
}

func (l *loader) finishStore(c *Config) {
	key := []string{"store", "url"}
	scheme, _, _ := strings.Cut(c.Store.URL, ":")
	path, ok := strings.CutPrefix(c.Store.URL, sqliteScheme)
	if scheme == "postgres" || scheme == "postgresql" {
		l.problem(key, `PostgreSQL is not supported by this version; want "sqlite:PATH"`)
		return
	}
	if !ok || path == "" {
		l.problem(key, `want "sqlite:PATH"`) // the message omits the value, which may contain a password
		return
	}
	abs, err := expand(path, c.Gateway.Home, l.vars)
	if err != nil {
		l.problem(key, err.Error())
	}
	c.Store.URL = sqliteScheme + abs
}

func (l *loader) finishChannel(name string, ch Channel, home string) Channel {
	if ch.Type == "" {
		ch.Type = name
	}
	if ch.LocalFiles != "" {
		ch.LocalFiles = l.path(ch.LocalFiles, home, "channels", name, "local_files")
	}
	return ch
}

// finishTools resolves the paths of [roots] and [mcp], and the secrets in addresses and variables.
func (l *loader) finishTools(c *Config) {
	home := c.Gateway.Home
	for name, r := range c.Roots {
		r.Path = l.path(r.Path, home, "roots", name, "path")
		c.Roots[name] = r
	}
	c.exposed = exposed(c.Exec.Env, l.vars)
	for name, s := range c.MCP {
		if !s.Enabled {
			continue
		}
		if s.IdentityFile != "" {
			s.IdentityFile = l.path(s.IdentityFile, home, "mcp", name, "identity_file")
		}
		if isReference(s.URL) { // the whole URL is a secret
			written := s.URL
			address := l.secret([]string{"mcp", name, "url"}, Secret{&written}, home).Reveal()
			if address != "" {
				s.URL, c.exposed = address, append(c.exposed, address)
			}
		}
		c.MCP[name] = s
	}
}

// resolveSecrets replaces each reference in v by the secret to which it leads. It removes secrets
// that are not used, because their references need not exist.
func (l *loader) resolveSecrets(v reflect.Value, path []string, used bool, home string) {
	path = slices.Clip(path)
	switch {
	case v.Type() == secretType:
		s := Secret{}
		if used {
			s = l.secret(path, v.Interface().(Secret), home)
		}
		v.Set(reflect.ValueOf(s))
	case v.Kind() == reflect.Struct:
		if enabled := v.FieldByName("Enabled"); enabled.IsValid() {
			used = enabled.Bool()
		}
		for _, f := range fields(v.Type()) {
			needs := f.tag.Get("needs")
			l.resolveSecrets(v.FieldByIndex(f.index), append(path, f.key),
				used && (needs == "" || !v.FieldByName(needs).IsZero()), home)
		}
	case v.Kind() == reflect.Map:
		for it := v.MapRange(); it.Next(); {
			entry := reflect.New(v.Type().Elem()).Elem()
			entry.Set(it.Value())
			l.resolveSecrets(entry, append(path, it.Key().String()), used, home)
			v.SetMapIndex(it.Key(), entry)
		}
	case v.Type() == secretsType:
		for i := range v.Len() {
			l.resolveSecrets(v.Index(i), path, used, home)
		}
	}
}

// secret returns the secret to which s refers. It reports a problem if that is missing.
func (l *loader) secret(path []string, s Secret, home string) Secret {
	resolved, err := s.follow(home, l.vars)
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = fmt.Errorf("file %s: %w", pathErr.Path, pathErr.Err)
	}
	if err != nil {
		l.report(problem{at: l.place(path), key: strings.Join(path, "."), text: err.Error(),
			secret: !errors.Is(err, errNoReference)})
	}
	return resolved
}

// chooseModel sets the agent's model if it is not set: to the only configured model, else to the
// first provider with a key, else to the demo.
func (l *loader) chooseModel(c *Config) {
	if c.Agent.Model != "" {
		return
	}
	switch len(l.written) {
	case 0:
		c.Agent.Model = "demo"
		for _, p := range slices.Backward(providers[:]) {
			if _, ok := c.Models[p.Name]; ok {
				c.Agent.Model = p.Name
			}
		}
		c.Agent.Undecided = c.Agent.Model == "demo"
	case 1:
		c.Agent.Model = l.written[0]
	default:
		l.problem([]string{"agent", "model"}, "want the one to use of "+oneOf(l.written))
	}
}
