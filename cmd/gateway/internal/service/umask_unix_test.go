//go:build unix

package service

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// TestConfigurationUnderUmask checks that the service can read its configuration even if root's
// umask closes new files to everybody else.
func TestConfigurationUnderUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	own, err := user.LookupGroupId(strconv.Itoa(os.Getgid()))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.toml")
	if _, err := makeConfig(path, own.Name); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the configuration has mode %v, %v; want 0640", info.Mode(), err)
	}
}
