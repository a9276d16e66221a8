package prompt

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"gateway/agent/llm"
)

// maxTexts bounds what a [Cache] holds, in bytes.
const maxTexts = 4 << 20

// A Cache keeps the system prompts that were made last, so that turns with the same one neither
// make it again nor have a copy each. It compares all that a prompt is made of. The zero value is
// ready for use. It is used concurrently.
type Cache struct {
	mu    sync.Mutex
	seed  maphash.Seed
	known map[uint64]made
	size  int
}

// A made is a prompt, and what it was made of.
type made struct {
	of    []string
	tools []llm.ToolSpec
	text  string
}

// Text returns the text of s. Its tools must not be changed later.
func (c *Cache) Text(s *System) string {
	parts := s.changing()
	of := s.sources(parts)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known, c.seed = make(map[uint64]made), maphash.MakeSeed()
	}
	key := uint64(0)
	for _, text := range of {
		key = key*31 + maphash.String(c.seed, text)
	}
	old, ok := c.known[key]
	if ok && slices.Equal(old.of, of) && sameList(old.tools, s.Tools) {
		return old.text
	}
	m := made{of, s.Tools, s.text(parts)}
	if c.size += len(m.text) - len(old.text); c.size > maxTexts {
		clear(c.known)
		c.size = len(m.text)
	}
	c.known[key] = m
	return m.text
}

// sources returns all that the text of s is made of, but for the tools.
func (s *System) sources(c changing) []string {
	list := make([]string, 0, 16+2*len(s.Documents))
	list = append(list, s.Name, s.Workspace, s.FormatHint, s.ActiveSkills, s.Skills, s.Account,
		s.Group, s.Zone.String(), c.memory, c.recent, c.summary,
		fmt.Sprint(s.Scoped, s.Heartbeat, s.Task, s.Contact))
	for _, d := range s.Documents {
		list = append(list, d.Title, d.Text)
	}
	return list
}

// sameList reports whether two lists of tools are one.
func sameList(a, b []llm.ToolSpec) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
