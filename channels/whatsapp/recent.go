package whatsapp

import (
	"sync"
	"time"

	"go.mau.fi/whatsmeow/proto/waE2E"
	"google.golang.org/protobuf/proto"
)

// Limits of what is remembered of messages: enough to quote recent ones.
const (
	maxRecent = 512
	maxQuoted = 8 << 10 // bytes of a message that is kept whole, with its preview
)

// recent remembers the newest messages of all chats. Its methods are safe for concurrent use.
type recent struct {
	mu    sync.Mutex
	byKey map[[2]string]*remembered // by chat and id
	order [maxRecent][2]string      // a ring
	next  int
}

// A remembered is a recently received or sent message.
type remembered struct {
	message *waE2E.Message // for a quote
	text    string
	name    string // of its author, or "" if that is us
	ours    bool
	sent    time.Time
	removed bool
}

func newRecent() *recent { return &recent{byKey: make(map[[2]string]*remembered)} }

// add remembers a message in place of the oldest one.
func (r *recent) add(chat, id string, m remembered) {
	if m.message != nil && proto.Size(m.message) > maxQuoted {
		m.message = &waE2E.Message{Conversation: &m.text}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := [2]string{chat, id}
	if r.byKey[key] == nil {
		delete(r.byKey, r.order[r.next])
		r.order[r.next] = key
		r.next = (r.next + 1) % maxRecent
	}
	r.byKey[key] = &m
}

// find returns a remembered message. It returns false if the message is not remembered.
func (r *recent) find(chat, id string) (remembered, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.byKey[[2]string{chat, id}]
	if m == nil {
		return remembered{}, false
	}
	return *m, true
}

// remove records that a message no longer exists.
func (r *recent) remove(chat, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.byKey[[2]string{chat, id}]; m != nil {
		m.removed = true
	}
}

// drop forgets the messages of a chat.
func (r *recent) drop(chat string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.byKey { // their places in the ring will be reused
		if key[0] == chat {
			delete(r.byKey, key)
		}
	}
}

// maxPanics is the number of attempts after which a message that causes a panic is set aside.
// WhatsApp delivers it again on each connection until it is acknowledged.
const maxPanics = 3

// panics counts the attempts at messages that panicked, by message id. Its methods are safe for
// concurrent use.
type panics struct {
	mu    sync.Mutex
	count map[string]int
}

func newPanics() *panics { return &panics{count: make(map[string]int)} }

func (p *panics) add(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.count) >= maxRecent {
		clear(p.count) // the messages get new attempts
	}
	p.count[id]++
}

func (p *panics) of(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count[id]
}
