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

// A Cache keeps the most recent system prompts, so that turns with the same prompt share
// one copy. It compares everything that a prompt is made of. The zero value is ready for
// use. A Cache is safe for concurrent use.
type Cache struct {
	mu    sync.Mutex
	seed  maphash.Seed
	known map[uint64]cachedPrompt
	size  int
}

// cachedPrompt is a prompt with its sources.
type cachedPrompt struct {
	of    []string
	tools []llm.ToolSpec
	text  string
}

// Text returns the text of s. The caller must not change the tools of s afterwards.
func (c *Cache) Text(s *System) string {
	parts := s.changing()
	of := s.sources(parts)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known, c.seed = make(map[uint64]cachedPrompt), maphash.MakeSeed()
	}
	key := uint64(0)
	for _, text := range of {
		key = key*31 + maphash.String(c.seed, text)
	}
	old, ok := c.known[key]
	if ok && slices.Equal(old.of, of) && sameList(old.tools, s.Tools) {
		return old.text
	}
	m := cachedPrompt{of, s.Tools, s.text(parts)}
	if c.size += len(m.text) - len(old.text); c.size > maxTexts {
		clear(c.known)
		c.size = len(m.text)
	}
	c.known[key] = m
	return m.text
}

// sources returns everything that the text of s is made of, except the tools.
func (s *System) sources(c dynamicParts) []string {
	list := make([]string, 0, 16+2*len(s.Documents))
	list = append(list, s.Name, s.Workspace, s.FormatHint, s.ActiveSkills, s.Skills, s.Account,
		s.Group, s.Zone.String(), c.memory, c.recent, c.summary,
		fmt.Sprint(s.Scoped, s.Heartbeat, s.Task, s.Contact))
	for _, d := range s.Documents {
		list = append(list, d.Title, d.Text)
	}
	return list
}

// sameList reports whether two lists of tools are the same slice.
func sameList(a, b []llm.ToolSpec) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
