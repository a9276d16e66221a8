package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gateway/bus"
	"gateway/channels/gate"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// A Severity says how dangerous a problem is.
type Severity string

// The severities.
const (
	High   Severity = "high"   // others can get access or secrets
	Medium Severity = "medium" // others can get access or secrets after one more mistake
	Low    Severity = "low"    // should be changed
	Info   Severity = "info"   // for information
)

// A Rule describes one unsafe condition. Its id never changes and is never reused.
type Rule struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"` // the highest severity of its problems
	Title    string   `json:"title"`
	Meaning  string   `json:"meaning"` // why the condition is unsafe
	Remedy   string   `json:"remedy"`
	Fixable  bool     `json:"fixable"` // --fix can correct it

	find func(*auditor)
}

// A Problem is one violation of a rule.
type Problem struct {
	Rule
	Text  string `json:"text"`            // what was found and where
	Fixed string `json:"fixed,omitempty"` // what Fix did

	path string // file whose mode Fix corrects; "": none
}

// An AuditCase describes the gateway to audit.
type AuditCase struct {
	Case

	// Skills returns, by folder, the state of each shared skill that differs from what was
	// installed.
	Skills func(ctx context.Context) (map[string]string, error)
	Root   bool // the gateway runs as root outside a container
}

// An auditor contains the data that rules check, and the problems that they have found.
type auditor struct {
	AuditCase
	cfg     *config.Config
	written []config.Written // secrets in the configuration file
	owned   bool             // an owner exists
	skills  map[string]string
	moves   []gate.Move // groups that have another id now

	rule     Rule // the present one
	problems []Problem
}

// Audit checks all rules and returns the problems in the order of the rules.
func Audit(ctx context.Context, s AuditCase) ([]Problem, error) {
	a := &auditor{AuditCase: s, cfg: s.Config}
	if err := a.load(ctx); err != nil {
		return nil, fmt.Errorf("doctor: audit: %w", err)
	}
	for _, r := range Rules() {
		a.rule = r
		r.find(a)
	}
	return a.problems, nil
}

// add adds a problem of the present rule.
func (a *auditor) add(text string) { a.addAs(a.rule.Severity, text, "") }

// addIf adds a problem if a condition holds.
func (a *auditor) addIf(unsafe bool, text string) {
	if unsafe {
		a.add(text)
	}
}

// addAs adds a problem of the present rule with a severity. path is the file whose mode Fix
// corrects, or "".
func (a *auditor) addAs(s Severity, text, path string) {
	p := Problem{Rule: a.rule, Text: text, path: path}
	p.Severity = s
	a.problems = append(a.problems, p)
}

// load reads the data that rules check. There may be no database yet. Without one, only the
// configuration can name an owner.
func (a *auditor) load(ctx context.Context) (err error) {
	if a.written, err = config.SecretsIn(a.File); err != nil {
		return err
	}
	for _, c := range a.cfg.Channels {
		a.owned = a.owned || c.Enabled && len(c.Owners) > 0
	}
	db, err := store.Open(ctx, a.cfg.Store.Path(), a.Migrations, &store.Options{Shared: true})
	if err == nil {
		people, listErr := gate.People{}.List(db.Read(ctx))
		a.owned = a.owned || slices.ContainsFunc(people, func(p gate.Person) bool {
			return p.Role == bus.Owner
		})
		a.moves, err = gate.Moves(db.Read(ctx))
		err = errors.Join(listErr, err, db.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if a.AuditCase.Skills == nil {
		return nil
	}
	a.skills, err = a.AuditCase.Skills(ctx)
	return err
}

// Fix corrects wrong file modes and sets Fixed of each corrected problem. The error names the
// files that it could not correct. Fix does not follow links, because their targets may belong to
// others.
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
			// The owner's rights stay as they are.
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

// CountUnfixed returns the number of problems of a severity that were not corrected.
func CountUnfixed(list []Problem, s Severity) (n int) {
	for _, p := range list {
		if p.Severity == s && p.Fixed == "" {
			n++
		}
	}
	return n
}

// checkFiles adds a problem for each file to which others have access.
func (a *auditor) checkFiles(files ...string) {
	for _, file := range files {
		mode, exposed := Exposed(file, a.cfg.Gateway.Home)
		text := fmt.Sprintf("%s has mode %04o", file, mode)
		switch {
		// exposed returns 0 if others have no access, or there is no such file.
		case mode == 0:
		case exposed:
			a.addAs(a.rule.Severity, text, file)
		default:
			a.addAs(Low, text+"; only that of the data directory protects it", file)
		}
	}
}

// backups returns the files in the data directory that look like backups.
func (a *auditor) backups() (list []string) {
	home := a.cfg.Gateway.Home
	for _, pattern := range []string{"*.tar.gz", "*.tgz", "*.bak", "backups/*"} {
		// The patterns are valid. The path of the home is not a pattern: it may contain brackets.
		found, _ := fs.Glob(os.DirFS(home), pattern)
		for _, name := range found {
			f := filepath.Join(home, name)
			if info, err := os.Stat(f); err == nil && info.Mode().IsRegular() {
				list = append(list, f)
			}
		}
	}
	return list
}

// secretFiles returns the files to which secrets refer.
func (a *auditor) secretFiles() (list []string) {
	for _, s := range a.written {
		file, ok := strings.CutPrefix(s.Value, "file:")
		if !ok {
			continue
		}
		if rest, ok := strings.CutPrefix(file, "~/"); ok {
			home, err := os.UserHomeDir()
			if err != nil {
				continue // the configuration would not be valid
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

// checkout returns the folder above the workspace that is a git checkout, or "". The workspace
// itself may be a checkout of its own.
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
