package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = 3 * time.Minute
	every    = 10 * time.Millisecond // time between two looks at the file
)

// A watched is a file in a folder of its own, and the changes that were reported.
type watched struct {
	t    *testing.T
	dir  string
	path string
	saw  chan string // content of the file at each reported change
}

// begin calls prepare and then watches the file config/config.toml.
func begin(t *testing.T, prepare func(w *watched)) *watched {
	t.Helper()
	dir := t.TempDir()
	w := &watched{t: t, dir: dir, path: filepath.Join(dir, "config", "config.toml"),
		saw: make(chan string, 1000)}
	w.mkdir("config")
	prepare(w)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		File{Path: w.path, Every: every}.Run(ctx, func(context.Context) {
			b, _ := os.ReadFile(w.path) // TestUnreadable is about unreadable files
			w.saw <- string(b)
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

func (w *watched) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) mkdir(name string) {
	w.t.Helper()
	w.check(os.MkdirAll(filepath.Join(w.dir, name), 0o700))
}

func (w *watched) write(name, text string) {
	w.t.Helper()
	w.check(os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600))
}

func (w *watched) rename(from, to string) {
	w.t.Helper()
	w.check(os.Rename(filepath.Join(w.dir, from), filepath.Join(w.dir, to)))
}

// replace replaces the watched file with a new one in one step.
func (w *watched) replace(text string) {
	w.t.Helper()
	w.write("config/new", text)
	w.rename("config/new", file)
}

// link replaces name with a link to target in one step.
func (w *watched) link(target, name string) {
	w.t.Helper()
	w.check(os.Symlink(filepath.FromSlash(target), filepath.Join(w.dir, "new-link")))
	w.rename("new-link", name)
}

// want waits until a change to text is reported.
func (w *watched) want(text string) {
	w.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var last []string
	for {
		select {
		case got := <-w.saw:
			if got == text {
				return
			}
			last = append(last, got)
		case <-timer.C:
			w.t.Fatalf("saw %q, want %q", last, text)
		}
	}
}

const file = "config/config.toml"

func plainFile(w *watched) { w.write(file, "one") }

// TestWays checks that a change is reported in all the ways in which editors and deployments
// change a file.
func TestWays(t *testing.T) {
	configMap := func(w *watched) {
		w.mkdir("config/..2026_1")
		w.write("config/..2026_1/config.toml", "one")
		w.link("..2026_1", "config/..data")
		w.link("..data/config.toml", file)
	}
	tests := []struct {
		name    string
		prepare func(*watched)
		change  func(*watched)
	}{
		{"in place", plainFile, func(w *watched) { w.write(file, "two") }},
		{"vim", plainFile, func(w *watched) {
			w.rename(file, file+"~")
			w.write(file, "two")
			w.check(os.Remove(w.path + "~"))
		}},
		{"atomic", plainFile, func(w *watched) {
			w.write("config/.config.toml.tmp", "two")
			w.rename("config/.config.toml.tmp", file)
		}},
		{"away", plainFile, func(w *watched) {
			w.check(os.Remove(w.path))
			w.write(file, "two")
		}},
		{"config map", configMap, func(w *watched) {
			w.mkdir("config/..2026_2")
			w.write("config/..2026_2/config.toml", "two")
			w.link("..2026_2", "config/..data")
			w.check(os.RemoveAll(filepath.Join(w.dir, "config/..2026_1")))
		}},
		{"link", func(w *watched) {
			w.mkdir("etc")
			w.write("etc/real.toml", "one")
			w.link("../etc/real.toml", file)
		}, func(w *watched) { w.write("etc/real.toml", "two") }},
		{"link's folder replaced", func(w *watched) {
			w.mkdir("etc")
			w.write("etc/real.toml", "one")
			w.link("../etc/real.toml", file)
		}, func(w *watched) {
			w.check(os.RemoveAll(filepath.Join(w.dir, "etc")))
			w.mkdir("etc")
			w.write("etc/real.toml", "two")
		}},
		{"folder replaced", plainFile, func(w *watched) {
			w.mkdir("config2")
			w.write("config2/config.toml", "two")
			w.rename("config", "config.old")
			w.rename("config2", "config")
		}},
		{"folder removed", plainFile, func(w *watched) {
			w.check(os.RemoveAll(filepath.Join(w.dir, "config")))
			w.mkdir("config")
			w.write(file, "two")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := begin(t, tt.prepare)
			w.want("one")
			tt.change(w)
			w.want("two")
			w.write(file, "three") // the file is still watched
			w.want("three")
		})
	}
}

// TestAppears checks that a file is reported that did not exist before, nor did its folder.
func TestAppears(t *testing.T) {
	w := begin(t, func(w *watched) { w.check(os.Remove(filepath.Join(w.dir, "config"))) })
	w.mkdir("config")
	w.write(file, "one")
	w.want("one")
}

// TestSameContent checks that only a change of the content is reported.
func TestSameContent(t *testing.T) {
	w := begin(t, plainFile)
	w.want("one")
	w.check(os.Chtimes(w.path, time.Now(), time.Now()))
	w.replace("one")
	w.check(os.Remove(w.path))
	w.replace("one")
	w.write("config/other.toml", "two")
	w.replace("three")
	if got := <-w.saw; got != "three" {
		t.Errorf("saw %q, want %q", got, "three")
	}
}

// TestManySaves checks that the last of many saves in a row is reported.
func TestManySaves(t *testing.T) {
	w := begin(t, plainFile)
	for i := range 50 {
		w.replace(fmt.Sprint(i))
	}
	w.want("49")
}

// TestEmpty checks that an empty file is not reported, because somebody may still be writing it.
func TestEmpty(t *testing.T) {
	w := begin(t, plainFile)
	w.want("one")
	w.check(os.Truncate(w.path, 0))
	select {
	case got := <-w.saw:
		t.Errorf("saw %q while the file is written", got)
	case <-time.After(10 * every):
	}
	w.write(file, "two")
	w.want("two")
}

// TestUnreadable checks that a file that can't be read any more is reported like a change of its
// content.
func TestUnreadable(t *testing.T) {
	w := begin(t, plainFile)
	w.want("one")
	w.check(os.Remove(w.path))
	w.mkdir(file)
	w.want("") // a folder is read as an empty text
}
