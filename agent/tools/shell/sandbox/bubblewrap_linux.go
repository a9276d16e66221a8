//go:build amd64 || arm64

package sandbox

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// File descriptors that bwrap inherits beside the three standard ones.
const (
	filterFD    = 3
	argumentsFD = 4
)

// arguments returns the arguments of bwrap for the job.
func (j *job) arguments() []string {
	args := []string{
		"--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
		"--hostname", "sandbox", "--clearenv",
	}
	if j.Network {
		args = append(args, "--share-net")
	}
	for _, entry := range withEnv(j.Env, "TMPDIR=/tmp") {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
			args = append(args, "--setenv", name, value)
		}
	}
	size := strconv.FormatInt(max(j.Limits.Temporary, 1<<20), 10)
	// A gateway that runs as root runs commands as root. Root can write to many files of /proc even
	// without capabilities.
	args = append(args, "--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev",
		"--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev",
		"--size", size, "--perms", "1777", "--tmpfs", "/tmp", "--symlink", "/tmp", "/var/tmp")
	args = append(args, systemMounts(j.Network)...)
	args = append(args, j.mounts()...)
	// The root is a file system in memory. Files there would not count towards the limits.
	return append(args, "--remount-ro", "/", "--chdir", j.Dir,
		"--seccomp", strconv.Itoa(filterFD))
}

// systemMounts returns the arguments that mount the system's folders and files.
func systemMounts(network bool) []string {
	var args []string
	for _, path := range systemFolders {
		info, err := os.Lstat(path)
		if err != nil {
			continue // does not exist on this system
		}
		if info.Mode()&os.ModeSymlink == 0 {
			args = append(args, "--ro-bind", path, path)
		} else if target, err := os.Readlink(path); err == nil {
			args = append(args, "--symlink", target, path)
		}
	}
	files := systemFiles
	if network {
		files = slices.Concat(files, networkFiles)
	}
	for _, path := range files {
		args = append(args, "--ro-bind-try", path, path)
	}
	return args
}

// mounts returns the arguments that mount the job's paths, outer folders first.
func (j *job) mounts() []string {
	type mount struct{ how, path string }
	var list []mount
	for _, path := range j.ReadOnly {
		list = append(list, mount{"--ro-bind", path})
	}
	for _, path := range j.ReadWrite {
		list = append(list, mount{"--bind", path})
	}
	slices.SortStableFunc(list, func(a, b mount) int { return cmp.Compare(len(a.path), len(b.path)) })
	var args []string
	for _, m := range list {
		args = append(args, m.how, m.path, m.path)
	}
	return args
}

// wrap returns the command line of bwrap for the job and the files that bwrap inherits: the filter
// and the arguments. The arguments may contain secrets, so they must not be visible in the list of
// processes.
func (j *job) wrap() (argv []string, files []*os.File, err error) {
	program, err := filter{network: j.Network}.bytes()
	if err != nil {
		return nil, nil, err
	}
	rules, err := memoryFile("filter", program)
	if err != nil {
		return nil, nil, err
	}
	list := strings.Join(j.arguments(), "\x00") + "\x00"
	arguments, err := memoryFile("arguments", []byte(list))
	if err != nil {
		_ = rules.Close() // report the first error
		return nil, nil, fmt.Errorf("arguments of bwrap: %w", err)
	}
	argv = append([]string{j.Bubblewrap, "--args", strconv.Itoa(argumentsFD), "--"}, j.Argv...)
	return argv, []*os.File{rules, arguments}, nil
}
