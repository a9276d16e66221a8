package command

import (
	"context"
	"slices"

	"gateway/bus"
	"gateway/session"
)

// Each command runs on its own goroutine, and so does the transcription of a voice message.
// Messages that arrive meanwhile for the same conversation, its sub-agents or its jobs wait in a
// lane. This keeps the order within a conversation, and no other conversation waits.

// A lane is a conversation in which a command runs or a voice message is transcribed. Only the
// dispatching goroutine uses lanes.
type lane struct {
	first   bus.Received // the command or the voice message
	waiting []Queued     // messages that arrived after it
	cancel  func()       // ends the transcription of the voice message; nil for a command
}

// A Queued is a message in a lane, with the maximum number of messages that may wait in its
// session.
type Queued struct {
	Message bus.Received
	Bound   int
}

// A Done is a finished command or a transcribed voice message.
type Done struct {
	Session session.Key
	Heard   []Queued // the voice message, if it must be handed out
	Err     error    // the store is lost
}

// The maximum number of commands that run at once, and of voice messages. Further ones wait.
const (
	maxCommands = 64
	maxHearings = 64
)

// Lanes holds the conversations in which a command runs or a voice message is transcribed. Only the
// dispatching goroutine uses it.
type Lanes struct {
	list     map[session.Key]*lane
	done     chan Done
	commands chan struct{} // each running command holds a slot
	hearings chan struct{} // so does each voice message
}

// NewLanes returns Lanes without commands.
func NewLanes() Lanes {
	return Lanes{make(map[session.Key]*lane), make(chan Done), make(chan struct{}, maxCommands),
		make(chan struct{}, maxHearings)}
}

// Done returns a channel of finished commands. For each of them [Lanes.Leave] must be called.
func (l *Lanes) Done() <-chan Done { return l.done }

// Enter opens a lane and answers a command in it by calling run on a new goroutine.
func (l *Lanes) Enter(key session.Key, r bus.Received, run func() error) {
	if l.list[key] != nil { // the command does not wait: see Join
		key = key.OfTask(r.Message.ID)
	}
	l.list[key] = &lane{first: r}
	go func() { // Lanes.Wait waits for it
		l.commands <- struct{}{}
		err := run()
		<-l.commands
		l.done <- Done{key, nil, err}
	}()
}

// Hear opens a lane and calls hear on a new goroutine, to transcribe a voice message. hear returns
// the message to hand out when the lane closes, or nil. Its context ends with ctx. It also ends
// when somebody in the conversation writes a command that stops work, so that such a command does
// not wait for a slow transcription service. For an overheard message, which may not be for the
// agent, only its sender and admins can do that.
func (l *Lanes) Hear(
	ctx context.Context, key session.Key, q Queued,
	hear func(reading context.Context) (*bus.Received, error),
) {
	reading, cancel := context.WithCancel(ctx)
	l.list[key] = &lane{first: q.Message, cancel: cancel}
	go func() { // Lanes.Wait waits for it
		defer cancel()
		release := func() {}
		select {
		case l.hearings <- struct{}{}:
			release = func() { <-l.hearings }
		case <-reading.Done():
		}
		heard, err := hear(reading)
		release()
		done := Done{Session: key, Err: err}
		if heard != nil {
			done.Heard = []Queued{{*heard, q.Bound}}
		}
		l.done <- done
	}()
}

// Join makes q, a message for a session of the conversation key, wait in its lane. It reports false
// if there is no such lane. A session that works for a whole chat also waits for a command that was
// sent in that chat but belongs to another conversation: see [bus.SessionScope]. A command that
// stops work does not wait for an overheard voice message of somebody else, unless its sender has
// written something before it that waits.
func (l *Lanes) Join(key session.Key, q Queued) bool {
	found, ok := l.list[key]
	for _, lane := range l.list {
		if !ok && session.KeyOf(lane.first.Message.From) == key {
			found, ok = lane, true
		}
	}
	if ok && found.cancelledBy(q.Message.Message) {
		found.cancel()
	} else if ok && found.passedBy(q.Message.Message) {
		return false
	}
	if ok {
		found.waiting = append(found.waiting, q)
	}
	return ok
}

// cancelledBy reports whether m ends the transcription of the lane's voice message.
func (l *lane) cancelledBy(m bus.InboundMessage) bool {
	note := l.first.Message
	return l.cancel != nil && stopsWork(m) && (note.VoiceState != bus.Overheard ||
		m.Role.AtLeast(bus.Admin) || m.From.Account == note.From.Account && m.Sender.ID == note.Sender.ID)
}

// passedBy reports whether m need not wait for the lane's voice message, which somebody else has
// sent and which may not be for the agent.
func (l *lane) passedBy(m bus.InboundMessage) bool {
	return l.cancel != nil && stopsWork(m) && !slices.ContainsFunc(l.waiting, func(q Queued) bool {
		return q.Message.Message.Sender.ID == m.Sender.ID
	})
}

// stopsWork reports whether m is a written command that stops running work.
func stopsWork(m bus.InboundMessage) bool {
	name, _ := Parse(m)
	return name == "stop" || name == "halt"
}

// Leave closes the lane of a finished command or voice message. It returns the messages to hand
// out: the voice message, and those that waited in the lane.
func (l *Lanes) Leave(done Done) []Queued {
	waiting := l.list[done.Session].waiting
	delete(l.list, done.Session)
	return append(done.Heard, waiting...)
}

// Wait waits for what runs in lanes. Commands that have not started are left to the next process.
func (l *Lanes) Wait() {
	for len(l.list) > 0 {
		done := <-l.done
		delete(l.list, done.Session)
	}
}

// Hold adds the messages that are in lanes to messages.
func (l *Lanes) Hold(messages map[int64]bool) {
	for _, lane := range l.list {
		messages[lane.first.Seq] = true
		for _, q := range lane.waiting {
			messages[q.Message.Seq] = true
		}
	}
}
