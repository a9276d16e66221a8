package memory

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gateway/bus"
)

// A Scope is whom a memory belongs to: a person, on all their platforms, or a conversation that
// several people read. Nothing of one scope is ever seen in another. It is also the name of the
// scope's folder.
type Scope string

// OfPerson returns the scope of a person's direct chats.
func OfPerson(id int64) Scope { return Scope(personPrefix + strconv.FormatInt(id, 10)) }

// OfChat returns the scope of a conversation that belongs to nobody known, such as a group. Its
// threads share it.
func OfChat(a bus.Address) Scope {
	return Scope("chat-" + strings.ReplaceAll(a.Folder(), "/", "+"))
}

// ScopeOf returns the scope that m belongs to: the person's in a direct chat, else the chat's.
func ScopeOf(m bus.InboundMessage) Scope {
	if !m.Group && m.Person != 0 {
		return OfPerson(m.Person)
	}
	return OfChat(m.From)
}

// personPrefix is what the scopes of people begin with.
const personPrefix = "person-"

// scopeName is what [OfPerson] and [OfChat] make, in maxScope bytes: an expression that counts so
// far itself would take a hundred times the memory.
var scopeName = regexp.MustCompile(`^(person-[1-9][0-9]{0,18}|chat-[a-z0-9@._+-]+)$`)

const maxScope = len("chat-") + 130

// ParseScope returns the scope with the given name.
func ParseScope(name string) (Scope, error) {
	if len(name) > maxScope || !scopeName.MatchString(name) || strings.HasSuffix(name, ".") {
		return "", fmt.Errorf("%q names no scope; one looks like person-1 or chat-telegram+-42", name)
	}
	return Scope(name), nil
}

// Person returns the person whose scope s is, 0 if it is that of a conversation.
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
