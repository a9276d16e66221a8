// Package channels has the contract between the gateway and the chat platforms.
//
// A [Channel] is one account on one platform. Its package translates and does nothing else; what
// a platform can do besides sending text, its channel says by optional interfaces such as [Editor].
// What is the same for all platforms is done once, in the packages below: gate decides what gets
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

// A Channel is one account on one chat platform. It translates and nothing
// else: admission, splitting, retries and order are the gateway's.
type Channel interface {
	// Run connects and hands what it receives to in until ctx ends or the
	// platform refuses the account (*AccountError). It returns after every
	// goroutine that it started has ended. After any other error it is called again,
	// so a passing outage may simply be returned.
	//
	// The end of ctx ends receiving: nothing is published or acknowledged any more. Send must
	// work until in.Flushed is closed. A channel that can't send without Run keeps its
	// connection until then; the others return at once.
	Run(ctx context.Context, in Intake) error

	// Send delivers one part and returns the platform's id for it. It may be
	// called concurrently with itself and with Run. It reports ErrRefused (it will
	// never be taken), *RateError (wait so long), ErrUncertain (it may have been
	// delivered) or any other error (it was not delivered; try again).
	Send(ctx context.Context, part bus.Part) (id string, err error)
}

// An Intake takes what one channel receives. Its methods may be called concurrently.
type Intake interface {
	Publisher

	// Report says whether messages come in, and describes the connection in a few words for the
	// people who run the gateway: for example "connected as @bot". It holds until the next report or
	// the end of Run.
	Report(state State, text string)

	// Flushed returns a channel that is closed, after the end of Run's context, when nothing more
	// is sent.
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
	// Identify says which of the platform's accounts the channel is, by the platform's id, once it
	// knows that and before Cursors. If the account was another one before, with another token for
	// example, its cursor of the place "" is forgotten, and messages may have ids that messages to
	// the other one had.
	Identify(ctx context.Context, id string) error

	// Cursors returns the cursors that were stored, by place.
	Cursors(ctx context.Context) (map[string]string, error)

	// Try calls f, which works with one thing that the platform has delivered. If f panics, that is
	// logged and counted, and Try reports false: the channel goes on without it. Else it would be
	// delivered again to each process, and end it.
	Try(ctx context.Context, f func()) bool

	// Publish stores a batch in one transaction. Only when it has returned nil
	// may the channel acknowledge the batch to the platform. A batch that was
	// stored before is taken again without effect. Of a batch with nothing in it for this gateway
	// the cursor may be left out, too.
	Publish(ctx context.Context, b Batch) error
}

// A Batch is what a platform delivered at once.
type Batch struct {
	Messages []bus.InboundMessage // in the platform's order; may be empty

	// Cursor says how far the channel has read the platform's stream with this batch, in a form
	// of its own; "" leaves the stored one as it is. Place names the stream where the platform has
	// several, such as one a chat.
	Cursor string
	Place  string

	// Gone says that the platform has no such Place any more, or none for the account: its stored
	// cursor is forgotten. Cursor is "" then.
	Gone bool

	// Moved names the groups that go on under another id: the old one by the new one.
	Moved map[string]string

	// Unheard, if it is set, is called before Publish returns nil, for each message that nobody
	// will answer and whose sender is not told so: with its ID and what to say to the sender alone.
	Unheard func(id, say string)
}

// An Editor is a [Channel] that can replace the text of a message it sent.
type Editor interface {
	// Edit replaces the text (Markdown) of the message that Send named id.
	// Setting the text it already has is no error. It reports ErrRefused when the message
	// can't be edited (any more), *RateError or any other error like Send.
	Edit(ctx context.Context, to bus.Address, id, text string) error
}

// A Finder is a [Channel] whose platform knows a message by its key only for a time.
type Finder interface {
	// Find returns the platform's id of the message that Send has made of part after all messages
	// whose ids are known, or, if there are none, at a time or later; or "" if there is none.
	Find(ctx context.Context, part bus.Part, known []string, since time.Time) (id string, err error)

	// KeyTime is how long the platform knows a message by its key, at least.
	KeyTime() time.Duration
}

// A Drafter is a [Channel] that can show an answer while it is written, without sending it.
type Drafter interface {
	// Draft shows text (Markdown, within the limits of a part) as being written in the conversation,
	// in place of what the same stream has shown. It goes by itself when the answer is sent. It
	// reports ErrRefused where that is not possible (edits are used there), *RateError or any
	// other error like Send.
	Draft(ctx context.Context, to bus.Address, stream, text string) error
}

// A Remover is a [Channel] that can take back a message it sent.
type Remover interface {
	// Remove makes the message that Send named id disappear. It reports ErrRefused when that can't
	// be done (any more), *RateError or any other error like Send.
	Remove(ctx context.Context, to bus.Address, id string) error
}

// A Finisher is a [Channel] on which people see when a message is complete.
type Finisher interface {
	// Finish says that a message is complete, the last part of which Send named id: it was
	// delivered, or its answer was stopped. It is called once at most; if the message was delivered,
	// before anything else is sent to the conversation.
	Finish(ctx context.Context, to bus.Address, id string)
}

// An Addresser is a [Channel] that knows its addresses by their form.
type Addresser interface {
	// Address returns the address of the chat that a person means. An error says what an address
	// looks like.
	Address(chat string) (string, error)
}

// A Deduplicator is a [Channel] on which people see a message once that is sent again with the same
// [bus.Part.Key], however much later: the outcome of no try matters.
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
	// Fetch writes the file that an attachment's Ref names to w. It reports ErrRefused when the
	// platform does not have it (any more) and ErrDamaged when it is not the one that was sent; any
	// other error may pass.
	Fetch(ctx context.Context, ref string, w io.Writer) error
}

// A Reactor is a [Channel] that can put an emoji on a message of a person.
type Reactor interface {
	// React puts an emoji on the message that the platform names id, in place of an earlier one;
	// "" takes it away.
	React(ctx context.Context, to bus.Address, id, emoji string) error
}

// A Reader is a [Channel] on which people see what was read.
type Reader interface {
	// MarkRead shows the senders of messages, all of one conversation, that they were read.
	MarkRead(ctx context.Context, to bus.Address, ids []string) error
}

// A Pairer is a [Channel] whose account is linked by a person with a phone.
type Pairer interface {
	// Pair links the account and returns when that is done, or with an error that says why not.
	// It must not be called while Run runs. With a phone number (digits with the country's code)
	// the person types a code into the phone, else the phone reads a QR code; show is called with
	// each one, as the old ones expire.
	Pair(ctx context.Context, phone string, show func(PairingCode)) error
}

// A PairingCode links an account. It has one of QR and Phone.
type PairingCode struct {
	QR      string // content of the QR code
	Phone   string // what is to be typed into the phone
	Expires time.Time
}

// An Eraser is a [Channel] that keeps something of its own about people, beside the gateway's data.
type Eraser interface {
	// Erase deletes what the channel keeps about chats, and about the people behind direct ones,
	// from all of its files. Run may run or not. It may be called again. Who writes afterwards is
	// met anew.
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

// A Limiter is a [Channel] whose platform bounds what may be sent. The others have no bounds.
type Limiter interface {
	// Limits returns the bounds for the conversation to.
	Limits(to bus.Address) Limits
}

// A Pacer is a [Channel] whose platform says with its answers how much more it takes.
type Pacer interface {
	// Wait returns how long the platform takes no new message to a conversation.
	Wait(to bus.Address) time.Duration
}

// Limits are what a platform documents for sending to one conversation.
type Limits struct {
	// Text is the longest text of one part in the units of Measure; 0 means any length.
	Text    int
	Measure func(markdown string) int

	// Render returns what the platform gets for a text. An edit between two texts for which it is
	// the same changes nothing, and is not made; default the text itself.
	Render func(markdown string) string

	Caption int   // like Text, for the text of a part with a file; 0: such a part has no text
	File    int64 // largest file that can be sent, in bytes; 0: none can
	Buttons int   // most buttons of a message; 0: it has none

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

// ErrDamaged reports a file that is not the one that was sent. It is not fetched again.
var ErrDamaged = fmt.Errorf("%w: the file is damaged", ErrRefused)

// ErrUncertain reports that a request was lost after the platform may have
// executed it. It is tried again with the same [bus.Part.Key] and counted.
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

	// Final says that trying again by itself would do harm: only a new start of the gateway does.
	Final bool
}

func (e *AccountError) Error() string { return e.Reason }
