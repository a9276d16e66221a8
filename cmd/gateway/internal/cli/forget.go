package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gateway/agent/background"
	"gateway/agent/budget"
	"gateway/agent/export"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/channels/router"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/session"
	"gateway/store"
)

// memoryForgetCommand erases a scope, like /forget. A gateway may be running.
func memoryForgetCommand(load app.Loader) *cobra.Command {
	sure := false
	cmd := withConfig(load, &cobra.Command{
		Use:   "forget SCOPE",
		Short: "Erase all data of a person or a group: conversations, files, memory, identity",
		Args:  cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, cfg *config.Config, args []string) error {
		return withMemory(cmd.Context(), cfg, args[0], func(r memoryData) error {
			if r.scope == "" {
				return app.UsageErrorf("the shared documents belong to nobody; delete them in %s",
					app.SharedFolder(r.cfg))
			}
			// Without this check a typing error would look like success.
			if err := checkKnown(r); err != nil {
				return err
			}
			owner, err := lastOwner(r.q, r)
			if err != nil {
				return err
			}
			if !sure {
				// A person has more than a memory to save; a group has only its memory.
				saves := "gateway memory export"
				if r.scope.Person() != 0 {
					saves = "gateway export"
				}
				return app.UsageErrorf("this erases all data of %s%s and can't be undone; %s %s saves a "+
					"copy, and --yes confirms", r.scope, owner, saves, r.scope)
			}
			// The eraser changes only the database. The running gateway removes the files.
			eraser := background.Eraser{DB: r.db, Inbox: bus.NewInbox(), Outbox: bus.NewOutbox(),
				Memory: r.memory, Ledger: budget.New(nil), People: app.People{}, Now: time.Now}
			if err := eraser.Forget(cmd.Context(), r.scope); err != nil {
				return err
			}
			cmd.Printf("%s is forgotten. The gateway removes files, and what is left in the "+
				"database, now or when it is started next.\n", r.scope)
			if owner != "" {
				cmd.Println("There is no owner now: the next person who is approved becomes the owner.")
			}
			return nil
		})
	})
	cmd.Flags().BoolVar(&sure, "yes", false, "confirm that the data is to be erased")
	return cmd
}

// exportCommand writes what is stored about a person. home has the settings in force, and
// withSecrets those of this shell. The settings in force have no credentials, but the exporter
// needs those to leave them out.
func exportCommand(home, withSecrets app.Loader) *cobra.Command {
	return withConfig(home, &cobra.Command{
		Use:   "export PERSON [DIR|FILE.zip|-]",
		Short: "Export all data of a person; the gateway may be running",
		Long: `Write the conversations, documents, facts, files, jobs, usage and decisions of a person
into a new folder, a new zip archive, or, as an archive, to standard output ("-"). Without a second
argument the folder is PERSON-export. The number of a person is in gateway people list. The export
contains no words of other people in groups. It contains no secrets of the gateway either, if this
shell has the variables with the secrets.`,
		Args: cobra.RangeArgs(1, 2),
	}, func(cmd *cobra.Command, cfg *config.Config, args []string) error {
		to := args[0] + "-export"
		if len(args) > 1 {
			to = args[1]
		}
		return exportPerson(cmd, cfg, withSecrets, args[0], to)
	})
}

// exportPerson writes what is stored about a person to a folder, an archive or standard output. It
// creates nothing there before it knows that the person exists.
func exportPerson(
	cmd *cobra.Command, cfg *config.Config, withSecrets app.Loader, person, to string,
) error {
	scope, err := scopeOf(person)
	if err != nil || scope.Person() == 0 {
		return app.UsageErrorf("%q is not a person: want a number that gateway people list shows", person)
	}
	own, err := withSecrets()
	if err != nil {
		return err
	}
	secrets, err := app.StoredSecrets(own)
	if err != nil {
		return err
	}
	return withMemory(cmd.Context(), cfg, person, func(r memoryData) (err error) {
		files, err := app.OpenMedia(r.cfg)
		if err != nil {
			return err
		}
		defer files.Close()
		scopes, err := app.OpenFolder(app.MemoryFolder(r.cfg))
		if err != nil {
			return app.NewHomeError(r.cfg.Gateway.Home, err)
		}
		defer scopes.Close()
		known, err := app.People{}.Known(r.q, scope.Person())
		if err == nil && !known {
			err = app.UsageErrorf("there is no person %s; see gateway people list", person)
		}
		if err != nil {
			return err
		}
		// The secrets are read once, since this process lives only for one export.
		exporter := app.NewExporter(r.cfg, r.db, scopes, files,
			func() router.Secrets { return secrets })
		return writeExport(cmd, to, func(target export.Target) error {
			return exporter.Write(cmd.Context(), scope, nil, target)
		})
	})
}

// writeExport calls write with a new folder, a new archive, or standard output. After an error it
// removes what it has made.
func writeExport(cmd *cobra.Command, to string, write func(export.Target) error) error {
	if to == "-" {
		return writeZip(cmd.OutOrStdout(), write)
	}
	var err error
	if strings.HasSuffix(strings.ToLower(to), ".zip") {
		err = writeNew(to, func(w io.Writer) error { return writeZip(w, write) })
	} else {
		err = writeFolder(to, write)
	}
	if err == nil {
		cmd.Printf("The export is in %s. It begins with README.md.\n", to)
	}
	return err
}

// writeFolder calls write with a folder at path, which must be new or empty. After an error it
// removes the folder, because half an export looks like a whole one.
func writeFolder(path string, write func(export.Target) error) error {
	folder, err := export.NewFolder(path)
	if errors.Is(err, export.ErrExists) {
		return fmt.Errorf("%s has files already; nothing was written", path)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(write(folder), folder.Close()); err != nil {
		return errors.Join(err, os.RemoveAll(path))
	}
	return nil
}

// writeZip writes a zip archive without a limit to w. After an error the archive lacks the
// directory at its end, so it is not valid.
func writeZip(w io.Writer, write func(export.Target) error) error {
	archive := export.NewZip(w, 0, time.Now())
	if err := write(archive); err != nil {
		return err
	}
	return archive.Close()
}

// lastOwner returns a warning if the person of a scope is the only owner, else "".
func lastOwner(q store.Queryer, r memoryData) (string, error) {
	list, err := gate.People{}.List(q)
	owns, others := false, app.HasOwner(r.cfg)
	// A person has one entry for each account.
	for _, p := range list {
		if p.Role == bus.Owner {
			owns, others = owns || p.ID == r.scope.Person(), others || p.ID != r.scope.Person()
		}
	}
	if err != nil || !owns || others {
		return "", err
	}
	return ", the only owner,", nil
}

// checkKnown returns an error if a scope has no memory, no conversation and no person.
func checkKnown(r memoryData) error {
	// A person without a memory can still have an identity or conversations.
	nothing := r.checkScope()
	if nothing == nil {
		return nil
	}
	known, err := app.People{}.Known(r.q, r.scope.Person())
	if err != nil || known {
		return err
	}
	keys, err := session.OfScope(r.q, r.scope)
	if err != nil || len(keys) > 0 {
		return err
	}
	return nothing
}
