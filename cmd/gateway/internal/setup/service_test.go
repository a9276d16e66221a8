//go:build unix

package setup

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/service"
)

// TestService sets up a service of the whole machine twice. The service can read the written
// files, others can't, and setup does not create the home, which systemd does.
func TestService(t *testing.T) {
	own, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := user.LookupGroup(own.Username); err != nil {
		t.Skip("this user has no group of the same name")
	}
	dir := t.TempDir()
	m := service.Machine{Config: filepath.Join(dir, "etc", "config.toml"),
		Secrets: filepath.Join(dir, "etc", "secrets"), Home: filepath.Join(dir, "home"),
		User: own.Username}
	t.Setenv("KEY", "sk-1")
	t.Setenv("TOKEN", "123456:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	t.Setenv("GATEWAY_AGENT__SLOTS", "nonsense") // only in this shell, not in the service
	running := false
	run := func(args ...string) string {
		t.Helper()
		cmd := Command(Options{
			Running: func(context.Context, *config.Config) bool { return running },
			Machine: func() (service.Machine, error) { return m, nil },
		})
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs(append(args, "--service", "--no-input", "--offline"))
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, &out)
		}
		return out.String()
	}
	said := run("--provider", "openai", "--key", "env:KEY", "--telegram-token", "env:TOKEN",
		"--whatsapp-owner", "+4366012345")
	for _, want := range []string{
		"gateway service install",
		"Link whatsapp with its phone: sudo -u " + m.User + " GATEWAY_HOME=" + m.Home +
			" gateway -c " + m.Config + " pair whatsapp",
		"sudo -u " + m.User + " GATEWAY_HOME=" + m.Home + " gateway people approve CODE",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("setup said\n%s\nwithout %q", said, want)
		}
	}
	check := func(model, key string) {
		t.Helper()
		modes := map[string]fs.FileMode{m.Config: 0o640, m.Secrets: fs.ModeDir | 0o700,
			filepath.Dir(m.Config):                     fs.ModeDir | 0o755,
			filepath.Join(m.Secrets, "openai.key"):     0o600,
			filepath.Join(m.Secrets, "telegram.token"): 0o600}
		for path, want := range modes {
			if info, err := os.Stat(path); err != nil || info.Mode() != want {
				t.Errorf("%s: %v, %v; want %v", path, info, err, want)
			}
		}
		text, err := os.ReadFile(m.Config)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`model = "` + model + `"`,
			`key = "file:/run/credentials/gateway.service/secret_openai.key"`,
			`token = "file:/run/credentials/gateway.service/secret_telegram.token"`} {
			if !strings.Contains(string(text), want) {
				t.Errorf("the configuration is\n%s\nwithout %q", text, want)
			}
		}
		got, err := os.ReadFile(filepath.Join(m.Secrets, "openai.key"))
		if err != nil || strings.TrimSpace(string(got)) != key {
			t.Errorf("the key is %q, %v", got, err)
		}
	}
	check("gpt-5.4-mini", "sk-1")
	running = true
	if said := run("--model", "gpt-other", "--provider", "openai"); !strings.Contains(said,
		"systemctl restart gateway") {
		t.Errorf("setup said\n%s", said)
	}
	check("gpt-other", "sk-1") // the key is kept without systemd's copy of it
	if _, err := os.Stat(m.Home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the home: %v", err)
	}
}

// TestServiceRefused checks that setup asks nothing if it can't write the files.
func TestServiceRefused(t *testing.T) {
	refused := errors.New("run this as root")
	cmd := Command(Options{
		Machine: func() (service.Machine, error) { return service.Machine{}, refused }})
	cmd.SetArgs([]string{"--service"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	if _, usage := errors.AsType[app.UsageError](err); !usage || !errors.Is(err, refused) {
		t.Errorf("the error is %v", err)
	}
}
