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
)

// An Endpoint says how the command line reaches the server of a gateway that runs.
type Endpoint struct {
	Address string `json:"address"` // host:port
	Token   string `json:"token"`   // of the operator
	PID     int    `json:"pid"`     // of the gateway
}

// lockPatience is how long a server waits for its lock, which a command may hold for a moment.
const lockPatience = 2 * time.Second

// lockFile is what a server holds while it listens. A gateway that was killed leaves its endpoint
// behind, and another program may have its address by then: nobody shows that the token.
func lockFile(home string) string { return filepath.Join(home, "http.lock") }

// ReadEndpoint returns the endpoint of the gateway in home. It reports [fs.ErrNotExist] if none
// runs there, or its server does not listen, and then the address that was left behind, if any.
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

// isFree reports whether a lock file is there that nobody holds. A gateway of an earlier version
// has none.
func isFree(path string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	unlock, err := store.Lock(path)
	return err == nil && unlock() == nil
}

// write notes e in home, for this user only, and whole or not at all.
func (e Endpoint) write(home string) error {
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("ops: write endpoint: %w", err)
	}
	f, err := os.CreateTemp(home, "http-*.json") // its mode is 0600
	if err != nil {
		return fmt.Errorf("ops: write endpoint: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), endpointFile(home))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("ops: write endpoint: %w", err), os.Remove(f.Name()))
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
