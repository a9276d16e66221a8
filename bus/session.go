package bus

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
)

// A Session names a session: a conversation of people, or a session in which the agent works for a
// conversation. It can be compared. The zero Session names none.
//
// A conversation belongs to a chat or a thread. With a Speaker, it has only the messages between
// this member of a group and the agent. With a Person, it has the messages of all their direct
// chats, and no address. See [SessionScope].
//
// A task works for the session that has the other fields. A run has a session beside that session.
type Session struct {
	Conversation Address `json:"conversation,omitzero"`

	Speaker string `json:"speaker,omitempty"` // platform's id
	Person  int64  `json:"person,omitempty"`  // number, as in InboundMessage

	Job  int64  `json:"job,omitempty"`  // a job of the conversation runs
	Hook string `json:"hook,omitempty"` // the agent answers posts to this hook
	Run  int64  `json:"run,omitempty"`  // one run of a job, while the session waits for somebody
	Task string `json:"task,omitempty"` // a sub-agent works on the task with this id
}

// IsZero reports whether s names no session.
func (s Session) IsZero() bool { return s == Session{} }

// OfJob returns the session in which a job of the conversation s runs.
func (s Session) OfJob(job int64) Session {
	s.Job = job
	return s
}

// OfHook returns the session in which the agent answers what programs post to a hook, for the
// conversation s.
func (s Session) OfHook(hook string) Session {
	s.Hook = hook
	return s
}

// OfRun returns the session in which a job runs once beside s, because the turn of s is suspended.
func (s Session) OfRun(run int64) Session {
	s.Run = run
	return s
}

// OfTask returns the session in which a sub-agent works for s.
func (s Session) OfTask(id string) Session {
	s.Task = id
	return s
}

// Parent returns the session for which a sub-agent works in s, or the zero Session if none does.
func (s Session) Parent() Session {
	if s.Task == "" {
		return Session{}
	}
	s.Task = ""
	return s
}

// Root returns the conversation to which s belongs.
func (s Session) Root() Session {
	s.Job, s.Hook, s.Run, s.Task = 0, "", 0, ""
	return s
}

// IsConversation reports whether s is a conversation of people.
func (s Session) IsConversation() bool { return s == s.Root() }

// Background reports whether s is the session of a job, a hook or a run, or of a sub-agent of one.
func (s Session) Background() bool { return s.Job != 0 || s.Hook != "" || s.Run != 0 }

// Proactive reports whether s is the session of a job, a hook or a run.
func (s Session) Proactive() bool { return s.Task == "" && s.Background() }

// IsDescendantOf reports whether s is the session of a sub-agent, a job, a hook or a run that works
// for above, directly or through further sessions.
func (s Session) IsDescendantOf(above Session) bool {
	if s == above {
		return false
	}
	parent := s
	parent.Task = ""
	standing := parent
	standing.Run = 0
	return above == parent || above == standing || above == s.Root()
}

// The marks in the name of a session.
const (
	mark        = "#" // begins each part after the address; without a mark below, it is a task
	speakerMark = "@speaker-"
	personMark  = "@person-" // in place of an address
	jobMark     = "@job-"
	hookMark    = "@hook-"
	runMark     = "@run-"
)

// String returns the name of s for people, files and the database: account/chat[/thread] or
// @person-ID, followed by marks for the job, hook, run and task.
func (s Session) String() string {
	if s.IsZero() {
		return ""
	}
	name := s.Conversation.String()
	if s.Person != 0 {
		name = personMark + strconv.FormatInt(s.Person, 10)
	}
	if s.Speaker != "" {
		name += mark + speakerMark + s.Speaker
	}
	if s.Job != 0 {
		name += mark + jobMark + strconv.FormatInt(s.Job, 10)
	}
	if s.Hook != "" {
		name += mark + hookMark + s.Hook
	}
	if s.Run != 0 {
		name += mark + runMark + strconv.FormatInt(s.Run, 10)
	}
	if s.Task != "" {
		name += mark + s.Task
	}
	return name
}

// LogValue implements [slog.LogValuer].
func (s Session) LogValue() slog.Value { return slog.StringValue(s.String()) }

// ParseSession reads the name of a session.
func ParseSession(name string) (Session, error) {
	conversation := name
	for i := range len(name) { // "#" begins a thread, too
		if name[i:i+1] == mark && i > 0 && name[i-1] != '/' {
			conversation = name[:i]
			break
		}
	}
	if strings.HasPrefix(name, personMark) {
		return Address{}.ParseSession(name)
	}
	account, rest, _ := strings.Cut(conversation, "/")
	chat, thread, _ := strings.Cut(rest, "/")
	if account == "" || chat == "" {
		return Session{}, fmt.Errorf("%q is not the name of a session", name)
	}
	return Address{Account: account, Chat: chat, Thread: thread}.ParseSession(name)
}

// ParseSession reads the name of a session at the address a. For the conversation of a person, a is
// zero.
func (a Address) ParseSession(name string) (Session, error) {
	s := Session{Conversation: a}
	if a == (Address{}) && strings.HasPrefix(name, personMark) {
		return s.with(name, name)
	}
	marks, ok := strings.CutPrefix(name, a.String())
	if !ok || marks != "" && !strings.HasPrefix(marks, mark) {
		return Session{}, fmt.Errorf("%q is not the name of a session of %s", name, a)
	}
	return s.with(strings.TrimPrefix(marks, mark), name)
}

// with returns s with the parts of a name.
func (s Session) with(parts, name string) (Session, error) {
	for part := range strings.SplitSeq(parts, mark) {
		if err := s.add(part); err != nil {
			return Session{}, fmt.Errorf("%q is not the name of a session: %w", name, err)
		}
	}
	return s, nil
}

// add reads a part of a name.
func (s *Session) add(part string) (err error) {
	if number, ok := strings.CutPrefix(part, jobMark+"-"); ok { // as older versions named a run
		s.Run, err = strconv.ParseInt(number, 10, 64)
	} else if number, ok := strings.CutPrefix(part, jobMark); ok {
		s.Job, err = strconv.ParseInt(number, 10, 64)
	} else if number, ok := strings.CutPrefix(part, runMark); ok {
		s.Run, err = strconv.ParseInt(number, 10, 64)
	} else if number, ok := strings.CutPrefix(part, personMark); ok {
		s.Person, err = strconv.ParseInt(number, 10, 64)
	} else if speaker, ok := strings.CutPrefix(part, speakerMark); ok {
		s.Speaker = speaker
	} else if hook, ok := strings.CutPrefix(part, hookMark); ok {
		s.Hook = hook
	} else {
		s.Task = part
	}
	return err
}

// UnmarshalJSON implements [json.Unmarshaler]. Older versions have written the name of a session.
func (s *Session) UnmarshalJSON(data []byte) error {
	var name string
	if len(data) == 0 || data[0] != '"' {
		type fields Session // without this method
		return json.Unmarshal(data, (*fields)(s))
	}
	err := json.Unmarshal(data, &name)
	if err == nil && name != "" {
		*s, err = ParseSession(name)
	}
	return err
}
