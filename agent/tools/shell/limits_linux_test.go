//go:build amd64 || arm64

package shell

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gateway/agent/tools/shell/sandbox"
)

// expireAt ends the timeout of a command, which must be most, as soon as the command has created
// the file.
func (d *testShell) expireAt(most time.Duration, file string) {
	limit := d.shell.limit
	d.shell.limit = func(ctx context.Context, got time.Duration) (
		context.Context, context.CancelFunc,
	) {
		if got != most {
			d.t.Errorf("the timeout is %s, want %s", got, most)
		}
		limited, cancel := context.WithCancel(ctx)
		go func() {
			defer cancel()
			for limited.Err() == nil {
				_, err := os.Stat(filepath.Join(d.ws, file))
				rest, stop := limit(limited, 10*time.Millisecond)
				<-rest.Done()
				stop()
				if err == nil {
					return
				}
			}
		}()
		return limited, cancel
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	d := newTestShell(t, nil)
	d.expireAt(15*time.Second, "ready")
	got, err := d.use("s", "exec",
		`{"command":"echo begun; echo > ready; sleep 600; echo ended","timeout":15}`)
	want := "begun\n[it was ended after 15 seconds, its timeout. Give a longer timeout, at most " +
		"600, or run it with background: true and look at it with exec_input]"
	if err != nil || got != want {
		t.Errorf("exec = %q, %v\nwant %q", got, err, want)
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	d := newTestShell(t, func(o *Options) { o.Limits = sandbox.Limits{FileSize: 1000, Processes: 20} })
	for command, want := range map[string]string{
		"exec head -c 5000 /dev/zero > file": "file size: write smaller files]",
		"for i in $(seq 50); do sleep 9 & done; wait": "processes: start fewer processes or threads " +
			"at a time]",
	} {
		want = "it was ended because it exceeded a limit, " + want
		if got := d.run(command); !strings.HasSuffix(got, want) {
			t.Errorf("%q = %q, want …%q", command, got, want)
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	d := newTestShell(t, nil)
	limit := d.shell.limit
	d.expireAt(15*time.Second, "ready")
	got, err := d.use("s", "exec",
		`{"command":"yes ä | head -c 20000000; echo > ready; sleep 600","timeout":15}`)
	d.shell.limit = limit
	if err != nil {
		t.Fatal(err)
	}
	if n := utf8.RuneCountInString(got); n < maxChars || n > maxChars+400 {
		t.Errorf("endless output gave %d characters, want %d and a note", n, maxChars)
	}
	if !regexp.MustCompile(`\n\[… \d+ characters are left out here …\]\n`).MatchString(got) {
		t.Errorf("it is not said that there is more: %.300q", got[len(got)/2-100:])
	}
	got = d.run("head -c 3000 /dev/zero")
	want := "[binary output, 3000 bytes, it looks like application/octet-stream;"
	if !strings.HasPrefix(got, want) {
		t.Errorf("binary output gave %.200q, want %q", got, want)
	}
}
