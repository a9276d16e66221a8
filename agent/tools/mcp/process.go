package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"gateway/store/plaintext"
)

const (
	// endTime is how long a process may take to end after its input was closed, and again after
	// SIGTERM.
	endTime = 2 * time.Second

	// A server that does not read its input for writeTime is considered dead.
	writeTime = 20 * time.Second

	maxStderr = 4 << 10 // bytes of its last error output that are kept
)

// startProcess starts the command of s. The process ends with life. After that, end of the
// connection must be called, also to free the pipes.
func (s *dialer) startProcess(life context.Context) (*connection, error) {
	cmd, err := s.opts.Command(life, s.Server)
	if err != nil {
		return nil, fmt.Errorf("its command can't be run: %w", err)
	}
	if cmd.Env == nil { // give away nothing of the gateway's environment
		cmd.Env = Environ(s.Env)
	}
	// Pipes of our own are files, on which deadlines can be set.
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inRead.Close(), inWrite.Close())
	}
	p := &process{cmd: cmd, in: inWrite, out: outRead, gone: make(chan struct{}),
		ends: make(chan struct{}), grace: s.opts.grace}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inRead, outWrite, &p.stderr
	cmd.WaitDelay = s.opts.grace
	ownGroup(cmd)
	err = cmd.Start()
	closed := errors.Join(inRead.Close(), outWrite.Close()) // the process has its own copies
	if err = errors.Join(err, closed); err != nil {
		if cmd.Process != nil {
			endGroup(cmd.Process, true)
			_ = cmd.Wait() // the gateway has ended it
		}
		return nil, errors.Join(fmt.Errorf("its command can't be started: %w", err),
			inWrite.Close(), outRead.Close())
	}
	p.wg.Go(p.wait)
	messages := &lines{bufio.NewReaderSize(outRead, 64<<10), newMeter(), p.ends}
	return &connection{
		transport: &sdk.IOTransport{
			Reader: readCloser{&pieces{next: messages.next}, outRead},
			Writer: inWriter{inWrite}, MaxLineLength: maxMessage,
		},
		end: p.end, why: p.why,
	}, nil
}

// Environ returns the environment of a server's process: the harmless variables of the gateway's
// environment that programs need, and env.
func Environ(env map[string]string) []string {
	names := []string{"PATH", "HOME", "LANG", "TERM", "TZ"}
	if runtime.GOOS == "windows" {
		names = append(names, "SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE",
			"APPDATA", "LOCALAPPDATA", "PROGRAMFILES")
	}
	all := make(map[string]string)
	for _, name := range names {
		if v, ok := os.LookupEnv(name); ok {
			all[name] = v
		}
	}
	maps.Copy(all, env)
	list := []string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+"="+all[name])
	}
	return list
}

// A process is a server that the gateway has started.
type process struct {
	cmd    *exec.Cmd
	in     *os.File
	out    *os.File
	stderr tail
	ends   chan struct{} // closed when the connection ends
	gone   chan struct{} // closed when the process has ended
	err    error         // result; set before gone is closed
	once   sync.Once
	wg     sync.WaitGroup
	grace  time.Duration // endTime; tests set another value
}

// wait waits until the process ends, and then kills its process group.
func (p *process) wait() {
	p.err = p.cmd.Wait()
	endGroup(p.cmd.Process, true)
	close(p.gone)
	// A process that has left the group may still hold the output open.
	if err := p.out.SetReadDeadline(time.Now().Add(p.grace)); err != nil {
		_ = p.out.Close() // so that no read blocks forever
	}
}

// end ends the process. It closes the process's input, sends SIGTERM after 2 s, and SIGKILL after 2
// s more.
func (p *process) end() {
	p.once.Do(func() {
		close(p.ends)
		_ = p.in.Close() // the session may have closed it already
		for _, force := range []bool{false, true} {
			select {
			case <-p.gone:
			case <-time.After(p.grace):
				endGroup(p.cmd.Process, force)
			}
		}
	})
	p.wg.Wait()
	_ = p.out.Close() // it may be closed already
}

// errLong ends the session with a server whose message exceeds maxMessage.
var errLong = fmt.Errorf("it sent a message of more than %d bytes", maxMessage)

// why adds the exit status of the process and its last error output.
func (p *process) why(err error) error {
	// The process has not ended by itself, so its status explains nothing.
	if errors.Is(err, errLong) {
		return errLong
	}
	select {
	case <-p.gone:
		if p.err != nil {
			err = fmt.Errorf("its process ended: %w", p.err)
		} else {
			err = errors.New("its process ended")
		}
	case <-time.After(2 * endTime): // its output has ended, so it will end soon
	}
	if words := p.stderr.String(); words != "" {
		err = fmt.Errorf("%w; its last output: %s", err,
			plaintext.Shorten(strings.TrimSpace(plain(words)), 400))
	}
	return err
}

// inWriter writes to a process that may not read its input.
type inWriter struct{ *os.File }

// Write fails if the process does not read for writeTime.
func (w inWriter) Write(p []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(writeTime)); err != nil &&
		!errors.Is(err, os.ErrNoDeadline) {
		return 0, err
	}
	return w.File.Write(p)
}

// A tail keeps the last bytes that were written to it.
type tail struct {
	mu   sync.Mutex
	last []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p[max(0, len(p)-maxStderr):]...)
	if n := len(t.last) - maxStderr; n > 0 {
		t.last = append(t.last[:0], t.last[n:]...)
	}
	return len(p), nil
}

// String returns the last lines. It returns 400 bytes at most, which explain an error.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	words := bytes.TrimSpace(t.last)
	const most = 400
	return string(words[max(0, len(words)-most):])
}

// lines passes on only the lines of a server's output that are messages. Other output, such as
// greetings and logs, would end the session.
type lines struct {
	r     *bufio.Reader
	meter *meter
	done  <-chan struct{} // closed when the connection ends
}

// next returns the next line if it is a message, and otherwise nil.
func (l *lines) next() ([]byte, error) {
	var line []byte
	message := true
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line) == 0 && message {
			message = bytes.HasPrefix(bytes.TrimLeft(part, " \t\r"), []byte("{"))
		}
		if message {
			line = append(line, part...)
		}
		switch {
		case len(line) > maxMessage:
			return nil, errLong
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, os.ErrClosed):
			return nil, io.EOF
		case err != nil:
			return nil, err
		case !message:
			return nil, nil
		}
		if _, err := jsonrpc.DecodeMessage(line); err != nil { // for example, a line of a log as JSON
			return nil, nil
		}
		l.meter.admit(l.done, line)
		return line, nil
	}
}
