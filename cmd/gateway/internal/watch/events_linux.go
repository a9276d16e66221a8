package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// newEvents uses inotify itself, since fsnotify can't be told which changes are wanted. Each write
// to a file would wake the process, and the database is in the folder of the configuration: a
// message writes to it some seventy times. Here a write counts when the file is closed.
func newEvents() (*events, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	r := &inotify{file: os.NewFile(uintptr(fd), "inotify"), fd: fd, folders: make(map[int32][]string),
		changed: make(chan string), troubles: make(chan error), closed: make(chan struct{})}
	r.reading.Go(r.read)
	return &events{changed: r.changed, troubles: r.troubles, add: r.add, close: r.close}, nil
}

// wanted are the changes of the files in a folder, and of the folder itself, that are told.
const wanted = unix.IN_CREATE | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_MOVED_FROM |
	unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF

// An inotify is a queue of changes that the system fills.
type inotify struct {
	file     *os.File
	fd       int
	changed  chan string
	troubles chan error
	closed   chan struct{}
	reading  sync.WaitGroup

	mu      sync.Mutex
	folders map[int32][]string // by watch; a folder may have several paths
}

func (r *inotify) add(folder string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := unix.InotifyAddWatch(r.fd, folder, wanted)
	if err != nil {
		return &os.PathError{Op: "watch", Path: folder, Err: err}
	}
	if id := int32(n); !slices.Contains(r.folders[id], folder) {
		r.folders[id] = append(r.folders[id], folder)
	}
	return nil
}

func (r *inotify) close() error {
	close(r.closed)
	err := r.file.Close()
	r.reading.Wait()
	return err
}

// read passes on what the system tells, until close.
func (r *inotify) read() {
	buf := make([]byte, 16<<10) // each event has 272 bytes at most
	for {
		n, err := r.file.Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			r.trouble(fmt.Errorf("inotify: %w", err))
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			id := int32(binary.NativeEndian.Uint32(rest))
			mask := binary.NativeEndian.Uint32(rest[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			if end > len(rest) {
				break
			}
			name := strings.TrimRight(string(rest[unix.SizeofInotifyEvent:end]), "\x00")
			rest = rest[end:]
			if mask&unix.IN_Q_OVERFLOW != 0 {
				r.trouble(errors.New("inotify: some changes were lost"))
				continue
			}
			r.tell(id, name)
		}
	}
}

// tell passes on that a file in the folders of a watch has changed, or, without a name, the folder.
func (r *inotify) tell(id int32, name string) {
	r.mu.Lock()
	folders := r.folders[id]
	r.mu.Unlock()
	for _, folder := range folders {
		select {
		case r.changed <- filepath.Join(folder, name):
		case <-r.closed:
		}
	}
}

func (r *inotify) trouble(err error) {
	select {
	case r.troubles <- err:
	case <-r.closed:
	}
}
