package skills

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrDamaged reports that the file of [Pins] can't be read. It says so until the next skill is
// installed; then the file is kept under another name, and a new one begun.
var ErrDamaged = errors.New("the record of installed skills is damaged")

// maxPins is the size of the file of pins, in bytes.
const maxPins = 4 << 20

// A Pin is what a skill was when the owner installed it.
type Pin struct {
	Hash      string    `json:"hash"`
	Installed time.Time `json:"installed"`
	From      string    `json:"from,omitempty"` // the folder it came from
}

// Pins remember the shared skills that the owner has installed, by the names of their
// folders, in a JSON file. They may be used concurrently.
type Pins struct {
	path string
	log  *slog.Logger
	mu   sync.Mutex // held while the file is changed, so that no change is lost
}

// NewPins returns the pins in the file at path, which need not be there. It belongs where the agent
// can't write. A nil log discards.
func NewPins(path string, log *slog.Logger) *Pins {
	return &Pins{path: path, log: cmp.Or(log, slog.New(slog.DiscardHandler))}
}

// pinFile is the form of the file.
type pinFile struct {
	Skills map[string]Pin `json:"skills"`
}

// All returns the pins. They are none, and an error that wraps [ErrDamaged] is returned, if what is
// in the file can't be understood.
func (p *Pins) All() (map[string]Pin, error) {
	none := make(map[string]Pin)
	f, err := os.Open(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("skills: read pins: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPins+1))
	if err != nil {
		return none, fmt.Errorf("skills: read pins: %w", err)
	}
	var file pinFile
	if err := json.Unmarshal(data, &file); err != nil || len(data) > maxPins {
		return none, fmt.Errorf("skills: %w: %s", ErrDamaged, p.path)
	}
	if file.Skills == nil {
		return none, nil
	}
	return file.Skills, nil
}

// Set remembers what a skill is now.
func (p *Pins) Set(folder string, pin Pin) error {
	return p.change(func(pins map[string]Pin) { pins[folder] = pin })
}

// Remove forgets a skill.
func (p *Pins) Remove(folder string) error {
	return p.change(func(pins map[string]Pin) { delete(pins, folder) })
}

func (p *Pins) change(do func(map[string]Pin)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	pins, err := p.All()
	if errors.Is(err, ErrDamaged) {
		kept := p.path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000")
		if err := os.Rename(p.path, kept); err != nil {
			return fmt.Errorf("skills: keep damaged pins: %w", err)
		}
		p.log.Warn("the record of installed skills was damaged and is begun anew", "kept", kept)
	} else if err != nil {
		return err
	}
	do(pins)
	data, err := json.MarshalIndent(pinFile{pins}, "", "  ")
	if err != nil {
		return fmt.Errorf("skills: write pins: %w", err)
	}
	dir := filepath.Dir(p.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("skills: write pins: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("skills: write pins: %w", err)
	}
	defer root.Close()
	if err := writeFile(root, filepath.Base(p.path), append(data, '\n')); err != nil {
		return fmt.Errorf("skills: write pins: %w", err)
	}
	return nil
}

// A Review says whether a shared skill is what the owner has installed.
type Review struct {
	Folder string
	State  string // in words; "" if it is
}

// StateGone is the state of a skill that was installed and whose folder is gone.
const StateGone = "installed, and not there any more"

const stateUnpinned = "not installed by you"

// Review compares the shared skills with the pins, by name. With an error that wraps
// [ErrDamaged] it holds all the same: nothing is then known to be installed.
func (p *Pins) Review(ctx context.Context, l *Library) ([]Review, error) {
	pins, pinErr := p.All()
	if pinErr != nil && !errors.Is(pinErr, ErrDamaged) {
		return nil, pinErr
	}
	var list []Review
	there := make(map[string]bool)
	for _, s := range l.List("") {
		if s.Source != Shared {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		there[s.Folder] = true
		pin, ok := pins[s.Folder]
		list = append(list, Review{s.Folder, l.compare(s, pin, ok)})
	}
	for folder := range pins {
		if !there[folder] {
			list = append(list, Review{folder, StateGone})
		}
	}
	slices.SortFunc(list, func(a, b Review) int { return strings.Compare(a.Folder, b.Folder) })
	return list, pinErr
}

// compare says how a skill differs from its pin, "" if it doesn't.
func (l *Library) compare(s Skill, pin Pin, ok bool) string {
	if !ok {
		return stateUnpinned
	}
	installed := pin.Installed.Format(time.DateOnly)
	_, sum, err := l.files(s)
	switch {
	case err != nil:
		return fmt.Sprintf("installed on %s, and can't be compared: %s", installed,
			oneLine(err.Error()))
	case sum != pin.Hash:
		return "changed since it was installed on " + installed
	}
	return ""
}

// Warn writes to the log which shared skills are not what the owner has installed. They
// are used all the same. It is for the start of the gateway, and reads all their files.
func (p *Pins) Warn(ctx context.Context, l *Library) {
	list, err := p.Review(ctx, l)
	if err != nil {
		p.log.WarnContext(ctx, "skills can't all be compared with what was installed", "err", err)
	}
	for _, r := range list {
		if r.State != "" {
			p.log.WarnContext(ctx, "a skill is not what was installed; see gateway skills list",
				"skill", shown(r.Folder), "state", r.State)
		}
	}
}
