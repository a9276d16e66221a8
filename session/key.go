package session

import (
	"strconv"
	"strings"

	"gateway/bus"
)

// A Key names a session. The key of a conversation is its address, account/chat[/thread]. Every
// other key begins with that of the parent session. Use [Key.Place] to find out what a key means:
// only this package parses keys.
type Key string

// A Kind says what a session is for.
type Kind string

// The kinds of sessions.
const (
	Chat Kind = "chat" // a conversation of people
	Task Kind = "task" // a sub-agent works for the parent
	Job  Kind = "job"  // a job of the parent
	Hook Kind = "hook" // answers the posts to a hook of the parent
	Run  Kind = "run"  // one run of a job while the parent waits for a person
)

// A Place says what a session is and where it belongs. It corresponds to the columns kind,
// reference and parent of the session's row.
type Place struct {
	Kind   Kind
	Ref    string // id of the task, job or run, or name of the hook; "" for a Chat
	Parent Key    // "" for a Chat
}

// SubKey returns the key of the session in which a sub-agent works for the session key. It never
// equals the key of a conversation.
func SubKey(key Key, id string) Key { return Place{Task, id, key}.key() }

// JobKey returns the key of the session in which a job of the session key runs.
func JobKey(key Key, job int64) Key {
	return Place{Job, strconv.FormatInt(job, 10), key}.key()
}

// HookKey returns the key of the session in which the agent answers the posts to a hook, for the
// conversation key.
func HookKey(key Key, hook string) Key { return Place{Hook, hook, key}.key() }

// RunKey returns the key of the session in which one run of a job takes place beside the session
// key, because a turn of key waits for a person.
func RunKey(key Key, run int64) Key {
	return Place{Run, strconv.FormatInt(run, 10), key}.key()
}

// Separators in a key: before a child of a parent, and before its kind. A task has no kind mark.
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

// Place returns what the session k is.
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
	// Older versions encoded a run as a job with a negative number.
	if run, ok := strings.CutPrefix(p.Ref, "-"); ok && p.Kind == Job {
		p.Kind, p.Ref = Run, run
	}
	return p
}

// find returns the place of k or of its nearest ancestor whose kind is among kinds.
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

// Parent returns the session for which the sub-agent of k works, or "" if k does not belong to a
// sub-agent. Jobs, hooks and runs have no Parent in this sense, but can have sub-agents.
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

// Background reports whether k is the session of a job, a hook or a run, or a descendant of one.
func (k Key) Background() bool {
	_, ok := k.find(Job, Hook, Run)
	return ok
}

// Beside returns the session beside which k runs, or "" if k is neither the session of a run nor a
// descendant of one.
func (k Key) Beside() Key {
	p, _ := k.find(Run)
	return p.Parent
}

// Below reports whether k is a descendant of key: the session of a sub-agent, a job, a hook or a
// run.
func (k Key) Below(key Key) bool {
	for k = k.Place().Parent; k != ""; k = k.Place().Parent {
		if k == key {
			return true
		}
	}
	return false
}

// Of returns the key of the session to which m belongs.
func Of(m bus.InboundMessage) Key {
	if m.Origin.Session != "" {
		return Key(m.Origin.Session)
	}
	return KeyOf(m.From)
}

// KeyOf returns the key of the conversation at a.
func KeyOf(a bus.Address) Key { return Key(a.String()) }
