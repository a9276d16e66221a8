package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"gateway/store/atomicfile"
)

// maxCache is the greatest size of a server's cache file, in bytes.
const maxCache = 16 << 20

// A dialect is the variant of the protocol that a server speaks.
type dialect struct {
	Legacy bool `json:"legacy,omitempty"` // the handshake of old protocol versions
	SSE    bool `json:"sse,omitempty"`    // the transport of old protocol versions, HTTP with SSE
	Asks   bool `json:"asks,omitempty"`   // it asks the person in the middle of calls
}

// A cacheEntry is the content of a server's cache file.
type cacheEntry struct {
	Hash    string  `json:"hash"`             // of the configuration at the time
	Server  string  `json:"server,omitempty"` // hash of the part that says which server it is
	dialect         // that worked
	Catalog catalog `json:"catalog"` // agreed by an admin

	Held *catalog `json:"held,omitempty"` // the server's present catalog, if it waits for agreement

	old bool // the configuration has changed, but names the same server
}

// hash returns a hash of the settings that determine a server's tools, without secrets. Of the
// environment and the headers only the names count, so a new token does not void the cache.
func (s Server) hash() string {
	return hashOf(s.Name, s.Command, s.Dir, s.URL, s.Allow,
		slices.Sorted(maps.Keys(s.Env)), slices.Sorted(maps.Keys(s.Header)))
}

func hashOf(settings ...any) string {
	data, err := json.Marshal(settings)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// A cache is the cache file of one server.
type cache struct {
	file         string // "" stores nothing
	hash, server string // see cacheEntry
}

func newCache(s Server, o *Options) cache {
	if o.Cache == "" {
		return cache{}
	}
	// In another folder it is still the same server.
	return cache{filepath.Join(o.Cache, s.Name+".json"), s.hash(),
		hashOf(s.Name, s.Command, s.URL)}
}

// read reads the file. It returns nil if there is none for this server. Without a catalog the
// gateway connects to the server to learn its tools.
func (c cache) read() (*cacheEntry, error) {
	if c.file == "" {
		return nil, nil
	}
	f, err := os.Open(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("mcp: read the cache: %w", err)
	}
	defer f.Close()
	var k cacheEntry
	if err := json.NewDecoder(io.LimitReader(f, maxCache)).Decode(&k); err != nil {
		return nil, fmt.Errorf("mcp: read the cache: %w", err)
	}
	// Without Server, an earlier version wrote the file, probably for the same server.
	if k.old = k.Hash != c.hash; k.old && k.Server != "" && k.Server != c.server {
		return nil, nil
	}
	return &k, nil
}

// write writes the file atomically.
func (c cache) write(k cacheEntry) error {
	if c.file == "" {
		return nil
	}
	k.Hash, k.Server = c.hash, c.server
	data, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("mcp: write the cache: %w", err)
	}
	if len(data) > maxCache {
		return fmt.Errorf("mcp: write the cache: %d bytes are too many", len(data))
	}
	if err := writeFile(c.file, data); err != nil {
		return fmt.Errorf("mcp: write the cache: %w", err)
	}
	return nil
}

// writeFile atomically writes a file that only its owner may read, and makes its directory.
func writeFile(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return atomicfile.WritePath(file, data, 0o600)
}
