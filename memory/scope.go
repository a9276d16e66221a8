package memory

import (
	"fmt"
	"strconv"
	"strings"

	"gateway/bus"
	"gateway/store"
	"gateway/store/plaintext"
)

// A Scope is the owner of a memory: a person, across all platforms, or a conversation that
// several people read. Scopes are strictly separated. A Scope is also the name of its
// folder.
type Scope string

// OfPerson returns the scope of a person's direct chats.
func OfPerson(id int64) Scope { return Scope(personPrefix + strconv.FormatInt(id, 10)) }

// OfChat returns the scope of a conversation without a known person, such as a group. Its
// threads share the scope.
func OfChat(a bus.Address) Scope {
	return Scope("chat-" + strings.ReplaceAll(a.Folder(), "/", "+"))
}

// ScopeOf returns the scope of m: the person's in a direct chat, otherwise the chat's.
func ScopeOf(m bus.InboundMessage) Scope {
	if !m.Group && m.Person != 0 {
		return OfPerson(m.Person)
	}
	return OfChat(m.From)
}

// personPrefix begins the names of all scopes of people.
const personPrefix = "person-"

// scopeName matches what [OfPerson] and [OfChat] return. maxScope is checked separately,
// because an expression with that repetition count would take a hundred times the memory.
var scopeName = plaintext.Pattern(`^(person-[1-9][0-9]{0,18}|chat-[a-z0-9@._+-]+)$`)

const maxScope = len("chat-") + 130

// ParseScope returns the scope with the given name, or an error if no scope can have that
// name.
func ParseScope(name string) (Scope, error) {
	if len(name) > maxScope || !scopeName().MatchString(name) || strings.HasSuffix(name, ".") {
		return "", fmt.Errorf("%q is not a scope such as person-1 or chat-telegram+-42", name)
	}
	return Scope(name), nil
}

// Person returns the ID of the person whose scope s is, or 0 for the scope of a
// conversation.
func (s Scope) Person() int64 {
	number, ok := strings.CutPrefix(string(s), personPrefix)
	if !ok {
		return 0
	}
	id, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// wrap adds the operation and the scope to an error.
func (s Scope) wrap(operation string, err error) error {
	return store.Wrap(err, "memory: %s %s", operation, s)
}
