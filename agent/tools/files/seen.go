package files

import (
	"io/fs"
	"os"
	"sync"

	"gateway/bus"
)

// maxSeen is the maximum number of remembered files, over all sessions.
const maxSeen = 4_096

// seen records the state of files when a session last saw them. When it is full, it forgets an
// arbitrary file. The zero value is ready for use.
type seen struct {
	mu    sync.Mutex
	infos map[seenKey]fs.FileInfo
}

// A seenKey identifies a file for one session. The path has no symbolic links.
type seenKey struct {
	session bus.Session
	tree    *tree
	path    string
}

// record records that session has seen the file at p in the state of info.
func (s *seen) record(session bus.Session, p place, info fs.FileInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.infos == nil {
		s.infos = make(map[seenKey]fs.FileInfo)
	}
	s.infos[seenKey{session, p.tree, p.path}] = info
	for key := range s.infos {
		if len(s.infos) <= maxSeen {
			break
		}
		delete(s.infos, key)
	}
}

// changed reports whether the file at p, whose current state is info, differs from what session has
// seen. It returns false for files that the session has not seen or that were forgotten.
func (s *seen) changed(session bus.Session, p place, info fs.FileInfo) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, ok := s.infos[seenKey{session, p.tree, p.path}]
	return ok && !same(before, info)
}

// same reports whether a file was not written between a and b.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
