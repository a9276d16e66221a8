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
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Config contains all settings. The tags of its fields give the key, the allowed values and the
// limits with which a source is checked. A field that is tagged live, or that is in a table
// tagged live, can change while the gateway runs: see [Merge].
type Config struct {
	Gateway       Gateway            `key:"gateway"`
	Store         Store              `key:"store"`
	Log           Log                `key:"log"`
	Agent         Agent              `key:"agent"`
	Memory        Memory             `key:"memory" live:"yes"`
	Skills        Skills             `key:"skills"`
	Media         Media              `key:"media"`
	Transcription Transcription      `key:"transcription"`
	Budget        Budget             `key:"budget" live:"yes"`
	Prices        Prices             `key:"prices" live:"yes"`
	Approvals     Approvals          `key:"approvals" live:"yes"`
	Exec          Exec               `key:"exec"`
	Web           Web                `key:"web"`
	Schedule      Schedule           `key:"schedule"`
	Heartbeat     Heartbeat          `key:"heartbeat"`
	HTTP          HTTP               `key:"http"`
	Retention     Retention          `key:"retention"`
	Models        map[string]Model   `key:"models" live:"yes"` // by name; contains "demo"
	Channels      map[string]Channel `key:"channels"`          // by account; contains "terminal"
	Tools         map[string]Tool    `key:"tools" live:"yes"`  // by tool name
	Roots         map[string]Root    `key:"roots"`             // by name
	MCP           map[string]Server  `key:"mcp"`               // by name
	Hooks         map[string]Hook    `key:"hooks"`             // by name, the last part of the URL

	Personas map[string]Persona `key:"personas" live:"yes"` // by name
	Policies map[string]Policy  `key:"policies" live:"yes"` // by name

	File       string `key:"-"` // path of the file as given
	FileExists bool   `key:"-"` // the file exists; it may be missing unless it was named

	findings `key:"-"`
}

// findings hold what the loader has found besides the settings.
type findings struct {
	content    bool      // the file exists and is not empty
	unresolved []problem // references to secrets that don't exist
	mistakes   []problem // ignored mistakes: see [LoadLenient]
	exposed    []string  // secrets without the type [Secret]: in variables and URLs
	wrongTZ    string    // the variable TZ, if it should be the zone and names none
	origins    origins   // see [Config.Explain]
}

// Gateway has the settings of the whole process.
type Gateway struct {
	Name      string `key:"name"`      // name of the agent
	Home      string `key:"home"`      // absolute path of the data directory
	Workspace string `key:"workspace"` // absolute path of the workspace
	Timezone  string `key:"timezone"`  // IANA name, or "Local"

	Location *time.Location `key:"-"` // loaded from Timezone
}

// Store has the settings of the database.
type Store struct {
	URL string `key:"url"` // "sqlite:" and an absolute path
}

// Path returns the path of the SQLite database file.
func (s Store) Path() string { return strings.TrimPrefix(s.URL, sqliteScheme) }

// Log has the settings of the log.
type Log struct {
	Level  slog.Level `key:"level" live:"yes"`
	Format string     `key:"format" allowed:"auto text json"`

	File     string        `key:"file"`                             // absolute; "": standard error
	FileMB   int           `key:"file_mb" min:"1" max:"1000000000"` // at which the next file begins
	FileKeep int           `key:"file_keep" min:"0"`                // old files; 0: all within FileAge
	FileAge  time.Duration `key:"file_age" min:"0s"`                // of old files; 0: any
}

// Agent has the limits and settings of the agent.
type Agent struct {
	Model       string        `key:"model" live:"yes"`                 // a key of Config.Models
	Slots       int           `key:"slots" min:"1" max:"1000000"`      // concurrent model calls
	MaxRounds   int           `key:"max_rounds" min:"1" live:"yes"`    // model calls per turn
	TaskModel   string        `key:"task_model" live:"yes"`            // of sub-agents; "": Model
	TaskRounds  int           `key:"task_rounds" min:"1" live:"yes"`   // model calls per sub-agent
	TurnTimeout time.Duration `key:"turn_timeout" min:"1s" live:"yes"` // time limit of a turn
	// QueueMode says what happens with a message that arrives during a turn.
	QueueMode string `key:"queue_mode" allowed:"steer followup collect interrupt" live:"yes"`
	Waiting   int    `key:"waiting" min:"1" live:"yes"` // maximum pending messages per session
	// Activity says how much of the agent's work is shown while it makes an answer.
	Activity string `key:"activity" allowed:"off compact full" live:"yes"`

	Undecided bool `key:"-"` // no model is configured, so the demo answers
}

// Memory says when conversations are summarised, and when Dream updates the memory.
type Memory struct {
	Model      string        `key:"model"`                // a key of Config.Models; "": agent.model
	Idle       time.Duration `key:"idle" min:"0s"`        // idle time before a summary; 0: never
	DreamEvery time.Duration `key:"dream_every" min:"0s"` // 0: only on request
}

// Skills has the settings of skills.
type Skills struct {
	Disabled []string `key:"disabled"` // names of skills
}

// Media has the limits of received files, and the settings of generated ones.
type Media struct {
	MaxFileMB  int           `key:"max_file_mb" min:"1" max:"1000000000"`  // of a received file
	MaxTotalMB int           `key:"max_total_mb" min:"1" max:"1000000000"` // of all files
	Retention  time.Duration `key:"retention" min:"1h"`                    // how long files are kept

	Speech Speech `key:"speech"`
	Images Images `key:"images"`
}

// Transcription has the settings for the transcription of voice messages.
type Transcription struct {
	Model   string `key:"model"`             // name at the provider; "": no transcription
	BaseURL string `key:"base_url"`          // of an OpenAI-compatible API
	Key     Secret `key:"key" needs:"Model"` // empty if Model is empty

	PriceMinute float64 `key:"price_minute" min:"0" live:"yes"` // dollars per minute

	// Groups lists groups, or "*", whose short voice messages are transcribed to find out whether
	// they are for the agent. Names are how people call it there; empty: the agent's name.
	Groups []string `key:"groups" live:"yes"`
	Names  []string `key:"names" live:"yes"`
}

// Speech has the settings for voice messages with answers.
type Speech struct {
	Model   string `key:"model"`             // name at the provider; "": no speech
	BaseURL string `key:"base_url"`          // of an OpenAI-compatible API
	Key     Secret `key:"key" needs:"Model"` // empty if Model is empty
	Voice   string `key:"voice"`             // name at the provider
	Format  string `key:"format" allowed:"opus mp3 wav"`

	// Answers says when answers are spoken. Each conversation can override it.
	Answers string `key:"answers" allowed:"never always auto" live:"yes"`
	MaxText int    `key:"max_text" min:"1"` // maximum spoken characters of an answer

	PriceMillion float64 `key:"price_million" min:"0"` // dollars per million characters
}

// Images has the settings for generating pictures.
type Images struct {
	Model   string  `key:"model"`             // name at the provider; "": no pictures
	BaseURL string  `key:"base_url"`          // of an OpenAI-compatible API
	Key     Secret  `key:"key" needs:"Model"` // empty if Model is empty
	Price   float64 `key:"price" min:"0"`     // dollars per picture
}

// A Model is a language model with its address and its limits.
type Model struct {
	// Provider is the protocol. After loading, it is never auto.
	Provider string `key:"provider" allowed:"auto openai anthropic demo" hint:"; or set base_url"`

	Model         string   `key:"model"`    // name at the provider
	BaseURL       string   `key:"base_url"` // of the provider's API
	Key           Secret   `key:"key"`
	Keys          []Secret `key:"keys"`                   // additional keys
	ContextWindow int      `key:"context_window" min:"1"` // tokens, prompt and answer
	MaxOutput     int      `key:"max_output" min:"0"`     // tokens; 0: provider's default
	PriceIn       float64  `key:"price_in" min:"0"`       // dollars per million tokens; 0: unknown
	PriceOut      float64  `key:"price_out" min:"0"`      // as PriceIn
	PriceCached   float64  `key:"price_cached" min:"0"`   // as PriceIn, for cached input
	Free          bool     `key:"free"`                   // the model costs nothing
	Images        bool     `key:"images"`                 // the model accepts images
	Fallback      []string `key:"fallback"`               // models to try next, in order

	Temperature     float64       `key:"temperature" min:"-1" max:"2"` // -1: provider's default
	ReasoningEffort string        `key:"reasoning_effort"`             // "": provider's default
	ReasoningBack   bool          `key:"reasoning_back"`               // return reasoning to model
	IdleTimeout     time.Duration `key:"idle_timeout" min:"1s"`        // longest pause in a response
	// MaxOutputField is the provider's name of the field that limits the length of an answer.
	MaxOutputField string `key:"max_output_field" allowed:"auto max_tokens max_completion_tokens"`

	Body    map[string]JSON   `key:"body"`    // additional request fields
	Headers map[string]Secret `key:"headers"` // additional request headers
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

// WithFallbacks returns the names of models, their fallbacks and their fallbacks, each once.
// Fallbacks can refer to each other in a circle. The direct ones come before the indirect ones.
func (c *Config) WithFallbacks(names ...string) (list []string) {
	for i := 0; i < len(names); i++ {
		if name := names[i]; !slices.Contains(list, name) {
			list = append(list, name)
			names = append(names, c.Models[name].Fallback...)
		}
	}
	return list
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
	Type         string        `key:"type" allowed:"telegram discord whatsapp terminal"`
	Enabled      bool          `key:"enabled"`
	Token        Secret        `key:"token"`   // empty only if Enabled is false
	APIURL       string        `key:"api_url"` // "": the platform's own
	Access       string        `key:"access" allowed:"open allow pairing" live:"yes"`
	Allow        []string      `key:"allow" live:"yes"`  // ids of people who may write
	Owners       []string      `key:"owners" live:"yes"` // ids of the owners
	Groups       []string      `key:"groups" live:"yes"` // ids of the allowed groups
	Streaming    bool          `key:"streaming"`
	EditInterval time.Duration `key:"edit_interval" min:"0s"`       // 0: platform's default
	Debounce     time.Duration `key:"debounce" min:"0s" live:"yes"` // 0: no debounce
	RateLimit    string        `key:"rate_limit" allowed:"platform off"`
	// Session says which messages are one conversation. SessionReset is the time of day after which
	// conversations begin anew, such as 04:00; "": never.
	Session      string `key:"session" allowed:"chat speaker person" live:"yes"`
	SessionReset string `key:"session_reset" live:"yes"`

	// Activation says which messages in groups are answered.
	Activation string `key:"activation" allowed:"mention always" live:"yes"`

	Reaction string `key:"reaction"` // an emoji; "": none
	Proxy    Secret `key:"proxy"`    // URL; may contain a password

	// SenderRate is the maximum number of messages per sender and minute; 0: no limit.
	SenderRate int `key:"sender_rate" min:"0" live:"yes"`

	Telegram `key:",squash"`

	// Settings of Discord:
	Shards int `key:"shards" min:"1"`
}

// Telegram has the settings of a [Channel] that only Telegram has.
type Telegram struct {
	WebhookURL    string `key:"webhook_url"`    // public; "": long polling
	WebhookListen string `key:"webhook_listen"` // host:port to which the public URL leads
	WebhookSecret Secret `key:"webhook_secret"`
	Drafts        bool   `key:"drafts"`      // stream answers as drafts in direct chats
	Rich          bool   `key:"rich"`        // send rich messages
	LocalFiles    string `key:"local_files"` // absolute path of a local Bot API server's files
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
