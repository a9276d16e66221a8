package version

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A gitStore keeps versions as the commits of a bare repository's only branch.
type gitStore struct {
	git, dir string
	lock     *os.File // that is held, or nil
	logger   *slog.Logger
	now      func() time.Time
}

const branch = "refs/heads/main"

// maxGit is how long git may take at once.
const maxGit = 30 * time.Second

// settings are those of every call: nothing is run, fetched or changed but what is asked for.
var settings = []string{
	"core.hooksPath=" + os.DevNull, "core.fsmonitor=false", "core.autocrlf=false",
	"core.attributesFile=" + os.DevNull, "core.fsync=all", "core.quotePath=false",
	"core.commitGraph=false", "commit.gpgSign=false", "log.showSignature=false", "log.follow=false",
	"i18n.logOutputEncoding=UTF-8", "protocol.allow=never", "gc.auto=2000", "gc.autoDetach=false",
	"gc.packRefs=false", "fastimport.unpackLimit=10000", "safe.directory=*",
}

// run runs git with the given input and returns what it says.
func (g *gitStore) run(ctx context.Context, stdin string, args ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, maxGit)
	defer cancel()
	all := []string{"--no-pager", "--git-dir=" + g.dir}
	for _, s := range settings {
		all = append(all, "-c", s)
	}
	cmd := exec.CommandContext(limited, g.git, append(all, args...)...)
	cmd.Dir = filepath.Dir(g.dir)
	cmd.Env = g.environment()
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = time.Second
	if g.lock != nil {
		holdWhile(cmd, g.lock)
	}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if limited.Err() != nil {
			err = limited.Err()
		}
		text, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, text)
	}
	return out.String(), nil
}

// environment returns what git sees of ours: nothing that could change what it does.
func (g *gitStore) environment() []string {
	env := []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "HOME=" + g.dir,
		"XDG_CONFIG_HOME=" + g.dir, "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "SystemRoot", "TEMP", "TMP"} { // git finds itself by them
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// head returns the newest version, or "".
func (g *gitStore) head(ctx context.Context) (string, error) {
	if _, err := os.Stat(g.dir); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	out, err := g.run(ctx, "", "for-each-ref", "--format=%(objectname)", branch)
	return strings.TrimSpace(out), err
}

func (g *gitStore) ids(ctx context.Context) ([]string, error) {
	head, err := g.head(ctx)
	if err != nil || head == "" {
		return nil, err
	}
	out, err := g.run(ctx, "", "rev-list", head, "--")
	return strings.Fields(out), err
}

// logFormat is how commits are written for us. Names in it can't hold a line break.
const logFormat = "--format=%H%n%at%n%an%n%B"

func (g *gitStore) log(ctx context.Context, from string, n int) ([]Version, error) {
	if from == "" {
		var err error
		if from, err = g.head(ctx); err != nil || from == "" {
			return nil, err
		}
	}
	args := []string{"log", "-z", "--no-color", "--no-decorate", "--no-notes", logFormat}
	if n > 0 {
		args = append(args, "--max-count="+strconv.Itoa(n))
	}
	out, err := g.run(ctx, "", append(args, from, "--")...)
	return parseLog(out), err
}

func (g *gitStore) find(ctx context.Context, change string) (Version, error) {
	head, err := g.head(ctx)
	if err != nil || head == "" {
		return Version{}, err
	}
	out, err := g.run(ctx, "", "log", "-z", "--no-color", "--no-decorate", "--no-notes", logFormat,
		"--fixed-strings", "--grep="+changeMark+change, head, "--")
	for _, v := range parseLog(out) {
		if v.Change == change {
			return v, err
		}
	}
	return Version{}, err
}

// changeMark begins the last line of a commit's message, which always has one.
const (
	changeMark = "Change: "
	noChange   = "-"
)

func parseLog(out string) []Version {
	var list []Version
	for entry := range strings.SplitSeq(out, "\x00") {
		parts := strings.SplitN(strings.TrimLeft(entry, "\n"), "\n", 4)
		if len(parts) < 4 {
			continue
		}
		seconds, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil {
			continue // not by us
		}
		v := Version{ID: parts[0], Time: time.Unix(seconds, 0), Author: parts[2]}
		v.Reason = strings.TrimSpace(parts[3])
		i := strings.LastIndex("\n"+v.Reason, "\n"+changeMark)
		if i >= 0 {
			v.Reason, v.Change = strings.TrimSpace(v.Reason[:i]), v.Reason[i+len(changeMark):]
		}
		if v.Change == noChange {
			v.Change = ""
		}
		list = append(list, v)
	}
	return list
}

func (g *gitStore) files(ctx context.Context, id string) (snapshot, error) {
	list, err := g.run(ctx, "", "ls-tree", "-r", "-z", "--full-tree", id)
	if err != nil {
		return nil, err
	}
	var names []string
	var objects strings.Builder
	for entry := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		about, name, ok := strings.Cut(entry, "\t")
		if fields := strings.Fields(about); ok && len(fields) == 3 && fields[1] == "blob" {
			names = append(names, name)
			objects.WriteString(fields[2] + "\n")
		}
	}
	out, err := g.run(ctx, objects.String(), "cat-file", "--batch")
	if err != nil {
		return nil, err
	}
	s := make(snapshot, len(names))
	for _, name := range names {
		head, rest, _ := strings.Cut(out, "\n")
		fields := strings.Fields(head)
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s of version %s: %q", name, id, head)
		}
		size, err := strconv.Atoi(fields[2])
		if err != nil || size < 0 || size >= len(rest) {
			return nil, fmt.Errorf("%s of version %s: %q", name, id, head)
		}
		s[name], out = rest[:size], rest[size+1:]
	}
	return s, nil
}

func (g *gitStore) commit(ctx context.Context, s snapshot, v Version) (Version, error) {
	head, err := g.head(ctx)
	if err != nil {
		return Version{}, err
	}
	var in strings.Builder
	data := func(text string) { fmt.Fprintf(&in, "data %d\n%s\n", len(text), text) }
	fmt.Fprintf(&in, "commit %s\ncommitter %s <> %d +0000\n", branch, v.Author, v.Time.Unix())
	data(v.Reason + "\n\n" + changeMark + cmp.Or(v.Change, noChange) + "\n")
	if head != "" {
		fmt.Fprintf(&in, "from %s\n", head)
	}
	in.WriteString("deleteall\n")
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&in, "M 100644 inline %s\n", quotePath(name))
		data(s[name])
	}
	in.WriteString("\ndone\n")
	// The mark says that a kill may leave something behind.
	if err := os.WriteFile(g.dirty(), nil, 0o600); err != nil {
		return Version{}, err
	}
	_, err = g.run(ctx, in.String(), "fast-import", "--quiet", "--done", "--date-format=raw")
	if err != nil {
		return Version{}, err
	}
	if v.ID, err = g.head(ctx); err != nil {
		return Version{}, err
	}
	if err := os.Remove(g.dirty()); err != nil {
		return Version{}, err
	}
	g.tidy(ctx)
	return v, nil
}

// dirty is a file that is there while the repository is being written.
func (g *gitStore) dirty() string { return filepath.Join(g.dir, "gateway-writes") }

// tidy packs the repository when it has come to hold many files, as one folder of 256 shows.
func (g *gitStore) tidy(ctx context.Context) {
	if entries, err := os.ReadDir(filepath.Join(g.dir, "objects", "17")); err != nil ||
		len(entries) < 8 {
		return
	}
	if _, err := g.run(ctx, "", "gc", "--auto", "--quiet"); err != nil {
		g.logger.WarnContext(ctx, "history not packed", "err", err)
	}
}

// quotePath returns a file's name as fast-import reads it.
func quotePath(name string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(name) + `"`
}
