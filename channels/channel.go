// Package channels has the contract between the gateway and the chat platforms.
//
// A [Channel] is one account on one platform. Its package translates and does nothing else.
// Optional interfaces such as [Editor] say what a platform can do besides sending text. Everything
// that is the same for all platforms is done once, in the packages below: gate decides what gets
// into the inbox, router brings the outbox to the platforms in order and exactly once, supervisor
// keeps a channel running, and media keeps the files that come and go.
package channels

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"gateway/bus"
)

// A Channel is one account on one chat platform. It only translates: admission, splitting, retries
// and order are done by the gateway.
type Channel interface {
	// Run connects and hands what it receives to in until ctx ends or the platform refuses the
	// account (*AccountError). It returns after every goroutine that it started has ended. After
	// any other error it is called again, so it may simply return when the platform has an outage.
	//
	// The end of ctx ends receiving: Run publishes and acknowledges nothing any more. Send must
	// work until in.Flushed is closed. A channel that can't send without Run keeps its connection
	// until then; the others return at once.
	Run(ctx context.Context, in Intake) error

	// Send delivers one part and returns the platform's id for it. It may be called concurrently
	// with itself and with Run. It reports ErrRefused (the platform will never take the part),
	// *RateError (wait so long), ErrUncertain (the part may have been delivered) or any other error
	// (the part was not delivered; try again).
	Send(ctx context.Context, part bus.Part) (id string, err error)
}

// An Intake is what a channel hands the messages to that it receives, and reports its state to. Its
// methods may be called concurrently.
type Intake interface {
	Publisher

	// Report says whether messages come in, and describes the connection in a few words for the
	// people who run the gateway: for example "connected as @bot". It holds until the next report
	// or the end of Run.
	Report(state State, text string)

	// Flushed returns a channel that is closed when nothing more is sent, which is after the end of
	// Run's context.
	Flushed() <-chan struct{}
}

// A State says whether a channel receives messages.
type State int

// The states of a channel.
const (
	Disconnected State = iota // it receives nothing now, and tries again by itself
	Connected                 // it receives messages
	Refused                   // it receives nothing until a person acts
)

// A Publisher stores what channels receive. Its methods may be called concurrently.
type Publisher interface {
	// Identify says which of the platform's accounts the channel is, by the platform's id. A
	// channel calls it as soon as it knows the id, and before Cursors. If the account was another
	// one before, for example with another token, the cursor with the key "" is forgotten, and
	// messages may have ids that messages to the other one had.
	Identify(ctx context.Context, id string) error

	// Cursors returns the stored cursors by their keys.
	Cursors(ctx context.Context) (map[string]string, error)

	// Try calls f, which works with one update that the platform has delivered. If f panics, Try
	// logs and counts that and reports false, and the channel goes on without the update.
	// Otherwise the platform would deliver it to the next process, too, and end that one as well.
	Try(ctx context.Context, f func()) bool

	// Publish stores a batch in one transaction. Only after it has returned nil may the channel
	// acknowledge the batch to the platform. A batch that was stored before may be published again
	// and has no effect. If no message of a batch is admitted, its cursor need not be stored.
	Publish(ctx context.Context, b Batch) error
}

// A Batch has the messages that a platform delivered at once.
type Batch struct {
	Messages []bus.InboundMessage // in the platform's order; may be empty

	// Cursor says how far the channel has read with this batch, in a form of its own; "" leaves
	// the stored cursor as it is. CursorKey tells the cursors apart where there are several, such
	// as one for each chat.
	Cursor    string
	CursorKey string

	// Forget deletes the stored cursor, because the chat it belongs to is gone or closed to the
	// account. Cursor is "" then.
	Forget bool

	// Migrated has the groups that got a new id: the old id by the new one.
	Migrated map[string]string

	// Joined has, for each group that the account was added to, a message without ID and Text whose
	// Sender has done that.
	Joined []bus.InboundMessage

	// Unanswered, if it is set, is called before Publish returns nil, for each message that gets
	// no answer and whose sender is not told so in the chat: with its ID and a text for the sender
	// alone.
	Unanswered func(id, text string)
}

// An Editor is a [Channel] that can replace the text of a message it sent.
type Editor interface {
	// Edit replaces the text (Markdown) of the message that Send named id.
	// Setting the text it already has is not an error. It reports ErrRefused when the message
	// can't be edited (any more), *RateError or any other error like Send.
	Edit(ctx context.Context, to bus.Address, id, text string) error
}

// A Finder is a [Channel] whose platform recognises the key of a message only for a time.
type Finder interface {
	// Find looks for the message that Send may have made of part, and returns the platform's id,
	// or "" if there is none. The message is newer than all those in known or, if known is empty,
	// not older than since.
	Find(ctx context.Context, part bus.Part, known []string, since time.Time) (id string, err error)

	// KeyTime is how long the platform recognises a key, at least.
	KeyTime() time.Duration
}

// A Drafter is a [Channel] that can show an answer while it is written, without sending it.
type Drafter interface {
	// Draft shows text (Markdown, within the limits of a part) as being written in the conversation.
	// It replaces the last draft of the same stream, and disappears when the answer is sent. It
	// reports ErrRefused where drafts are not possible (edits are used there), *RateError or any
	// other error like Send.
	Draft(ctx context.Context, to bus.Address, stream, text string) error
}

// A Remover is a [Channel] that can take back a message it sent.
type Remover interface {
	// Remove makes the message that Send named id disappear. It reports ErrRefused when that can't
	// be done (any more), *RateError or any other error like Send.
	Remove(ctx context.Context, to bus.Address, id string) error
}

// A Finisher is a [Channel] that shows when a message is complete.
type Finisher interface {
	// Finish says that a message is complete, because it was delivered or its answer was stopped.
	// ids are what Send returned for its parts, and answers the messages that it answers. Finish is
	// called at most once, and for a delivered message before anything else is sent to the
	// conversation.
	Finish(ctx context.Context, to bus.Address, ids, answers []string)
}

// An Addresser is a [Channel] whose addresses have a form that can be checked.
type Addresser interface {
	// Address returns the address of the chat that a person has typed. Its error says what an
	// address looks like.
	Address(chat string) (string, error)
}

// A Deduplicator is a [Channel] that shows a message once, however often and late it is sent again
// with the same [bus.Part.Key]. Uncertain outcomes don't matter there.
type Deduplicator interface {
	// Deduplicates marks the channel. It does nothing.
	Deduplicates()
}

// A Typer is a [Channel] that can show that an answer is on its way.
type Typer interface {
	// Type shows the indicator for some seconds; the caller repeats it every four.
	Type(ctx context.Context, to bus.Address) error
}

// A Fetcher is a [Channel] whose messages may have attachments.
type Fetcher interface {
	// Fetch writes the file that an attachment's Ref names to w. It reports ErrRefused if the
	// platform does not have the file (any more) and ErrDamaged if it differs from the one that
	// was sent. After any other error it may be called again.
	Fetch(ctx context.Context, ref string, w io.Writer) error
}

// A Reactor is a [Channel] that can put an emoji on a message of a person.
type Reactor interface {
	// React puts an emoji on the message that the platform names id and replaces an earlier one; ""
	// removes it.
	React(ctx context.Context, to bus.Address, id, emoji string) error
}

// A Reader is a [Channel] with read receipts.
type Reader interface {
	// MarkRead shows the senders of messages, all of one conversation, that they were read.
	MarkRead(ctx context.Context, to bus.Address, ids []string) error
}

// A Pairer is a [Channel] whose account is linked by a person with a phone.
type Pairer interface {
	// Pair links the account. It must not be called while Run runs. With a phone number (digits
	// with the country's code) the person types a code into the phone; without one the phone reads
	// a QR code. Codes expire, so show may be called several times, each time with a new one.
	Pair(ctx context.Context, phone string, show func(PairingCode)) error
}

// A PairingCode links an account. It has one of QR and Phone.
type PairingCode struct {
	QR      string // content of the QR code
	Phone   string // code to type into the phone
	Expires time.Time
}

// An Eraser is a [Channel] that keeps data about people in files of its own.
type Eraser interface {
	// Erase deletes the data about chats, and about the people of direct chats, from all of the
	// channel's files. It may be called while Run runs, and again. Somebody who writes afterwards
	// is treated as new.
	Erase(ctx context.Context, chats []string) error
}

// A Commander is a [Channel] that shows a native menu of commands.
type Commander interface {
	SetCommands(ctx context.Context, commands []Command) error
}

// A Command is an entry of a platform's command menu.
type Command struct {
	Name        string // without "/"; lower-case letters, digits and "_"
	Description string // one line
}

// A Limiter is a [Channel] whose platform limits what may be sent. Other channels have no limits.
type Limiter interface {
	// Limits returns the limits for the conversation to.
	Limits(to bus.Address) Limits
}

// A Pacer is a [Channel] whose platform announces its current rate limits.
type Pacer interface {
	// Wait returns how long the platform accepts no new message to a conversation.
	Wait(to bus.Address) time.Duration
}

// Limits are what a platform documents for sending to one conversation.
type Limits struct {
	// Text is the longest text of one part in the units of Measure; 0 means any length.
	Text    int
	Measure func(markdown string) int

	// Render returns what the platform gets for a text. An edit that does not change this is not
	// made. The default is the text itself.
	Render func(markdown string) string

	Caption int   // like Text, for a part with a file; 0 means that such a part has no text
	File    int64 // size of the largest file, in bytes; 0 means that files can't be sent
	Buttons int   // how many buttons a message may have

	// PerThread says that each thread of a chat has limits of its own.
	PerThread bool

	// EditInterval is the shortest time between two edits of a message that is being streamed.
	EditInterval time.Duration

	Chat    Rate // messages to this chat, all threads together unless PerThread
	Account Rate // messages of the account, all chats together
}

// A Rate is a token bucket; the zero Rate means no limit.
type Rate struct {
	Every time.Duration // time between two messages in the long run
	Burst int           // messages that may go at once
}

// ErrRefused reports that a platform will never take this message. It is not retried.
var ErrRefused = errors.New("refused by platform")

// ErrDamaged reports a file that differs from the one that was sent. It is not fetched again.
var ErrDamaged = fmt.Errorf("%w: the file is damaged", ErrRefused)

// ErrUncertain reports that a request was lost after the platform may have executed it. It is
// counted, and tried again with the same [bus.Part.Key].
var ErrUncertain = errors.New("outcome unknown")

// A RateError reports that the platform asked us to wait.
type RateError struct {
	After   time.Duration
	Account bool // the whole account must wait, not just this chat
}

func (e *RateError) Error() string { return "rate limited for " + e.After.String() }

// An AccountError reports that a platform refuses an account until a person acts.
type AccountError struct {
	Reason string // one or two sentences: what happened and what to do

	// Final says that automatic retries would do harm: only a new start of the gateway tries again.
	Final bool
}

func (e *AccountError) Error() string { return e.Reason }
