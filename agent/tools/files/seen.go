package files

import (
	"container/list"
	"gateway/bus"
	"io/fs"
	"os"
	"sync"
)

// maxSeen is the number of files remembered, over all sessions.
const maxSeen = 4_096

// seen records the state of files when a session last saw them. It forgets the least
// recently seen ones first. The zero value is ready for use.
type seen struct {
	mu      sync.Mutex
	entries map[seenKey]*list.Element
	order   list.List // of seenEntry, the latest in front
}

type seenKey struct {
	session bus.Session
	tree    *tree
	path    string
}

type seenEntry struct {
	key  seenKey
	info fs.FileInfo
}

// note records that session has seen the file at p in the state of info.
func (s *seen) note(session bus.Session, p place, info fs.FileInfo) {
	k := seenKey{session, p.tree, p.path}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == nil {
		s.entries = make(map[seenKey]*list.Element)
	}
	if e, ok := s.entries[k]; ok {
		e.Value = seenEntry{k, info}
		s.order.MoveToFront(e)
		return
	}
	s.entries[k] = s.order.PushFront(seenEntry{k, info})
	if s.order.Len() > maxSeen {
		oldest := s.order.Back()
		s.order.Remove(oldest)
		delete(s.entries, oldest.Value.(seenEntry).key)
	}
}

// changed reports whether the file at p, whose current state is info, differs from what
// session has seen. It returns false for files that the session has not seen or that were
// forgotten.
func (s *seen) changed(session bus.Session, p place, info fs.FileInfo) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[seenKey{session, p.tree, p.path}]
	return ok && !same(e.Value.(seenEntry).info, info)
}

// same reports whether a file was not written between a and b.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
