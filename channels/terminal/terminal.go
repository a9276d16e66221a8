// Package terminal lets the person at the machine talk to the agent.
//
// A [Channel] is one conversation that any number of screens show: the screen of the gateway
// itself, if it runs on a terminal, and those of "gateway chat", which connect through a Unix
// socket in the gateway's home. [Screen.Chat] is the other end for both. A person who can open the
// socket is the owner, so only the gateway's user may enter its folder.
//
// The package owns no tables.
package terminal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/terminal/screen"
)

// Sender is the platform id of the person at the terminal, and MainChat that of the conversation.
const (
	Sender   = "local"
	MainChat = "main"
)

// A frame is one line of JSON on a connection.
type frame struct {
	// ID identifies a message. Screens choose the ids of their messages, the gateway those of its
	// own.
	ID string `json:"id"`
	// From a screen: the text of a message. To a screen: the current text of the message ID.
	Text string `json:"text,omitempty"`
	// To a screen: its message ID is stored in the inbox.
	Stored bool `json:"taken,omitempty"`
	// To a screen: the message ID is complete, and so are its earlier parts, Parts. It answers the
	// messages Answers.
	Done    bool     `json:"done,omitempty"`
	Parts   []string `json:"parts,omitempty"`
	Answers []string `json:"answers,omitempty"`
	// To a screen: Text is a message from another screen.
	Said bool `json:"said,omitempty"`
	// From a screen: Text is not a command, even if it begins with a slash.
	Literal bool `json:"literal,omitempty"`
	// To a screen: the buttons below the message ID.
	Buttons []screen.Button `json:"buttons,omitempty"`

	// From a screen: a request, wantState or wantFiles, with Text as its argument. To a screen: the
	// answer.
	Request string        `json:"want,omitempty"`
	State   *screen.State `json:"state,omitempty"`
	Files   []string      `json:"files,omitempty"`
}

// Requests of a screen.
const (
	wantState = "state"
	wantFiles = "files" // files whose names begin with Text
)

// A State is what a screen shows of the gateway. The other types are its parts.
type (
	State    = screen.State
	Account  = screen.Account
	Stranger = screen.Stranger
	Command  = screen.Command
)

// A Host gives screens information about the gateway. Its methods must be safe for concurrent use.
type Host interface {
	// State describes the gateway and the conversation at the terminal.
	State(ctx context.Context) (*State, error)

	// Files returns the names of files that begin with prefix and that a message can mention.
	Files(prefix string) []string
}

// maxText is the maximum length of a message from a screen, and maxLine that of a frame, in bytes.
// JSON may need six bytes for one.
const (
	maxText = screen.MaxText
	maxLine = 8 * maxText
)

// errNotAttached reports that no screen is left because the gateway is stopping.
var errNotAttached = errors.New("no terminal is attached")

// A Channel is the conversation at the terminal.
type Channel struct {
	name    string
	socket  string
	history string
	log     *slog.Logger
	local   chan net.Conn // screens in this process
	done    chan struct{} // closed when no further screen can connect

	mu      sync.Mutex
	host    Host // nil before SetHost
	screens map[net.Conn]bool
	changed chan struct{} // closed and replaced when a screen connects
}

var (
	_ channels.Channel  = (*Channel)(nil)
	_ channels.Editor   = (*Channel)(nil)
	_ channels.Finisher = (*Channel)(nil)
	_ channels.Limiter  = (*Channel)(nil)
)

// Options are the optional settings of a [Channel]. The zero value is ready for use.
type Options struct {
	Socket  string       // path of the Unix socket; default none
	History string       // path of the file in which screens store what was typed; default none
	Logger  *slog.Logger // default discards
}

// Erase implements [channels.Eraser]: a terminal has one chat.
func (c *Channel) Erase(context.Context, []string) error {
	if c.history == "" {
		return nil
	}
	if err := os.Remove(c.history); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("terminal: erase history: %w", err)
	}
	return nil
}

// New returns a Channel. name is the account's name in the gateway. If opts is nil, it uses the
// defaults.
func New(name string, opts *Options) *Channel {
	o := *cmp.Or(opts, new(Options))
	return &Channel{
		name: name, socket: o.Socket, history: o.History,
		log:     cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		local:   make(chan net.Conn),
		done:    make(chan struct{}),
		screens: make(map[net.Conn]bool),
		changed: make(chan struct{}),
	}
}

// SetHost sets the Host of the screens.
func (c *Channel) SetHost(h Host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.host = h
}

// Dial connects a screen in this process. Run must be running.
func (c *Channel) Dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case c.local <- there:
		return here, nil
	case <-c.done:
		return nil, errNotAttached
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Run implements [channels.Channel]. It ends only when ctx is done, because the gateway is
// stopping, and must be called only once. If the socket can't be opened, the gateway's own chat
// continues. Screens that are connected when ctx is done still get later messages.
func (c *Channel) Run(ctx context.Context, in channels.Intake) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	// Deferred calls run in reverse order: no screen can connect any more, the last messages are
	// sent, the screens are disconnected, and their goroutines end.
	defer c.end()
	defer func() { <-in.Flushed() }()
	defer close(c.done)
	in.Report(channels.Connected, "listening")
	serve := func(conn net.Conn) { wg.Go(func() { c.serve(ctx, in, conn) }) }
	if c.socket != "" {
		l, err := listen(ctx, c.socket)
		if err != nil {
			c.log.ErrorContext(ctx, "gateway chat can't reach this gateway", "err", err)
		} else {
			defer l.Close()
			wg.Go(func() { c.accept(ctx, l, serve) })
		}
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case conn := <-c.local:
			serve(conn)
		}
	}
}

// acceptPause is the pause after an error such as a shortage of file descriptors.
const acceptPause = time.Second

// accept serves the screens that connect to l until ctx is done.
func (c *Channel) accept(ctx context.Context, l net.Listener, serve func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err == nil {
			serve(conn)
			continue
		}
		if ctx.Err() == nil {
			c.log.ErrorContext(ctx, "no screen accepted", "err", err)
		}
		if !channels.Sleep(ctx, acceptPause) {
			return
		}
	}
}

// listen opens the socket. It removes an earlier process's socket: the lock of the store proves
// that the process is gone.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// end disconnects all screens.
func (c *Channel) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.screens {
		conn.Close()
	}
}

// attach adds a screen.
func (c *Channel) attach(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.screens[conn] = true
	close(c.changed)
	c.changed = make(chan struct{})
}

// detach removes a screen and closes its connection.
func (c *Channel) detach(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.screens, conn)
	conn.Close()
}

// serve handles the messages of one screen until it disconnects or ctx is done. In the latter case
// the screen stays connected as long as messages are sent.
func (c *Channel) serve(ctx context.Context, in channels.Intake, conn net.Conn) {
	defer context.AfterFunc(ctx, func() {
		if conn.SetReadDeadline(time.Now()) != nil {
			conn.Close()
		}
	})()
	c.attach(conn)
	defer c.detach(conn)
	defer func() {
		if ctx.Err() != nil {
			<-in.Flushed()
		}
	}()
	lines := newLines(conn)
	for lines.Scan() {
		var f frame
		err := json.Unmarshal(lines.Bytes(), &f)
		switch {
		case err == nil && f.Request != "":
			err = c.answer(ctx, conn, f)
		case err != nil || f.ID == "" || f.Text == "" || len(f.Text) > maxText:
			c.log.WarnContext(ctx, "terminal sent a line that is not a message", "err", err)
			return
		default:
			err = c.publish(ctx, in, conn, f)
		}
		if err != nil {
			return // the screen sees that nothing was stored
		}
	}
}

// publish stores a message of a screen and shows it on the others.
func (c *Channel) publish(ctx context.Context, in channels.Intake, conn net.Conn, f frame) error {
	m := bus.InboundMessage{
		ID: f.ID, From: bus.Address{Account: c.name, Chat: MainChat}, Literal: f.Literal,
		Sender: bus.Sender{ID: Sender}, Text: f.Text, Time: time.Now(), Addressed: true,
	}
	err := in.Publish(ctx, channels.Batch{Messages: []bus.InboundMessage{m}})
	if err != nil {
		c.log.ErrorContext(ctx, "message could not be stored", "err", err)
		return err
	}
	if err := write(conn, frame{ID: f.ID, Stored: true}); err != nil {
		return err
	}
	c.show(frame{ID: f.ID, Text: f.Text, Said: true}, conn)
	return nil
}

// answer answers a request of a screen. If it fails, the screen asks again soon.
func (c *Channel) answer(ctx context.Context, conn net.Conn, f frame) error {
	c.mu.Lock()
	host := c.host
	c.mu.Unlock()
	if host == nil {
		return nil
	}
	answer := frame{Request: f.Request, Text: f.Text}
	switch f.Request {
	case wantState:
		state, err := host.State(ctx)
		if err != nil {
			c.log.WarnContext(ctx, "a screen can't be told about the gateway", "err", err)
			return nil
		}
		answer.State = state
	case wantFiles:
		answer.Files = host.Files(f.Text)
	}
	return write(conn, answer)
}

// writeTime is how long a screen may take to accept a frame before it is disconnected.
const writeTime = 10 * time.Second

// write writes a frame. Concurrent writes to a connection don't mix: the connection writes each
// line whole.
func write(conn net.Conn, f frame) error {
	line, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	_, err = conn.Write(append(line, '\n'))
	return err
}

// Send implements [channels.Channel]. It waits until a screen is connected.
func (c *Channel) Send(ctx context.Context, part bus.Part) (string, error) {
	var buttons []screen.Button
	for _, b := range part.Buttons {
		buttons = append(buttons, screen.Button(b))
	}
	for {
		c.mu.Lock()
		// It is taken before the attempt, so that no screen that connects meanwhile is missed.
		changed := c.changed
		c.mu.Unlock()
		if c.show(frame{ID: part.Key, Text: part.Text, Buttons: buttons}, nil) {
			return part.Key, nil
		}
		select {
		case <-changed:
		case <-c.done:
			return "", fmt.Errorf("terminal: send: %w", errNotAttached)
		case <-ctx.Done():
			return "", fmt.Errorf("terminal: send: %w", ctx.Err())
		}
	}
}

// Edit implements [channels.Editor].
func (c *Channel) Edit(_ context.Context, _ bus.Address, id, text string) error {
	if !c.show(frame{ID: id, Text: text}, nil) {
		// The screen with the beginning is gone: the next one gets the whole text.
		return fmt.Errorf("terminal: edit: %w: %w", channels.ErrRefused, errNotAttached)
	}
	return nil
}

// Finish implements [channels.Finisher].
func (c *Channel) Finish(_ context.Context, _ bus.Address, ids, answers []string) {
	last := len(ids) - 1
	c.show(frame{ID: ids[last], Done: true, Parts: ids[:last], Answers: answers}, nil)
}

// show writes f to all screens but one, and reports whether any screen got it. A slow screen does
// not delay the others.
func (c *Channel) show(f frame, but net.Conn) bool {
	c.mu.Lock()
	screens := slices.Collect(maps.Keys(c.screens))
	c.mu.Unlock()
	var shown atomic.Bool
	var wg sync.WaitGroup
	for _, conn := range screens {
		if conn == but {
			continue
		}
		wg.Go(func() {
			if err := write(conn, f); err != nil {
				conn.Close() // ends its reader
				return
			}
			shown.Store(true)
		})
	}
	wg.Wait()
	return shown.Load()
}

// editInterval makes an answer flow without a write for each word.
const editInterval = 40 * time.Millisecond

// Limits implements [channels.Limiter].
func (c *Channel) Limits(bus.Address) channels.Limits {
	return channels.Limits{EditInterval: editInterval, Buttons: screen.MaxButtons}
}
