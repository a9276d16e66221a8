package command

import (
	"gateway/bus"
	"gateway/session"
)

// Commands run beside the goroutine that hands messages out, each on a goroutine of its own. What
// comes meanwhile in the same conversation, from its sub-agents and jobs as well, waits in a lane.
// So the order of the conversation stays, and no other conversation waits.

// A lane is a conversation with a command under way. Only the goroutine that hands messages out
// uses lanes.
type lane struct {
	command bus.Received
	waiting []Queued // what came after the command
}

// A Queued is a message that is handed out, and how many may wait in its session.
type Queued struct {
	Message bus.Received
	Bound   int
}

// A Done is a command that has ended.
type Done struct {
	Session session.Key
	Err     error // the store's loss
}

// maxCommands is how many commands run at once; the others wait for those.
const maxCommands = 64

// Lanes are the conversations with a command under way. Only the goroutine that hands messages out
// uses them.
type Lanes struct {
	list  map[session.Key]*lane
	done  chan Done
	slots chan struct{} // a command holds one
}

// NewLanes returns Lanes without a command.
func NewLanes() Lanes {
	return Lanes{make(map[session.Key]*lane), make(chan Done), make(chan struct{}, maxCommands)}
}

// Done yields the commands that have ended. For each [Lanes.Leave] must be called.
func (l *Lanes) Done() <-chan Done { return l.done }

// Enter has a command answered by run in a lane of its own.
func (l *Lanes) Enter(key session.Key, r bus.Received, run func() error) {
	l.list[key] = &lane{command: r}
	go func() { // Wait waits for it
		l.slots <- struct{}{}
		err := run()
		<-l.slots
		l.done <- Done{key, err}
	}()
}

// Join has q wait for the command in a lane. It reports false if there is none.
func (l *Lanes) Join(key session.Key, q Queued) bool {
	lane, ok := l.list[key]
	if ok {
		lane.waiting = append(lane.waiting, q)
	}
	return ok
}

// Leave ends the lane of a command that is done, and returns what waited in it.
func (l *Lanes) Leave(key session.Key) []Queued {
	waiting := l.list[key].waiting
	delete(l.list, key)
	return waiting
}

// Wait waits for the commands under way. It leaves those that have not begun to the next process.
func (l *Lanes) Wait() {
	for len(l.list) > 0 {
		done := <-l.done
		delete(l.list, done.Session)
	}
}

// Hold adds the messages that are in lanes.
func (l *Lanes) Hold(messages map[int64]bool) {
	for _, lane := range l.list {
		messages[lane.command.Seq] = true
		for _, q := range lane.waiting {
			messages[q.Message.Seq] = true
		}
	}
}
