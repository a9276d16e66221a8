package service

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

var odd = Spec{
	Program: "/opt/my programs/gate$way", Config: "/home/ann/100%.toml",
	Home: "/home/ann/.gateway & more", User: "/home/ann",
}

func TestText(t *testing.T) {
	for _, test := range []struct {
		golden, file string
		system       string
	}{
		{"gateway.service", "/home/ann/.config/systemd/user/gateway.service", "linux"},
		{"gateway.plist", "/home/ann/Library/LaunchAgents/io.github.gateway.plist", "darwin"},
	} {
		spec := odd
		spec.System = test.system
		if file, err := spec.File(); err != nil || file != test.file {
			t.Errorf("%s: the file is %s, %v", test.system, file, err)
		}
		got, err := spec.Text()
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", test.golden)
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is now:\n%s", golden, got)
		}
	}
}

// TestPlist checks that the property list is XML and contains texts with special characters
// unchanged.
func TestPlist(t *testing.T) {
	spec := odd
	spec.System = "darwin"
	text, err := spec.Text()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := token.(xml.CharData); ok {
			all.Write(data)
		}
	}
	for _, want := range []string{odd.Program, odd.Config, odd.Home + "/gateway.log"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("%q is not in the list", want)
		}
	}
}

func TestMachine(t *testing.T) {
	spec := Spec{System: "linux", Root: true, Program: "/opt/bin/gateway", Home: MachineHome}
	text, err := spec.Text()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "\nExecStart=/opt/bin/gateway --config /etc/gateway/config.toml\n") ||
		!strings.Contains(text, "\nNoNewPrivileges=yes\n") {
		t.Errorf("the unit is:\n%s", text)
	}
	const want = "sudo -u gateway GATEWAY_HOME=/var/lib/gateway gateway health --ready"
	if got := spec.stateCommand(); got != want {
		t.Errorf("to see its state: %q, want %q", got, want)
	}
	spec.Program = "/root/gateway"
	if _, err := spec.Text(); err == nil || !strings.Contains(err.Error(), "/usr/local/bin") {
		t.Errorf("a program that the service can't read: %v", err)
	}
	spec.Program, spec.Config = "/opt/bin/gateway", "/root/config.toml"
	_, err = spec.Text()
	if err == nil || !strings.Contains(err.Error(), "/etc/gateway/config.toml") {
		t.Errorf("a configuration that the service does not read: %v", err)
	}
}

// TestUnitsRestart checks that systemd starts the gateway again after each failure, however often
// it fails: after a bug, for which Go's exit code is that of a wrong configuration, too, and while
// the disk is full for an hour.
func TestUnitsRestart(t *testing.T) {
	for _, root := range []bool{true, false} {
		spec := Spec{System: "linux", Root: root, Program: "/opt/bin/gateway", Home: MachineHome}
		text, err := spec.Text()
		if err != nil {
			t.Fatal(err)
		}
		keys := make(map[string]string)
		for line := range strings.Lines(text) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				keys[key] = value
			}
		}
		_, prevented := keys["RestartPreventExitStatus"]
		if keys["Restart"] != "on-failure" || keys["StartLimitIntervalSec"] != "0" || prevented {
			t.Errorf("root %t: after some failures the gateway stays down:\n%s", root, text)
		}
	}
}

// TestConfiguration checks that makeConfig creates a file that others can't read, and that it
// does not change an existing file.
func TestConfiguration(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // launchd and systemd are on other systems
	}
	own, err := user.LookupGroupId(strconv.Itoa(os.Getgid()))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.toml")
	if _, err := makeConfig(path, own.Name); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the configuration has mode %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("# mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := makeConfig(path, own.Name); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "# mine" {
		t.Errorf("the configuration is now %q, %v", text, err)
	}
}

func TestOtherSystems(t *testing.T) {
	spec := odd
	spec.System = "plan9"
	if err := (Runner{new(bytes.Buffer)}).Install(t.Context(), spec); !errors.Is(err, ErrSystem) {
		t.Errorf("on another system: %v", err)
	}
	spec.System, spec.Root = "darwin", true
	if _, err := spec.File(); err == nil || !strings.Contains(err.Error(), "sudo") {
		t.Errorf("as root on macOS: %v", err)
	}
}

// launchctl is a fake of launchd's command. It knows which agents are loaded. As with launchd, an
// agent that is unloaded ends later, and until then no agent of the same name can be loaded.
const launchctl = `#!/bin/sh
agent=$STATE/io.github.gateway
case $1 in
bootout)
	[ -e "$agent" ] || exit 3
	rm "$agent"
	echo 1 >"$STATE/ending"
	exit 36
	;;
bootstrap)
	if [ -e "$STATE/ending" ]; then
		[ "$(cat "$STATE/ending")" = 1 ] && echo 2 >"$STATE/ending" || rm "$STATE/ending"
		exit 5
	fi
	grep -q "<true/>" "$3" && : >"$agent"
	;;
esac
`

// TestLaunchd checks that an agent can be installed twice and then uninstalled. Uninstalling it
// again is an error.
func TestLaunchd(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "launchctl")
	if err := os.WriteFile(program, []byte(launchctl), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	t.Setenv("STATE", t.TempDir())
	spec := odd
	spec.System, spec.User = "darwin", t.TempDir()
	var out bytes.Buffer
	r := Runner{&out}
	for range 2 {
		if err := r.Install(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(os.Getenv("STATE"), label)); err != nil {
		t.Errorf("launchd has no agent: %v\n%s", err, &out)
	}
	if err := r.Uninstall(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if err := r.Uninstall(t.Context(), spec); err == nil {
		t.Error("what is not there was removed")
	}
}

// TestLinger checks that the advice to root names the person whose service must survive a logout,
// even if their home folder is called otherwise.
func TestLinger(t *testing.T) {
	folder := t.TempDir()
	for name, script := range map[string]string{"systemctl": "true", "loginctl": "false"} {
		err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755)
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	spec := odd
	spec.System, spec.User = "linux", t.TempDir()
	var out bytes.Buffer
	if err := (Runner{&out}).Install(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("\"loginctl enable-linger %d\"", os.Getuid())
	if !strings.Contains(out.String(), want) {
		t.Errorf("it says %q, want %s in it", &out, want)
	}
}
