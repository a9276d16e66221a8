package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// An engine builds the image and runs it.
type engine interface {
	// String says what it is.
	String() string

	// build makes the image as the Dockerfile says.
	build(ctx context.Context) error

	// start runs the gateway with a volume that all containers of the engine share.
	start(ctx context.Context, o options) (container, error)

	// close removes everything that it has made.
	close() error
}

// options are what docker run is told.
type options struct {
	env      []string
	hardened bool     // as in compose.yml
	open     bool     // without the engine's restriction of system calls and of /proc
	filter   object   // of system calls, if it is open; nil: none
	args     []string // a command of the gateway; none: it serves
}

// A container is one that runs.
type container interface {
	// exec runs a program in it, and returns what it prints.
	exec(ctx context.Context, args ...string) (string, error)

	// healthy runs the image's health check, or asks the engine for the last one.
	healthy(ctx context.Context) error

	// stop ends it as docker stop does, and returns its exit code.
	stop(ctx context.Context) (int, error)

	// wait waits for its end, and returns its exit code and what it has printed.
	wait(ctx context.Context) (int, string, error)
}

// stopTime is how long a container has to end after its signal: as in compose.yml.
const stopTime = 30 * time.Second

// docker is an engine of Docker's.
type docker struct{ image, volume, version string }

// findDocker returns Docker if it answers, or nil.
func findDocker(ctx context.Context) *docker {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", "info", "--format",
		"{{.ServerVersion}}").Output()
	if err != nil || strings.TrimSpace(string(out)) == "" {
		return nil
	}
	name := fmt.Sprintf("gateway-try-%d", os.Getpid())
	return &docker{image: name, volume: name, version: strings.TrimSpace(string(out))}
}

// call calls Docker's command line.
func call(ctx context.Context, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "docker", args...))
}

func (d *docker) String() string { return "Docker Engine " + d.version }

func (d *docker) build(ctx context.Context) error {
	_, err := call(ctx, "build", "--build-arg", "VERSION=try", "--tag", d.image, ".")
	return err
}

func (d *docker) start(ctx context.Context, o options) (container, error) {
	args := []string{"run", "--detach", "--network", "host", "--volume", d.volume + ":/data",
		"--health-interval", "1s"}
	for _, v := range o.env {
		args = append(args, "--env", v)
	}
	if o.hardened {
		args = append(args, "--read-only", "--cap-drop", "ALL", "--init",
			"--tmpfs", "/tmp:mode=1777", "--security-opt", "no-new-privileges",
			"--memory", "2g", "--pids-limit", "1024")
	}
	if o.open {
		filter := "unconfined"
		if o.filter != nil {
			file, err := writeFilter(o.filter)
			if err != nil {
				return nil, err
			}
			defer os.Remove(file)
			filter = file
		}
		args = append(args, "--security-opt", "seccomp="+filter,
			"--security-opt", "systempaths=unconfined", "--security-opt", "apparmor=unconfined")
	}
	out, err := call(ctx, append(append(args, d.image), o.args...)...)
	if err != nil {
		return nil, err
	}
	return dockerContainer(strings.TrimSpace(string(out))), nil
}

// writeFilter writes a filter of system calls where Docker's command line can read it.
func writeFilter(filter object) (file string, err error) {
	f, err := os.CreateTemp("", "gateway-filter-*.json")
	if err != nil {
		return "", fmt.Errorf("container: %w", err)
	}
	if err = errors.Join(json.NewEncoder(f).Encode(filter), f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("container: %w", err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}

func (d *docker) close() error {
	ctx := context.Background() // also after a signal
	out, err := call(ctx, "ps", "--all", "--quiet", "--filter", "ancestor="+d.image)
	if ids := strings.Fields(out); err == nil && len(ids) > 0 {
		_, err = call(ctx, append([]string{"rm", "--force"}, ids...)...)
	}
	_, volume := call(ctx, "volume", "rm", "--force", d.volume)
	_, image := call(ctx, "rmi", "--force", d.image)
	return errors.Join(err, volume, image)
}

// A dockerContainer is the ID of one.
type dockerContainer string

func (c dockerContainer) exec(ctx context.Context, args ...string) (string, error) {
	return call(ctx, append([]string{"exec", string(c)}, args...)...)
}

func (c dockerContainer) healthy(ctx context.Context) error {
	out, err := call(ctx, "inspect", "--format", "{{.State.Health.Status}}", string(c))
	if state := strings.TrimSpace(out); err == nil && state != "healthy" {
		err = fmt.Errorf("container: health: %s", state)
	}
	return err
}

func (c dockerContainer) stop(ctx context.Context) (int, error) {
	seconds := strconv.Itoa(int(stopTime.Seconds()))
	if _, err := call(ctx, "stop", "--time", seconds, string(c)); err != nil {
		return 0, err
	}
	code, _, err := c.wait(ctx)
	return code, err
}

func (c dockerContainer) wait(ctx context.Context) (code int, log string, err error) {
	out, err := call(ctx, "wait", string(c))
	if err == nil {
		_, err = fmt.Sscan(out, &code)
	}
	if err == nil {
		log, err = call(ctx, "logs", string(c))
	}
	return code, log, err
}
