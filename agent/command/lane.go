package command

import (
	"gateway/bus"
	"gateway/session"
)

// Each command runs on its own goroutine, beside the goroutine that hands messages out. Messages
// that arrive meanwhile for the same conversation, its sub-agents or its jobs wait in a lane. This
// keeps the order within a conversation, and no other conversation waits.

// A lane is a conversation with a command under way. Only the goroutine that hands messages out
// uses lanes.
type lane struct {
	command bus.Received
	waiting []Queued // messages that arrived after the command
}

// A Queued is a message in a lane, with the maximum number of messages that may wait in its
// session.
type Queued struct {
	Message bus.Received
	Bound   int
}

// A Done is a finished command.
type Done struct {
	Session session.Key
	Err     error // the store is lost
}

// maxCommands is the maximum number of commands that run at once. Further commands wait.
const maxCommands = 64

// Lanes holds the conversations with a command under way. Only the goroutine that hands messages
// out uses it.
type Lanes struct {
	list  map[session.Key]*lane
	done  chan Done
	slots chan struct{} // each running command holds one
}

// NewLanes returns Lanes without commands.
func NewLanes() Lanes {
	return Lanes{make(map[session.Key]*lane), make(chan Done), make(chan struct{}, maxCommands)}
}

// Done returns a channel of finished commands. For each of them [Lanes.Leave] must be called.
func (l *Lanes) Done() <-chan Done { return l.done }

// Enter opens a lane and answers a command in it by calling run on a new goroutine.
func (l *Lanes) Enter(key session.Key, r bus.Received, run func() error) {
	l.list[key] = &lane{command: r}
	go func() { // Lanes.Wait waits for it
		l.slots <- struct{}{}
		err := run()
		<-l.slots
		l.done <- Done{key, err}
	}()
}

// Join makes q wait for the command in a lane. It reports false if there is no such lane.
func (l *Lanes) Join(key session.Key, q Queued) bool {
	lane, ok := l.list[key]
	if ok {
		lane.waiting = append(lane.waiting, q)
	}
	return ok
}

// Leave closes the lane of a finished command and returns the messages that waited in it.
func (l *Lanes) Leave(key session.Key) []Queued {
	waiting := l.list[key].waiting
	delete(l.list, key)
	return waiting
}

// Wait waits for the running commands. Commands that have not started are left to the next process.
func (l *Lanes) Wait() {
	for len(l.list) > 0 {
		done := <-l.done
		delete(l.list, done.Session)
	}
}

// Hold adds the messages that are in lanes to messages.
func (l *Lanes) Hold(messages map[int64]bool) {
	for _, lane := range l.list {
		messages[lane.command.Seq] = true
		for _, q := range lane.waiting {
			messages[q.Message.Seq] = true
		}
	}
}
