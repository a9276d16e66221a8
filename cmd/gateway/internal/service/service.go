// Package service keeps the gateway running on this machine: with a systemd unit on Linux, and with
// a launchd agent on macOS. The unit that root installs runs as a separate user and is confined.
// The unit of another person runs in that person's session.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// Names of the service.
const (
	unitName = "gateway.service"
	label    = "io.github.gateway" // of launchd, whose names are reversed domains
)

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

func (r Runner) run(ctx context.Context, name string, args ...string) error {
	fmt.Fprintf(r.Out, "+ %s %s\n", name, strings.Join(args, " "))
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
		_ = r.run(ctx, "launchctl", "bootout", domain()+"/"+label) // it may not exist
		return r.run(ctx, "launchctl", "bootstrap", domain(), file)
	}
	for _, args := range [][]string{{"daemon-reload"}, {"enable", unitName}, {"restart", unitName}} {
		if err := r.run(ctx, "systemctl", s.systemctl(args...)...); err != nil {
			return err
		}
	}
	if s.Root {
		return nil
	}
	if err := r.run(ctx, "loginctl", "enable-linger"); err != nil {
		fmt.Fprintf(r.Out, "The gateway ends when you log out, because systemd refused to keep it "+
			"running: %v\nAsk root for \"loginctl enable-linger %s\".\n", err, filepath.Base(s.User))
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
		err = r.run(ctx, "launchctl", "bootout", domain()+"/"+label)
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

// domain returns the launchd domain of this person's session.
func domain() string { return "gui/" + strconv.Itoa(os.Getuid()) }

func (s Spec) systemctl(args ...string) []string {
	if s.Root {
		return args
	}
	return slices.Insert(slices.Clone(args), 0, "--user")
}
