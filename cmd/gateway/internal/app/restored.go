package app

import (
	"fmt"
	"os"
	"path/filepath"

	"gateway/cmd/gateway/internal/backup"
	"gateway/cmd/gateway/internal/config"
)

// CheckRestored returns an error if a restore of the home was interrupted.
func CheckRestored(cfg *config.Config) error {
	mark := filepath.Join(cfg.Gateway.Home, backup.Unfinished)
	if _, err := os.Lstat(mark); err == nil {
		return fmt.Errorf("a restore into %s was interrupted; run gateway restore FILE "+
			"--force again", cfg.Gateway.Home)
	}
	return nil
}
