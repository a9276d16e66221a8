package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"gateway/agent/budget"
	"gateway/agent/export"
	"gateway/agent/llm"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/cmd/gateway/internal/importer"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

func sessionsCommand(load app.Loader) *cobra.Command {
	return group("sessions", "Show, export and import conversations",
		sessionsListCommand(load), sessionsShowCommand(load), sessionsExportCommand(load),
		sessionsImportCommand(load))
}

func sessionsListCommand(load app.Loader) *cobra.Command {
	var limit int
	cmd := listCommand(load, "list", "List the conversations, the most recently used first",
		table{columns: []string{"SESSION", "TITLE", "MESSAGES", "TOKENS IN", "OUT", "USED"},
			empty: "There are no conversations yet."},
		func(d data) (rows [][]any, err error) {
			list, err := session.List(d.q, limit)
			for _, s := range list {
				rows = append(rows, []any{s.Key, excerpt(s.Title), s.Messages, s.Usage.Input,
					s.Usage.Output, age(s.Updated)})
			}
			return rows, err
		})
	countVar(cmd.Flags(), &limit, "limit", 50, "maximum number of conversations")
	return cmd
}

// maxShown is the maximum size of a shown transcript in bytes.
const maxShown = 16 << 20

// sessionsShowCommand returns the command that prints a whole transcript with its tool calls and
// results. The prompt may have lost the older part.
func sessionsShowCommand(load app.Loader) *cobra.Command {
	return dataCommand(load, "show SESSION",
		"Print the transcript of a conversation", cobra.ExactArgs(1),
		func(cmd *cobra.Command, d data, args []string) error {
			key, err := findSession(d.q, args[0])
			if err != nil {
				return err
			}
			t, err := session.ReadStored(d.q, key, maxShown)
			if err != nil {
				return err
			}
			if len(t.Entries) == 0 {
				cmd.Println("This conversation has no messages.")
			}
			for _, e := range t.Entries {
				printEntry(cmd, e)
			}
			return nil
		})
}

// findSession returns the session with a name. The error is a usage error if there is none.
func findSession(q store.Queryer, name string) (session.Key, error) {
	key, known, err := session.Named(q, name)
	if err == nil && !known {
		err = app.UsageErrorf("there is no conversation %q; see gateway sessions list", name)
	}
	return key, err
}

func printEntry(cmd *cobra.Command, e session.Entry) {
	cmd.Printf("%s  %s\n", e.Time.Format(time.DateTime), e.Message.Role)
	if e.Message.Text != "" {
		cmd.Println(display.Lines(e.Message.Text))
	}
	for _, c := range e.Message.ToolCalls {
		cmd.Println("calls", display.Lines(c.Name), display.Lines(c.Arguments))
	}
	// Results of tools stay together with the call before them.
	if e.Message.Role == llm.Assistant || e.Message.Role == llm.User {
		cmd.Println()
	}
}

// sessionsExportCommand returns the command that exports transcripts. Files must be new, because an
// export must never replace an earlier one.
func sessionsExportCommand(load app.Loader) *cobra.Command {
	var all string
	cmd := withConfig(load, &cobra.Command{
		Use:   "export [SESSION [FILE]]",
		Short: "Export conversations as lines of JSON; the gateway may be running",
		Long: `Write a conversation into a new file, or to standard output. The first line of JSON
is a header, each other line a message. With --all, write each conversation into a file of a
folder. Anyone who can read the files can read the conversations. The files that people have
sent are not included.`,
		Args: cobra.MaximumNArgs(2),
	}, func(cmd *cobra.Command, cfg *config.Config, args []string) error {
		if (len(args) == 0) == (all == "") {
			return app.UsageErrorf("want either a SESSION, as gateway sessions list shows it, or --all DIR")
		}
		return withData(cmd.Context(), cfg, func(d data) error {
			if all != "" {
				return exportAll(cmd, d.db, all)
			}
			if len(args) == 1 {
				return exportTo(cmd.Context(), d.db, args[0], cmd.OutOrStdout())
			}
			return exportFile(cmd.Context(), d.db, args[0], args[1])
		})
	})
	cmd.Flags().StringVar(&all, "all", "", "write all conversations into this folder")
	return cmd
}

// exportTo writes a session to w. The error is a usage error if there is no such session.
func exportTo(ctx context.Context, db *store.DB, name string, w io.Writer) error {
	key, err := findSession(db.Read(ctx), name)
	if err != nil {
		return err
	}
	// session.Export writes each message separately.
	out := bufio.NewWriterSize(w, 64<<10)
	err = session.Export(db.Read(ctx), key, out)
	return errors.Join(err, out.Flush())
}

// exportFile writes a session to a new file.
func exportFile(ctx context.Context, db *store.DB, key, path string) error {
	return writeNew(path, func(w io.Writer) error { return exportTo(ctx, db, key, w) })
}

// writeNew writes a new file. It removes the file if an error occurs. It never replaces a file: an
// existing one is a usage error. Only its owner may read the file.
func writeNew(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return app.UsageErrorf("%s exists already; nothing was written", path)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// exportAll writes each session into a file of its own. It stops at the first error, also at a file
// that exists, and leaves the files that are complete.
func exportAll(cmd *cobra.Command, db *store.DB, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	keys, err := session.Keys(db.Read(cmd.Context()))
	if err != nil {
		return err
	}
	for _, key := range keys {
		// A key can contain characters that file names must not have.
		path := filepath.Join(dir, export.FileName(key.String())+".jsonl")
		if err := exportFile(cmd.Context(), db, key.String(), path); err != nil {
			return err
		}
	}
	cmd.Printf("%d conversations are in %s.\n", len(keys), dir)
	return nil
}

// A sessionsImport has the options of one run of gateway sessions import.
type sessionsImport struct {
	as           string
	dry, replace bool
}

// sessionsImportCommand returns the command that imports transcripts. A dry run only reads, so the
// gateway may then run.
func sessionsImportCommand(load app.Loader) *cobra.Command {
	var i sessionsImport
	cmd := withConfig(load, &cobra.Command{
		Use:   "import FILE|DIR",
		Short: "Import exported conversations, or those of nanobot or OpenClaw",
		Long: `Import a conversation, or all of a folder, from files of gateway sessions export,
nanobot or OpenClaw. An existing conversation stays, unless --replace is given. A file with a
mistake is not imported at all. But lines of nanobot and OpenClaw that are no JSON are left out. The
gateway must not run.`,
		Args: cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, cfg *config.Config, args []string) error {
		files, err := filesIn(args[0])
		if err != nil {
			return err
		}
		if i.as != "" && len(files) != 1 {
			return app.UsageErrorf("--as is for one file")
		}
		return withStopped(cmd.Context(), cfg, i.dry, func(d data) error {
			return i.files(cmd, cfg, d.db, files)
		})
	})
	cmd.Flags().StringVar(&i.as, "as", "", "the session to import it as: ACCOUNT/CHAT or "+
		"ACCOUNT/CHAT/THREAD")
	cmd.Flags().BoolVar(&i.dry, "dry-run", false, "print what the import would do, and change nothing")
	cmd.Flags().BoolVar(&i.replace, "replace", false, "erase an existing conversation first")
	return cmd
}

// filesIn returns path if it is a file, or the .jsonl files of a folder.
func filesIn(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	// The name of the folder is not a pattern.
	files, err := fs.Glob(os.DirFS(path), "*.jsonl")
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("there are no conversations in %s: their names end in .jsonl", path)
	}
	for i := range files {
		files[i] = filepath.Join(path, files[i])
	}
	return files, err
}

// files imports each file on its own. After a mistake in one it goes on with the next, and returns
// an error at the end.
func (i sessionsImport) files(
	cmd *cobra.Command, cfg *config.Config, db *store.DB, files []string,
) error {
	failed := 0
	for _, file := range files {
		found, err := i.file(cmd.Context(), cfg, db, file)
		switch {
		case errors.Is(err, session.ErrExists):
			err = fmt.Errorf("there is a conversation %s already; --replace erases it before",
				found.Key)
		case errors.Is(err, session.ErrBusy):
			err = fmt.Errorf("a turn of %s is still running: start the gateway and let it end",
				found.Key)
		}
		if err != nil {
			failed++
			// The context of this error only names the package and the file, which is printed anyway.
			if line, ok := errors.AsType[*session.LineError](err); ok {
				err = line
			}
			cmd.PrintErrf("gateway: %s: %s\n", display.Lines(file), display.Lines(err.Error()))
			continue
		}
		would := ""
		if i.dry {
			would = "would become "
		}
		left := ""
		if found.lost > 0 {
			left = fmt.Sprintf(", %d system, empty or damaged messages left out", found.lost)
		}
		cmd.Printf("%s: %s%s, %d messages%s\n", display.Lines(file), would,
			display.Lines(found.Key.String()), found.n, left)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d files were not read", failed, len(files))
	}
	return nil
}

// A foundSession is the conversation in a file.
type foundSession struct {
	session.Head
	n    int // number of messages
	lost int // number of messages of another agent that are left out
}

// file imports one file in one transaction.
func (i sessionsImport) file(
	ctx context.Context, cfg *config.Config, db *store.DB, path string,
) (found foundSession, err error) {
	f, err := os.Open(path)
	if err != nil {
		return found, err
	}
	defer f.Close()
	if i.dry {
		return i.try(cfg, db.Read(ctx), f)
	}
	err = db.Tx(ctx, func(tx *store.Tx) error {
		var lines iter.Seq2[session.Line, error]
		// The transaction may be repeated, so the file is read from its start each time.
		if found, lines, err = i.open(cfg, tx, f); err != nil {
			return err
		}
		opts := session.ImportOptions{Replace: i.replace}
		// Without a scope there is no memory that could get the archived messages.
		if found.Scope != "" {
			opts.Archive = importer.Archiver(memory.New(db, nil, nil), found.Scope, found.Key)
		}
		found.n, err = session.Import(tx, found.Head, lines, opts)
		return err
	})
	return found, err
}

// try reads a whole file without changes to the database.
func (i sessionsImport) try(
	cfg *config.Config, q store.Queryer, f *os.File,
) (foundSession, error) {
	found, lines, err := i.open(cfg, q, f)
	if err != nil {
		return found, err
	}
	// Reading a line also checks it.
	for _, err := range lines {
		if err != nil {
			return found, err
		}
		found.n++
	}
	info, err := session.ReadInfo(q, found.Key)
	if err == nil && info.Messages > 0 && !i.replace {
		err = session.ErrExists
	}
	return found, err
}

// open reads the header of a file and sets its address. It accepts exported sessions and those of
// other agents.
func (i sessionsImport) open(
	cfg *config.Config, q store.Queryer, f *os.File,
) (found foundSession, lines iter.Seq2[session.Line, error], err error) {
	// An earlier call may have read the file already.
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return found, nil, err
	}
	found.Head, lines, err = session.Read(f)
	// A file of another agent has no header of ours.
	if errors.Is(err, session.ErrForm) {
		found, lines, err = i.foreign(cfg, f)
	}
	if err == nil {
		err = i.settle(cfg, q, &found.Head)
	}
	return found, lines, err
}

// foreign reads a session of another agent. It reads the whole file once to make the header.
func (i sessionsImport) foreign(
	cfg *config.Config, f *os.File,
) (found foundSession, lines iter.Seq2[session.Line, error], err error) {
	var head importer.ForeignHeader
	read := func() error {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		head, lines, err = importer.ReadSession(f, cfg.Gateway.Location)
		if errors.Is(err, importer.ErrForm) {
			return errors.New("the file is neither an exported session nor one of nanobot " +
				"or OpenClaw")
		}
		return err
	}
	if err := read(); err != nil {
		return found, nil, err
	}
	if found.Head, found.lost, err = importer.ReadHead(head, lines, time.Now()); err != nil {
		return found, nil, err
	}
	// ReadHead has used up the lines.
	if err := read(); err != nil {
		return found, nil, err
	}
	if i.as == "" {
		key := cmp.Or(head.Key, importer.KeyOfFile(f.Name()))
		account, _, err := importing{}.places(cfg)
		if err != nil {
			return found, nil, err
		}
		if found.Address, err = importer.Address(key, account); err != nil {
			return found, nil, err
		}
		found.Key = session.KeyOf(found.Address)
	}
	return found, importer.WithRole(lines, found.Created), nil
}

// settle sets the address in --as. It keeps the scope of the session only if it is the right one
// for the address. Otherwise the next message sets the scope.
func (i sessionsImport) settle(cfg *config.Config, q store.Queryer, h *session.Head) error {
	if i.as != "" {
		var known bool
		if h.Address, known = addressOf(cfg, i.as); !known || h.Address.Chat == "" {
			return app.UsageErrorf("--as %s: want ACCOUNT/CHAT with an account of the configuration: %s",
				i.as, accountNames(cfg))
		}
		h.Key = session.KeyOf(h.Address)
	}
	if h.Key.Person != 0 { // the number may be somebody else's here
		return app.UsageErrorf("%s is the conversation of a person in several chats: choose one with "+
			"--as ACCOUNT/CHAT", h.Key)
	}
	right, err := isScopeOf(q, h.Scope, h.Address)
	if !right {
		h.Scope, h.From = "", 0
	}
	return err
}

// isScopeOf reports whether a scope is known to be the scope of a conversation.
func isScopeOf(q store.Queryer, s memory.Scope, a bus.Address) (bool, error) {
	if s == memory.OfChat(a) {
		return true, nil
	}
	if s.Person() == 0 {
		return false, nil
	}
	people, err := gate.People{}.List(q)
	if err != nil {
		return false, err
	}
	for _, p := range people {
		if p.ID == s.Person() && p.Account == a.Account && p.Sender == a.Chat {
			return true, nil
		}
	}
	// On some platforms the chat has another id than the person.
	chats, err := bus.DirectChats(q, s.Person())
	alone := func(c bus.Address) bool { return c.Account == a.Account && c.Chat == a.Chat }
	return slices.ContainsFunc(chats, alone), err
}

// usageCommand returns the command that shows what models have used. Days are those of the
// gateway's time zone, as for budgets.
func usageCommand(load app.Loader) *cobra.Command {
	var by string
	var days int
	cmd := listCommand(load, "usage", "Show the tokens and dollars that language models have used",
		table{columns: []string{"DAY", "WHAT", "CALLS", "TOKENS IN", "CACHED", "OUT", "COST"},
			empty: "No model was used in this time."},
		func(d data) (rows [][]any, err error) {
			if !slices.Contains([]string{"day", "model", "person", "session"}, by) {
				return nil, app.UsageErrorf("--by: want day, model, person or session, not %q", by)
			}
			// Today counts as one of the days.
			since := time.Now().In(d.cfg.Gateway.Location).AddDate(0, 0, 1-days).Format(time.DateOnly)
			list, err := budget.Lines(d.q, by, since, maxUsageLines)
			for _, l := range list {
				what := l.Key
				if l.Kind == "day" {
					what = "everything"
				}
				rows = append(rows, []any{l.Day, excerpt(what), l.Calls, l.Usage.Input, l.Usage.Cached,
					l.Usage.Output, dollars(l.Cost)})
			}
			return rows, err
		})
	cmd.Flags().StringVar(&by, "by", "day", "sum up by day, model, person or session")
	countVar(cmd.Flags(), &days, "days", 30, "days to look back, today included")
	return cmd
}

// maxUsageLines is the maximum number of shown lines.
const maxUsageLines = 1000
