package extract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"image"
	"image/png"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary runs itself as the child process. The child also knows kinds of work that no
// real file causes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Argument {
		os.Exit(Main(map[string]Func{"echo": echo, "escape": escape, "hoard": hoard, "spin": spin,
			"wait": wait, "crash": crash, "exit": exit, "much": much}))
	}
	goleak.VerifyTestMain(m)
}

func echo(_ json.RawMessage, file []byte) ([]byte, string, error) { return file, "a note", nil }

func crash(json.RawMessage, []byte) ([]byte, string, error) { panic("of the decoder") }

func much(json.RawMessage, []byte) ([]byte, string, error) { return make([]byte, 1<<20), "", nil }

func exit(json.RawMessage, []byte) ([]byte, string, error) {
	os.Exit(1)
	return nil, "", nil
}

// hoard allocates the number of MiB in its arguments.
func hoard(args json.RawMessage, _ []byte) ([]byte, string, error) {
	var mib int
	if err := json.Unmarshal(args, &mib); err != nil {
		return nil, "", err
	}
	var all [][]byte
	for range mib {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 1 << 10 {
			b[i] = 1
		}
		all = append(all, b)
		time.Sleep(time.Millisecond / 8) // slowly, so that a periodic check of the memory sees it
	}
	return []byte{all[0][0]}, "", nil
}

func spin(json.RawMessage, []byte) ([]byte, string, error) {
	for i := 0; ; i++ {
		if i < 0 {
			return nil, "", nil
		}
	}
}

func wait(json.RawMessage, []byte) ([]byte, string, error) {
	select {}
}

// escape tries actions that no decoder needs, and returns those that succeeded.
func escape(args json.RawMessage, _ []byte) ([]byte, string, error) {
	var address string
	if err := json.Unmarshal(args, &address); err != nil {
		return nil, "", err
	}
	var done []string
	try := func(what string, err error) {
		if err == nil {
			done = append(done, what)
		}
	}
	_, err := os.ReadFile("/etc/passwd")
	try("read", err)
	try("write", os.WriteFile("/tmp/gateway-extract-test", nil, 0o600))
	_, err = os.Stat("/")
	try("look", err)
	try("start", exec.Command("/bin/true").Run())
	_, err = net.Dial("tcp", address)
	try("connect", err)
	_, err = net.Listen("tcp", "127.0.0.1:0")
	try("listen", err)
	p, err := os.FindProcess(os.Getppid())
	if err == nil {
		err = p.Signal(os.Interrupt)
	}
	try("signal", err)
	return []byte(strings.Join(done, " ")), "", nil
}

func newExtractor(t *testing.T) *Extractor {
	x, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func jobOf(kind, whose string, args any) Job {
	return Job{Kind: kind, For: whose, Args: args, File: strings.NewReader("abc"), Size: 3, Most: 100}
}

func TestDecodes(t *testing.T) {
	x := newExtractor(t)
	const csv = "a,b\n1,2\n"
	text, err := x.Text(t.Context(), "a", strings.NewReader(csv), int64(len(csv)), "text/csv", 100)
	if err != nil || text != csv {
		t.Errorf("text is %q (%v)", text, err)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 300, 200))); err != nil {
		t.Fatal(err)
	}
	data, mime, err := x.Picture(t.Context(), "a", bytes.NewReader(b.Bytes()), int64(b.Len()),
		150, 1<<20)
	if err != nil || mime != "image/jpeg" {
		t.Fatalf("got %s, %v", mime, err)
	}
	if c, _, err := image.DecodeConfig(bytes.NewReader(data)); err != nil || c.Width != 150 {
		t.Errorf("the picture is %d pixels wide (%v)", c.Width, err)
	}
	data, note, err := x.Do(t.Context(), jobOf("echo", "a", nil))
	if err != nil || string(data) != "abc" || note != "a note" {
		t.Errorf("got %q with %q (%v)", data, note, err)
	}
}

func TestRefuses(t *testing.T) {
	x := newExtractor(t)
	ordinary := x.cpu
	broken := errors.New("the disk is broken")
	unread := jobOf("echo", "a", nil)
	unread.File = readerAt(func([]byte, int64) (int, error) { return 0, broken })
	shorter := jobOf("echo", "a", nil)
	shorter.Size++
	huge := jobOf("echo", "a", nil)
	huge.Size = maxFile + 1
	for name, tt := range map[string]struct {
		job  Job
		want string
	}{
		"memory":       {jobOf("hoard", "a", 400), errMemory.Error()},
		"time":         {jobOf("spin", "a", nil), errTooLong.Error()},
		"crash":        {jobOf("crash", "a", nil), errBroken.Error()},
		"exit":         {jobOf("exit", "a", nil), errBroken.Error()},
		"too much":     {jobOf("much", "a", nil), errBroken.Error()},
		"no such kind": {jobOf("other", "a", nil), errBroken.Error()},
		"broken disk":  {unread, broken.Error()},
		"shorter":      {shorter, errShorter.Error()},
		"too large":    {huge, errTooLarge.Error()},
		"no text": {Job{Kind: kindText, Args: textArgs{"x/y", 9}, Most: 9, Size: 2,
			File: strings.NewReader("\x00\x01")}, ErrUnsupported.Error()},
		"no picture": {Job{Kind: kindPicture, Args: pictureArgs{9, 9}, Most: 9, Size: 2,
			File: strings.NewReader("\x00\x01")}, ErrUnsupported.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			x.cpu = ordinary
			if name == "time" { // the others may take a second on a slow machine
				x.cpu = time.Second
			}
			data, _, err := x.Do(t.Context(), tt.job)
			if err == nil || err.Error() != tt.want || data != nil {
				t.Errorf("got %d bytes and %v, want %s", len(data), err, tt.want)
			}
		})
	}
}

type readerAt func(p []byte, off int64) (int, error)

func (f readerAt) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

// A job that needs more than the usual memory is run again with more.
func TestLarge(t *testing.T) {
	if _, _, err := newExtractor(t).Do(t.Context(), jobOf("hoard", "a", 110)); err != nil {
		t.Error(err)
	}
}

// begins returns a job, and a channel that is closed when a child begins to read the job's file.
func begins(kind, whose string) (Job, <-chan struct{}) {
	begun := make(chan struct{})
	var once sync.Once
	j := jobOf(kind, whose, nil)
	j.File = readerAt(func(p []byte, off int64) (int, error) {
		once.Do(func() { close(begun) })
		return strings.NewReader("abc").ReadAt(p, off)
	})
	return j, begun
}

// When the context ends, the child ends and all calls of Do return, also those that wait for a
// child. Until then, the jobs of other people run.
func TestOthersGoOn(t *testing.T) {
	x := newExtractor(t)
	ctx, cancel := context.WithCancel(t.Context())
	first, begun := begins("spin", "a")
	ended := make(chan error)
	do := func(j Job) {
		_, _, err := x.Do(ctx, j)
		ended <- err
	}
	go do(first)
	<-begun
	for range 5 {
		go do(jobOf("spin", "a", nil))
	}
	for range 3 {
		if _, _, err := x.Do(t.Context(), jobOf("echo", "b", nil)); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	for range 6 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	}
	if len(x.conversations) != 0 || len(x.slots) != 0 {
		t.Errorf("%d conversations and %d slots are in use", len(x.conversations), len(x.slots))
	}
}

// A child does not outlive the gateway.
func TestOrphan(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, Argument)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	head, err := json.Marshal(task{Kind: "wait", Size: 1, Memory: usualMemory, CPU: cpuTime,
		Time: allTime})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(append(head, "\nx"...)); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitAlone {
		t.Errorf("the child ended with %v", err)
	}
}
