package session

import (
	"strconv"
	"strings"

	"gateway/bus"
)

// A Key names a session, for people and for other tables. The name of a conversation is its
// address, account/chat[/thread]. The name of any other session begins with that of its parent.
// What a session is says its [Place]: no one else takes a Key apart.
type Key string

// A Kind says what a session is for.
type Kind string

// The kinds of sessions.
const (
	Chat Kind = "chat" // a conversation of people
	Task Kind = "task" // a sub-agent works for the parent
	Job  Kind = "job"  // a job of the parent runs
	Hook Kind = "hook" // what programs post to a hook is answered for the parent
	Run  Kind = "run"  // one run of a job, while the parent waits for somebody
)

// A Place says what a session is and where it belongs. The columns kind, reference and parent of
// the session's row hold it.
type Place struct {
	Kind   Kind
	Ref    string // id of the task, number of the job or of the run, name of the hook; "" of a Chat
	Parent Key    // "" of a Chat
}

// SubKey returns the key of the session in which a sub-agent works for the session key. No address
// has such a key.
func SubKey(key Key, id string) Key { return Place{Task, id, key}.key() }

// JobKey returns the key of the session in which a job of the session key runs.
func JobKey(key Key, job int64) Key {
	return Place{Job, strconv.FormatInt(job, 10), key}.key()
}

// HookKey returns the key of the session in which the agent answers what programs post to a hook,
// for the conversation of the session key.
func HookKey(key Key, hook string) Key { return Place{Hook, hook, key}.key() }

// RunKey returns the key of the session in which a job runs once beside the session key, because
// that waits for somebody.
func RunKey(key Key, run int64) Key {
	return Place{Run, strconv.FormatInt(run, 10), key}.key()
}

// The marks in a key: of what belongs to a parent, and of its kind. A task has no mark of its kind.
const (
	parentMark = "#"
	kindMark   = "@"
)

func (p Place) key() Key {
	if p.Kind == Task {
		return p.Parent + parentMark + Key(p.Ref)
	}
	return p.Parent + parentMark + kindMark + Key(p.Kind) + "-" + Key(p.Ref)
}

// Place returns what the session of k is.
func (k Key) Place() Place {
	i := strings.LastIndex(string(k), parentMark)
	if i < 0 {
		return Place{Kind: Chat}
	}
	p := Place{Kind: Task, Ref: string(k[i+len(parentMark):]), Parent: k[:i]}
	for _, kind := range []Kind{Job, Hook, Run} {
		if ref, ok := strings.CutPrefix(p.Ref, kindMark+string(kind)+"-"); ok {
			p.Kind, p.Ref = kind, ref
			break
		}
	}
	// Older versions named the session of a run like that of a job with a negative number.
	if run, ok := strings.CutPrefix(p.Ref, "-"); ok && p.Kind == Job {
		p.Kind, p.Ref = Run, run
	}
	return p
}

// find returns the place of k, or the nearest one above it, that is of one of the kinds.
func (k Key) find(kinds ...Kind) (Place, bool) {
	for ; k != ""; k = k.Place().Parent {
		p := k.Place()
		for _, kind := range kinds {
			if p.Kind == kind {
				return p, true
			}
		}
	}
	return Place{}, false
}

// Parent returns the session for which a sub-agent works in k, or "" if none does. Jobs, hooks and
// runs work for nobody, and have sub-agents of their own.
func (k Key) Parent() Key {
	if p := k.Place(); p.Kind == Task {
		return p.Parent
	}
	return ""
}

// Proactive reports whether k is the session of a job, a hook or a run.
func (k Key) Proactive() bool {
	p := k.Place()
	return p.Kind == Job || p.Kind == Hook || p.Kind == Run
}

// Background reports whether k is the session of a job, a hook or a run, or one below it.
func (k Key) Background() bool {
	_, ok := k.find(Job, Hook, Run)
	return ok
}

// Beside returns the session beside which k works, or "" if k is neither the session of a run nor
// one below it.
func (k Key) Beside() Key {
	p, _ := k.find(Run)
	return p.Parent
}

// Below reports whether k is the session of a sub-agent, a job, a hook or a run of key, or of one
// of these.
func (k Key) Below(key Key) bool {
	for k = k.Place().Parent; k != ""; k = k.Place().Parent {
		if k == key {
			return true
		}
	}
	return false
}

// Of returns the key of the session that m belongs to.
func Of(m bus.InboundMessage) Key {
	if m.Origin.Session != "" {
		return Key(m.Origin.Session)
	}
	return KeyOf(m.From)
}

// KeyOf returns the key of the session that the conversation at a belongs to.
func KeyOf(a bus.Address) Key { return Key(a.String()) }
