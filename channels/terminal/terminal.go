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
	"net"
	"os"
	"sync"
	"time"

	"gateway/bus"
	"gateway/channels"
)

// Sender is the platform id of the person at the terminal, and MainChat the conversation.
const (
	Sender   = "local"
	MainChat = "main"
)

// A frame is what goes over a connection, a line of JSON each.
type frame struct {
	// From a screen: a message. To it: what was written is durable.
	ID string `json:"id"`
	// From a screen: the message. To it: the text that the message called ID has now.
	Text string `json:"text,omitempty"`
	// To a screen: the message of its own called ID is in the inbox.
	Taken bool `json:"taken,omitempty"`
}

// maxLine is the longest message from a screen, in bytes.
const maxLine = 1 << 20

// errNobody reports that no screen is there any more, because the gateway stops.
var errNobody = errors.New("no terminal is attached")

// A Channel is the conversation at the terminal.
type Channel struct {
	name   string
	socket string
	log    *slog.Logger
	local  chan net.Conn // screens in this process
	done   chan struct{} // closed when Run has ended

	mu      sync.Mutex
	screens map[net.Conn]bool
	changed chan struct{} // closed, and made anew, when a screen comes
}

var (
	_ channels.Channel = (*Channel)(nil)
	_ channels.Editor  = (*Channel)(nil)
	_ channels.Limiter = (*Channel)(nil)
)

// Options are the optional settings of a [Channel]. The zero value is ready for use.
type Options struct {
	Socket string       // path of the Unix socket; default none
	Logger *slog.Logger // default discards
}

// New returns a Channel known to the gateway as name. A nil opts means the defaults.
func New(name string, opts *Options) *Channel {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	return &Channel{
		name: name, socket: o.Socket,
		log:     cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		local:   make(chan net.Conn),
		done:    make(chan struct{}),
		screens: make(map[net.Conn]bool),
		changed: make(chan struct{}),
	}
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

// Run implements [channels.Channel]. It is called once: the gateway stops with it.
func (c *Channel) Run(ctx context.Context, in channels.Intake) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer c.end()
	serve := func(conn net.Conn) { wg.Go(func() { c.serve(ctx, in, conn) }) }
	failed := make(chan error, 1)
	if c.socket != "" {
		l, err := listen(ctx, c.socket)
		if err != nil {
			return fmt.Errorf("terminal: %w", err)
		}
		defer l.Close()
		wg.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					failed <- err
					return
				}
				serve(conn)
			}
		})
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return fmt.Errorf("terminal: accept: %w", err)
		case conn := <-c.local:
			serve(conn)
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

// end lets no Send wait for a screen any more, and closes those that are there.
func (c *Channel) end() {
	close(c.done)
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.screens {
		conn.Close()
	}
}

// serve takes the messages of one screen until it goes, or ctx ends.
func (c *Channel) serve(ctx context.Context, in channels.Intake, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	c.mu.Lock()
	c.screens[conn] = true
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.screens, conn)
		conn.Close()
	}()
	lines := newLines(conn)
	for lines.Scan() {
		var f frame
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil || f.ID == "" || f.Text == "" {
			c.log.WarnContext(ctx, "terminal sent a line that is no message", "err", err)
			return
		}
		m := bus.InboundMessage{
			ID: f.ID, From: bus.Address{Account: c.name, Chat: MainChat},
			Sender: bus.Sender{ID: Sender}, Text: f.Text, Time: time.Now(), Addressed: true,
		}
		err := in.Publish(ctx, channels.Batch{Messages: []bus.InboundMessage{m}})
		if err != nil {
			c.log.ErrorContext(ctx, "message not taken", "err", err)
			return // the screen sees that it was not taken
		}
		if err := write(conn, frame{ID: f.ID, Taken: true}); err != nil {
			return
		}
	}
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
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if c.show(frame{ID: part.Key, Text: part.Text}) {
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
	if !c.show(frame{ID: id, Text: text}) {
		// The screen that showed the beginning is gone: the text goes to the next one, whole.
		return fmt.Errorf("terminal: edit: %w: %w", channels.ErrRefused, errNobody)
	}
	return nil
}

// show writes f to all screens and reports whether one of them has it.
func (c *Channel) show(f frame) bool {
	c.mu.Lock()
	screens := make([]net.Conn, 0, len(c.screens))
	for conn := range c.screens {
		screens = append(screens, conn)
	}
	c.mu.Unlock()
	shown := false
	for _, conn := range screens {
		if err := write(conn, f); err != nil {
			conn.Close() // its reader ends with it
			continue
		}
		shown = true
	}
	return shown
}

// editInterval lets an answer flow without a write for each of its words.
const editInterval = 40 * time.Millisecond

// Limits implements [channels.Limiter].
func (c *Channel) Limits(bus.Address) channels.Limits {
	return channels.Limits{EditInterval: editInterval}
}
