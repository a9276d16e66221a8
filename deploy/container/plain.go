package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// plain is an engine without Docker: it executes the Dockerfile in root file systems that
// debootstrap makes, and runs the result with runc, the runtime that Docker has, too.
type plain struct {
	runtime
	image  *image
	root   string // of the last stage
	volume string // of all containers
}

// findPlain returns the engine if this machine has what it needs.
func findPlain() (*plain, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("container: there is no Docker engine, and only root can do without")
	}
	for _, program := range []string{"runc", "debootstrap"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("container: without a Docker engine, install %s", program)
		}
	}
	dir, err := os.MkdirTemp("", "gateway-container-")
	if err != nil {
		return nil, fmt.Errorf("container: %w", err)
	}
	return &plain{runtime: runtime{dir: dir}, volume: filepath.Join(dir, "volume")}, nil
}

func (p *plain) String() string {
	return "no Docker engine answers: a plain root file system, by debootstrap and runc"
}

func (p *plain) close() error { return os.RemoveAll(p.dir) }

// Images that a stage may begin with, and what stands for them: Debian as debootstrap makes it,
// for golang with the Go of this machine besides.
var (
	debianImage = regexp.MustCompile(`^debian:([a-z]+)-slim$`)
	golangImage = regexp.MustCompile(`^golang:(\d+\.\d+)-([a-z]+)$`)
)

func (p *plain) build(ctx context.Context) error {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		return fmt.Errorf("container: %w", err)
	}
	patterns, err := os.ReadFile(".dockerignore")
	if err != nil {
		return fmt.Errorf("container: %w", err)
	}
	stages, err := parseDockerfile(string(text))
	if err != nil {
		return err
	}
	b := builder{plain: p, ignore: parseIgnore(string(patterns)), roots: make(map[string]string)}
	for i, s := range stages {
		p.root = filepath.Join(p.dir, fmt.Sprintf("stage-%d", i))
		if err := b.stage(ctx, s, p.root); err != nil {
			return err
		}
		b.roots[s.name] = p.root
	}
	// A named volume begins as a copy of what the image has there.
	_, err = output(exec.CommandContext(ctx, "cp", "-a", filepath.Join(p.root, p.image.volume),
		p.volume))
	return err
}

// A builder executes stages.
type builder struct {
	*plain
	ignore ignorer
	roots  map[string]string // by the stage's name
	golang []mount           // Go of this machine, in a stage that begins with it
}

func (b *builder) stage(ctx context.Context, s stage, root string) error {
	if err := b.from(ctx, s.base, root); err != nil {
		return err
	}
	b.image = newImage()
	if b.golang != nil {
		b.image.env[0] += ":/usr/local/go/bin"
	}
	for _, st := range s.steps {
		began := time.Now()
		if done, err := b.image.note(st); err != nil {
			return err
		} else if done {
			continue
		}
		if err := b.step(ctx, st, root); err != nil {
			return fmt.Errorf("container: Dockerfile:%d: %w", st.line, err)
		}
		fmt.Printf("%s %.60s: %.1f s\n", st.op, st.rest, time.Since(began).Seconds())
	}
	return nil
}

func (b *builder) step(ctx context.Context, s step, root string) error {
	switch s.op {
	case "WORKDIR":
		return os.MkdirAll(filepath.Join(root, b.image.dir), 0o755)
	case "COPY":
		return b.copy(s, root)
	default: // RUN
		_, err := b.run(ctx, &bundle{root: root, args: []string{"/bin/sh", "-c", s.rest},
			env: b.image.environ(), dir: b.image.dir, caps: dockerCaps, gains: true,
			mounts: slices.Concat(b.golang, []mount{{"/etc/resolv.conf", "/etc/resolv.conf"}})})
		return err
	}
}

func (b *builder) copy(s step, root string) error {
	words := strings.Fields(s.rest)
	source, ignore := ".", b.ignore
	if s.from != "" {
		var ok bool
		if source, ok = b.roots[s.from]; !ok {
			return fmt.Errorf("there is no stage %s", s.from)
		}
		ignore = nil
	}
	last := words[len(words)-1]
	target := last
	if !filepath.IsAbs(target) {
		target = filepath.Join(b.image.dir, target)
	}
	for _, file := range words[:len(words)-1] {
		folder := strings.HasSuffix(last, "/")
		if err := copyInto(source, file, filepath.Join(root, target), folder, ignore); err != nil {
			return err
		}
	}
	return nil
}

// from makes a root for what stands for an image.
func (b *builder) from(ctx context.Context, image, root string) error {
	b.golang = nil
	suite := ""
	if m := debianImage.FindStringSubmatch(image); m != nil {
		suite = m[1]
	} else if m := golangImage.FindStringSubmatch(image); m != nil {
		suite = m[2]
		if err := b.findGo(ctx, m[1]); err != nil {
			return err
		}
	} else {
		return fmt.Errorf("container: nothing stands for the image %s", image)
	}
	base := filepath.Join(b.dir, suite)
	if _, err := os.Stat(base); err != nil {
		began := time.Now()
		cmd := exec.CommandContext(ctx, "debootstrap", "--variant=minbase", suite, base)
		if _, err := output(cmd); err != nil {
			return err
		}
		fmt.Printf("debootstrap %s: %.1f s\n", suite, time.Since(began).Seconds())
	}
	_, err := output(exec.CommandContext(ctx, "cp", "-a", base, root))
	return err
}

// findGo finds the Go of this machine, which must be of the version of the image, and its caches.
func (b *builder) findGo(ctx context.Context, version string) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOROOT", "GOMODCACHE",
		"GOCACHE").Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) != 4 {
		return fmt.Errorf("container: go env: %q, %w", out, err)
	}
	if v := lines[0]; v != "go"+version && !strings.HasPrefix(v, "go"+version+".") {
		return fmt.Errorf("container: the Dockerfile wants Go %s, here is %s", version, v)
	}
	b.golang = []mount{{lines[1], "/usr/local/go"}, {lines[2], "/root/go/pkg/mod"},
		{lines[3], "/root/.cache/go-build"}, {"/etc/ssl/certs", "/etc/ssl/certs"}}
	return nil
}

func (p *plain) start(ctx context.Context, o options) (container, error) {
	b := &bundle{root: p.root, readOnly: o.hardened, gains: !o.hardened,
		args: slices.Concat(p.image.entrypoint, o.args), env: slices.Concat(p.image.env, o.env),
		dir: p.image.dir, uid: p.image.uid, gid: p.image.gid,
		mounts: []mount{{p.volume, p.image.volume}}, open: o.open, filter: o.filter}
	if o.hardened {
		b.tmpfs = []string{"/tmp"}
	}
	name, cmd, err := p.prepare(ctx, b)
	if err != nil {
		return nil, err
	}
	c := &plainContainer{p: p, name: name, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &c.log, &c.log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("container: runc: %w", err)
	}
	go func() { // ends with the container; wait and stop wait for it
		defer close(c.ended)
		_ = cmd.Wait() // the code says how it ended
		c.code = cmd.ProcessState.ExitCode()
	}()
	return c, nil
}

// A plainContainer is a process in a root file system of its own.
type plainContainer struct {
	p     *plain
	name  string
	log   buffer
	ended chan struct{} // closed when it has; then code is set
	code  int
}

func (c *plainContainer) exec(ctx context.Context, args ...string) (string, error) {
	return output(c.p.command(ctx, append([]string{"exec", c.name}, args...)...))
}

func (c *plainContainer) healthy(ctx context.Context) error {
	_, err := c.exec(ctx, c.p.image.health...)
	return err
}

func (c *plainContainer) stop(ctx context.Context) (int, error) {
	signal := strings.TrimPrefix(c.p.image.stop, "SIG")
	if _, err := output(c.p.command(ctx, "kill", c.name, signal)); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	code, log, err := c.wait(ctx)
	if err != nil {
		_, _ = output(c.p.command(ctx, "kill", c.name, "KILL")) // the first error counts
		err = fmt.Errorf("%w after %s:\n%s", err, signal, log)
	}
	return code, err
}

func (c *plainContainer) wait(ctx context.Context) (int, string, error) {
	select {
	case <-c.ended:
		return c.code, c.log.String(), nil
	case <-ctx.Done():
		return 0, c.log.String(), fmt.Errorf("container: it has not ended: %w", ctx.Err())
	}
}

// A buffer keeps what a process prints while others read it.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
