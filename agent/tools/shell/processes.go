package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gateway/agent/tools/shell/sandbox"
	"gateway/bus"
)

// processes are the background commands of all sessions.
type processes struct {
	wg sync.WaitGroup // of the goroutines of processes

	mu     sync.Mutex
	closed bool
	last   int                 // number of the last process
	byID   map[string]*process // those that run, and some that have ended
}

// start starts a process, if the limits allow one more, and waits for its end in a goroutine.
func (ps *processes) start(p *process, cmd *sandbox.Command) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed {
		return errors.New("the gateway is ending; no command can be started")
	}
	ps.forget(p.session)
	all, own := 0, 0
	for _, other := range ps.byID {
		if other.running() {
			all++
			if other.session == p.session {
				own++
			}
		}
	}
	if own >= maxRunning {
		return fmt.Errorf("%d commands run in the background already, which is the limit; end one "+
			"with exec_input; exec_list shows them", own)
	}
	if all >= maxAll {
		return errors.New("too many commands run in the background of all conversations; try later")
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("the command could not be started: %w", err)
	}
	ps.last++
	p.id = fmt.Sprint("p", ps.last)
	ps.byID[p.id] = p
	ps.wg.Go(func() { p.finish(cmd) })
	return nil
}

// forget removes processes that ended long ago. Of the session's ended processes, it keeps only the
// last ones. The caller holds ps.mu.
func (ps *processes) forget(session bus.Session) {
	var ended []*process
	for id, p := range ps.byID {
		if p.running() {
			continue
		}
		if time.Since(p.ended) > keepEnded {
			delete(ps.byID, id)
		} else if p.session == session {
			ended = append(ended, p)
		}
	}
	slices.SortFunc(ended, func(a, b *process) int { return b.ended.Compare(a.ended) })
	for _, p := range ended[min(maxEnded, len(ended)):] {
		delete(ps.byID, p.id)
	}
}

// of returns the processes of a session, oldest first.
func (ps *processes) of(session bus.Session) []*process {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.forget(session)
	list := slices.Collect(maps.Values(ps.byID))
	list = slices.DeleteFunc(list, func(p *process) bool { return p.session != session })
	slices.SortFunc(list, func(a, b *process) int { return a.started.Compare(b.started) })
	return list
}

// remove forgets a process.
func (ps *processes) remove(p *process) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.byID, p.id)
}

// find returns the process of a session with the given ID.
func (ps *processes) find(session bus.Session, id string) (*process, error) {
	var known []string
	for _, p := range ps.of(session) {
		if p.id == id {
			return p, nil
		}
		known = append(known, p.id)
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("there is no command %q in the background, and no other command", id)
	}
	return nil, fmt.Errorf("there is no command %q in the background; there are: %s", id,
		strings.Join(known, ", "))
}

// write writes to a process, which may read slowly.
func (ps *processes) write(ctx context.Context, p *process, text string, eof bool) error {
	written := make(chan error, 1)
	ps.wg.Go(func() { // ends with the process at the latest: the pipe is closed then
		_, err := io.WriteString(p.stdin, text)
		if eof {
			err = errors.Join(err, p.stdin.Close())
		}
		written <- err
	})
	select {
	case err := <-written:
		if err != nil && p.running() {
			return fmt.Errorf("it does not take input: %w", err)
		}
		return nil
	case <-time.After(writeWait):
		return errors.New("it does not read its input; what was written may reach it later")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end ends the processes that which selects, waits for them and returns their number.
func (ps *processes) end(which func(*process) bool) (n int) {
	ps.mu.Lock()
	all := slices.Collect(maps.Values(ps.byID))
	ps.mu.Unlock()
	var ending []*process
	for _, p := range all {
		if which(p) && p.running() {
			p.cancel()
			ending = append(ending, p)
		}
	}
	for _, p := range ending {
		<-p.done
	}
	return len(ending)
}

// close ends all processes and waits for them. After that, none can be started.
func (ps *processes) close() {
	ps.mu.Lock()
	ps.closed = true
	ps.mu.Unlock()
	ps.end(func(*process) bool { return true })
	ps.wg.Wait()
}
