package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"gateway/channels/whatsapp"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/backup"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/memory"
	"gateway/store"
)

// Names of parts of a backup. They are names in archives, so a backup of an earlier version can't
// be restored if they change.
const (
	sharedPart    = "shared"
	memoryPart    = "memory"
	workspacePart = "workspace"
	mediaPart     = "media"
	configPart    = "config.toml"

	whatsappPrefix, whatsappSuffix = "whatsapp-", ".db"
)

// allParts returns the parts of a gateway's data in the order of copying, except the files of
// WhatsApp accounts.
func allParts(cfg *config.Config) []backup.Part {
	return []backup.Part{
		{Name: "gateway.db", Path: cfg.Store.Path(), Kind: backup.Database},
		{Name: "versions", Path: app.VersionsFolder(cfg), Kind: backup.Folder},
		{Name: sharedPart, Path: app.SharedFolder(cfg), Kind: backup.Folder},
		{Name: memoryPart, Path: app.MemoryFolder(cfg), Kind: backup.Folder},
		{Name: "skills.json", Path: app.PinsFile(cfg), Kind: backup.File},
		{Name: "mcp", Path: app.MCPFolder(cfg), Kind: backup.Folder},
		{Name: "personas", Path: app.PersonasFolder(cfg), Kind: backup.Folder},
		{Name: workspacePart, Path: cfg.Gateway.Workspace, Kind: backup.Folder},
		{Name: mediaPart, Path: app.MediaFolder(cfg), Kind: backup.Frozen},
		{Name: configPart, Path: filepath.Join(cfg.Gateway.Home, configPart), Kind: backup.File},
	}
}

// unusedSuffix is appended to the name of a restored configuration that is not used. A
// configuration decides which programs run, so a backup from somebody else must not activate one
// unnoticed.
const unusedSuffix = ".restored"

// ownLink is a symbolic link that the gateway creates at each start.
const ownLink = "workspace/memory"

// A backupOptions has the options of backup and restore: which data a backup contains.
type backupOptions struct {
	noMedia, noWorkspace, config bool
	force                        bool
}

func backupCommand(load app.Loader) *cobra.Command {
	var with backupOptions
	cmd := withConfig(load, &cobra.Command{
		Use:   "backup FILE",
		Short: "Back up all data into one file; the gateway may be running",
		Long: `Back up all data into one .tar.gz file, also while the gateway runs. The file holds the
database, WhatsApp's keys, the logins of MCP servers, shared documents and skills, personas, memory
and its versions, files and the workspace. With "-" as FILE the command writes to standard output.
Anybody who can read the file can read every conversation: keep it safe.

The backup does not have the configuration, which may contain tokens, unless you give
--with-config. It never has the values of "env:NAME" and "file:PATH" in the configuration.`,
		Args: cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, cfg *config.Config, args []string) error {
		return writeBackup(cmd, cfg, args[0], with)
	})
	f := cmd.Flags()
	f.BoolVar(&with.noMedia, "no-media", false,
		"leave out the files that people have sent and received")
	f.BoolVar(&with.noWorkspace, "no-workspace", false, "leave out the agent's own files")
	f.BoolVar(&with.config, "with-config", false,
		"add the configuration file, with the secrets that are in it")
	f.BoolVar(&with.force, "force", false, "replace the file if it exists")
	return cmd
}

// writeBackup writes a backup into a file, or to standard output for "-". What it tells people goes
// to standard error, because standard output may be the archive.
func writeBackup(cmd *cobra.Command, cfg *config.Config, file string, with backupOptions) error {
	history := historyFilter{last: make(map[string]int64)}
	o := backup.WriteOptions{Version: app.BuildVersion(), Force: with.force, Copied: history.learn}
	if file == "-" {
		// The copies are made beside the file. Standard output has no folder, so the home takes
		// them. They are removed also if nobody reads standard output any more.
		o.Stream, o.Scratch = cmd.OutOrStdout(), cfg.Gateway.Home
		app.SurviveBrokenPipes()
	} else if dir, err := os.Stat(filepath.Dir(file)); err != nil || !dir.IsDir() {
		return app.UsageErrorf("there is no folder %s", filepath.Dir(file))
	} else if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		// The backup would take the place of a device such as /dev/null.
		return app.UsageErrorf("%s is not a file; \"-\" stands for standard output", file)
	}
	// Everything that a person has to correct is found before the copying, which can take long.
	if err := app.CheckRestored(cfg); err != nil {
		return err
	}
	parts, err := backupParts(cfg, with, history.copy)
	if err != nil {
		return app.NewHomeError(cfg.Gateway.Home, err)
	}
	if _, err := os.Stat(cfg.File); with.config && err != nil {
		return app.UsageErrorf("the configuration can't be added: %w", err)
	}
	if _, err := os.Stat(parts[0].Path); errors.Is(err, fs.ErrNotExist) {
		return app.NewHomeError(cfg.Gateway.Home, errNoData)
	}
	// The answers of a running gateway matter more than the time of the backup.
	if err := lowerPriority(); err != nil {
		cmd.PrintErrf("The gateway may be slower meanwhile: %v\n", err)
	}
	start := time.Now()
	m, err := backup.Write(cmd.Context(), file, parts, o)
	if errors.Is(err, backup.ErrExists) {
		return app.UsageErrorf("%s exists already; choose another name or give --force", file)
	}
	if store.IsFull(err) {
		err = fmt.Errorf("the disk of the backup is full: %w", err)
	}
	if store.IsDenied(err) {
		return app.NewHomeError(cfg.Gateway.Home, err)
	}
	if err != nil {
		return fmt.Errorf("no backup was made: %w", err)
	}
	if err := backup.Note(cfg.Gateway.Home, start); err != nil {
		cmd.PrintErrf("The backup is complete, but alerts and gateway doctor will not know it: %v\n",
			err)
	}
	cmd.PrintErrf("%d files, %d MB, in %s.\n", len(m.Entries), m.Size()>>20,
		time.Since(start).Round(time.Millisecond))
	for _, name := range m.Skipped {
		// The next start of the gateway creates this link.
		if name == ownLink {
			continue
		}
		cmd.PrintErrf("Left out, because it is not a regular file, can't be read, has a name that is "+
			"not UTF-8, or is too deep: %s\n", display.Lines(name))
	}
	return nil
}

// backupParts returns the parts to copy, in order.
func backupParts(
	cfg *config.Config, with backupOptions, filter func(name string, w io.Writer, r io.Reader) error,
) (parts []backup.Part, err error) {
	// The path of the home is not a pattern: it may contain brackets.
	phones, err := fs.Glob(os.DirFS(cfg.Gateway.Home), whatsappPrefix+"*"+whatsappSuffix)
	if err != nil {
		return nil, err
	}
	for _, p := range allParts(cfg) {
		switch {
		case p.Name == workspacePart && with.noWorkspace, p.Name == mediaPart && with.noMedia,
			p.Name == configPart && !with.config:
			continue
		case p.Name == memoryPart:
			p.Filter = filter
		// allParts has the path for a restore, which is the default path.
		case p.Name == configPart:
			p.Path = cfg.File
		}
		parts = append(parts, p)
		// WhatsApp's databases come directly after the gateway's and before the many files, so that
		// little time lies between their copies.
		if p.Kind == backup.Database {
			for _, name := range phones {
				if phone, ok := partOf(cfg, name); ok { // the name has an account
					parts = append(parts, phone)
				}
			}
		}
	}
	return parts, nil
}

// partOf returns the part with a name, or false if there is none.
func partOf(cfg *config.Config, name string) (backup.Part, bool) {
	for _, p := range allParts(cfg) {
		if p.Name == name {
			return p, true
		}
	}
	account, prefixed := strings.CutPrefix(name, whatsappPrefix)
	account, suffixed := strings.CutSuffix(account, whatsappSuffix)
	path := app.WhatsAppStore(cfg, account)
	return backup.Part{Name: name, Path: path, Kind: backup.Database},
		prefixed && suffixed && account != ""
}

// A historyFilter drops the lines of history files that are newer than the copied database. After
// a restore, the database would give new entries the same numbers.
type historyFilter struct{ last map[string]int64 } // cursors by scope

// learn reads the number of the last entry of each scope from the copied database.
func (f *historyFilter) learn(ctx context.Context, path string) error {
	// No migrations: a backup before an upgrade must open databases of any version.
	db, err := store.Open(ctx, path, nil, &store.Options{Shared: true})
	if err != nil {
		return err
	}
	list, err := memory.New(db, nil, nil).Scopes(db.Read(ctx))
	for _, s := range list {
		f.last[string(s.Scope)] = s.Last
	}
	return errors.Join(err, db.Close())
}

// copy copies a file of the memory from r to w, without history lines that are too new. name is the
// path in the memory folder: SCOPE/history.jsonl for a history.
func (f *historyFilter) copy(name string, w io.Writer, r io.Reader) error {
	scope, file, _ := strings.Cut(name, "/")
	if file != "history.jsonl" {
		_, err := io.Copy(w, r)
		return err
	}
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // an incomplete line is still being written
		}
		var e struct {
			Cursor int64 `json:"cursor"`
		}
		// A line that is not an entry was written by a person and stays.
		if err == nil && (json.Unmarshal(line, &e) != nil || e.Cursor <= f.last[scope]) {
			_, err = w.Write(line)
		}
		if err != nil {
			return err
		}
	}
}

// restoreCommand returns the command that replaces the data of the home. It has the settings of
// this shell, because no gateway may run.
func restoreCommand(load app.Loader) *cobra.Command {
	var with backupOptions
	cmd := withConfig(load, &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a backup, while no gateway runs",
		Long: `Restore a backup, while no gateway runs. With "-" as FILE the command reads standard
input. The command checks the whole backup before it changes anything. If there is data already, the
command refuses; with --force it moves that data into a folder "before-restore-TIME" beside it.

A configuration decides which programs the gateway runs. So the command only writes the one of the
backup into the home as config.toml.restored, for you to look at. With --with-config the gateway
uses it.

Afterwards the gateway continues as if it had been killed at the moment of the backup.
docs/durability.md says what that means for messages that came later.`,
		Args: cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, cfg *config.Config, args []string) error {
		return restoreBackup(cmd, cfg, args[0], with)
	})
	f := cmd.Flags()
	f.BoolVar(&with.force, "force", false, "move existing data aside")
	f.BoolVar(&with.config, "with-config", false, "use the configuration that is in the backup")
	return cmd
}

// restoreBackup replaces the data in the home with that of a backup, and tells the person what to
// do next. It holds the lock of the database, so that no gateway can start meanwhile.
func restoreBackup(cmd *cobra.Command, cfg *config.Config, file string, with backupOptions) error {
	var f *os.File
	var in io.Reader
	var err error
	switch {
	case file != "-":
		if f, err = os.Open(file); err != nil {
			return app.UsageErrorf("the backup can't be read: %w", err)
		}
		defer f.Close()
		in = f
	case with.config:
		return app.UsageErrorf("--with-config reads the backup twice: write standard input to a file " +
			"first, and restore that")
	default:
		file, in = "standard input", cmd.InOrStdin()
	}
	place := filepath.Join(cfg.Gateway.Home, configPart)
	next := cfg // the settings of the next start
	if with.config && place == cfg.File {
		if next, err = configIn(cmd.Context(), f, cfg); err != nil {
			return restoreTrouble(file, err)
		}
	}
	unlock, err := lockData(cfg, next)
	if err != nil {
		return err
	}
	done, err := backup.Restore(cmd.Context(), bufio.NewReader(in), backup.RestoreOptions{
		Migrations: app.Migrations(), Force: with.force, Now: time.Now(), Home: cfg.Gateway.Home,
		Place: func(name string) (backup.Part, bool) {
			// The paths are those of the next start. The backup may come from a home with others.
			p, ok := partOf(next, name)
			if name == configPart {
				if p.Path = place; !with.config {
					p.Path += unusedSuffix
				}
			}
			return p, ok
		},
		Adopt: adoptPart,
		Replaced: func(m *backup.Manifest) []string {
			if keepsSharedInWorkspace(m) {
				return []string{app.SharedFolder(next)}
			}
			return nil
		},
	})
	if err = errors.Join(err, unlock()); err != nil {
		return restoreTrouble(file, err)
	}
	for _, dir := range done.Aside {
		cmd.Printf("The earlier data is in %s; delete it once everything works.\n", dir)
	}
	m := done.Manifest
	switch {
	case hasConfig(m) && !with.config:
		cmd.Printf("The configuration of the backup is in %s and is not used: check it, and "+
			"rename it to %s to use it.\n", place+unusedSuffix, configPart)
		if used, err := config.LoadLenient(place+unusedSuffix, os.Environ()); err == nil {
			cmd.Print(otherPlaces(cfg, used, "It expects %s in %s, but this restore has put it into %s: "+
				"change that line, or move the data.\n"))
		}
	case hasConfig(m) && place != cfg.File:
		cmd.Printf("The configuration is now in %s, and this gateway reads %s.\n", place, cfg.File)
	}
	cmd.Print(otherPlaces(cfg, next, "As the configuration says, %s is in %s, not in %s.\n"))
	cmd.Printf("Restored %d files as of %s, made by gateway %s.\n", len(m.Entries),
		m.Created.Local().Format(time.DateTime), display.OneLine(m.Version))
	cmd.Println("Now start the gateway here. If the one that made the backup still runs elsewhere, " +
		"stop it first: two can't use the same accounts.")
	return nil
}

// configIn returns the settings of a gateway that starts with the configuration in the backup f, in
// this environment, or cfg if the backup has none. It reads f and goes back to its beginning.
func configIn(ctx context.Context, f *os.File, cfg *config.Config) (*config.Config, error) {
	text, err := backup.ReadFile(ctx, bufio.NewReader(f), configPart, app.Migrations())
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil || text == nil {
		return cfg, err
	}
	dir, err := os.MkdirTemp("", "gateway-restore-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, configPart)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, err
	}
	next, err := config.LoadLenient(path, os.Environ())
	if err != nil {
		return nil, app.UsageErrorf("nothing was changed: the configuration of the backup does not say "+
			"where the data belongs: %w", err)
	}
	return next, nil
}

// lockData makes the folders of the database and the home by two configurations, and locks the
// databases, so that no gateway can start with either.
func lockData(cfg, next *config.Config) (unlock func() error, err error) {
	var unlocks []func() error
	unlock = func() error {
		var errs []error
		for _, f := range unlocks {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	for _, c := range []*config.Config{cfg, next} {
		if len(unlocks) > 0 && c.Store.Path() == cfg.Store.Path() {
			continue
		}
		// This comes before the folders are made, which would belong to the wrong user.
		if err := checkOwner(c); err != nil {
			return nil, errors.Join(err, unlock())
		}
		for _, dir := range []string{c.Gateway.Home, filepath.Dir(c.Store.Path())} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, errors.Join(app.NewHomeError(dir, err), unlock())
			}
		}
		f, err := store.Lock(c.Store.Path() + ".lock")
		if err != nil {
			return nil, errors.Join(app.NewHomeError(c.Gateway.Home, err), unlock())
		}
		unlocks = append(unlocks, f)
	}
	return unlock, nil
}

// otherPlaces returns a line for each kind of data that next has at another place than cfg. format
// gets what it is and the two paths.
func otherPlaces(cfg, next *config.Config, format string) string {
	var b strings.Builder
	for _, p := range [][3]string{
		{"the home", next.Gateway.Home, cfg.Gateway.Home},
		{"the database", next.Store.Path(), cfg.Store.Path()},
		{"the workspace", next.Gateway.Workspace, cfg.Gateway.Workspace},
	} {
		if p[1] != p[2] {
			fmt.Fprintf(&b, format, p[0], p[1], p[2])
		}
	}
	return b.String()
}

// keepsSharedInWorkspace reports whether a backup is from a version that kept the shared documents
// in the workspace. The next start creates the shared folder from them, unless there is one.
func keepsSharedInWorkspace(m *backup.Manifest) bool {
	holds := func(part string) bool {
		return slices.ContainsFunc(m.Entries, func(e backup.Entry) bool {
			return strings.HasPrefix(e.Name, part+"/")
		})
	}
	return !holds(sharedPart) && holds(workspacePart)
}

// adoptPart prepares the keys of a WhatsApp account for this gateway.
func adoptPart(ctx context.Context, name, path string) error {
	if !strings.HasPrefix(name, whatsappPrefix) {
		return nil
	}
	return whatsapp.Adopt(ctx, path)
}

// hasConfig reports whether a backup contains the configuration.
func hasConfig(m backup.Manifest) bool {
	return slices.ContainsFunc(m.Entries, func(e backup.Entry) bool { return e.Name == configPart })
}

// restoreTrouble returns the error of a restore with advice for people.
func restoreTrouble(file string, err error) error {
	switch {
	// Errors that a person can solve get the exit code for wrong usage. In all these cases the
	// check has failed before anything was replaced.
	case errors.Is(err, backup.ErrForeign):
		return app.UsageErrorf("nothing was changed: %s can't be used: %w", file, err)
	case errors.Is(err, backup.ErrNewer), errors.Is(err, store.ErrNewer):
		return app.UsageErrorf("nothing was changed: %s was made by a newer gateway than this one, %s; "+
			"upgrade this one: %w", file, app.BuildVersion(), err)
	case errors.Is(err, backup.ErrExists):
		return app.UsageErrorf("nothing was changed: %w; give --force to move it aside, or set "+
			"GATEWAY_HOME to an empty folder", err)
	}
	// A volume of a container, for example, can't be renamed.
	if errors.Is(err, syscall.EBUSY) {
		err = fmt.Errorf("%w; a folder that is a mount point can't be replaced: mount it elsewhere "+
			"for the restore, and copy by hand", err)
	}
	return fmt.Errorf("the backup was not restored: %w", err)
}
