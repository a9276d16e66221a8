package agent

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/agent/background"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/bus"
	"gateway/store"
	"gateway/store/plaintext"
)

// checked is a model that checks each request against the rules of the strictest provider.
type checked struct {
	llm.Model
	t testing.TB
}

func (m checked) Stream(ctx context.Context, r llm.Request) iter.Seq2[llm.Event, error] {
	if problem := llmtest.Problem(r.Messages); problem != "" {
		m.t.Errorf("%s in %q", problem, lines(r.Messages[1:]))
	}
	return m.Model.Stream(ctx, r)
}

// ending is a model that calls ended at the end of each call.
type ending struct {
	llm.Model
	ended func()
}

func (m ending) Stream(ctx context.Context, r llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		defer m.ended()
		m.Model.Stream(ctx, r)(yield)
	}
}

// A notesModel is a model that makes notes. It repeats the beginning of each text that people
// wrote, so that tests can find all of them again. It also checks the form of each request for
// notes.
type notesModel struct {
	t testing.TB

	mu    sync.Mutex
	asked []llm.Request
	fail  error // returned instead of notes
	hold  chan struct{}
	wait  time.Duration // how long each call takes
}

// set changes what the notesModel does from now on.
func (c *notesModel) set(change func(c *notesModel)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

func (c *notesModel) Stream(ctx context.Context, r llm.Request) iter.Seq2[llm.Event, error] {
	c.mu.Lock()
	hold, wait := c.hold, c.wait
	c.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return func(yield func(llm.Event, error) bool) { yield(llm.Event{}, ctx.Err()) }
		}
	}
	time.Sleep(wait)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, r)
	if len(r.Messages) != 2 || len(r.Tools) > 0 || r.MaxOutput == 0 {
		c.t.Errorf("notes are asked with %d messages and %d tools", len(r.Messages), len(r.Tools))
	}
	fail, notes := c.fail, ""
	for line := range strings.Lines(r.Messages[1].Text) {
		var said struct{ Day, Who, Text string }
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			c.t.Errorf("asked for notes of %q: %v", line, err)
		}
		if said.Who == "user" {
			notes += "- " + said.Day + ": " + plaintext.Cut(said.Text, 200) + "\n" // notes have a size limit
		}
	}
	return func(yield func(llm.Event, error) bool) {
		if fail != nil {
			yield(llm.Event{}, fail)
			return
		}
		yield(llm.Event{Response: &llm.Response{Model: "clerk", Finish: llm.FinishStop,
			Message: llm.Message{Role: llm.Assistant, Text: notes},
			Usage:   llm.Usage{Input: len(r.Messages[1].Text) / 4, Output: len(notes) / 4}}}, nil)
	}
}

// hostSettings defines how the rest of the gateway behaves in a world. By default everybody may
// write, nobody is known, and every account is served.
type hostSettings struct {
	known   func(q store.Queryer, person int64) (bool, error)
	former  []int64 // the result of FormerIDs for everybody
	forget  func(tx *store.Tx, person int64, chats []bus.Address) error
	writes  func(m *bus.InboundMessage) bool // whether the sender may write; changes m
	owners  func(q store.Queryer) ([]bus.Address, error)
	served  func(account string) bool
	keeper  func(account string) background.ExternalStore
	states  func(q store.Queryer) ([]string, error)
	stopped func(session string, by *bus.InboundMessage)

	admitted func(messages []bus.InboundMessage)
	dropped  []string // platform IDs of the messages that get no answer
}

type people struct{ *world }

func (p people) Known(q store.Queryer, person int64) (bool, error) {
	if p.outside.known == nil {
		return false, nil
	}
	return p.outside.known(q, person)
}

func (p people) Holders(q store.Queryer, number int64) ([]int64, error) {
	if known, err := p.Known(q, number); err != nil || known {
		return []int64{number}, err
	}
	return nil, nil
}

func (p people) FormerIDs(store.Queryer, int64) ([]int64, error) { return p.outside.former, nil }

func (p people) Forget(tx *store.Tx, person int64, chats []bus.Address) error {
	if p.outside.forget == nil {
		return nil
	}
	return p.outside.forget(tx, person, chats)
}

func (p people) MayWrite(_ store.Queryer, m *bus.InboundMessage) (bool, error) {
	return p.outside.writes == nil || p.outside.writes(m), nil
}

func (p people) OwnerChats(q store.Queryer) ([]bus.Address, error) {
	if p.outside.owners == nil {
		return nil, nil
	}
	return p.outside.owners(q)
}

type accounts struct{ *world }

func (a accounts) Served(account string) bool {
	return a.outside.served == nil || a.outside.served(account)
}

func (a accounts) TakesFiles(bus.Address) bool { return true }

func (a accounts) ExternalStore(account string) background.ExternalStore {
	if a.outside.keeper == nil {
		return nil
	}
	return a.outside.keeper(account)
}

func (a accounts) States(q store.Queryer) ([]string, error) {
	if a.outside.states == nil {
		return nil, nil
	}
	return a.outside.states(q)
}

func (a accounts) Admitted(messages []bus.InboundMessage) {
	if a.outside.admitted != nil {
		a.outside.admitted(messages)
	}
}

func (a accounts) Dropped(messages []bus.InboundMessage) {
	for _, m := range messages {
		a.outside.dropped = append(a.outside.dropped, m.ID)
	}
}

type toolset struct{ *world }

func (toolset) Ready() <-chan struct{} { return nil }
func (toolset) States() []string       { return nil }

func (t toolset) Stop(session bus.Session, by *bus.InboundMessage) {
	if t.outside.stopped != nil {
		t.outside.stopped(session.String(), by)
	}
}
