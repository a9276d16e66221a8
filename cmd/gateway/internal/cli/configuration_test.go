package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/spf13/cobra"

	"gateway/cmd/gateway/internal/config"
)

// A file in a closed home can't be read by others, whatever its own mode, as the doctor says.
func TestReadersOfConfiguration(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes here")
	}
	home := t.TempDir()
	file := filepath.Join(home, "config.toml")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for mode, warned := range map[os.FileMode]bool{0o700: false, 0o755: true} {
		if err := os.Chmod(home, mode); err != nil {
			t.Fatal(err)
		}
		cfg := &config.Config{File: file}
		cfg.Gateway.Home = home
		cmd, out := &cobra.Command{}, new(bytes.Buffer)
		cmd.SetOut(out)
		warnOfReaders(cmd, &config.Explanation{Config: cfg, Literal: true})
		if got := out.Len() > 0; got != warned {
			t.Errorf("with the mode %o of the home the command says %q", mode, out)
		}
	}
}
