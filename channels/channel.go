// Package channels defines the contract between the gateway and the chat platforms.
//
// A [Channel] is one account on one platform. Its package only translates between the two. Optional
// interfaces such as [Editor] say what a platform can do besides sending text. The packages below
// do everything that is the same for all platforms: gate decides which messages get into the inbox,
// router sends the outbox to the platforms in order and exactly once, supervisor keeps a channel
// running, and media stores received and sent files.
package channels

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"gateway/bus"
)

// A Channel is one account on one chat platform. It only translates: the gateway does admission,
// splitting, retries and ordering.
type Channel interface {
	// Run connects and passes received messages to in, until ctx is done or the platform refuses
	// the account (*AccountError). It returns after all goroutines that it started have ended.
	// After any other error it is called again, so it may simply return during an outage of the
	// platform.
	//
	// When ctx is done, Run stops receiving: it publishes and acknowledges nothing more. Send must
	// work until in.Flushed is closed. A channel whose Send needs Run's connection keeps the
	// connection until then; other channels return immediately.
	Run(ctx context.Context, in Intake) error

	// Send delivers one part and returns the platform's id of the message. It may be called
	// concurrently with itself and with Run. Its error is ErrRefused if the platform will never
	// accept the part, a *RateError if the caller must wait, ErrUncertain if the part may have been
	// delivered and would be shown again, and any other error if it can be sent again.
	Send(ctx context.Context, part bus.Part) (id string, err error)
}

// A channel passes received messages to an Intake and reports its state to it. The methods of an
// Intake are safe for concurrent use.
type Intake interface {
	Publisher

	// Report sets the state of the channel. text describes the connection in a few words for the
	// people who run the gateway, for example "connected as @bot". The state is valid until the
	// next report or the end of Run.
	Report(state State, text string)

	// Flushed returns a channel that is closed after Run's context is done and the last message was
	// sent.
	Flushed() <-chan struct{}
}

// A State says whether a channel receives messages.
type State int

// The states of a channel.
const (
	Disconnected State = iota // it receives nothing now and reconnects by itself
	Connected                 // it receives messages
	Refused                   // it receives nothing until a person acts
)

// A Publisher stores received messages. Its methods are safe for concurrent use.
type Publisher interface {
	// Identify tells which of the platform's accounts the channel is, by the platform's id. A
	// channel calls it before Cursors, as soon as it knows the id. If the account was another one
	// before, for example because of another token, the cursor with the key "" is deleted, and
	// message ids of the earlier account may occur again.
	Identify(ctx context.Context, id string) error

	// Cursors returns the stored cursors by key.
	Cursors(ctx context.Context) (map[string]string, error)

	// Recover calls f, which handles one update from the platform. If f panics, Recover logs and
	// counts the panic and returns false, and the channel continues without the update. Otherwise the
	// platform would deliver the update again and crash the next process, too.
	Recover(ctx context.Context, f func()) bool

	// Publish stores a batch in one transaction. Only after it has returned nil may the channel
	// acknowledge the batch to the platform. A batch that was stored before may be published again
	// and has no effect. If no message of a batch is admitted, its cursor need not be stored.
	Publish(ctx context.Context, b Batch) error
}

// A Batch has the messages that a platform delivered at once.
type Batch struct {
	Messages []bus.InboundMessage // in the platform's order; may be empty

	// Cursor is the channel's read position after this batch, in a form of its own; "" leaves the
	// stored cursor unchanged. CursorKey distinguishes several cursors, such as one for each chat.
	Cursor    string
	CursorKey string

	// Keep stores Cursor even if no message is admitted.
	Keep bool

	// Forget deletes the stored cursor, for example because its chat is gone. If Cursor is not "",
	// Forget deletes no other cursor.
	Forget bool

	// Hold stores the messages, but the agent does not get them before a later batch releases them:
	// an earlier message of their sender is still to come.
	Hold bool

	// Release, if not nil, gets the held messages of the account in the order in which they came,
	// those of this batch included. It returns those that the agent gets now, in their order.
	Release func(held []bus.InboundMessage) []bus.InboundMessage

	// Migrated maps the new id of each group that has changed its id to the old one.
	Migrated map[string]string

	// Joined has a message without ID and Text for each group that the account was added to. Its
	// Sender is the person who added it.
	Joined []bus.InboundMessage

	// Unanswered, if not nil, is called before Publish returns nil, for each message that gets no
	// answer and no notice in the chat. It gets the message's ID and a text that only the sender
	// may see.
	Unanswered func(id, text string)
}

// An Editor is a [Channel] that can edit the text of a message that it has sent.
type Editor interface {
	// Edit replaces the text (Markdown) of the message with the id that Send returned. Setting the
	// same text again is not an error. It reports ErrRefused if the message can't be edited (any
	// more), and otherwise errors like Send.
	Edit(ctx context.Context, to bus.Address, id, text string) error
}

// A Finder is a [Channel] whose platform recognises idempotency keys only for a limited time.
type Finder interface {
	// Find looks for the message that an earlier Send of part may have created, and returns its id,
	// or "" if there is none. The message is newer than all messages in known. If known is empty,
	// it is not older than since.
	Find(ctx context.Context, part bus.Part, known []string, since time.Time) (id string, err error)

	// KeyTime is the minimum time for which the platform recognises a key.
	KeyTime() time.Duration
}

// A Drafter is a [Channel] that can show an answer while it is written, without sending it.
type Drafter interface {
	// Draft shows text (Markdown, within the limits of a part) as a draft in the conversation. It
	// replaces the previous draft of the same stream and disappears when the answer is sent. It
	// reports ErrRefused if drafts are not possible here (the caller then uses edits), and
	// otherwise errors like Send.
	Draft(ctx context.Context, to bus.Address, stream, text string) error
}

// A Remover is a [Channel] that can delete a message that it has sent.
type Remover interface {
	// Remove deletes the message with the id that Send returned. It reports ErrRefused if that is
	// not possible (any more), and otherwise errors like Send.
	Remove(ctx context.Context, to bus.Address, id string) error
}

// A Leaver is a [Channel] whose account can leave groups.
type Leaver interface {
	// Leave makes the account leave the group with the platform's id, or the server with that ID if
	// the channel is a ServerFinder. It returns nil once the account is certainly not a member, even
	// if it was not one before. So it may be called again after any error, which is like those of
	// Send.
	Leave(ctx context.Context, id string) error
}

// A ServerFinder is a [Leaver] whose groups belong to servers. An account can only leave a whole
// server.
type ServerFinder interface {
	Leaver

	// Server returns the server of a group. It reports ErrRefused if the account has no access to
	// the group, and otherwise errors like Send.
	Server(ctx context.Context, group string) (Server, error)
}

// A Server is a set of groups that an account can only leave together.
type Server struct {
	ID     string            // platform's id
	Name   string            // untrusted text
	Groups map[string]string // names of its groups, by id; untrusted text
}

// A Finisher is a [Channel] that can show that a message is complete.
type Finisher interface {
	// Finish marks a message as complete, because it was delivered or its answer was stopped. ids
	// are the results of Send for its parts, and answers are the messages that it answers. Finish
	// is called at most once for a message. For a delivered message it is called before anything
	// else is sent to the conversation.
	Finish(ctx context.Context, to bus.Address, ids, answers []string)
}

// An Addresser is a [Channel] that can check the form of an address.
type Addresser interface {
	// Address returns the address of the chat that a person has typed. Its error explains the form
	// of an address.
	Address(chat string) (string, error)
}

// A Deduplicator is a [Channel] that shows a message once, however often and however late it is
// sent again with the same [bus.Part.Key]. Uncertain outcomes are harmless there.
type Deduplicator interface {
	// Deduplicates does nothing. It marks the channel.
	Deduplicates()
}

// A Typer is a [Channel] that can show a typing indicator.
type Typer interface {
	// Type shows the indicator for some seconds. The caller calls it again every four seconds.
	Type(ctx context.Context, to bus.Address) error
}

// A Fetcher is a [Channel] whose messages may have attachments.
type Fetcher interface {
	// Fetch writes the file with an attachment's Ref to w. It reports ErrRefused if the platform
	// does not have the file (any more), and ErrDamaged if the file differs from the one that was
	// sent. After any other error it may be called again.
	Fetch(ctx context.Context, ref string, w io.Writer) error
}

// A Reactor is a [Channel] that can put an emoji on a person's message.
type Reactor interface {
	// React sets our emoji on the message with the platform's id, replacing an earlier one; ""
	// removes it.
	React(ctx context.Context, to bus.Address, id, emoji string) error
}

// A Reader is a [Channel] with read receipts.
type Reader interface {
	// MarkRead marks messages of one conversation as read, for their senders.
	MarkRead(ctx context.Context, to bus.Address, ids []string) error
}

// A Pairer is a [Channel] whose account a person links with a phone.
type Pairer interface {
	// Pair links the account. It must not be called while Run runs. With a phone number (digits
	// with the country code) the person types a code into the phone. Without one the phone scans a
	// QR code. Codes expire, so Pair may call show several times, each time with a new code. show
	// must not block.
	Pair(ctx context.Context, phone string, show func(PairingCode)) error
}

// A PairingCode is a step of linking an account. One of the texts is set.
type PairingCode struct {
	QR    string // content of the QR code
	Phone string // code to type into the phone

	// Challenge is for the account's passkey: the options of a WebAuthn request, as JSON.
	Challenge string

	// Compare is a code that the phone shows, too. The person answers anything if it is the same.
	Compare string

	Expires time.Time

	// Answer passes on the person's answer to Challenge, which is the credential as JSON, or to
	// Compare. It returns an error for people if the text can't be the answer.
	Answer func(text string) error
}

// An Eraser is a [Channel] that stores data about people in files of its own.
type Eraser interface {
	// Erase deletes the data about chats, and about the people in direct chats, from all files of
	// the channel. It may be called while Run runs, and more than once. A person who writes
	// afterwards is treated as new.
	Erase(ctx context.Context, chats []string) error
}

// A Commander is a [Channel] with a native command menu.
type Commander interface {
	SetCommands(ctx context.Context, commands []Command) error
}

// A Command is an entry of a platform's command menu.
type Command struct {
	Name        string // without "/"; lower-case letters, digits and "_"
	Description string // one line
}

// A Limiter is a [Channel] whose platform limits messages. Other channels have no limits.
type Limiter interface {
	// Limits returns the limits for a conversation.
	Limits(to bus.Address) Limits
}

// A Pacer is a [Channel] whose platform announces its current rate limits.
type Pacer interface {
	// Wait returns how long the platform will not accept a new message to a conversation.
	Wait(to bus.Address) time.Duration
}

// Limits are the documented limits of a platform for sending to one conversation.
type Limits struct {
	// Text is the maximum length of one part's text in units of Measure; 0: no limit.
	Text    int
	Measure func(markdown string) int

	// Render converts Markdown into the text that the platform gets. An edit that does not change
	// the result is skipped. The default returns the Markdown itself.
	Render func(markdown string) string

	Caption int   // like Text, for a part with a file; 0: such a part has no text
	File    int64 // maximum size of a file in bytes; 0: files can't be sent
	Buttons int   // maximum number of buttons of a message

	// PerThread says that each thread of a chat has its own limits.
	PerThread bool

	// EditInterval is the minimum time between two edits of a growing message.
	EditInterval time.Duration

	Chat    Rate // messages to this chat, with all its threads unless PerThread
	Account Rate // messages of the account to all chats
}

// A Rate is a token bucket. The zero Rate means no limit.
type Rate struct {
	Every time.Duration // average time between two messages
	Burst int           // maximum number of messages at once
}

// ErrRefused reports that a platform will never accept a message or a call. It is not retried.
var ErrRefused = errors.New("refused by platform")

// ErrDamaged reports a file that differs from the one that was sent. It is not fetched again.
var ErrDamaged = fmt.Errorf("%w: the file is damaged", ErrRefused)

// ErrUncertain reports that a request failed after the platform may have executed it. It is counted
// and retried with the same [bus.Part.Key].
var ErrUncertain = errors.New("outcome unknown")

// A RateError reports that the platform has asked us to wait.
type RateError struct {
	After   time.Duration
	Account bool // the whole account must wait, not only this chat
}

func (e *RateError) Error() string { return "rate limited for " + e.After.String() }

// An AccountError reports that the platform refuses the account until a person acts.
type AccountError struct {
	Reason string // one or two sentences: what happened, and what to do

	// Final says that automatic retries would do harm. Only a restart of the gateway tries again.
	Final bool
}

func (e *AccountError) Error() string { return e.Reason }
