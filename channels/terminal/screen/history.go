package screen

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"gateway/store/atomicfile"
)

// maxHistory is the maximum number of entries.
const maxHistory = 1000

// A history holds the messages sent in this run and earlier ones. Its file has a JSON string per
// line, and is readable only by its owner.
type history struct {
	path    string // "": kept in memory
	entries []string
	at      int    // index of the shown entry; len(entries): the draft
	draft   string // text that was typed before an entry was shown
}

// openHistory reads the history of earlier runs. It skips damaged lines.
func openHistory(path string) (*history, error) {
	h := &history{path: path}
	if path == "" {
		return h, nil
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("history: %w", err)
	}
	defer file.Close()
	lines := bufio.NewReader(file)
	for {
		text, err := lines.ReadString('\n')
		var entry string
		if json.Unmarshal([]byte(text), &entry) == nil && entry != "" {
			h.entries = append(h.entries, entry)
		}
		if err != nil {
			break
		}
	}
	// The file may grow to twice the maximum, so that it is rewritten rarely.
	long := len(h.entries) > 2*maxHistory
	h.entries = h.entries[max(0, len(h.entries)-maxHistory):]
	h.at = len(h.entries)
	if long {
		return h, h.rewrite()
	}
	return h, nil
}

// rewrite replaces the file by one with the current entries only.
func (h *history) rewrite() error {
	var b strings.Builder
	for _, entry := range h.entries {
		b.Write(encode(entry))
	}
	if err := atomicfile.WritePath(h.path, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

// encode returns an entry as a line of the file.
func encode(entry string) []byte {
	text, err := json.Marshal(entry)
	if err != nil {
		return nil // strings can always be encoded
	}
	return append(text, '\n')
}

// add adds a sent message unless it equals the newest entry.
func (h *history) add(entry string) error {
	h.draft = ""
	if n := len(h.entries); n > 0 && h.entries[n-1] == entry {
		h.at = n
		return nil
	}
	h.entries = append(h.entries, entry)
	h.entries = slices.Clone(h.entries[max(0, len(h.entries)-maxHistory):])
	h.at = len(h.entries)
	if h.path == "" {
		return nil
	}
	file, err := os.OpenFile(h.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	_, err = file.Write(encode(entry))
	if err := errors.Join(err, file.Chmod(0o600), file.Close()); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

// step returns the entry n places later, or the draft. current is the shown text. It returns false
// if there is no such entry.
func (h *history) step(n int, current string) (string, bool) {
	to := h.at + n
	if to < 0 || to > len(h.entries) {
		return "", false
	}
	if h.at == len(h.entries) {
		h.draft = current
	}
	h.at = to
	if to == len(h.entries) {
		return h.draft, true
	}
	return h.entries[to], true
}

// search returns the newest entry before a position that contains text, and its position.
func (h *history) search(text string, before int) (string, int) {
	for i := min(before, len(h.entries)) - 1; i >= 0; i-- {
		if strings.Contains(h.entries[i], text) {
			return h.entries[i], i
		}
	}
	return "", -1
}
