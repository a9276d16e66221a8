//go:build unix

package e2e

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// A chaosDisk is the disk of a gateway's home, which is sometimes full.
type chaosDisk struct {
	filler string // the file that fills it, or "" if the home has no disk of its own
	full   bool
	was    bool // it was full during this process
	times  int  // how often it was full
}

// fill makes the disk full, or ends that.
func (d *chaosDisk) fill(*rand.Rand) {
	if d.filler == "" {
		return
	}
	if d.full {
		d.calm()
		return
	}
	d.full, d.was = true, true
	d.times++
	if err := os.WriteFile(d.filler, nil, 0o600); err == nil {
		_ = fillUp(d.filler)
	}
}

// calm makes room on the disk.
func (d *chaosDisk) calm() {
	if d.full {
		_ = os.Remove(d.filler)
		d.full = false
	}
}

func (c *chaos) calmDisk() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disk.calm()
}

// openDisk gives the home a disk of its own, if this machine allows that.
func (c *chaos) openDisk() {
	c.t.Helper()
	c.shake = append(c.shake, c.disk.fill)
	c.calm = append(c.calm, c.calmDisk)
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=128m,mode=700", "tmpfs",
		c.home).CombinedOutput()
	if err != nil {
		c.t.Logf("no disk of its own can be made: %v %s", err, out)
		return
	}
	c.t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", c.home).CombinedOutput(); err != nil {
			c.t.Errorf("%v %s", err, out)
		}
	})
	c.disk.filler = filepath.Join(c.home, "filler")
}

// fillUp appends to a file until its disk is full.
func fillUp(path string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
	}
	return nil
}
