package ops

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"gateway/store"
	"gateway/store/atomicfile"
)

// An Endpoint tells the command line how to reach the HTTP server of a running gateway.
type Endpoint struct {
	Address string `json:"address"` // host:port
	Token   string `json:"token"`   // the operator's token
	PID     int    `json:"pid"`     // process id of the gateway
}

// lockPatience is how long a server waits for its lock. A command may hold the lock for a moment.
const lockPatience = 2 * time.Second

// lockFile returns the file that a server locks while it listens. A killed gateway leaves its
// endpoint behind, and another program may use its address by then. The lock tells whether the
// endpoint is still valid, so that no command sends the token to another program.
func lockFile(home string) string { return filepath.Join(home, "http.lock") }

// ReadEndpoint returns the endpoint of the gateway in home. If no gateway runs or its server does
// not listen, the error is [fs.ErrNotExist], and the Endpoint has the Address that was left
// behind, if any.
func ReadEndpoint(home string) (Endpoint, error) {
	var e Endpoint
	text, err := os.ReadFile(endpointFile(home))
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("ops: read endpoint: %w", err)
	}
	if isFree(lockFile(home)) {
		return Endpoint{Address: e.Address},
			fmt.Errorf("ops: read endpoint: it was left behind: %w", fs.ErrNotExist)
	}
	return e, nil
}

// isFree reports whether a lock file exists and no process holds the lock. A gateway of an
// earlier version has no lock file.
func isFree(path string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	unlock, err := store.Lock(path)
	return err == nil && unlock() == nil
}

// write replaces the endpoint file in home atomically. Only this user can read it.
func (e Endpoint) write(home string) error {
	text, err := json.Marshal(e)
	if err == nil {
		err = atomicfile.WritePath(endpointFile(home), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("ops: write endpoint: %w", err)
	}
	return nil
}

func removeEndpoint(home string) error {
	err := os.Remove(endpointFile(home))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ops: remove endpoint: %w", err)
	}
	return nil
}
