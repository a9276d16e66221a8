package service

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
)

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
// the service copies of these files.
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
	return id, errors.Join(f.Chown(-1, id), f.Close())
}
