// Package setup is the command "gateway setup": it asks a person for the settings that a gateway
// needs, tries them, and writes them into the configuration. The main type is wizard.
//
// Nothing is written before all questions are answered. Each secret gets a file of its own in the
// folder "secrets" of the home, and is never shown. The configuration file is edited key by key. It
// is replaced only by a text with which the gateway can start.
package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/doctor"
	"gateway/cmd/gateway/internal/service"
	"gateway/store/atomicfile"
)

// Options are the functions of the command line that this package needs. All fields are required.
type Options struct {
	// Load returns the configuration, also if it has mistakes.
	Load func() (*config.Config, error)

	// Running reports whether a gateway runs in the home of the configuration.
	Running func(context.Context, *config.Config) bool

	// Pair links a WhatsApp account with its phone. It shows a QR code on out, or a code to type in
	// if phone, the number of the account, is not "".
	Pair func(ctx context.Context, cfg *config.Config, account, phone string, out io.Writer) error

	// Machine returns where the service of the whole machine has its files, or an error if this
	// process can't write them.
	Machine func() (service.Machine, error)
}

// flags are the flags that answer questions, with their help. The value of a flag for a secret is a
// reference: see [config.Follow].
var flags = []struct{ name, help string }{
	{"provider", "provider of the model: openai, anthropic, …, ollama, lmstudio, other or demo"},
	{"base-url", "address of the model's API"},
	{"key", "the provider's key"},
	{"model", "name that the provider gives the model"},
	{"telegram-token", "token of a bot on Telegram"},
	{"telegram-owner", "id of the gateway's owner on Telegram"},
	{"discord-token", "token of a bot on Discord"},
	{"discord-owner", "id of the gateway's owner on Discord"},
	{"whatsapp-owner", "phone number of the gateway's owner on WhatsApp"},
	{"timezone", `time zone, such as "Europe/Berlin"`},
}

// secretFlags are the flags for secrets.
var secretFlags = []string{"key", "telegram-token", "discord-token"}

// Command returns the command "setup".
func Command(o Options) *cobra.Command {
	var quiet, offline, forService bool
	values := make(map[string]*string)
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Ask for model, chat platforms and owner, try them, and write the configuration",
		Long: `Ask for model, chat platforms and owner, try them, and write the configuration.

The command writes nothing before you have answered the last question, and Ctrl-C leaves everything
as it was. Run it again to change something: an empty answer keeps the present value. Comments and
other keys of config.toml stay. Each secret gets a file in the home that only you can read.

Root configures the service of the whole machine with --service: config.toml and the secrets in
/etc/gateway, with the owner and the modes that the service needs.

A flag answers its question. Give secrets as "env:NAME" or "file:PATH"; the command reads them once.
Without a terminal, each line of standard input is an answer.`,
		Example: "gateway setup\n" +
			"gateway setup --no-input --provider openai --key env:OPENAI_API_KEY " +
			"--telegram-token file:token",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := make(map[string]string)
			for name, value := range values {
				// An empty value is an answer, too, if the flag is given.
				if !cmd.Flags().Changed(name) {
					continue
				}
				given[name] = *value
				if slices.Contains(secretFlags, name) {
					var err error
					if given[name], err = config.Follow(*value, os.Environ()); err != nil {
						return app.UsageErrorf("--%s: %w", name, err)
					}
				}
			}
			w := &wizard{Options: o, asker: &asker{in: os.Stdin, out: cmd.OutOrStdout(),
				terminal: term.IsTerminal(int(os.Stdin.Fd())), given: given, quiet: quiet},
				offline: offline, environ: os.Environ(), secrets: make(map[string]string)}
			if forService {
				m, err := o.Machine()
				if err != nil {
					return app.NewUsageError(err)
				}
				w.machine = &m
			}
			return w.run(cmd.Context())
		},
	}
	for _, f := range flags {
		help := f.help
		if slices.Contains(secretFlags, f.name) {
			help += `, as "env:NAME" or "file:PATH"`
		}
		values[f.name] = cmd.Flags().String(f.name, "", help)
	}
	cmd.Flags().BoolVar(&quiet, "no-input", false,
		"ask nothing: everything without a flag stays as it is")
	cmd.Flags().BoolVar(&offline, "offline", false, "try nothing that needs a network")
	cmd.Flags().BoolVar(&forService, "service", false,
		"for root: configure the service of the whole machine")
	return cmd
}

// A wizard is one run of the questions.
type wizard struct {
	Options
	*asker
	offline bool
	environ []string         // variables of the gateway
	machine *service.Machine // the service to configure; nil: this person's gateway

	cfg      *config.Config    // as it was at the start
	path     string            // of the configuration file
	before   document          // text of the file at the start
	text     document          // text with the answers
	tables   []string          // tables with a changed key
	failed   error             // errors of edits
	secrets  map[string]string // content of files, by their name in the folder of secrets
	later    []string          // accounts whose owner gets a code
	pair     []link            // WhatsApp accounts to link at the end
	unlinked []string          // WhatsApp accounts to link later
}

// A link is a WhatsApp account to link with a phone.
type link struct {
	account string
	phone   string // its number, for a code to type in; "": a QR code
}

// run asks all questions and writes what they have changed.
func (w *wizard) run(ctx context.Context) error {
	if err := w.open(); err != nil {
		return err
	}
	w.printf("This sets up the gateway in %s. Nothing is written before the end; Ctrl-C leaves\n"+
		"everything as it is.", w.cfg.Gateway.Home)
	if w.machine == nil && os.Geteuid() == 0 && exists(service.MachineConfig) {
		w.printf("For the service of the whole machine run \"gateway setup --service\".")
	}
	for _, step := range []func(context.Context) error{
		w.askModel, w.askBots, w.askWhatsApp, w.askZone,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return w.finish(ctx)
}

// open reads the configuration as it is.
func (w *wizard) open() (err error) {
	if w.machine != nil {
		err = w.loadMachine()
	} else if w.cfg, err = w.Load(); err == nil {
		w.path = w.cfg.File
	}
	if err != nil {
		return err
	}
	// This command asks for tokens and models, so it can correct mistakes in them.
	mistakes := w.cfg.MistakesExcept(func(key string) bool {
		return key == "agent.model" || strings.HasPrefix(key, "channels.") &&
			strings.HasSuffix(key, ".token")
	})
	if mistakes != nil {
		return app.UsageErrorf("correct these first, because this command can't add to a configuration "+
			"with mistakes:\n%w", mistakes)
	}
	if exists(w.path) {
		// The file will be replaced. If its name is a link, the link must stay.
		if w.path, err = filepath.EvalSymlinks(w.path); err != nil {
			return err
		}
		text, err := os.ReadFile(w.path)
		if err != nil {
			return err
		}
		w.before, w.text = text, config.DecodeText(text)
	}
	if w.machine != nil {
		return nil
	}
	for _, path := range []string{w.cfg.Gateway.Home, w.path} {
		if path == service.MachineConfig {
			return app.UsageErrorf("%s belongs to the service of the whole machine: run \"sudo gateway "+
				"setup --service\"", path)
		}
		info, err := os.Stat(path)
		if err != nil {
			continue // it will be made
		}
		if owner, _, ok := doctor.OwnerOf(info); ok && owner != os.Geteuid() {
			return fmt.Errorf("%s belongs to another user, whose gateway could not read the files of "+
				"this command: run it as that user, or for the service of the whole machine as root "+
				"with --service", path)
		}
	}
	return nil
}

// loadMachine reads the configuration of the service of the whole machine. The variables of this
// shell are not those of the service. Its secrets are read where this command writes them, because
// systemd's copies exist only while the service runs.
func (w *wizard) loadMachine() (err error) {
	w.path, w.environ = w.machine.Config, []string{"GATEWAY_HOME=" + w.machine.Home}
	if w.cfg, err = config.LoadLenient(existing(w.path), w.environ); err != nil {
		return err
	}
	read := func(s *config.Secret, file string) {
		if text, err := os.ReadFile(filepath.Join(w.machine.Secrets, file)); err == nil {
			*s = secret(strings.TrimSpace(string(text)))
		}
	}
	for name, m := range w.cfg.Models {
		read(&m.Key, secretFile(name+".key"))
		w.cfg.Models[name] = m
	}
	for name, c := range w.cfg.Channels {
		read(&c.Token, secretFile(name+".token"))
		w.cfg.Channels[name] = c
	}
	return nil
}

// isSkipped reports whether a part stays as it is, because the command must not ask and none of the
// part's flags is given.
func (w *wizard) isSkipped(flags ...string) bool {
	return w.quiet && !slices.ContainsFunc(flags, w.answered)
}

// changes asks whether to change a part that exists already. It does not ask, and returns true, if
// a flag answers a question of the part.
func (w *wizard) changes(ctx context.Context, state string, flags ...string) (bool, error) {
	if slices.ContainsFunc(flags, w.answered) {
		return true, nil
	}
	return w.confirm(ctx, state+" Change that?", false)
}

// set sets a key in the new text of the configuration.
func (w *wizard) set(value any, path ...string) {
	w.edited(path)(w.text.set(value, path...))
}

// edited returns a function that records the result of an edit of the key path.
func (w *wizard) edited(path []string) func(document, error) {
	return func(text document, err error) {
		if err != nil {
			w.failed = errors.Join(w.failed, err)
			return
		}
		w.text = text
		if table := "[" + config.DottedKey(path[:len(path)-1]) + "]"; !slices.Contains(w.tables, table) {
			w.tables = append(w.tables, table)
		}
	}
}

// secret returns a secret of the configuration.
func secret(text string) (s config.Secret) {
	_ = s.UnmarshalText([]byte(text)) // it takes every text
	return s
}

// unsafe matches the characters that names of secret files must not have.
var unsafe = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// secretFile returns the name of the file for a secret.
func secretFile(name string) string { return unsafe.ReplaceAllString(name, "_") }

// setSecret puts a secret into a file of its own, and sets the key path to a reference to it.
func (w *wizard) setSecret(text, file string, path ...string) {
	file = secretFile(file)
	w.secrets[file] = text
	reference := "file:" + secretFolder + "/" + file
	if w.machine != nil {
		reference = w.machine.Reference(file)
	}
	w.set(reference, path...)
}

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
	// The configuration is complete without a link, so a failure is no error of the command.
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
	// check needs the folders for its temporary file.
	group := -1 // of the configuration; -1: that of this process
	if w.machine != nil {
		group, err = service.Runner{Out: w.out}.Prepare(ctx, *w.machine)
	} else {
		err = errors.Join(os.MkdirAll(w.cfg.Gateway.Home, 0o700),
			os.MkdirAll(filepath.Dir(w.path), 0o700))
	}
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
	// An existing file keeps its mode.
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
		return app.UsageErrorf("nothing was written, because a gateway would refuse it:\n%s",
			strings.ReplaceAll(err.Error(), temp.Name(), w.path))
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
	// The gateway watches only its configuration, whose text is the same after such a change.
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
