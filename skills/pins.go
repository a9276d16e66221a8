package skills

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"gateway/store/atomicfile"
	"gateway/store/plaintext"
)

// Pins is the path of a JSON file with the hashes of the shared skills that the owner has
// installed. The file need not exist. Put it where the agent can't write. If the file is
// not valid JSON, there are no pins and all skills are reported.
type Pins string

// pinFile is the JSON form of the file.
type pinFile struct {
	Skills map[string]pin `json:"skills"` // by the names of their folders
}

type pin struct {
	Hash string `json:"hash"`
}

// read returns the pins. A missing or damaged file has none, which is the safe side: all skills are
// reported.
func (p Pins) read() (pinFile, error) {
	var file pinFile
	data, err := os.ReadFile(string(p))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return file, fmt.Errorf("skills: read pins: %w", err)
	}
	if json.Unmarshal(data, &file) != nil || file.Skills == nil {
		file.Skills = make(map[string]pin)
	}
	return file, nil
}

// Set records the current hash of a skill.
func (p Pins) Set(folder, hash string) error {
	file, err := p.read()
	if err != nil {
		return err
	}
	file.Skills[folder] = pin{hash}
	data, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return fmt.Errorf("skills: write pins: %w", err)
	}
	if err := atomicfile.WritePath(string(p), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("skills: write pins: %w", err)
	}
	return nil
}

// Review compares all files of the shared skills with the pins. It returns, by folder, a
// description of each difference from the version that the owner has installed. Such skills remain
// usable.
func (p Pins) Review(ctx context.Context, l *Library) (map[string]string, error) {
	file, err := p.read()
	if err != nil {
		return nil, err
	}
	states := make(map[string]string)
	for _, s := range l.List("") {
		if s.Source != Shared {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		pinned, ok := file.Skills[s.Folder]
		switch _, sum, err := l.files(s); {
		case !ok:
			states[s.Folder] = "not installed by you"
		case err != nil:
			states[s.Folder] = "can't be compared with what was installed: " +
				plaintext.OneLine(err.Error())
		case sum != pinned.Hash:
			states[s.Folder] = "changed since it was installed"
		}
	}
	return states, nil
}
