package channels

import (
	"context"
	"errors"
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
	Run(ctx context.Context, in Intake) error

	// Send delivers one part and returns the platform's id for it. It may be
	// called concurrently with itself and with Run. It reports ErrRefused (it will
	// never be taken), *RateError (wait so long), ErrUncertain (it may have been
	// delivered) or any other error (it was not delivered; try again).
	Send(ctx context.Context, part bus.Part) (id string, err error)
}

// An Intake takes what one channel receives. Its methods may be called concurrently.
type Intake interface {
	// Cursor returns the cursor of the last batch that was stored, or "".
	Cursor(ctx context.Context) (string, error)

	// Publish stores a batch in one transaction. Only when it has returned nil
	// may the channel acknowledge the batch to the platform. A batch that was
	// stored before is taken again without effect.
	Publish(ctx context.Context, b Batch) error
}

// A Batch is what a platform delivered at once.
type Batch struct {
	Messages []bus.InboundMessage // in the platform's order; may be empty

	// Cursor is the channel's place in the platform's stream after this batch,
	// in a form of its own; "" leaves the stored one as it is.
	Cursor string
}

// An Editor is a [Channel] that can replace the text of a message it sent.
type Editor interface {
	// Edit replaces the text (Markdown) of the message that Send named id.
	// Setting the text it already has is no error. It reports ErrRefused when the message
	// can't be edited (any more), *RateError or any other error like Send.
	Edit(ctx context.Context, to bus.Address, id, text string) error
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

// A Typer is a [Channel] that can show that an answer is on its way.
type Typer interface {
	// Type shows the indicator for some seconds; the caller repeats it every four.
	Type(ctx context.Context, to bus.Address) error
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

// Limits are what a platform documents for sending to one conversation.
type Limits struct {
	// Text is the longest text of one part in the units of Measure; 0 means any length.
	Text    int
	Measure func(markdown string) int

	// EditInterval is the shortest time between two edits of a message that is being streamed.
	EditInterval time.Duration

	Chat    Rate // messages to this chat, all threads together
	Account Rate // messages of the account, all chats together
}

// A Rate is a token bucket; the zero Rate means no limit.
type Rate struct {
	Every time.Duration // time between two messages in the long run
	Burst int           // messages that may go at once
}

// ErrRefused reports that a platform will never take this message. It is not retried.
var ErrRefused = errors.New("refused by platform")

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
}

func (e *AccountError) Error() string { return e.Reason }
