package mcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// reportEvery is the shortest time between two reports to the owners about a server's tools.
const reportEvery = time.Hour

// maxChanges is how many changes of a server's tools a report lists.
const maxChanges = 20

// hold returns the part of listed that the agent may see: the agreed definitions. A changed tool
// keeps its agreed definition; a new tool is left out. It also returns descriptions of the changes.
// A tool that listed lacks is not offered, and its absence is no change that somebody must agree
// to.
func (c catalog) hold(listed catalog) (offered catalog, changes []string) {
	before := make(map[string][]definition) // some servers list a tool twice
	for _, d := range c.Tools {
		before[d.Name] = append(before[d.Name], d)
	}
	offered = listed
	offered.Tools = nil
	for _, d := range listed.Tools {
		agreed := before[d.Name]
		if len(agreed) == 0 {
			changes = append(changes, fmt.Sprintf("new: `%s`, which says of itself: “%s”",
				oneLine(d.Name, 80), oneLine(d.Description, 300)))
			continue
		}
		old := agreed[0]
		before[d.Name] = agreed[1:]
		offered.Tools = append(offered.Tools, old)
		if what := old.differs(d); what != "" {
			changes = append(changes, "changed: `"+oneLine(d.Name, 80)+"`, "+what)
		}
	}
	return offered, changes
}

// differs describes how now differs from d. It returns "" if they are equal.
func (d definition) differs(now definition) string {
	var list []string
	if d.Description != now.Description {
		list = append(list, fmt.Sprintf("which said “%s” and says “%s”", oneLine(d.Description, 300),
			oneLine(now.Description, 300)))
	}
	if shortHash(d.Schema) != shortHash(now.Schema) {
		list = append(list, "with different arguments")
	}
	if d.ReadOnly != now.ReadOnly || d.Idempotent != now.Idempotent {
		list = append(list, "with a different statement about whether it changes something")
	}
	return strings.Join(list, "; ")
}

// shortHash returns a hash of v in 20 characters, which fit into a button. It must be hard to find
// two lists with the same hash: a server could otherwise show an admin the first list and use the
// agreement for the second.
func shortHash(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:20])
}

// A changeReview holds back changes of a server's tools until an admin agrees to them. The first
// catalog counts as agreed, because a person has just configured the server.
type changeReview struct {
	base
	cache cache
	tools *toolset
	stale chan<- struct{} // gets a token when the tools are to be listed again

	mu     sync.Mutex // held while the agent's tools are replaced
	agreed *catalog   // nil until the server was seen for the first time
	held   *catalog   // the present catalog if it waits for agreement; or nil

	reported   *catalog  // held catalog in the last report to the owners; or nil
	reportedAt time.Time // time of that report in this process; or zero
	later      bool      // another listing is scheduled, to report later changes
}

// restore gives the cached catalog to the agent.
func (s *changeReview) restore(ctx context.Context, k *cacheEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Stored changes count as reported.
	s.agreed, s.held, s.reported = &k.Catalog, k.Held, k.Held
	s.offer(ctx)
}

// adopt gives the listed catalog to the agent, except for changes that nobody has agreed to. It
// stores the catalog and the changes, and reports new changes.
func (s *changeReview) adopt(ctx context.Context, listed catalog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agreed == nil {
		s.agreed = &listed
	}
	s.held = &listed
	changes := s.offer(ctx)
	if s.held != nil && !same(s.reported, s.held) {
		now := s.opts.Now()
		// A server could otherwise flood the owners by changing its tools again and again.
		if wait := s.reportedAt.Add(reportEvery).Sub(now); wait > 0 {
			s.listLater(wait)
			return
		}
		s.opts.Logger.WarnContext(ctx, "mcp tools have changed and wait for an admin", "server", s.Name,
			"changes", len(changes))
		if err := s.opts.Report(ctx, s.status.show()); err != nil {
			s.opts.Logger.WarnContext(ctx, "owners not told of changed tools", "server", s.Name,
				"err", err)
			s.listLater(reportEvery)
			return
		}
		s.reported, s.reportedAt = s.held, now
	}
	s.store(ctx)
}

// listLater makes the gateway list the server's tools again after wait. The caller holds the lock.
func (s *changeReview) listLater(wait time.Duration) {
	if s.later {
		return
	}
	s.later = true
	time.AfterFunc(wait, func() {
		s.mu.Lock()
		s.later = false
		s.mu.Unlock()
		notify(s.stale)
	})
}

// offer gives the agreed part of the present catalog to the agent. The caller holds the lock.
func (s *changeReview) offer(ctx context.Context) []string {
	have := cmp.Or(s.held, s.agreed)
	offered, changes := s.agreed.hold(*have)
	code := ""
	if len(changes) == 0 {
		s.held = nil
	} else {
		code = shortHash(have.Tools)
	}
	s.tools.publish(ctx, offered)
	if n := len(changes) - maxChanges; n > 0 {
		changes = append(changes[:maxChanges:maxChanges], fmt.Sprintf("and %d more", n))
	}
	s.status.update(func() { s.status.state.Held, s.status.state.Code = changes, code })
	return changes
}

// approve gives the present catalog to the agent if code is its hash. The code names what the admin
// has seen, so the server can't exchange its tools in between.
func (s *changeReview) approve(ctx context.Context, code string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.held == nil:
		return errors.New("no changes of this server wait for agreement")
	case shortHash(s.held.Tools) != strings.ToLower(code):
		return errors.New("this code stands for something else than what the server has now, which " +
			"/mcp shows")
	}
	s.agreed, s.held, s.reportedAt = s.held, nil, time.Time{}
	s.offer(ctx)
	s.store(ctx)
	return nil
}

// save writes the cache file.
func (s *changeReview) save(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(ctx)
}

// store writes the cache file. The caller holds the lock.
func (s *changeReview) store(ctx context.Context) {
	k := cacheEntry{Catalog: *s.agreed}
	if s.held != nil {
		k.Held = s.reported // the next process reports what was not reported yet
	}
	s.status.update(func() { k.dialect = s.status.dialect })
	if err := s.cache.write(k); err != nil {
		s.opts.Logger.WarnContext(ctx, "mcp cache not written", "server", s.Name, "err", err)
	}
}
