//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// leastABI is the oldest usable version of Landlock: older ones do not prevent that files outside
// are truncated. Since signalABI, Landlock also restricts signals.
const (
	leastABI  = 3 // Linux 6.2
	signalABI = 6 // Linux 6.12
)

// Access rights below a path.
const (
	reading = ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSReadDir
	onFiles = ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSWriteFile |
		ll.AccessFSTruncate // the rights that apply to files
	writing = reading | onFiles | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile |
		ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeFifo | ll.AccessFSMakeSym |
		ll.AccessFSRefer
	device = ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate
)

// ruleset returns all accesses that this version of Landlock can restrict.
func ruleset(abi int, network bool) ll.RulesetAttr {
	known := uint64(ll.AccessFSRefer<<1 - 1)
	if abi >= 3 {
		known |= ll.AccessFSTruncate
	}
	if abi >= 5 {
		known |= ll.AccessFSIoctlDev
	}
	if abi >= 9 {
		known |= ll.AccessFSResolveUnix
	}
	a := ll.RulesetAttr{HandledAccessFS: known}
	if abi >= 4 && !network {
		a.HandledAccessNet = ll.AccessNetBindTCP | ll.AccessNetConnectTCP
	}
	if abi >= 10 && !network {
		a.HandledAccessNet |= ll.AccessNetBindUDP | ll.AccessNetConnectSendUDP
	}
	if abi >= signalABI {
		a.Scoped = ll.ScopeAbstractUnixSocket | ll.ScopeSignal
	}
	return a
}

// rules creates the ruleset for the job, whose temporary folder is tmp. The caller closes fd.
func (j *job) rules(tmp string) (fd int, err error) {
	attr := ruleset(j.ABI, j.Network)
	fd, err = ll.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return -1, fmt.Errorf("landlock: rules: %w", err)
	}
	optional := slices.Concat(systemFolders, systemFiles, kernelFiles)
	if j.Network {
		optional = append(optional, networkFiles...)
	}
	add := func(paths []string, access uint64, needed bool) {
		for _, path := range paths {
			if err != nil {
				return
			}
			err = addRule(fd, path, access&attr.HandledAccessFS)
			if errors.Is(err, fs.ErrNotExist) && !needed {
				err = nil
			}
		}
	}
	add(optional, reading, false)
	add(devices, device, false)
	add(j.ReadOnly, reading, true)
	add(append([]string{tmp}, j.ReadWrite...), writing, true)
	if err != nil {
		_ = unix.Close(fd) // report the first error
		return -1, err
	}
	return fd, nil
}

func addRule(rules int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("landlock: rule for %s: %w", path, err)
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("landlock: rule for %s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= onFiles
	}
	attr := ll.PathBeneathAttr{AllowedAccess: access, ParentFd: fd}
	if err := ll.LandlockAddPathBeneathRule(rules, &attr, 0); err != nil {
		return fmt.Errorf("landlock: rule for %s: %w", path, err)
	}
	return nil
}

// confine restricts the calling thread, and the processes that it starts, permanently. It returns
// the file from which the supervisor reads the system calls that wait for it.
func (j *job) confine(tmp string) (listener int, err error) {
	rules, err := j.rules(tmp)
	if err != nil {
		return -1, err
	}
	defer unix.Close(rules)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("no new privileges: %w", err)
	}
	if err := dropCapabilities(); err != nil {
		return -1, err
	}
	if err := ll.LandlockRestrictSelf(rules, 0); err != nil {
		return -1, fmt.Errorf("landlock: restrict: %w", err)
	}
	f := filter{network: j.Network, notify: true}
	if j.ABI < signalABI {
		f.protect = []int{j.Parent, unix.Getpid(), 1}
		if group, err := unix.Getpgid(j.Parent); err == nil {
			f.protect = append(f.protect, group)
		}
	}
	// WAIT_KILLABLE_RECV, since Linux 5.19, prevents that a signal interrupts a system call that
	// the supervisor is answering.
	return load(f.rules(), unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|
		unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
}

// dropCapabilities drops all capabilities of the calling thread. The processes that it starts can't
// get any; otherwise root would get all of them again.
func dropCapabilities() error {
	const most = 63 // more than the kernel has; it reports the end
	for c := range uintptr(most + 1) {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // the kernel has no more capabilities
		}
		// An unprivileged process can't drop them from the bounding set, but with no_new_privs it
		// can't gain any either.
		if err != nil && !(errors.Is(err, unix.EPERM) && unix.Geteuid() != 0) {
			return fmt.Errorf("capabilities: bounding set: %w", err)
		}
	}
	err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("capabilities: ambient: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}
