package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"gateway/agent/tool"
	"gateway/agent/tools/shell/sandbox"
	"gateway/bus"
)

const (
	bufferSize = 64 << 10 // bytes of output that are kept for each process
	settle     = 100 * time.Millisecond
)

// process is a background command.
type process struct {
	// line is the command as a person would write it, for lists.
	id, line string
	session  bus.Session
	argv     []string
	owner    owner
	started  time.Time
	cancel   context.CancelFunc
	release  func() // gives back its share of Options.Processes
	stdin    io.WriteCloser
	done     chan struct{} // closed when the command has ended and the fields below are set

	outcome sandbox.Outcome
	err     error
	ended   time.Time

	// mu guards the fields below.
	mu      sync.Mutex
	clean   cleaner
	buffer  []byte        // output that was not read yet, or the last part of it
	lost    int64         // characters of output that were discarded
	changed chan struct{} // closed and replaced when there is new output
}

// owner is the person who started a process.
type owner struct {
	account, sender string
	person          int64 // the same on all platforms; 0: unknown
	role            bus.Role
}

func ownerOf(c tool.Call) owner {
	return owner{c.Address.Account, c.Sender.ID, c.Person, c.Role}
}

// mayBeControlledBy reports whether by may write to a process of o or end it.
func (o owner) mayBeControlledBy(by owner) bool {
	same := o.account == by.account && o.sender == by.sender ||
		o.person != 0 && o.person == by.person
	return by.role.AtLeast(o.role) && (same || by.role.AtLeast(bus.Admin))
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Write appends output to the buffer. It never fails. If nobody reads the output, it discards the
// oldest part.
func (p *process) Write(piece []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clean.clean(piece, func(r rune) { p.buffer = utf8.AppendRune(p.buffer, r) })
	if over := len(p.buffer) - bufferSize; over > 0 {
		for over < len(p.buffer) && !utf8.RuneStart(p.buffer[over]) {
			over++
		}
		p.lost += int64(utf8.RuneCount(p.buffer[:over]))
		p.buffer = append(p.buffer[:0], p.buffer[over:]...)
	}
	close(p.changed)
	p.changed = make(chan struct{})
	return len(piece), nil
}

// newOutput returns the output since the last call, shortened.
func (p *process) newOutput() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var e excerpt
	_, _ = e.Write(p.buffer) // Write never fails
	text := e.String()
	if p.clean.binary() {
		text = p.clean.describe()
	} else if p.lost > 0 {
		text = fmt.Sprintf("[… %d earlier characters are lost …]\n%s", p.lost, text)
	}
	p.buffer, p.lost = p.buffer[:0], 0
	return text
}

// wait returns when there is output, when the process has ended, or after the time most.
func (p *process) wait(ctx context.Context, most time.Duration) {
	over := time.After(most)
	p.mu.Lock()
	changed, there := p.changed, len(p.buffer) > 0
	p.mu.Unlock()
	if !there {
		select {
		case <-changed:
		case <-p.done:
			return
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
	select {
	case <-time.After(settle): // more output often follows shortly
	case <-p.done:
	case <-over:
	case <-ctx.Done():
	}
}

// begin starts a background command and waits briefly, in case the command ends at once.
func (s *Shell) begin(
	ctx context.Context, c tool.Call, argv []string, dir string,
) (tool.Result, error) {
	release, err := s.reserve(ctx)
	if err != nil {
		return tool.Result{}, err
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the command outlives the turn
	cmd, err := s.command(own, c, argv, dir)
	if err != nil {
		cancel()
		release()
		return tool.Result{}, err
	}
	p := &process{
		session: c.Session, line: strings.Join(argv, " "), argv: argv, owner: ownerOf(c),
		started: time.Now(), cancel: cancel, release: release,
		done: make(chan struct{}), changed: make(chan struct{}),
	}
	if len(argv) == 3 && argv[0] == "/bin/sh" && argv[1] == "-c" {
		p.line = argv[2]
	}
	if p.stdin, err = cmd.StdinPipe(); err == nil {
		cmd.Stdout, cmd.Stderr = p, p
		err = s.background.start(p, cmd)
	}
	if err != nil {
		cancel()
		release()
		return tool.Result{}, errors.Join(err, cmd.Close())
	}
	select {
	case <-p.done:
		return s.endedEarly(ctx, p)
	case <-time.After(s.earlyWait):
	case <-ctx.Done():
	}
	note := fmt.Sprintf("it runs in the background with the id %s; look at it with exec_input", p.id)
	return tool.Result{Text: withNote(p.newOutput(), note), Foreign: foreign}, nil
}

// endedEarly returns the result of a command that ended at once, and removes the process.
func (s *Shell) endedEarly(ctx context.Context, p *process) (tool.Result, error) {
	s.background.remove(p)
	newOutput := p.newOutput()
	if isSandboxFailure(p.outcome, p.err, newOutput) {
		if broken := s.opts.Doubt(ctx); broken != nil {
			return tool.Result{}, broken
		}
	}
	switch {
	case p.err != nil:
		return tool.Result{}, p.err
	case p.outcome.Err != "":
		return tool.Result{}, startError(p.outcome)
	}
	text := withNote(newOutput, "it has already ended: "+endNote(p.outcome))
	return tool.Result{Text: text, Foreign: foreign}, nil
}

// show returns the new output and the state of a process.
func (p *process) show() tool.Result {
	running := p.running() // asked first: output that arrives later is shown by the next call
	return tool.Result{Text: withNote(p.newOutput(), p.state(running)), Foreign: foreign}
}

// state describes the state of a process.
func (p *process) state(running bool) string {
	switch {
	case running:
		return fmt.Sprintf("%s still runs, for %s", p.id, age(time.Since(p.started)))
	case p.err != nil:
		return p.id + " has ended: " + shorten(p.err.Error(), 300)
	case p.outcome.Err != "":
		return p.id + " has ended: " + startError(p.outcome).Error()
	}
	return fmt.Sprintf("%s has ended after %s: %s", p.id, age(p.ended.Sub(p.started)),
		endNote(p.outcome))
}

func age(d time.Duration) string { return d.Round(time.Second).String() }

// finish waits until the process ends and records its outcome.
func (p *process) finish(cmd *sandbox.Command) {
	err := cmd.Wait()
	outcome, outcomeErr := cmd.Outcome()
	if outcomeErr != nil {
		p.err = fmt.Errorf("its outcome is unknown: %w", errors.Join(err, outcomeErr))
	}
	p.outcome, p.ended = outcome, time.Now()
	p.cancel()
	p.release()
	close(p.done)
}
