package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"gateway/agent/background"
	"gateway/channels/gate"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/memory"
	"gateway/memory/document"
	docversion "gateway/memory/version"
	"gateway/store"
)

func memoryCommand(load app.Loader) *cobra.Command {
	cmd := group("memory", "Show and search the memory, and undo changes",
		memoryListCommand(load), memoryShowCommand(load), memoryLogCommand(load),
		memoryDiffCommand(load), memoryRestoreCommand(load), memorySearchCommand(load),
		memoryExportCommand(load), memoryReindexCommand(load), memoryForgetCommand(load))
	cmd.Long = cmd.Short + `.

SCOPE says whose memory it is: a scope that "gateway memory list" prints, such as person-1 or
chat-telegram+-42, the number of a person, or "shared" for the documents that everybody gets.`
	return cmd
}

// sharedScope is the name of the shared documents on the command line.
const sharedScope = background.SharedTree

// memoryData is the memory of one scope, or the shared documents.
type memoryData struct {
	data
	memory    *memory.Memory
	documents *document.Documents
	scope     memory.Scope // "" for the shared documents
	folder    string
	history   *docversion.Tree
}

// withMemory calls fn with the memory of a scope. name is a scope, a person's number, "shared",
// or "" for all scopes.
func withMemory(
	ctx context.Context, cfg *config.Config, name string, fn func(memoryData) error,
) error {
	scope, err := scopeOf(name)
	if err != nil {
		return err
	}
	return withData(ctx, cfg, func(d data) error {
		return withFolders(d.cfg, d.db, func(m *memory.Memory, documents *document.Documents) error {
			r := memoryData{data: d, memory: m, documents: documents, scope: scope}
			r.folder, r.history = historyOf(d.cfg, d.db, r.scope)
			return fn(r)
		})
	})
}

// withFolders opens the folders of the gateway and calls fn with what is in them.
func withFolders(
	cfg *config.Config, db *store.DB, fn func(*memory.Memory, *document.Documents) error,
) error {
	scopes, err := app.OpenFolder(app.MemoryFolder(cfg))
	if err != nil {
		return app.NewHomeError(cfg.Gateway.Home, err)
	}
	defer scopes.Close()
	shared, err := app.OpenShared(cfg, slog.Default())
	if err != nil {
		return app.NewHomeError(cfg.Gateway.Home, err)
	}
	defer shared.Close()
	return fn(memory.New(db, scopes, nil), document.New(shared, scopes, nil))
}

// historyOf returns the folder with the documents of a scope and their versions. Scope "" means
// the shared documents.
func historyOf(
	cfg *config.Config, db *store.DB, scope memory.Scope,
) (folder string, tree *docversion.Tree) {
	folder, name := app.SharedFolder(cfg), sharedScope
	if scope != "" {
		folder, name = filepath.Join(app.MemoryFolder(cfg), string(scope)), string(scope)
	}
	return folder, app.NewVersions(cfg, db, nil).Tree(name, folder, document.IsVersioned)
}

// scopeOf parses the scope in an argument.
func scopeOf(name string) (memory.Scope, error) {
	if name == "" || name == sharedScope {
		return "", nil
	}
	if id, err := strconv.ParseInt(name, 10, 64); err == nil && id > 0 {
		return memory.OfPerson(id), nil
	}
	scope, err := memory.ParseScope(name)
	if err != nil {
		return "", app.UsageErrorf("%w, or %s: see gateway memory list", err, sharedScope)
	}
	return scope, nil
}

// checkScope returns an error if the scope has no memory.
func (r memoryData) checkScope() error {
	list, err := r.memory.Scopes(r.q)
	if err != nil {
		return err
	}
	known := func(i memory.ScopeInfo) bool { return i.Scope == r.scope }
	if slices.ContainsFunc(list, known) {
		return nil
	}
	// A person may have written documents for a scope that has no row yet.
	if _, err := os.Stat(r.folder); errors.Is(err, fs.ErrNotExist) {
		return app.UsageErrorf("nothing is remembered of %s; see gateway memory list", r.scope)
	}
	return nil
}

// ofScope returns a command about one scope. With private it refuses the shared documents.
func ofScope(
	load app.Loader, use, short string, args cobra.PositionalArgs, private bool,
	do func(cmd *cobra.Command, r memoryData, args []string) error,
) *cobra.Command {
	return withConfig(load, &cobra.Command{
		Use: use, Short: short, Args: args,
	}, func(cmd *cobra.Command, cfg *config.Config, args []string) error {
		if private && args[0] == sharedScope {
			return app.UsageErrorf("the shared documents have no facts and no history; want a person's " +
				"number or a scope")
		}
		return withMemory(cmd.Context(), cfg, args[0], func(r memoryData) error {
			if err := r.checkScope(); err != nil {
				return err
			}
			return do(cmd, r, args[1:])
		})
	})
}

func memoryListCommand(load app.Loader) *cobra.Command {
	return withJSONFlag(withConfig(load, &cobra.Command{
		Use:   "list",
		Short: "List the people and groups that have a memory",
		Args:  cobra.NoArgs,
	}, func(cmd *cobra.Command, cfg *config.Config, _ []string) error {
		return withMemory(cmd.Context(), cfg, "", func(r memoryData) error {
			rows, err := r.list()
			if err != nil {
				return err
			}
			columns := []string{"SCOPE", "NAME", "FACTS", "HISTORY", "ARCHIVED", "DOCUMENTS"}
			return table{columns, rows, "Nothing is remembered yet."}.print(cmd)
		})
	}))
}

// list returns one row for each scope with data.
func (r memoryData) list() ([][]any, error) {
	infos, err := r.memory.Scopes(r.q)
	if err != nil {
		return nil, err
	}
	folders, err := r.documents.Scopes()
	if err != nil {
		return nil, err
	}
	// A folder without a row has documents, but no facts and no history.
	for _, scope := range folders {
		known := func(i memory.ScopeInfo) bool { return i.Scope == scope }
		if !slices.ContainsFunc(infos, known) {
			infos = append(infos, memory.ScopeInfo{Scope: scope})
		}
	}
	people, err := gate.People{}.List(r.q)
	if err != nil {
		return nil, err
	}
	names := make(map[int64]string)
	for _, p := range people {
		names[p.ID] = p.Name
	}
	slices.SortFunc(infos, func(a, b memory.ScopeInfo) int { return cmp.Compare(a.Scope, b.Scope) })
	var rows [][]any
	for _, i := range infos {
		files, err := documentsIn(filepath.Join(app.MemoryFolder(r.cfg), string(i.Scope)))
		if err != nil {
			return nil, err
		}
		rows = append(rows, []any{i.Scope, excerpt(names[i.Scope.Person()]), i.Facts, i.Entries,
			i.Messages, len(files)})
	}
	return rows, nil
}

// documentsIn returns the paths, with slashes, of the documents and skills in a folder. The
// folder need not exist.
func documentsIn(folder string) ([]string, error) {
	root, err := app.OpenIfExists(folder)
	if err != nil || root == nil {
		return nil, err
	}
	defer root.Close()
	var names []string
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || path == ".":
			return err
		// IsVersioned tells folders by a slash at the end.
		case d.IsDir() && !document.IsVersioned(path+"/"):
			return fs.SkipDir
		case d.Type().IsRegular() && document.IsVersioned(path):
			names = append(names, path)
		}
		return nil
	})
	return names, err
}

func memoryShowCommand(load app.Loader) *cobra.Command {
	return ofScope(load, "show SCOPE [DOCUMENT]",
		"Print the facts and documents of a scope, or one document", cobra.RangeArgs(1, 2), false,
		func(cmd *cobra.Command, r memoryData, args []string) error {
			if len(args) == 0 {
				return r.show(cmd)
			}
			text, hash, err := r.documents.Read(r.scope, args[0])
			if err == nil && hash == "" {
				err = app.UsageErrorf("there is no document %q", args[0])
			}
			if err != nil {
				return err
			}
			cmd.Println(display.Lines(strings.TrimRight(text, "\n")))
			return nil
		})
}

// maxFacts is the maximum number of facts that are shown.
const maxFacts = 10_000

// show prints the facts and all documents of the scope. Instead of a document that can't be read it
// prints the error, so that the others are still shown.
func (r memoryData) show(cmd *cobra.Command) error {
	names, err := documentsIn(r.folder)
	if err != nil {
		return err
	}
	empty := true
	if r.scope != "" {
		facts, err := r.memory.In(r.scope).Facts(r.q, "", maxFacts)
		if err != nil {
			return err
		}
		if len(facts) > 0 {
			empty = false
			cmd.Println("# Facts\n\n" + display.Lines(strings.TrimSpace(memory.Render(facts))) + "\n")
		}
	}
	for _, name := range names {
		text, _, err := r.documents.Read(r.scope, name)
		if err != nil {
			text = "(" + err.Error() + ")"
		}
		if text = strings.TrimSpace(text); text != "" {
			empty = false
			cmd.Println("# " + display.Lines(name) + "\n\n" + display.Lines(text) + "\n")
		}
	}
	if empty {
		cmd.Println("There are neither facts nor documents yet.")
	}
	return nil
}

// memoryLogCommand returns the command that lists the versions of a scope's documents. It first
// records what people have changed in the shared documents by hand. Nothing else records that.
func memoryLogCommand(load app.Loader) *cobra.Command {
	var limit int
	cmd := ofScope(load, "log SCOPE", "List the changes of a scope's documents, the newest first",
		cobra.ExactArgs(1), false, func(cmd *cobra.Command, r memoryData, _ []string) error {
			if r.scope == "" {
				if err := background.CommitShared(cmd.Context(), r.history, background.ByHand); err != nil {
					return err
				}
			}
			list, err := r.history.Log(cmd.Context(), limit)
			if err != nil {
				return err
			}
			var rows [][]any
			for _, v := range list {
				rows = append(rows, []any{shortID(v.ID), timestamp(v.Time), excerpt(v.Author),
					excerpt(v.Reason)})
			}
			columns := []string{"VERSION", "TIME", "BY", "REASON"}
			return table{columns, rows, "Nothing was changed yet."}.print(cmd)
		})
	countVar(cmd.Flags(), &limit, "limit", 50, "maximum number of changes")
	return withJSONFlag(cmd)
}

// shortID returns the part of a version's id that people type.
func shortID(id string) string { return id[:min(len(id), 10)] }

func memoryDiffCommand(load app.Loader) *cobra.Command {
	return ofScope(load, "diff SCOPE VERSION", "Print what a version changed, and why",
		cobra.ExactArgs(2), false, func(cmd *cobra.Command, r memoryData, args []string) error {
			text, err := r.history.Show(cmd.Context(), args[0])
			if err != nil {
				return versionError(err, args[0])
			}
			cmd.Print(display.Lines(text))
			return nil
		})
}

// memoryRestoreCommand returns the command that takes back one version. If later versions have
// changed the same lines, it changes nothing and lists these lines.
func memoryRestoreCommand(load app.Loader) *cobra.Command {
	return ofScope(load, "restore SCOPE VERSION",
		"Undo the change of a version, and keep later changes",
		cobra.ExactArgs(2), false, func(cmd *cobra.Command, r memoryData, args []string) error {
			if err := checkOwner(r.cfg); err != nil {
				return err
			}
			v, err := r.history.Undo(cmd.Context(), args[0], docversion.Change{
				Author: "a person", Reason: "Took back version " + args[0] + "."})
			if err != nil {
				return versionError(err, args[0])
			}
			// Undo returns the zero Version if nothing was left to undo.
			if v.ID == "" {
				cmd.Println("Nothing is left of that change.")
				return nil
			}
			cmd.Printf("The change was taken back, with version %s.\n", shortID(v.ID))
			return nil
		})
}

// versionError returns the error for a version id, with advice for people.
func versionError(err error, id string) error {
	conflict, ok := errors.AsType[*docversion.ConflictError](err)
	switch {
	case ok:
		text := "nothing was undone, because these lines were changed again:"
		for _, f := range conflict.Files {
			for _, c := range f.Conflicts {
				text += fmt.Sprintf("\n  %s, line %d: %s", display.Lines(f.Name), c.Line,
					display.OneLine(c.Ours))
			}
		}
		return errors.New(text + "\nEdit the documents by hand.")
	case errors.Is(err, docversion.ErrUnknown):
		return app.UsageErrorf("there is no version %q; see gateway memory log", id)
	case errors.Is(err, docversion.ErrAmbiguous):
		return app.UsageErrorf("several versions begin with %q; give more of the name", id)
	}
	return err
}

// memorySearchCommand returns the command that searches one scope. The limit holds for each of the
// two searches.
func memorySearchCommand(load app.Loader) *cobra.Command {
	var limit int
	cmd := ofScope(load, "search SCOPE WORDS...", "Search the facts, the history and the messages",
		cobra.MinimumNArgs(2), true, func(cmd *cobra.Command, r memoryData, args []string) error {
			q, words := r.q, strings.Join(args, " ")
			hits, err := r.memory.In(r.scope).Search(q, words, limit)
			if err != nil {
				return err
			}
			past, err := r.memory.In(r.scope).SearchHistory(q, words, memory.HistoryOptions{Limit: limit})
			if err != nil {
				return err
			}
			var rows [][]any
			found := make(map[string]bool) // both searches can return the same history entry
			for _, h := range append(hits, past...) {
				text := h.Excerpt
				if h.Kind == memory.KindFact {
					text = h.Fact.Key + ": " + h.Fact.Value
				}
				row := []any{h.Kind, timestamp(h.Time), text}
				key := cellText(row[0]) + "\n" + cellText(row[1]) + "\n" + cellText(row[2])
				if !found[key] {
					found[key] = true
					rows = append(rows, row)
				}
			}
			return table{[]string{"KIND", "TIME", "TEXT"}, rows, "Nothing was found."}.print(cmd)
		})
	countVar(cmd.Flags(), &limit, "limit", 20, "maximum number of results per kind")
	return withJSONFlag(cmd)
}

// memoryExportCommand returns the command that exports a scope. With --git the output contains the
// versions of the documents, but no facts and no history.
func memoryExportCommand(load app.Loader) *cobra.Command {
	var git bool
	cmd := ofScope(load, "export SCOPE [FILE]",
		"Export the memory of a scope as lines of JSON", cobra.RangeArgs(1, 2), true,
		func(cmd *cobra.Command, r memoryData, args []string) error {
			export := r.export
			if git {
				export = r.history.Export
			}
			if len(args) == 0 {
				return export(cmd.Context(), cmd.OutOrStdout())
			}
			err := writeNew(args[0], func(w io.Writer) error { return export(cmd.Context(), w) })
			if err != nil {
				return err
			}
			cmd.Printf("The memory of %s is now in %s.\n", r.scope, args[0])
			return nil
		})
	cmd.Flags().BoolVar(&git, "git", false,
		"write the versions of the documents instead, for git fast-import")
	return cmd
}

// export writes the facts, the history and the documents as JSON lines. A file that is not text,
// such as a picture of a skill, is in base64.
func (r memoryData) export(ctx context.Context, w io.Writer) error {
	if err := r.memory.Export(ctx, r.scope, w); err != nil {
		return err
	}
	names, err := documentsIn(r.folder)
	if err != nil || len(names) == 0 {
		return err
	}
	root, err := os.OpenRoot(r.folder)
	if err != nil {
		return err
	}
	defer root.Close()
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	for _, name := range names {
		data, err := root.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed in the meantime
		}
		if err != nil {
			return err
		}
		line := map[string]any{"document": name}
		if utf8.Valid(data) {
			line["text"] = string(data)
		} else {
			line["base64"] = data
		}
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// memoryReindexCommand returns the command that makes the index agree with the files. Rebuilding
// the index of all scopes blocks all other writers.
func memoryReindexCommand(load app.Loader) *cobra.Command {
	return ofScope(load, "reindex SCOPE",
		"Import manual changes of history.jsonl, and rebuild the index",
		cobra.ExactArgs(1), true, func(cmd *cobra.Command, r memoryData, _ []string) error {
			// The index belongs to all scopes. Rebuild then reads the history file of this one.
			if err := r.memory.Reindex(cmd.Context()); err != nil {
				return err
			}
			done, err := r.memory.Rebuild(cmd.Context(), r.scope)
			if err != nil {
				return err
			}
			cmd.Printf("%d entries: %d added, %d changed, %d removed.\n", done.Entries, done.Added,
				done.Changed, done.Removed)
			for _, bad := range done.Bad {
				cmd.Println("left out:", display.Lines(bad))
			}
			return nil
		})
}
