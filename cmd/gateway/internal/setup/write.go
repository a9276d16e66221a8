package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/service"
	"gateway/store/atomicfile"
)

// secretFolder is the folder of secrets below the home.
const secretFolder = "secrets"

// finish writes the answers, links WhatsApp accounts, and says what to do next.
func (w *wizard) finish(ctx context.Context) error {
	w.printf("")
	if w.failed != nil {
		return fmt.Errorf("%s can't be changed by this command: %w", w.path, w.failed)
	}
	if len(w.secrets) == 0 && bytes.Equal(w.before, w.text) {
		w.printf("Nothing has to be written.")
	} else if err := w.write(ctx); err != nil {
		return err
	}
	load := config.Load
	if w.machine != nil {
		load = config.LoadWithoutSecrets // only the service can read systemd's copies of them
	}
	next, err := load(existing(w.path), w.environ)
	if err != nil {
		return fmt.Errorf("the configuration is written, but the gateway can't start with it "+
			"here:\n%w", err)
	}
	for _, l := range w.pair {
		err := errors.New("linking needs a person with the phone")
		if !w.quiet {
			w.printf("\nOn the phone of the account, open WhatsApp, Linked devices, Link a device.")
			err = w.Pair(ctx, next, l.account, l.phone, w.out)
		}
		if err != nil {
			w.printf("%s is not linked: %v.", l.account, err)
			w.unlinked = append(w.unlinked, l.account)
		}
	}
	w.printNext(ctx, next)
	return nil
}

// existing returns the path of a configuration file for the loader, or "" if it does not exist.
func existing(path string) string {
	if exists(path) {
		return path
	}
	return ""
}

// write writes the answers after a last question. It writes the secrets before the configuration
// that refers to them.
func (w *wizard) write(ctx context.Context) error {
	w.printf("To be written:\n  %s: %s", w.path, strings.Join(w.tables, ", "))
	for _, name := range slices.Sorted(maps.Keys(w.secrets)) {
		w.printf("  %s", filepath.Join(w.folder(), name))
	}
	yes, err := w.confirm(ctx, "Write this?", true)
	if err != nil {
		return err
	}
	if !yes {
		return errStopped
	}
	group, err := makeFolders(ctx, w)
	if err == nil {
		err = w.check()
	}
	if err != nil {
		return err
	}
	if len(w.secrets) > 0 {
		if err := os.MkdirAll(w.folder(), 0o700); err != nil {
			return err
		}
	}
	for name, text := range w.secrets {
		path := filepath.Join(w.folder(), name)
		if err := atomicfile.WritePath(path, []byte(text+"\n"), 0o600); err != nil {
			return err
		}
	}
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(w.path); err == nil {
		mode = info.Mode().Perm()
	}
	if !bytes.Equal(w.before, w.text) {
		if err := atomicfile.WriteFor(w.path, w.text, mode, group); err != nil {
			return err
		}
	}
	w.printf("Written.")
	return nil
}

// folder returns the folder of the secrets.
func (w *wizard) folder() string {
	if w.machine != nil {
		return w.machine.Secrets
	}
	return filepath.Join(w.cfg.Gateway.Home, secretFolder)
}

// makeFolders makes the folders of the configuration, and what else the service of the whole
// machine needs. It returns the group of the configuration, or -1 for that of this process.
func makeFolders(ctx context.Context, w *wizard) (group int, err error) {
	if w.machine != nil {
		return service.Runner{Out: w.out}.Prepare(ctx, *w.machine)
	}
	for _, dir := range []string{w.cfg.Gateway.Home, filepath.Dir(w.path)} {
		err = errors.Join(err, os.MkdirAll(dir, 0o700))
	}
	return -1, err
}

// check returns an error if a gateway would refuse the new text, or if the file has changed since
// the start.
func (w *wizard) check() error {
	now, err := os.ReadFile(w.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !bytes.Equal(now, w.before) {
		return fmt.Errorf("%s has changed meanwhile, so nothing was written: run this again", w.path)
	}
	temp, err := os.CreateTemp(filepath.Dir(w.path), ".gateway-*.tmp") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(w.text)
	if err := errors.Join(err, temp.Close()); err != nil {
		return err
	}
	// The files of the secrets do not exist yet.
	if _, err = config.LoadWithoutSecrets(temp.Name(), w.environ); err != nil {
		return app.NewUsageError(fmt.Errorf("nothing was written, because a gateway would refuse it:\n%s",
			strings.ReplaceAll(err.Error(), temp.Name(), w.path)))
	}
	return nil
}

// printNext prints what to do next.
func (w *wizard) printNext(ctx context.Context, next *config.Config) {
	w.printf("")
	pair, approve := "gateway pair ", "gateway people approve CODE"
	if w.machine != nil {
		pair = w.machine.Command("-c " + w.path + " pair ")
		approve = w.machine.Command("people approve CODE")
	}
	switch running := w.Running(ctx, w.cfg); {
	case running && w.machine != nil:
		w.printf("The service runs. Restart it, to apply this: systemctl restart gateway")
	case running:
		w.printRunning(next)
	case w.machine != nil:
		w.printf("Start it, now and with the machine: gateway service install")
	default:
		w.printf("Start it: gateway\nKeep it running, also after a restart of the machine: " +
			"gateway service install")
	}
	for _, account := range w.unlinked {
		w.printf("Link %s with its phone: %s%[1]s", account, pair)
	}
	for _, account := range w.later {
		w.printf("Write to the bot of %s. It answers with a code: %s", account, approve)
	}
}

// printRunning prints whether a running gateway applies the changes by itself or needs a restart.
func (w *wizard) printRunning(next *config.Config) {
	restart := config.Changed(config.Merge(w.cfg, next), next)
	if len(w.secrets) > 0 && bytes.Equal(w.before, w.text) {
		restart = append(restart, "a secret in a file")
	}
	switch {
	case len(restart) > 0:
		w.printf("A gateway runs here. Restart it with /restart in a chat, to apply: %s",
			strings.Join(restart, ", "))
	case len(w.tables) > 0:
		w.printf("The running gateway applies this by itself.")
	default:
		w.printf("A gateway runs here.")
	}
}
