// Package service keeps the gateway running on this machine: with a systemd unit on Linux, and with
// a launchd agent on macOS. The unit that root installs runs as a separate user and is confined.
// The unit of another person runs in that person's session.
package service

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"gateway/deploy"
)

// A Spec describes the service to install.
type Spec struct {
	System  string // "linux" or "darwin"
	Root    bool   // for the whole machine instead of the person who installs it
	Program string // absolute path
	Config  string // absolute path of the configuration, or "" for that of the home
	Home    string // absolute path of GATEWAY_HOME
	User    string // the person's home folder
}

// unitName is the name of the service in systemd.
const unitName = "gateway.service"

// ErrSystem says that the gateway can't install itself here.
var ErrSystem = errors.New("the gateway can only install itself with systemd on Linux and " +
	"launchd on macOS: start \"gateway run\" in another way, or use a container (docs/docker.md)")

// File returns the path of the service's file.
func (s Spec) File() (string, error) {
	switch {
	case s.System == "linux" && s.Root:
		return "/etc/systemd/system/" + unitName, nil
	case s.System == "linux":
		return filepath.Join(s.User, ".config/systemd/user", unitName), nil
	case s.System == "darwin" && !s.Root:
		return filepath.Join(s.User, "Library/LaunchAgents", label+".plist"), nil
	case s.System == "darwin":
		return "", errors.New("launchd starts the gateway for a person: run this without sudo")
	}
	return "", ErrSystem
}

// Text returns the content of the service's file.
func (s Spec) Text() (string, error) {
	switch {
	case s.System == "linux" && s.Root:
		return s.machineUnit()
	case s.System == "linux":
		return s.personalUnit(), nil
	case s.System == "darwin":
		return s.agent(), nil
	}
	return "", ErrSystem
}

// A Runner runs the commands of an installation and prints each command before it runs.
type Runner struct {
	Out io.Writer
}

// run prints a command and runs it. The error has the output of the command, or is [ErrSystem] if
// the program is not installed.
func (r Runner) run(ctx context.Context, name string, args ...string) error {
	fmt.Fprintf(r.Out, "+ %s %s\n", name, strings.Join(args, " "))
	return execute(ctx, name, args...)
}

// execute runs a command. The error is as in [Runner.run].
func execute(ctx context.Context, name string, args ...string) error {
	text, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s is not installed: %w", name, ErrSystem)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err,
			strings.TrimSpace(string(text)))
	}
	return nil
}

// Install writes the service's file, starts the service, and makes it start with the machine or the
// session. A second call applies changes.
func (r Runner) Install(ctx context.Context, s Spec) error {
	file, err := s.File()
	if err != nil {
		return err
	}
	text, err := s.Text()
	if err != nil {
		return err
	}
	if s.System == "linux" && s.Root {
		if _, err := r.Prepare(ctx, machine); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	fmt.Fprintln(r.Out, "Wrote", file)
	if s.System == "darwin" {
		return r.load(ctx, file)
	}
	// restart also starts a service that does not run.
	for _, args := range [][]string{{"daemon-reload"}, {"enable", unitName}, {"restart", unitName}} {
		if err := r.run(ctx, "systemctl", s.systemctl(args...)...); err != nil {
			return err
		}
	}
	if s.Root {
		return nil
	}
	// The service works without this until the person logs out, so a failure is only reported.
	if err := r.run(ctx, "loginctl", "enable-linger"); err != nil {
		fmt.Fprintf(r.Out, "The gateway ends when you log out, because systemd refused to keep it "+
			"running: %v\nAsk root for \"loginctl enable-linger %d\".\n", err, os.Getuid())
	}
	return nil
}

// Uninstall stops the service and removes its file. The home stays.
func (r Runner) Uninstall(ctx context.Context, s Spec) error {
	file, err := s.File()
	if err != nil {
		return err
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no service to remove: %s does not exist", file)
	}
	if s.System == "darwin" {
		err = r.unload(ctx)
	} else {
		err = r.run(ctx, "systemctl", s.systemctl("disable", "--now", unitName)...)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(file); err != nil {
		return err
	}
	fmt.Fprintln(r.Out, "Removed", file)
	if s.System == "linux" {
		return r.run(ctx, "systemctl", s.systemctl("daemon-reload")...)
	}
	return nil
}

func (s Spec) systemctl(args ...string) []string {
	if s.Root {
		return args
	}
	return slices.Insert(slices.Clone(args), 0, "--user")
}

// A Machine says where the service of the whole machine has its files.
type Machine struct {
	Config  string // path of the configuration; root and the group of User can read it
	Secrets string // folder with a file for each secret; only root can read it
	Home    string // systemd makes it
	User    string // runs the service
}

// Where the unit of the whole machine has its files.
const (
	MachineConfig  = "/etc/gateway/config.toml"
	MachineHome    = "/var/lib/gateway"
	machineProgram = "/usr/local/bin/gateway"
)

var machine = Machine{MachineConfig, "/etc/gateway/secrets", MachineHome, "gateway"}

// OfMachine returns where the service of the whole machine has its files. It returns an error if
// this process can't write them.
func OfMachine() (Machine, error) {
	switch {
	case runtime.GOOS != "linux":
		return Machine{}, errors.New("only Linux has a service of the whole machine")
	case os.Geteuid() != 0:
		return Machine{}, errors.New("the configuration of the service belongs to root: run " +
			"\"sudo gateway setup --service\"")
	}
	return machine, nil
}

// Reference returns how the configuration refers to a file in the folder of secrets. systemd gives
// the service copies of these files. The unit gives it the folder as the credential "secret", and
// systemd joins the two names with "_".
func (m Machine) Reference(name string) string {
	return "file:/run/credentials/" + unitName + "/secret_" + name
}

// Command returns the command line that runs the gateway with arguments as the user of the service.
func (m Machine) Command(args string) string {
	return "sudo -u " + m.User + " GATEWAY_HOME=" + m.Home + " gateway " + args
}

// Prepare makes the user, the folders and an empty configuration, as far as they do not exist. It
// returns the group of the user.
func (r Runner) Prepare(ctx context.Context, m Machine) (group int, err error) {
	if _, err := user.Lookup(m.User); err != nil {
		err := r.run(ctx, "useradd", "--system", "--home-dir", m.Home, "--shell",
			"/usr/sbin/nologin", m.User)
		if err != nil {
			return 0, err
		}
	}
	if err := os.MkdirAll(m.Secrets, 0o700); err != nil {
		return 0, err
	}
	// Root can have a umask that closes new folders, and the service must get to its configuration.
	if err := os.Chmod(filepath.Dir(m.Config), 0o755); err != nil {
		return 0, err
	}
	return makeConfig(m.Config, m.User)
}

// makeConfig makes an empty configuration if there is none, and returns the number of its group.
// Only root and the group can read it, because a person may write a token into it.
func makeConfig(path, group string) (id int, err error) {
	g, err := user.LookupGroup(group)
	if err == nil {
		id, err = strconv.Atoi(g.Gid)
	}
	if err != nil {
		return 0, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if errors.Is(err, fs.ErrExist) {
		return id, nil
	}
	if err != nil {
		return 0, err
	}
	// Root can have a umask that takes the group's access away.
	return id, errors.Join(f.Chmod(0o640), f.Chown(-1, id), f.Close())
}

// machineUnit returns the unit in deploy with the path of the program.
func (s Spec) machineUnit() (string, error) {
	// The unit hides these folders from the service.
	for _, closed := range []string{"/root/", "/home/", "/tmp/", "/run/user/"} {
		if strings.HasPrefix(s.Program, closed) {
			return "", fmt.Errorf("the service can't read %s: copy the program to %s with \"install "+
				"-m 0755\", and install the service with that", s.Program, machineProgram)
		}
	}
	if s.Config != "" && s.Config != MachineConfig {
		return "", fmt.Errorf("the service of the whole machine reads %s: copy %s there, and leave "+
			"out -c", MachineConfig, s.Config)
	}
	return strings.ReplaceAll(deploy.Unit, machineProgram, quoteArgument(s.Program)), nil
}

// stateCommand returns the command line that shows whether the gateway of the service is ready. The
// home of the person who installs the service of the whole machine is another one.
func (s Spec) stateCommand() string {
	const args = "health --ready"
	if s.Root {
		return machine.Command(args)
	}
	return "gateway " + args
}

// arguments returns the program and its arguments.
func (s Spec) arguments() []string {
	if s.Config == "" {
		return []string{s.Program, "run"}
	}
	return []string{s.Program, "run", "--config", s.Config}
}

// personalService is the unit for a person's own systemd. That systemd may not confine the gateway
// as the machine's does. The sandbox of the agent's commands does not depend on it.
//
//go:embed personal.service
var personalService string

// personalUnit returns the unit for a person's own systemd.
func (s Spec) personalUnit() string {
	var command []string
	for _, arg := range s.arguments() {
		command = append(command, quoteArgument(arg))
	}
	return strings.NewReplacer("@COMMAND@", strings.Join(command, " "),
		"@HOME@", quoteUnit("GATEWAY_HOME="+s.Home),
		"@ENVIRONMENT@", strings.ReplaceAll(filepath.Join(s.Home, "environment"), "%", "%%"),
	).Replace(personalService)
}

// quoteArgument quotes an argument of a command in a unit, where "$" begins a variable.
func quoteArgument(s string) string { return strings.ReplaceAll(quoteUnit(s), "$", "$$") }

// quoteUnit quotes a value in a unit, where "%" begins a specifier.
func quoteUnit(s string) string {
	plain := strings.ReplaceAll(s, "%", "%%")
	if !strings.ContainsAny(s, " \t'\"\\;") {
		return plain
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(plain) + `"`
}
