package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"gateway/bus"
	"gateway/channels/gate"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// A Severity says how much is at stake.
type Severity string

// The severities.
const (
	High   Severity = "high"   // others can get in, or at secrets
	Medium Severity = "medium" // one more mistake, and they can
	Low    Severity = "low"    // good to change
	Info   Severity = "info"   // good to know
)

// A Rule is one thing that is unsafe. Its id never changes, and is never used for another.
type Rule struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"` // at most
	Title    string   `json:"title"`
	Meaning  string   `json:"meaning"` // why that is unsafe
	Remedy   string   `json:"remedy"`
	Fixable  bool     `json:"fixable"` // by --fix

	find func(*auditor) []hit
}

// A Problem is where a rule is broken.
type Problem struct {
	Rule
	Text  string `json:"text"`            // what was found, and where
	Fixed string `json:"fixed,omitempty"` // what was done about it

	path string // whose mode is to be corrected; "" if there is none
}

// A hit is what the find of a rule returns.
type hit struct {
	text     string
	path     string   // of a file whose mode is wrong
	severity Severity // if it is less than the rule's
}

// A Suspect is the gateway to audit.
type Suspect struct {
	Case

	// Skills returns how the shared skills are that are not what was installed, by folder.
	Skills func(ctx context.Context) (map[string]string, error)
	Root   bool // it runs as root, and in no container
}

// An auditor has the data that rules check.
type auditor struct {
	Suspect
	cfg    *config.Config
	raw    map[string]any // the configuration file as it is written
	owned  bool           // there is an owner
	skills map[string]string
}

// Audit returns the problems that there are, in the order of the rules.
func Audit(ctx context.Context, s Suspect) ([]Problem, error) {
	a := &auditor{Suspect: s, cfg: s.Config}
	if err := a.look(ctx); err != nil {
		return nil, fmt.Errorf("doctor: audit: %w", err)
	}
	var list []Problem
	for _, r := range Rules() {
		for _, h := range r.find(a) {
			p := Problem{Rule: r, Text: h.text, path: h.path}
			if h.severity != "" {
				p.Severity = h.severity
			}
			list = append(list, p)
		}
	}
	return list, nil
}

// look reads the data that rules check.
func (a *auditor) look(ctx context.Context) error {
	var err error
	if a.raw, err = a.written(); err != nil {
		return err
	}
	if a.owned, err = a.hasOwner(ctx); err != nil {
		return err
	}
	if a.Suspect.Skills != nil {
		a.skills, err = a.Suspect.Skills(ctx)
	}
	return err
}

// hasOwner reports whether the configuration names an owner, or somebody was made one.
func (a *auditor) hasOwner(ctx context.Context) (bool, error) {
	for _, c := range a.cfg.Channels {
		if c.Enabled && len(c.Owners) > 0 {
			return true, nil
		}
	}
	db, err := store.Open(ctx, a.cfg.Store.Path(), a.Migrations, &store.Options{Shared: true})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer db.Close()
	list, err := gate.People{}.List(db.Read(ctx))
	return slices.ContainsFunc(list, func(p gate.Person) bool {
		return p.Role == bus.Owner
	}), err
}

// Fix corrects the modes that are wrong, and says in each problem what it did. Its error names what
// it could not correct. It does not follow links: their targets may belong to somebody else.
func Fix(list []Problem) error {
	var errs []error
	for i, p := range list {
		if p.path == "" {
			continue
		}
		info, err := os.Lstat(p.path)
		switch {
		case err != nil:
		case info.Mode()&fs.ModeSymlink != 0:
			err = fmt.Errorf("%s is a link: change the mode of what it leads to", p.path)
		default:
			mode := info.Mode().Perm() &^ 0o077
			if p.ID == openWorkspace {
				mode = info.Mode().Perm() &^ 0o022
			}
			if err = os.Chmod(p.path, mode); err == nil {
				list[i].Fixed = fmt.Sprintf("chmod %o %s", mode, p.path)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("doctor: fix %s: %w", p.ID, err))
		}
	}
	return errors.Join(errs...)
}

// Left counts the problems of a severity that were not corrected.
func Left(list []Problem, s Severity) (n int) {
	for _, p := range list {
		if p.Severity == s && p.Fixed == "" {
			n++
		}
	}
	return n
}

// open returns a hit if others can reach a file.
func (a *auditor) open(file string) []hit {
	if file == "" {
		return nil
	}
	mode, exposed := exposed(file, a.cfg.Gateway.Home)
	switch {
	case mode == 0:
		return nil
	case exposed:
		return []hit{{text: fmt.Sprintf("%s has mode %04o", file, mode), path: file}}
	}
	text := fmt.Sprintf("%s has mode %04o; only that of the data directory protects it", file, mode)
	return []hit{{text: text, path: file, severity: Low}}
}

// openConfig returns a hit if others can change the configuration, or read secrets that it has.
func (a *auditor) openConfig() []hit {
	info, err := os.Stat(a.File)
	if err != nil || info.Mode().Perm()&0o022 == 0 && !a.literal() {
		return nil
	}
	return a.open(a.File)
}

// opens is open of several files.
func (a *auditor) opens(files ...string) (list []hit) {
	for _, f := range files {
		list = append(list, a.open(f)...)
	}
	return list
}

// backups returns the files in and below the data directory that look like backups.
func (a *auditor) backups() (list []string) {
	home := a.cfg.Gateway.Home
	for _, pattern := range []string{"*.tar.gz", "*.tgz", "*.bak", "backups/*"} {
		found, _ := filepath.Glob(filepath.Join(home, pattern)) // the patterns are right
		for _, f := range found {
			if info, err := os.Stat(f); err == nil && info.Mode().IsRegular() {
				list = append(list, f)
			}
		}
	}
	return list
}

// A written is a secret in the configuration file, as it is written there.
type written struct{ key, value string }

// literal reports whether w is the secret itself, and no place where it is.
func (w written) literal() bool {
	return !strings.HasPrefix(w.value, "env:") && !strings.HasPrefix(w.value, "file:")
}

// written returns the configuration file as it is written, nothing if there is none.
func (c Case) written() (raw map[string]any, err error) {
	text, err := os.ReadFile(c.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return raw, toml.Unmarshal(text, &raw)
}

// secretsIn returns the secrets in a configuration file.
func secretsIn(raw map[string]any) []written {
	return secretsBelow(reflect.TypeFor[config.Config](), raw, "")
}

func secretsBelow(t reflect.Type, v any, key string) (list []written) {
	if t == reflect.TypeFor[config.Secret]() {
		if s, ok := v.(string); ok && s != "" {
			return []written{{key, s}}
		}
		return nil
	}
	table, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		child := t
		switch t.Kind() {
		case reflect.Map:
			child = t.Elem()
		case reflect.Struct:
			if child = fieldType(t, name); child == nil {
				continue
			}
		default:
			return list
		}
		below := strings.TrimPrefix(key+"."+name, ".")
		list = append(list, secretsBelow(child, table[name], below)...)
	}
	return list
}

// fieldType returns the type of the field with a key, nil if there is none.
func fieldType(t reflect.Type, key string) reflect.Type {
	for f := range t.Fields() {
		if f.Tag.Get("koanf") == key {
			return f.Type
		}
	}
	return nil
}

// secretFiles returns the files that secrets are in.
func (a *auditor) secretFiles() (list []string) {
	for _, s := range secretsIn(a.raw) {
		file, ok := strings.CutPrefix(s.value, "file:")
		if !ok {
			continue
		}
		if rest, ok := strings.CutPrefix(file, "~/"); ok {
			home, err := os.UserHomeDir()
			if err != nil {
				continue // the configuration would not be right
			}
			file = filepath.Join(home, rest)
		}
		if !filepath.IsAbs(file) {
			file = filepath.Join(a.cfg.Gateway.Home, file)
		}
		list = append(list, file)
	}
	return list
}

// checkout returns the folder above the workspace that is a git checkout, "" if there is none.
func (a *auditor) checkout() string {
	for dir := a.cfg.Gateway.Workspace; ; {
		above := filepath.Dir(dir)
		if above == dir {
			return ""
		}
		if _, err := os.Lstat(filepath.Join(above, ".git")); err == nil {
			return above
		}
		dir = above
	}
}
