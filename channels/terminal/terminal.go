// Package terminal lets the person at the machine talk to the agent.
//
// A [Channel] is one conversation that any number of screens show: that of the
// gateway itself, if it runs on a terminal, and those of "gateway chat", which come through a
// Unix socket in the gateway's home. [Chat] is the other end, the same for both. Who can
// open the socket is the owner; its folder is closed to others.
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

// Sender is the platform id of the person at the terminal, and MainChat the conversation.
const (
	Sender   = "local"
	MainChat = "main"
)

// A frame is what goes over a connection, a line of JSON each.
type frame struct {
	// ID names a message: the screen's own ones by the screen, ours by us.
	ID string `json:"id"`
	// From a screen: the message. To it: the text that the message called ID has now.
	Text string `json:"text,omitempty"`
	// To a screen: the message of its own called ID is in the inbox.
	Taken bool `json:"taken,omitempty"`
	// To a screen: the message called ID is complete, and those called Parts, which are its earlier
	// parts. It answers those called Answers.
	Done    bool     `json:"done,omitempty"`
	Parts   []string `json:"parts,omitempty"`
	Answers []string `json:"answers,omitempty"`
	// To a screen: Text is what was said at another one.
	Said bool `json:"said,omitempty"`
	// From a screen: Text is not a command, whatever it begins with.
	Literal bool `json:"literal,omitempty"`
	// To a screen: what is below the message called ID.
	Buttons []screen.Button `json:"buttons,omitempty"`

	// From a screen: a question, wantState or wantFiles, which Text belongs to. To it: the answer.
	Want  string        `json:"want,omitempty"`
	State *screen.State `json:"state,omitempty"`
	Files []string      `json:"files,omitempty"`
}

// What a screen may ask for.
const (
	wantState = "state"
	wantFiles = "files" // those whose names begin with Text
)

// A State is what a screen shows of the gateway, and the others are its parts.
type (
	State    = screen.State
	Account  = screen.Account
	Stranger = screen.Stranger
	Command  = screen.Command
)

// A Host tells screens about the gateway. Its methods may be called concurrently.
type Host interface {
	// State describes the gateway and the conversation at the terminal.
	State(ctx context.Context) (*State, error)

	// Files returns the names of files that a message can mention, which begin with prefix.
	Files(prefix string) []string
}

// maxText is the longest message from a screen, and maxLine the longest frame, in bytes. JSON may
// need six bytes for one.
const (
	maxText = screen.MaxText
	maxLine = 8 * maxText
)

// errNobody reports that no screen is there any more, because the gateway stops.
var errNobody = errors.New("no terminal is attached")

// A Channel is the conversation at the terminal.
type Channel struct {
	name    string
	socket  string
	history string
	log     *slog.Logger
	local   chan net.Conn // screens in this process
	done    chan struct{} // closed when no screen comes any more

	mu      sync.Mutex
	host    Host // nil until SetHost
	screens map[net.Conn]bool
	changed chan struct{} // closed, and made anew, when a screen comes
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
	History string       // path of the file in which screens keep what was typed; default none
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

// New returns a Channel known to the gateway as name. A nil opts means the defaults.
func New(name string, opts *Options) *Channel {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	return &Channel{
		name: name, socket: o.Socket, history: o.History,
		log:     cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		local:   make(chan net.Conn),
		done:    make(chan struct{}),
		screens: make(map[net.Conn]bool),
		changed: make(chan struct{}),
	}
}

// SetHost sets what tells screens about the gateway.
func (c *Channel) SetHost(h Host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.host = h
}

// Dial attaches a screen in this process, once Run is running.
func (c *Channel) Dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case c.local <- there:
		return here, nil
	case <-c.done:
		return nil, errNobody
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Run implements [channels.Channel]. It ends only with ctx, and is called once: the gateway stops
// with it. A socket that can't be opened is no reason to end the chat of the gateway itself. The
// screens that are there at the end of ctx are shown what still comes.
func (c *Channel) Run(ctx context.Context, in channels.Intake) error {
	var wg sync.WaitGroup
	defer wg.Wait()
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

// acceptPause is how long a shortage, such as of file descriptors, is given to pass.
const acceptPause = time.Second

// accept takes the screens that come through l until ctx ends.
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
		select {
		case <-ctx.Done():
			return
		case <-time.After(acceptPause):
		}
	}
}

// listen opens the socket. What an earlier process has left of it is removed: the
// store's lock says that that process is gone.
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

// end closes the screens that are there.
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

func (c *Channel) detach(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.screens, conn)
	conn.Close()
}

// serve takes the messages of one screen until it goes, or ctx ends. In that case the screen stays
// as long as something is sent.
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
		case err == nil && f.Want != "":
			err = c.tell(ctx, conn, f)
		case err != nil || f.ID == "" || f.Text == "" || len(f.Text) > maxText:
			c.log.WarnContext(ctx, "terminal sent a line that is no message", "err", err)
			return
		default:
			err = c.publish(ctx, in, conn, f)
		}
		if err != nil {
			return // the screen sees that nothing was taken
		}
	}
}

// publish stores a message of a screen, and shows it to the others.
func (c *Channel) publish(
	ctx context.Context, in channels.Intake, conn net.Conn, f frame,
) error {
	m := bus.InboundMessage{
		ID: f.ID, From: bus.Address{Account: c.name, Chat: MainChat}, Literal: f.Literal,
		Sender: bus.Sender{ID: Sender}, Text: f.Text, Time: time.Now(), Addressed: true,
	}
	err := in.Publish(ctx, channels.Batch{Messages: []bus.InboundMessage{m}})
	if err != nil {
		c.log.ErrorContext(ctx, "message not taken", "err", err)
		return err
	}
	if err := write(conn, frame{ID: f.ID, Taken: true}); err != nil {
		return err
	}
	c.show(frame{ID: f.ID, Text: f.Text, Said: true}, conn)
	return nil
}

// tell answers a question of a screen. What can't be told now is asked for again soon.
func (c *Channel) tell(ctx context.Context, conn net.Conn, f frame) error {
	c.mu.Lock()
	host := c.host
	c.mu.Unlock()
	if host == nil {
		return nil
	}
	answer := frame{Want: f.Want, Text: f.Text}
	switch f.Want {
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

// writeTime is how long a screen may take for a frame before it is given up.
const writeTime = 10 * time.Second

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

// Send implements [channels.Channel]. It waits until a screen is there.
func (c *Channel) Send(ctx context.Context, part bus.Part) (string, error) {
	var buttons []screen.Button
	for _, b := range part.Buttons {
		buttons = append(buttons, screen.Button(b))
	}
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if c.show(frame{ID: part.Key, Text: part.Text, Buttons: buttons}, nil) {
			return part.Key, nil
		}
		select {
		case <-changed:
		case <-c.done:
			return "", fmt.Errorf("terminal: send: %w", errNobody)
		case <-ctx.Done():
			return "", fmt.Errorf("terminal: send: %w", ctx.Err())
		}
	}
}

// Edit implements [channels.Editor].
func (c *Channel) Edit(_ context.Context, _ bus.Address, id, text string) error {
	if !c.show(frame{ID: id, Text: text}, nil) {
		// The screen that showed the beginning is gone: the text goes to the next one, whole.
		return fmt.Errorf("terminal: edit: %w: %w", channels.ErrRefused, errNobody)
	}
	return nil
}

// Finish implements [channels.Finisher].
func (c *Channel) Finish(_ context.Context, _ bus.Address, ids, answers []string) {
	last := len(ids) - 1
	c.show(frame{ID: ids[last], Done: true, Parts: ids[:last], Answers: answers}, nil)
}

// show writes f to all screens but one and reports whether some screen has it. One that is slow
// keeps no other waiting for it.
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
				conn.Close() // its reader ends with it
				return
			}
			shown.Store(true)
		})
	}
	wg.Wait()
	return shown.Load()
}

// editInterval lets an answer flow without a write for each of its words.
const editInterval = 40 * time.Millisecond

// Limits implements [channels.Limiter].
func (c *Channel) Limits(bus.Address) channels.Limits {
	return channels.Limits{EditInterval: editInterval, Buttons: screen.MaxButtons}
}
