//go:build amd64 || arm64

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// Find returns a sandbox of the requested mode that has passed the self-test. If there is none, the
// error wraps [ErrUnavailable] and says why and what can be done.
func Find(ctx context.Context, o Options) (*Sandbox, error) {
	self := cmp.Or(o.Self, "/proc/self/exe") // this path still works if the file is replaced
	switch mode := cmp.Or(o.Mode, Auto); mode {
	case Auto:
		var others []string
		for _, mode := range []string{Bubblewrap, Landlock} {
			s, err := try(ctx, mode, self, o.Bubblewrap)
			if err == nil {
				s.report.Others = others
				return s, nil
			}
			others = append(others, fmt.Sprintf("%s: %v", mode, err))
		}
		return nil, fmt.Errorf("sandbox: %w: %s; %s; install bubblewrap, or run on Linux 6.2 or "+
			"later with Landlock", ErrUnavailable, others[0], others[1])
	case Bubblewrap, Landlock, None:
		s, err := try(ctx, mode, self, o.Bubblewrap)
		if err != nil {
			return nil, fmt.Errorf("sandbox: %w: %s: %w", ErrUnavailable, mode, err)
		}
		return s, nil
	default:
		return nil, fmt.Errorf("sandbox: there is no mode %q; want %s, %s, %s or %s",
			mode, Auto, Bubblewrap, Landlock, None)
	}
}

// try returns a sandbox of one mode if it works on this system.
func try(ctx context.Context, mode, self, bubblewrap string) (*Sandbox, error) {
	s := &Sandbox{mode: mode, self: self, report: Report{Mode: mode}}
	switch mode {
	case Bubblewrap:
		path, err := exec.LookPath(cmp.Or(bubblewrap, "bwrap"))
		if err != nil {
			return nil, fmt.Errorf("it is not installed: %w", err)
		}
		s.bubblewrap = path
	case Landlock:
		abi, err := ll.LandlockGetABIVersion()
		if err != nil {
			return nil, fmt.Errorf("the kernel has no Landlock: %w", err)
		}
		s.setABI(abi)
		if abi < leastABI {
			return nil, fmt.Errorf("the kernel's Landlock is of version %d, needed is %d (Linux 6.2)",
				abi, leastABI)
		}
	}
	if err := s.test(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Sandbox) setABI(abi int) {
	s.abi = abi
	s.report.Weak = []string{"names and attributes of files outside can be seen"}
	if abi < signalABI {
		s.report.Weak = append(s.report.Weak, "signals to other processes of the same user, but not "+
			"to the gateway (Linux 6.12 keeps them in)")
	}
}

// test runs the self-test, which proves that commands are confined.
func (s *Sandbox) test(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	t, err := newTrial()
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	found, err := t.run(ctx, s)
	if err == nil && s.mode != None {
		s.report.Passed, err = t.assess(found)
	}
	if err = errors.Join(err, t.close()); err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	return nil
}
