package cli

import (
	"os"
	"path/filepath"
	"testing"

	"gateway/cmd/gateway/internal/config"
)

// A backup has WhatsApp's keys also if the path of the home looks like a pattern.
func TestBackupInBrackets(t *testing.T) {
	home := filepath.Join(t.TempDir(), "bots [home]")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(home, "whatsapp-phone.db")
	if err := os.WriteFile(keys, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load("", []string{"GATEWAY_HOME=" + home})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := backupParts(cfg, backupOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if p.Path == keys {
			return
		}
	}
	t.Errorf("the parts of a backup lack %s: %v", keys, parts)
}
