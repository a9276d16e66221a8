package version

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A plainStore keeps versions in numbered folders: in each version.json, and below "files" what
// changed with it.
type plainStore struct{ dir string }

// A plainVersion is a version.json.
type plainVersion struct {
	Number int            `json:"number"`
	ID     string         `json:"id"`
	Time   time.Time      `json:"time"`
	Author string         `json:"author"`
	Reason string         `json:"reason"`
	Change string         `json:"change,omitempty"`
	Files  map[string]int `json:"files"` // of each file, the version that has its content
}

func (p plainVersion) version() Version {
	return Version{ID: p.ID, Time: p.Time, Author: p.Author, Reason: p.Reason, Change: p.Change}
}

// unfinished is what the folder of a version begins with before it is whole.
const unfinished = ".unfinished-"

func (p *plainStore) prepare(context.Context) error {
	entries, err := os.ReadDir(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unfinished) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(p.dir, e.Name())))
		}
	}
	return err
}

// numbers returns those of all versions, the newest first.
func (p *plainStore) numbers() ([]int, error) {
	entries, err := os.ReadDir(p.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n > 0 {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	slices.Reverse(list)
	return list, nil
}

func (p *plainStore) folder(n int) string { return filepath.Join(p.dir, fmt.Sprintf("%06d", n)) }

func (p *plainStore) load(n int) (v plainVersion, err error) {
	text, err := os.ReadFile(filepath.Join(p.folder(n), "version.json"))
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	return v, err
}

func (p *plainStore) ids(ctx context.Context) ([]string, error) {
	list, err := p.log(ctx, "", 0)
	ids := make([]string, len(list))
	for i, v := range list {
		ids[i] = v.ID
	}
	return ids, err
}

func (p *plainStore) log(ctx context.Context, from string, n int) ([]Version, error) {
	numbers, err := p.numbers()
	if err != nil {
		return nil, err
	}
	var list []Version
	for _, number := range numbers {
		v, err := p.load(number)
		if err := errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		if len(list) > 0 || from == "" || v.ID == from {
			list = append(list, v.version())
		}
		if n > 0 && len(list) == n {
			break
		}
	}
	return list, nil
}

func (p *plainStore) find(ctx context.Context, change string) (Version, error) {
	list, err := p.log(ctx, "", 0)
	if i := slices.IndexFunc(list, func(v Version) bool { return v.Change == change }); i >= 0 {
		return list[i], err
	}
	return Version{}, err
}

func (p *plainStore) files(ctx context.Context, id string) (snapshot, error) {
	numbers, err := p.numbers()
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		v, err := p.load(n)
		if err := errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		if v.ID == id {
			return p.content(v)
		}
	}
	return nil, ErrUnknown
}

func (p *plainStore) content(v plainVersion) (snapshot, error) {
	s := make(snapshot, len(v.Files))
	for name, n := range v.Files {
		text, err := os.ReadFile(filepath.Join(p.folder(n), "files", filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		s[name] = string(text)
	}
	return s, nil
}

func (p *plainStore) commit(_ context.Context, s snapshot, v Version) (Version, error) {
	numbers, err := p.numbers()
	if err != nil {
		return Version{}, err
	}
	var last plainVersion
	old := snapshot{}
	if len(numbers) > 0 {
		if last, err = p.load(numbers[0]); err == nil {
			old, err = p.content(last)
		}
		if err != nil {
			return Version{}, err
		}
	}
	next := plainVersion{Number: last.Number + 1, Time: v.Time, Author: v.Author,
		Reason: v.Reason, Change: v.Change, Files: maps.Clone(last.Files)}
	if next.Files == nil {
		next.Files = make(map[string]int)
	}
	fresh := make(snapshot)
	for _, name := range changed(old, s) {
		delete(next.Files, name)
		if text, ok := s[name]; ok {
			next.Files[name], fresh[name] = next.Number, text
		}
	}
	if next.ID, err = next.hash(fresh); err != nil {
		return Version{}, err
	}
	return next.version(), p.write(next, fresh)
}

// hash returns the ID of a version with such files.
func (p plainVersion) hash(fresh snapshot) (string, error) {
	text, err := json.Marshal([]any{p, fresh})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:20]), err
}

// write makes the folder of a version, which has its name only when it is whole.
func (p *plainStore) write(v plainVersion, fresh snapshot) error {
	text, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	name := unfinished + strconv.Itoa(v.Number)
	if err := os.MkdirAll(filepath.Join(p.dir, name, "files"), 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	err = writeFile(root, name+"/version.json", string(text)+"\n")
	for file, text := range fresh {
		err = errors.Join(err, writeFile(root, name+"/files/"+file, text))
	}
	if err == nil {
		err = root.Rename(name, filepath.Base(p.folder(v.Number)))
	}
	if err != nil {
		_ = root.RemoveAll(name) // the first error counts
		return err
	}
	syncDir(root, ".")
	return nil
}
