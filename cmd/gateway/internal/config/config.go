// Package config reads the gateway's configuration. It returns one typed [Config], made from the
// built-in defaults, a TOML file and the environment. Each of these overrides the one before.
//
// [Load] rejects a configuration with mistakes. It reports all of them at once, each with the
// file and line or the variable. Credentials have the type [Secret], so that no log and no error
// shows them.
//
// The package only reads: the configuration file belongs to the user. To reload, call Load again.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Config contains all settings. The tags of its fields give the key, the allowed values and the
// limits with which a source is checked. A field that is tagged live, or that is in a table
// tagged live, can change while the gateway runs: see [Merge].
type Config struct {
	Gateway       Gateway            `koanf:"gateway"`
	Store         Store              `koanf:"store"`
	Log           Log                `koanf:"log"`
	Agent         Agent              `koanf:"agent"`
	Memory        Memory             `koanf:"memory" live:"yes"`
	Skills        Skills             `koanf:"skills"`
	Media         Media              `koanf:"media"`
	Transcription Transcription      `koanf:"transcription"`
	Budget        Budget             `koanf:"budget" live:"yes"`
	Prices        Prices             `koanf:"prices" live:"yes"`
	Approvals     Approvals          `koanf:"approvals" live:"yes"`
	Exec          Exec               `koanf:"exec"`
	Web           Web                `koanf:"web"`
	Schedule      Schedule           `koanf:"schedule"`
	Heartbeat     Heartbeat          `koanf:"heartbeat"`
	HTTP          HTTP               `koanf:"http"`
	Retention     Retention          `koanf:"retention"`
	Models        map[string]Model   `koanf:"models" live:"yes"` // by name; contains "demo"
	Channels      map[string]Channel `koanf:"channels"`          // by account; contains "terminal"
	Tools         map[string]Tool    `koanf:"tools" live:"yes"`  // by tool name
	Roots         map[string]Root    `koanf:"roots"`             // by name
	MCP           map[string]Server  `koanf:"mcp"`               // by name
	Hooks         map[string]Hook    `koanf:"hooks"`             // by name, the last part of the URL

	Personas map[string]Persona `koanf:"personas" live:"yes"` // by name
	Policies map[string]Policy  `koanf:"policies" live:"yes"` // by name

	File       string `koanf:"-"` // path of the file as given
	FileExists bool   `koanf:"-"` // the file exists; it may be missing unless it was named

	findings `koanf:"-"`
}

// findings hold what the loader has found besides the settings.
type findings struct {
	unresolved []problem // references to secrets that don't exist
	mistakes   []problem // ignored mistakes: see [LoadLenient]
	exposed    []string  // secrets without the type [Secret]: in variables and URLs
}

// Gateway has the settings of the whole process.
type Gateway struct {
	Name      string `koanf:"name"`      // name of the agent
	Home      string `koanf:"home"`      // absolute path of the data directory
	Workspace string `koanf:"workspace"` // absolute path of the workspace
	Timezone  string `koanf:"timezone"`  // IANA name, or "Local"

	Location *time.Location `koanf:"-"` // loaded from Timezone
}

// Store has the settings of the database.
type Store struct {
	URL string `koanf:"url"` // "sqlite:" and an absolute path
}

// Path returns the path of the SQLite database file.
func (s Store) Path() string { return strings.TrimPrefix(s.URL, sqliteScheme) }

// Log has the settings of the log.
type Log struct {
	Level  slog.Level `koanf:"level" live:"yes"`
	Format string     `koanf:"format" allowed:"auto text json"`

	File     string        `koanf:"file"`              // absolute path; "": standard error
	FileMB   int           `koanf:"file_mb" min:"1"`   // maximum size of a file before rotation
	FileKeep int           `koanf:"file_keep" min:"0"` // number of old files; 0: all within FileAge
	FileAge  time.Duration `koanf:"file_age" min:"0s"` // maximum age of old files; 0: any
}

// Agent has the limits and settings of the agent.
type Agent struct {
	Model       string        `koanf:"model" live:"yes"`                 // a key of Config.Models
	Slots       int           `koanf:"slots" min:"1"`                    // concurrent model calls
	MaxRounds   int           `koanf:"max_rounds" min:"1" live:"yes"`    // model calls per turn
	TaskModel   string        `koanf:"task_model" live:"yes"`            // of sub-agents; "": Model
	TaskRounds  int           `koanf:"task_rounds" min:"1" live:"yes"`   // model calls per sub-agent
	TurnTimeout time.Duration `koanf:"turn_timeout" min:"1s" live:"yes"` // time limit of a turn
	// QueueMode says what happens with a message that arrives during a turn.
	QueueMode string `koanf:"queue_mode" allowed:"steer followup collect interrupt" live:"yes"`
	Waiting   int    `koanf:"waiting" min:"1" live:"yes"` // maximum pending messages per session
	// Activity says how much of the agent's work is shown while it makes an answer.
	Activity string `koanf:"activity" allowed:"off compact full" live:"yes"`

	Undecided bool `koanf:"-"` // no model is configured, so the demo answers
}

// Memory says when conversations are summarised, and when Dream updates the memory.
type Memory struct {
	Model      string        `koanf:"model"`                // a key of Config.Models; "": agent.model
	Idle       time.Duration `koanf:"idle" min:"0s"`        // idle time before a summary; 0: never
	DreamEvery time.Duration `koanf:"dream_every" min:"0s"` // 0: only on request
}

// Skills has the settings of skills.
type Skills struct {
	Disabled []string `koanf:"disabled"` // names of skills
}

// Media has the limits of received files, and the settings of generated ones.
type Media struct {
	MaxFileMB  int           `koanf:"max_file_mb" min:"1"`  // maximum size of a received file
	MaxTotalMB int           `koanf:"max_total_mb" min:"1"` // of all files; the oldest go first
	Retention  time.Duration `koanf:"retention" min:"1h"`   // how long files are kept

	Speech Speech `koanf:"speech"`
	Images Images `koanf:"images"`
}

// Transcription has the settings for the transcription of voice messages.
type Transcription struct {
	Model   string `koanf:"model"`             // name at the provider; "": no transcription
	BaseURL string `koanf:"base_url"`          // of an OpenAI-compatible API
	Key     Secret `koanf:"key" needs:"Model"` // empty if Model is empty

	PriceMinute float64 `koanf:"price_minute" min:"0" live:"yes"` // dollars per minute

	// Groups lists groups, or "*", whose short voice messages are transcribed to find out whether
	// they are for the agent. Names are how people call it there; empty: the agent's name.
	Groups []string `koanf:"groups" live:"yes"`
	Names  []string `koanf:"names" live:"yes"`
}

// Speech has the settings for voice messages with answers.
type Speech struct {
	Model   string `koanf:"model"`             // name at the provider; "": no speech
	BaseURL string `koanf:"base_url"`          // of an OpenAI-compatible API
	Key     Secret `koanf:"key" needs:"Model"` // empty if Model is empty
	Voice   string `koanf:"voice"`             // name at the provider
	Format  string `koanf:"format" allowed:"opus mp3 wav"`

	// Answers says when answers are spoken. Each conversation can override it.
	Answers string `koanf:"answers" allowed:"never always auto" live:"yes"`
	MaxText int    `koanf:"max_text" min:"1"` // maximum spoken characters of an answer

	PriceMillion float64 `koanf:"price_million" min:"0"` // dollars per million characters
}

// Images has the settings for generating pictures.
type Images struct {
	Model   string  `koanf:"model"`             // name at the provider; "": no pictures
	BaseURL string  `koanf:"base_url"`          // of an OpenAI-compatible API
	Key     Secret  `koanf:"key" needs:"Model"` // empty if Model is empty
	Price   float64 `koanf:"price" min:"0"`     // dollars per picture
}

// A Model is a language model with its address and its limits.
type Model struct {
	// Provider is the protocol. After loading, it is never auto.
	Provider string `koanf:"provider" allowed:"auto openai anthropic demo" hint:"; or set base_url"`

	Model         string   `koanf:"model"`    // name at the provider
	BaseURL       string   `koanf:"base_url"` // of the provider's API
	Key           Secret   `koanf:"key"`
	Keys          []Secret `koanf:"keys"`                   // additional keys
	ContextWindow int      `koanf:"context_window" min:"1"` // tokens, prompt and answer
	MaxOutput     int      `koanf:"max_output" min:"0"`     // tokens; 0: provider's default
	PriceIn       float64  `koanf:"price_in" min:"0"`       // dollars per million tokens; 0: unknown
	PriceOut      float64  `koanf:"price_out" min:"0"`      // as PriceIn
	PriceCached   float64  `koanf:"price_cached" min:"0"`   // as PriceIn, for cached input
	Free          bool     `koanf:"free"`                   // the model costs nothing
	Images        bool     `koanf:"images"`                 // the model accepts images
	Fallback      []string `koanf:"fallback"`               // models to try next, in order

	Temperature     float64       `koanf:"temperature" min:"-1" max:"2"` // -1: provider's default
	ReasoningEffort string        `koanf:"reasoning_effort"`             // "": provider's default
	ReasoningBack   bool          `koanf:"reasoning_back"`               // return reasoning to model
	IdleTimeout     time.Duration `koanf:"idle_timeout" min:"1s"`        // longest pause in a response
	// MaxOutputField is the provider's name of the field that limits the length of an answer.
	MaxOutputField string `koanf:"max_output_field" allowed:"auto max_tokens max_completion_tokens"`

	Body    map[string]JSON   `koanf:"body"`    // additional request fields
	Headers map[string]Secret `koanf:"headers"` // additional request headers
}

// AllKeys returns the keys of m without duplicates, in the order in which they are tried.
func (m *Model) AllKeys() (keys []string) {
	for _, s := range append([]Secret{m.Key}, m.Keys...) {
		if key := s.Reveal(); key != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// KeyName returns the name of a key in the log: its position and its last four characters.
func KeyName(place int, key string) string {
	const shown, least = 4, 16 // keys shorter than least show nothing
	name := "key " + strconv.Itoa(place)
	if len(key) >= least {
		name += " (…" + key[len(key)-shown:] + ")"
	}
	return name
}

// Sorted returns the entries of a map in the order of their names.
func Sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}

// JSON is a value of any type, encoded as JSON.
type JSON string

// A Channel is an account on a chat platform.
type Channel struct {
	Type         string        `koanf:"type" allowed:"telegram discord whatsapp terminal"`
	Enabled      bool          `koanf:"enabled"`
	Token        Secret        `koanf:"token"`   // empty only if Enabled is false
	APIURL       string        `koanf:"api_url"` // "": the platform's own
	Access       string        `koanf:"access" allowed:"open allow pairing" live:"yes"`
	Allow        []string      `koanf:"allow" live:"yes"`  // ids of people who may write
	Owners       []string      `koanf:"owners" live:"yes"` // ids of the owners
	Groups       []string      `koanf:"groups" live:"yes"` // ids of the allowed groups
	Streaming    bool          `koanf:"streaming"`
	EditInterval time.Duration `koanf:"edit_interval" min:"0s"`       // 0: platform's default
	Debounce     time.Duration `koanf:"debounce" min:"0s" live:"yes"` // 0: no debounce
	RateLimit    string        `koanf:"rate_limit" allowed:"platform off"`
	// Session says which messages are one conversation. SessionReset is the time of day after which
	// conversations begin anew, such as 04:00; "": never.
	Session      string `koanf:"session" allowed:"chat speaker person" live:"yes"`
	SessionReset string `koanf:"session_reset" live:"yes"`

	// Activation says which messages in groups are answered.
	Activation string `koanf:"activation" allowed:"mention always" live:"yes"`

	Reaction string `koanf:"reaction"` // an emoji; "": none
	Proxy    Secret `koanf:"proxy"`    // URL; may contain a password

	// SenderRate is the maximum number of messages per sender and minute; 0: no limit.
	SenderRate int `koanf:"sender_rate" min:"0" live:"yes"`

	Telegram `koanf:",squash"`

	// Settings of Discord:
	Shards int `koanf:"shards" min:"1"`
}

// Telegram has the settings of a [Channel] that only Telegram has.
type Telegram struct {
	WebhookURL    string `koanf:"webhook_url"`    // public; "": long polling
	WebhookListen string `koanf:"webhook_listen"` // host:port to which the public URL leads
	WebhookSecret Secret `koanf:"webhook_secret"`
	Drafts        bool   `koanf:"drafts"`      // stream answers as drafts in direct chats
	Rich          bool   `koanf:"rich"`        // send rich messages
	LocalFiles    string `koanf:"local_files"` // absolute path of a local Bot API server's files
}

// Load reads the configuration file at path and the environment in the form of [os.Environ]. If
// path is "", it reads config.toml in the data directory if that exists.
//
// If the configuration has mistakes, the text of the error has one line for each.
func Load(path string, environ []string) (*Config, error) {
	c, err := LoadWithoutSecrets(path, environ)
	if err == nil {
		err = c.Unresolved()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// LoadWithoutSecrets is [Load] for callers that need no credentials, or only some. A reference to
// a missing variable or file is not an error: the secret is empty.
func LoadWithoutSecrets(path string, environ []string) (*Config, error) {
	return newLoader(variables(environ)).load(path)
}

// Unresolved returns an error that names the references to missing secrets at or below a key, or
// nil if there are none.
func (c *Config) Unresolved(key ...string) error {
	prefix := strings.Join(key, ".")
	return joinProblems(slices.DeleteFunc(slices.Clone(c.unresolved), func(p problem) bool {
		return prefix != "" && p.key != prefix && !strings.HasPrefix(p.key, prefix+".")
	}))
}

// load implements [Load].
func (l *loader) load(path string) (*Config, error) {
	optional := path == ""
	if optional {
		path = defaultPath(l.vars)
	}
	src, err := os.ReadFile(path)
	// A home that is not a folder is reported when it is opened.
	missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
	if err != nil && !(optional && missing) {
		return nil, unreadable(path, err)
	}
	c, err := l.parse(path, src)
	if c != nil {
		c.File, c.FileExists = path, !missing
	}
	return c, err
}

// unreadable returns the error for an unreadable configuration file, with advice.
func unreadable(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no configuration file %s: check the path after -c", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("you may not read %s: run this command as the gateway's user, "+
			"as in \"sudo -u gateway gateway …\"", path)
	}
	return fmt.Errorf("config: %w", err)
}

// defaultPath returns the path of the configuration file in the data directory.
func defaultPath(vars map[string]string) string {
	home := cmp.Or(vars[homeVariable], vars["GATEWAY_GATEWAY__HOME"], "~/.gateway")
	home, err := expand(home, "", vars)
	if err != nil {
		return "config.toml" // parse reports the missing home with more context
	}
	return filepath.Join(home, "config.toml")
}
