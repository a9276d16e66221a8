package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"
)

const sqliteScheme = "sqlite:"

// A resolver sets the values that depend on others: absolute paths, secrets, the model and the
// types of channels.
type resolver struct {
	*problems
	cfg  *Config
	vars map[string]string // the environment
}

// resolve sets all of these values. written are the configured models.
func (r resolver) resolve(written []string) {
	c, g := r.cfg, &r.cfg.Gateway
	g.Home = r.path(g.Home, "", "gateway", "home")
	g.Workspace = r.path(g.Workspace, g.Home, "gateway", "workspace")
	if Within(g.Home, g.Workspace) {
		r.report([]string{"gateway", "workspace"}, "this is or contains the data directory, where the "+
			"gateway's secrets and everybody's memories are")
	}
	r.store()
	var err error
	if g.Location, err = time.LoadLocation(g.Timezone); err != nil || g.Timezone == "" {
		r.report([]string{"gateway", "timezone"}, fmt.Sprintf(
			`want a zone such as "Europe/Berlin", "UTC" or "Local", not %q`, g.Timezone))
	}
	if g.Location == time.Local && !isZone(r.vars["TZ"]) {
		c.wrongTZ = r.vars["TZ"]
	}
	if c.Web.Search == "off" {
		c.Web.SearchKey = Secret{} // an unused reference need not exist
	}
	r.secrets(reflect.ValueOf(c).Elem(), nil, true)
	for _, base := range []*string{
		&c.Transcription.BaseURL, &c.Media.Speech.BaseURL, &c.Media.Images.BaseURL,
	} {
		*base = BaseURL(*base)
	}
	for name, m := range c.Models {
		m.BaseURL = BaseURL(m.BaseURL)
		m.inferProvider()
		c.Models[name] = m
	}
	for name, ch := range c.Channels {
		ch.Type = cmp.Or(ch.Type, name) // an account without a type has the name of its platform
		if ch.LocalFiles != "" {
			ch.LocalFiles = r.path(ch.LocalFiles, g.Home, "channels", name, "local_files")
		}
		c.Channels[name] = ch
	}
	r.tools()
	if c.Log.File != "" {
		c.Log.File = r.path(c.Log.File, g.Home, "log", "file")
	}
	r.chooseModel(written)
}

// isZone reports whether Go can use a value of the variable TZ. Otherwise Go takes UTC for the
// machine's zone. Windows has no such variable.
func isZone(tz string) bool {
	tz = strings.TrimPrefix(tz, ":")
	_, err := time.LoadLocation(tz)
	return err == nil || filepath.IsAbs(tz) || runtime.GOOS == "windows"
}

// path returns the absolute path for the value of a key.
func (r resolver) path(path, base string, key ...string) string {
	abs, err := expand(path, base, r.vars)
	if path == "" {
		err = errors.New("want a path")
	}
	if err != nil {
		r.report(key, err.Error())
	}
	return abs
}

// Base URLs of providers.
const (
	openAI    = "https://api.openai.com/v1"
	claude    = "https://api.anthropic.com"
	claudesV1 = claude + "/v1"
)

// endpoints are the paths that the gateway appends to base URLs.
var endpoints = []string{"/chat/completions", "/messages", "/audio/transcriptions", "/audio/speech",
	"/images/generations", "/images/edits"}

// BaseURL returns the base of address, which may be the whole address to which a provider's example
// posts: people copy it from there.
func BaseURL(address string) string {
	for _, path := range endpoints {
		if base, ok := strings.CutSuffix(strings.TrimRight(address, "/"), path); ok {
			return base
		}
	}
	return address
}

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

// store makes the path of the database absolute. Other databases are mistakes.
func (r resolver) store() {
	c, key := r.cfg, []string{"store", "url"}
	scheme, _, _ := strings.Cut(c.Store.URL, ":")
	path, ok := strings.CutPrefix(c.Store.URL, sqliteScheme)
	if scheme == "postgres" || scheme == "postgresql" {
		r.report(key, `PostgreSQL is not supported by this version; want "sqlite:PATH"`)
		return
	}
	if !ok || path == "" {
		r.report(key, `want "sqlite:PATH"`) // the message omits the value, which may contain a password
		return
	}
	abs, err := expand(path, c.Gateway.Home, r.vars)
	if err != nil {
		r.report(key, err.Error())
	}
	c.Store.URL = sqliteScheme + abs
}

// tools resolves the paths of [roots] and [mcp], and the secrets in addresses and variables.
func (r resolver) tools() {
	c, home := r.cfg, r.cfg.Gateway.Home
	for name, root := range c.Roots {
		root.Path = r.path(root.Path, home, "roots", name, "path")
		c.Roots[name] = root
	}
	c.exposed = exposed(c.Exec.Env, r.vars)
	for name, s := range c.MCP {
		if !s.Enabled {
			continue
		}
		if s.IdentityFile != "" {
			s.IdentityFile = r.path(s.IdentityFile, home, "mcp", name, "identity_file")
		}
		if isReference(s.URL) { // the whole URL is a secret
			written := s.URL
			address := r.secret([]string{"mcp", name, "url"}, Secret{&written}).Reveal()
			if address != "" {
				s.URL, c.exposed = address, append(c.exposed, address)
			}
		}
		c.MCP[name] = s
	}
}

// secrets replaces each reference in v by the secret to which it leads. It removes secrets that are
// not used, because their references need not exist.
func (r resolver) secrets(v reflect.Value, path []string, used bool) {
	path = slices.Clip(path)
	switch {
	case v.Type() == secretType:
		s := Secret{}
		if used {
			s = r.secret(path, v.Interface().(Secret))
		}
		v.Set(reflect.ValueOf(s))
	case v.Kind() == reflect.Struct:
		if enabled := v.FieldByName("Enabled"); enabled.IsValid() {
			used = enabled.Bool()
		}
		for _, f := range fields(v.Type()) {
			needs := f.tag.Get("needs")
			r.secrets(v.FieldByIndex(f.index), append(path, f.key),
				used && (needs == "" || !v.FieldByName(needs).IsZero()))
		}
	case v.Kind() == reflect.Map:
		for it := v.MapRange(); it.Next(); {
			entry := reflect.New(v.Type().Elem()).Elem()
			entry.Set(it.Value())
			r.secrets(entry, append(path, it.Key().String()), used)
			v.SetMapIndex(it.Key(), entry)
		}
	case v.Type() == secretsType:
		for i := range v.Len() {
			r.secrets(v.Index(i), path, used)
		}
	}
}

// secret returns the secret to which s refers. It reports a problem if that is missing.
func (r resolver) secret(path []string, s Secret) Secret {
	resolved, err := s.follow(r.cfg.Gateway.Home, r.vars)
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = fmt.Errorf("file %s: %w", pathErr.Path, pathErr.Err)
	}
	if err != nil {
		r.add(problem{at: r.places.of(path), key: strings.Join(path, "."), text: err.Error(),
			secret: !errors.Is(err, errNoReference)})
	}
	return resolved
}

// chooseModel sets the agent's model if it is not set: to the only one of written, else to the
// first provider with a key, else to the demo.
func (r resolver) chooseModel(written []string) {
	c := r.cfg
	if c.Agent.Model != "" {
		return
	}
	switch len(written) {
	case 0:
		c.Agent.Model = "demo"
		// The last one that is found wins, so the list is read from its end.
		for _, p := range slices.Backward(providers[:]) {
			if _, ok := c.Models[p.Name]; ok {
				c.Agent.Model = p.Name
			}
		}
		c.Agent.Undecided = c.Agent.Model == "demo"
	case 1:
		c.Agent.Model = written[0]
	default:
		r.report([]string{"agent", "model"}, "want the one to use of "+oneOf(written))
	}
}
