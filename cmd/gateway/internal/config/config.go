// Package config reads the gateway's configuration: one typed [Config] out of
// the built-in defaults, a TOML file and the environment, each over the one before.
//
// [Load] refuses a configuration that has a mistake and reports all of them at
// once, each with the file and line or the variable that it comes from. Credentials are
// of type [Secret] and show in no log and no error.
//
// The package only reads: the configuration file is the user's. Reloading is
// calling Load again.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Config is everything that can be configured. The tags of its fields are
// what a source is checked against: the key, the allowed values and the least value. A field that
// is tagged live, or is in a table that is, takes effect while the gateway runs: see [Merge].
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
	Models        map[string]Model   `koanf:"models" live:"yes"` // by name; always has "demo"
	Channels      map[string]Channel `koanf:"channels"`          // by account; always has "terminal"
	Tools         map[string]Tool    `koanf:"tools" live:"yes"`  // by the tool's name
	Roots         map[string]Root    `koanf:"roots"`             // by name
	MCP           map[string]Server  `koanf:"mcp"`               // by name
	Hooks         map[string]Hook    `koanf:"hooks"`             // by name, the last part of their URL

	File  string `koanf:"-"` // path of the file, as it was given
	Found bool   `koanf:"-"` // whether that was there; it need not unless it was named

	unresolved []problem `koanf:"-"` // references to secrets that lead nowhere
	mistakes   []problem `koanf:"-"` // that were passed over: see [LoadDespiteMistakes]
	exposed    []string  `koanf:"-"` // secrets that are no [Secret]: of variables and URLs
}

// Gateway is about the process as a whole.
type Gateway struct {
	Name      string `koanf:"name"`      // what the agent calls itself
	Home      string `koanf:"home"`      // absolute path of the data directory
	Workspace string `koanf:"workspace"` // absolute path of the agent's files
	Timezone  string `koanf:"timezone"`  // IANA name, or "Local"

	Location *time.Location `koanf:"-"` // Timezone, loaded
}

// Store is about the database.
type Store struct {
	URL string `koanf:"url"` // "sqlite:" and an absolute path
}

// Path returns the path of the SQLite database file.
func (s Store) Path() string { return strings.TrimPrefix(s.URL, sqliteScheme) }

// Log is about the program's log.
type Log struct {
	Level  slog.Level `koanf:"level" live:"yes"`
	Format string     `koanf:"format" allowed:"auto text json"`

	File     string        `koanf:"file"`              // absolute path; "": standard error
	FileMB   int           `koanf:"file_mb" min:"1"`   // of a file; then the next begins
	FileKeep int           `koanf:"file_keep" min:"0"` // old files; 0: all within FileAge
	FileAge  time.Duration `koanf:"file_age" min:"0s"` // of an old file; 0: any
}

// Agent bounds and directs what the agent does.
type Agent struct {
	Model       string        `koanf:"model" live:"yes"`                 // a key of Config.Models
	Slots       int           `koanf:"slots" min:"1"`                    // model calls at once
	MaxRounds   int           `koanf:"max_rounds" min:"1" live:"yes"`    // model calls in one turn
	TaskModel   string        `koanf:"task_model" live:"yes"`            // "": the one that answers
	TaskRounds  int           `koanf:"task_rounds" min:"1" live:"yes"`   // likewise, of a sub-agent
	TurnTimeout time.Duration `koanf:"turn_timeout" min:"1s" live:"yes"` // longest turn
	// QueueMode says what becomes of a message that comes during a turn.
	QueueMode string `koanf:"queue_mode" allowed:"steer followup collect interrupt" live:"yes"`
	Waiting   int    `koanf:"waiting" min:"1" live:"yes"` // messages waiting in one session
	// Activity says how much of the work is shown while an answer is under way.
	Activity string `koanf:"activity" allowed:"off compact full" live:"yes"`

	Undecided bool `koanf:"-"` // whether nothing says which model answers; then the demo does
}

// Memory is how conversations become notes, and notes lasting memory.
type Memory struct {
	Model      string        `koanf:"model"`                // a key of Config.Models; "": the agent's
	Idle       time.Duration `koanf:"idle" min:"0s"`        // rest before notes; 0: never
	DreamEvery time.Duration `koanf:"dream_every" min:"0s"` // 0: only when somebody asks
}

// Skills are what the agent can follow.
type Skills struct {
	Disabled []string `koanf:"disabled"` // their names
}

// Media bounds the files that people send, and says how others are made.
type Media struct {
	MaxFileMB  int           `koanf:"max_file_mb" min:"1"`  // largest file that is fetched
	MaxTotalMB int           `koanf:"max_total_mb" min:"1"` // of all files; the oldest go first
	Retention  time.Duration `koanf:"retention" min:"1h"`   // how long a file is kept

	Speech Speech `koanf:"speech"`
	Images Images `koanf:"images"`
}

// Transcription is how voice messages become text.
type Transcription struct {
	Model   string `koanf:"model"`    // the provider's name for it; "": no transcription
	BaseURL string `koanf:"base_url"` // of an OpenAI-compatible API
	Key     Secret `koanf:"key"`      // empty while Model is

	PriceMinute float64 `koanf:"price_minute" min:"0" live:"yes"` // dollars
}

// Speech is how answers become voice messages.
type Speech struct {
	Model   string `koanf:"model"`    // the provider's name for it; "": no speech
	BaseURL string `koanf:"base_url"` // of an OpenAI-compatible API
	Key     Secret `koanf:"key"`      // empty while Model is
	Voice   string `koanf:"voice"`    // the provider's name for it
	Format  string `koanf:"format" allowed:"opus mp3 wav"`

	// Answers says when answers are spoken, in conversations that have not chosen that themselves.
	Answers string `koanf:"answers" allowed:"never always auto" live:"yes"`
	MaxText int    `koanf:"max_text" min:"1"` // characters that are spoken of an answer

	PriceMillion float64 `koanf:"price_million" min:"0"` // dollars for a million characters
}

// Images is how the agent makes pictures.
type Images struct {
	Model   string  `koanf:"model"`         // the provider's name for it; "": it makes none
	BaseURL string  `koanf:"base_url"`      // of an OpenAI-compatible API
	Key     Secret  `koanf:"key"`           // empty while Model is
	Price   float64 `koanf:"price" min:"0"` // of a picture, dollars
}

// A Model is a language model and how to reach it.
type Model struct {
	// Provider is the protocol; never auto once the configuration is loaded.
	Provider string `koanf:"provider" allowed:"auto openai anthropic demo" hint:"; or set base_url"`

	Model         string   `koanf:"model"`    // the provider's name for it
	BaseURL       string   `koanf:"base_url"` // of its API
	Key           Secret   `koanf:"key"`
	Keys          []Secret `koanf:"keys"`                   // further ones
	ContextWindow int      `koanf:"context_window" min:"1"` // tokens, prompt and answer
	MaxOutput     int      `koanf:"max_output" min:"0"`     // tokens; 0: the provider decides
	PriceIn       float64  `koanf:"price_in" min:"0"`       // dollars per million tokens; 0: unknown
	PriceOut      float64  `koanf:"price_out" min:"0"`      // likewise
	PriceCached   float64  `koanf:"price_cached" min:"0"`   // likewise, of what is cached there
	Free          bool     `koanf:"free"`                   // it costs nothing
	Images        bool     `koanf:"images"`                 // it understands images
	Fallback      []string `koanf:"fallback"`               // models to try next, in this order

	Temperature     float64       `koanf:"temperature" min:"-1" max:"2"` // -1: the provider decides
	ReasoningEffort string        `koanf:"reasoning_effort"`             // "": the provider decides
	ReasoningBack   bool          `koanf:"reasoning_back"`               // it wants its reasoning back
	IdleTimeout     time.Duration `koanf:"idle_timeout" min:"1s"`        // its longest silence
	// MaxOutputField is what the provider calls the limit of an answer.
	MaxOutputField string `koanf:"max_output_field" allowed:"auto max_tokens max_completion_tokens"`

	Body    map[string]JSON   `koanf:"body"`    // further fields of each request
	Headers map[string]Secret `koanf:"headers"` // further headers of each request
}

// AllKeys returns the different keys of m, in the order in which they are asked.
func (m *Model) AllKeys() (keys []string) {
	for _, s := range append([]Secret{m.Key}, m.Keys...) {
		if key := s.Reveal(); key != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// KeyName returns how the log names one of several keys: by its place and its last characters.
func KeyName(place int, key string) string {
	const shown, least = 4, 16 // of a shorter one the end would say too much
	name := "key " + strconv.Itoa(place)
	if len(key) >= least {
		name += " (…" + key[len(key)-shown:] + ")"
	}
	return name
}

// JSON is a value of any type, encoded as JSON.
type JSON string

// A Channel is an account on a chat platform.
type Channel struct {
	Type         string        `koanf:"type" allowed:"telegram discord whatsapp terminal"`
	Enabled      bool          `koanf:"enabled"`
	Token        Secret        `koanf:"token"`   // empty while Enabled is false
	APIURL       string        `koanf:"api_url"` // "" is the platform's own
	Access       string        `koanf:"access" allowed:"open allow pairing" live:"yes"`
	Allow        []string      `koanf:"allow" live:"yes"`  // ids of people who may speak
	Owners       []string      `koanf:"owners" live:"yes"` // ids of people who own the gateway
	Groups       []string      `koanf:"groups" live:"yes"` // ids of groups it answers in
	Streaming    bool          `koanf:"streaming"`
	EditInterval time.Duration `koanf:"edit_interval" min:"0s"`       // 0: the platform's own
	Debounce     time.Duration `koanf:"debounce" min:"0s" live:"yes"` // 0: each text is a message
	RateLimit    string        `koanf:"rate_limit" allowed:"platform off"`
	// Activation says which messages of groups are answered.
	Activation string `koanf:"activation" allowed:"mention always" live:"yes"`

	Reaction string `koanf:"reaction"` // an emoji; "": none
	Proxy    Secret `koanf:"proxy"`    // URL; may have a password

	// SenderRate is how many messages of one sender are taken in a minute; 0: any number.
	SenderRate int `koanf:"sender_rate" min:"0" live:"yes"`

	// Of Telegram:
	WebhookURL    string `koanf:"webhook_url"`    // public; "": long polling
	WebhookListen string `koanf:"webhook_listen"` // host:port behind it
	WebhookSecret Secret `koanf:"webhook_secret"`
	Drafts        bool   `koanf:"drafts"`      // stream as drafts in direct chats
	Rich          bool   `koanf:"rich"`        // send rich messages
	LocalFiles    string `koanf:"local_files"` // absolute path of a local Bot API server's files

	// Of Discord:
	Shards int `koanf:"shards" min:"1"`
}

// Load reads the configuration file at path and the environment, given in the
// form of [os.Environ]. Without a path it reads config.toml in the data
// directory if there is one.
//
// A configuration with mistakes is an error whose text has one line for each.
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

// LoadWithoutSecrets is [Load] for callers that need no credential, or only some. A reference to a
// missing variable or file is not an error: that secret is empty.
func LoadWithoutSecrets(path string, environ []string) (*Config, error) {
	return newLoader(variables(environ)).load(path)
}

// Unresolved returns an error that names the references to secrets at or below a key that lead
// nowhere, or nil if there is none.
func (c *Config) Unresolved(key ...string) error {
	prefix := strings.Join(key, ".")
	return joinProblems(slices.DeleteFunc(slices.Clone(c.unresolved), func(p problem) bool {
		return prefix != "" && p.key != prefix && !strings.HasPrefix(p.key, prefix+".")
	}))
}

// load is [Load].
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
		c.File, c.Found = path, !missing
	}
	return c, err
}

// unreadable returns the error of a configuration file that can't be read, with what to do.
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

// defaultPath returns the configuration file in the data directory.
func defaultPath(vars map[string]string) string {
	home := cmp.Or(vars[homeVariable], vars["GATEWAY_GATEWAY__HOME"], "~/.gateway")
	home, err := expand(home, "", vars)
	if err != nil {
		return "config.toml" // parse reports that there is no home, with more context
	}
	return filepath.Join(home, "config.toml")
}
