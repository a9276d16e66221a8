package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A bundle is what a process in a root file system of its own is given: what Docker's flags say,
// in the words of the OCI runtime specification.
type bundle struct {
	root     string // folder on this machine
	readOnly bool
	args     []string
	env      []string
	dir      string
	uid, gid int
	caps     []string
	mounts   []mount
	tmpfs    []string // paths
	open     bool     // /proc is not restricted, nor are system calls but by filter
	filter   object   // of system calls, where it is open; nil: none
	gains    bool     // setuid programs work
}

// A mount shows a folder or a file of this machine.
type mount struct{ source, target string }

// dockerCaps are the capabilities that Docker leaves to root, as far as a build needs them.
var dockerCaps = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID",
	"CAP_SETGID", "CAP_SETUID", "CAP_SETFCAP", "CAP_SYS_CHROOT", "CAP_KILL"}

// refused are the system calls that engines' default profiles refuse to those without
// CAP_SYS_ADMIN, as far as a sandbox could use them.
var refused = []string{"mount", "umount2", "pivot_root", "unshare", "setns", "sethostname",
	"fsopen", "fsmount", "fsconfig", "open_tree", "move_mount", "mount_setattr", "bpf",
	"perf_event_open", "keyctl", "add_key", "request_key"}

// hidden and kept are the parts of /proc and /sys that engines mask and make read-only.
var (
	hidden = []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list",
		"/proc/sched_debug", "/proc/scsi", "/sys/firmware"}
	kept = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// object is a JSON object.
type object = map[string]any

// config returns config.json of the bundle.
func (b *bundle) config() object {
	mounts := []object{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
			"options": []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{"destination": "/dev/pts", "type": "devpts", "source": "devpts",
			"options": []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		{"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
			"options": []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
	}
	for _, path := range b.tmpfs {
		mounts = append(mounts, object{"destination": path, "type": "tmpfs", "source": "tmpfs",
			"options": []string{"nosuid", "noexec", "nodev", "mode=1777", "size=512m"}})
	}
	for _, m := range b.mounts {
		mounts = append(mounts, object{"destination": m.target, "type": "bind", "source": m.source,
			"options": []string{"rbind", "rprivate"}})
	}
	sets := object{}
	for _, set := range []string{"bounding", "effective", "permitted"} {
		sets[set] = append([]string{}, b.caps...)
	}
	linux := object{"namespaces": []object{
		{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}}
	if !b.open {
		linux["maskedPaths"], linux["readonlyPaths"] = hidden, kept
		linux["seccomp"] = profile()
	} else if b.filter != nil {
		linux["seccomp"] = b.filter
	}
	return object{
		"ociVersion": "1.0.0", "hostname": "container", "mounts": mounts, "linux": linux,
		"root": object{"path": b.root, "readonly": b.readOnly},
		"process": object{"args": b.args, "env": b.env, "cwd": b.dir, "noNewPrivileges": !b.gains,
			"user": object{"uid": b.uid, "gid": b.gid}, "capabilities": sets},
	}
}

// Numbers of Linux, which package syscall has on Linux only.
const (
	eperm, enosys = 1, 38

	newCgroup  = 0x02000000 // flags of clone, in their order
	newNetwork = 0x40000000
	newMounts  = 0x00020000
)

// profile is a filter of system calls that does to a sandbox what the default one of Docker does.
func profile() object {
	rules := []object{
		{"names": refused, "action": "SCMP_ACT_ERRNO", "errnoRet": eperm},
		{"names": []string{"clone3"}, "action": "SCMP_ACT_ERRNO", "errnoRet": enosys},
	}
	flags := []int{newMounts}
	for flag := newCgroup; flag <= newNetwork; flag <<= 1 {
		flags = append(flags, flag)
	}
	for _, flag := range flags {
		rules = append(rules, object{"names": []string{"clone"}, "action": "SCMP_ACT_ERRNO",
			"errnoRet": eperm, "args": []object{
				{"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"}}})
	}
	return object{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}
}

// A runtime runs bundles with runc.
type runtime struct {
	dir  string // for bundles and for runc's own state
	next int
}

// command returns a call of runc.
func (r *runtime) command(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"--root", filepath.Join(r.dir, "state")}, args...)
	return exec.CommandContext(ctx, "runc", args...)
}

// prepare writes a bundle and returns the name of its container and the call that runs it to
// its end.
func (r *runtime) prepare(ctx context.Context, b *bundle) (string, *exec.Cmd, error) {
	r.next++
	name := fmt.Sprintf("%s-%d", filepath.Base(r.dir), r.next)
	dir := filepath.Join(r.dir, name)
	text, err := json.Marshal(b.config())
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)
	}
	if err != nil {
		return "", nil, fmt.Errorf("container: %w", err)
	}
	return name, r.command(ctx, "run", "--bundle", dir, name), nil
}

// run runs a bundle to its end and returns what it prints.
func (r *runtime) run(ctx context.Context, b *bundle) (string, error) {
	_, cmd, err := r.prepare(ctx, b)
	if err != nil {
		return "", err
	}
	return output(cmd)
}

// output runs a command and returns what it prints, also with an error.
func output(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("container: %s: exit code %d:\n%s", strings.Join(cmd.Args, " "),
			exit.ExitCode(), out.String())
	}
	return out.String(), err
}
