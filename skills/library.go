package skills

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// Options say where skills are and what there is for them. The zero value finds what is built in.
type Options struct {
	Workspace *os.Root // the folder "skills" is in it; nil: there is none
	Memory    *os.Root // a folder for each scope, with "skills" in it; nil: there is none
	Disabled  []string // names of skills that are switched off

	LookPath func(program string) bool // default: it is in the PATH
	Env      func(name string) bool    // default: the variable is set
	Config   func(key string) bool     // default: no setting is there
	OS       string                    // default: runtime.GOOS
	Now      func() time.Time          // default: time.Now
	Logger   *slog.Logger              // default: none
}

// A Library knows the skills. It may be used concurrently.
type Library struct {
	opts Options
}

// New returns a library of the skills that are found when it is asked.
func New(opts *Options) *Library {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.LookPath == nil {
		o.LookPath = func(program string) bool {
			_, err := exec.LookPath(program)
			return err == nil
		}
	}
	if o.Env == nil {
		o.Env = func(name string) bool { return os.Getenv(name) != "" }
	}
	if o.Config == nil {
		o.Config = func(string) bool { return false }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.OS = cmp.Or(o.OS, runtime.GOOS)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Library{opts: o}
}

// List returns all skills that a scope sees, by name. The scope is the name of its folder, "" for
// none.
func (l *Library) List(scope string) []Skill { return nil }

// Active returns the text of the skills that are always part of a prompt, "" if there are none.
func (l *Library) Active(scope string) string { return "" }

// Summary returns the skills that the model may read, for the prompt, "" if there are none.
func (l *Library) Summary(scope string) string { return "" }

// Mentioned returns the skills that a message names as $name, at most 5.
func (l *Library) Mentioned(scope, text string) []Skill { return nil }

// Body returns the text of a skill without its front matter.
func (l *Library) Body(s Skill) (string, error) { return "", errors.New("not there yet") }
