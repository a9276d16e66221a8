package mcp

import (
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

// reportEvery is how often at most the owners are told that a server's tools have changed.
const reportEvery = time.Hour

// maxChanges is how many changes of a server's tools are told one by one.
const maxChanges = 20

// known is what a server has, and what of it an admin has agreed to. What a server has when it is
// seen for the first time is agreed to: somebody has just put it into the configuration.
type known struct {
	mu     sync.Mutex // held while tools are brought to the agent
	shown  *catalog   // what the agent's tools were made of
	agreed *catalog   // nil until the server was seen
	held   *catalog   // what it has now, if that needs somebody's agreement; or nil

	told   *catalog  // what was held when the owners were told last; or nil
	toldAt time.Time // when that was, by this process; or zero
	later  bool      // it will be listed again to tell them of what has changed since
}

// hold returns what of listed the agent may see: tools as they were agreed to. A tool that has
// changed stays as it was, and a new one is left out. It also says what is held.
func (c catalog) hold(listed catalog) (offered catalog, changes []string) {
	before := make(map[string]definition)
	for _, d := range c.Tools {
		before[d.Name] = d
	}
	offered = listed
	offered.Tools = nil
	for _, d := range listed.Tools {
		old, ok := before[d.Name]
		if !ok {
			changes = append(changes, fmt.Sprintf("new: `%s`, which says of itself: “%s”",
				tame(d.Name, 80), tame(d.Description, 300)))
			continue
		}
		offered.Tools = append(offered.Tools, old)
		if what := old.differs(d); what != "" {
			changes = append(changes, "changed: `"+tame(d.Name, 80)+"`, "+what)
		}
	}
	return offered, changes
}

// differs says how d differs from what it was, "" if it does not.
func (d definition) differs(now definition) string {
	var list []string
	if d.Description != now.Description {
		list = append(list, fmt.Sprintf("which said “%s” and says “%s”", tame(d.Description, 300),
			tame(now.Description, 300)))
	}
	if mark(d.Schema) != mark(now.Schema) {
		list = append(list, "its arguments are others")
	}
	if d.ReadOnly != now.ReadOnly || d.Idempotent != now.Idempotent {
		list = append(list, "it says otherwise whether it changes something")
	}
	return strings.Join(list, "; ")
}

// mark returns a fingerprint of v. A server must not find two lists with the same one: the code of
// the first, which an admin has read, would let in the second. A button has room for 20 characters.
func mark(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:20])
}

// A holder holds changes of a server's tools until somebody agrees to them.
type holder struct{ *server }

// adopt brings what the server lists to the agent, but for changes that nobody has agreed to, and
// keeps both. It tells of changes that are new.
func (s holder) adopt(ctx context.Context, listed catalog) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	if s.known.agreed == nil {
		s.known.agreed = &listed
	}
	s.known.held = &listed
	changes := s.offer(ctx)
	if s.known.held != nil && !same(s.known.told, s.known.held) {
		now := s.opts.Now()
		if wait := s.known.toldAt.Add(reportEvery).Sub(now); wait > 0 {
			s.listLater(wait)
			return // nothing is kept that was not told
		}
		s.opts.Logger.WarnContext(ctx, "mcp tools have changed and wait for an admin", "server", s.Name,
			"changes", len(changes))
		if err := s.report(ctx); err != nil {
			s.opts.Logger.WarnContext(ctx, "owners not told of changed tools", "server", s.Name,
				"err", err)
			s.listLater(reportEvery)
			return
		}
		s.known.told, s.known.toldAt = s.known.held, now
	}
	s.store(ctx)
}

// listLater has the server list its tools again after a while. It is called with the lock held.
func (s holder) listLater(wait time.Duration) {
	if s.known.later {
		return
	}
	s.known.later = true
	time.AfterFunc(wait, func() {
		s.known.mu.Lock()
		s.known.later = false
		s.known.mu.Unlock()
		select {
		case s.stale <- struct{}{}:
		default:
		}
	})
}

func (s holder) report(ctx context.Context) error {
	if s.opts.Report == nil {
		return nil
	}
	return s.opts.Report(ctx, s.show())
}

// offer brings what was agreed to of what the server has. It is called with the lock held.
func (s holder) offer(ctx context.Context) []string {
	have := s.known.held
	if have == nil {
		have = s.known.agreed
	}
	offered, changes := s.known.agreed.hold(*have)
	code := ""
	if len(changes) == 0 {
		s.known.held = nil
	} else {
		code = mark(have.Tools)
	}
	s.bring(ctx, offered)
	if n := len(changes) - maxChanges; n > 0 {
		changes = append(changes[:maxChanges:maxChanges], fmt.Sprintf("and %d more", n))
	}
	s.update(func() { s.state.Held, s.state.Code = changes, code })
	return changes
}

// agree lets the agent have what the server has now, if that is what code stands for.
func (s holder) agree(ctx context.Context, code string) error {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	switch {
	case s.known.held == nil:
		return errors.New("nothing of this server waits")
	case mark(s.known.held.Tools) != strings.ToLower(code):
		return errors.New("this code stands for something else than what the server has now, which " +
			"/mcp shows")
	}
	s.known.agreed, s.known.held, s.known.toldAt = s.known.held, nil, time.Time{}
	s.offer(ctx)
	s.store(ctx)
	return nil
}

// store keeps what is known. It is called with the lock held.
func (s holder) store(ctx context.Context) {
	k := kept{Catalog: *s.known.agreed, Held: s.known.held}
	s.update(func() { k.dialect = s.dialect })
	if err := s.keep(k); err != nil {
		s.opts.Logger.WarnContext(ctx, "mcp cache not written", "server", s.Name, "err", err)
	}
}
