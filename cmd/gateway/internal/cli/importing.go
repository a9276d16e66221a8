package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/channels/whatsapp"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/cmd/gateway/internal/importer"
	"gateway/memory"
	"gateway/memory/document"
	docversion "gateway/memory/version"
	"gateway/store"
)

// An importing has the options of one run of gateway import.
type importing struct {
	dry    bool
	scope  string
	chosen []string // in the form PLATFORM=ACCOUNT or KEY=ACCOUNT/CHAT
}

func importCommand(load app.Loader) *cobra.Command {
	return group("import", "Import the home of another agent",
		importKindCommand(load, importer.Nanobot), importKindCommand(load, importer.PicoClaw),
		importKindCommand(load, importer.OpenClaw))
}

// importKindCommand returns the command for one of the other programs. It uses the settings of this
// shell, because the gateway must not run.
func importKindCommand(load app.Loader, kind importer.Kind) *cobra.Command {
	var i importing
	cmd := withJSONFlag(withConfig(load, &cobra.Command{
		Use:   string(kind) + " DIR",
		Short: "Import the home of an agent of " + string(kind),
		Long: `Import the documents, memory, conversations and jobs of another agent. The command adds
to this gateway's home without replacing anything, and does not change DIR. If you run it again, it
adds only what is new. The gateway must not run.

One person or group gets the personal data: the owner, unless --scope names another.`,
		Args: cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, cfg *config.Config, args []string) error {
		info, err := os.Stat(args[0])
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			return app.UsageErrorf("there is no folder %s: give the home of %s, which is ~/.%[2]s unless "+
				"you have chosen another", args[0], kind)
		}
		source, err := importer.Open(kind, args[0])
		if err != nil {
			return err
		}
		return errors.Join(i.run(cmd, cfg, source), source.Close())
	}))
	cmd.Flags().BoolVar(&i.dry, "dry-run", false, "print what the import would do, and change nothing")
	cmd.Flags().StringVar(&i.scope, "scope", "",
		"number of the person, or scope, that gets the personal data (default the owner)")
	cmd.Flags().StringArrayVar(&i.chosen, "as", nil,
		"PLATFORM=ACCOUNT or KEY=ACCOUNT/CHAT: account that gets the conversations of a platform, or "+
			"conversation that gets those of a session")
	return cmd
}

// run imports the source, or says what an import would do. It reports the result of each item and
// returns an error if one has failed.
func (i importing) run(cmd *cobra.Command, cfg *config.Config, source *importer.Source) error {
	account, chosen, err := i.places(cfg)
	if err == nil && !i.dry {
		err = checkOwner(cfg)
	}
	if err != nil {
		return err
	}
	var items []importer.Item
	err = withStopped(cmd.Context(), cfg, i.dry, func(d data) error {
		zone := cfg.Gateway.Location
		// The number of jobs is not limited, because the person has them already.
		t := importer.Target{DB: d.db, Now: time.Now(), Location: zone,
			Directory: importer.Directory{Account: account, Chosen: chosen, Lookup: lookupChat(cfg)},
			Jobs:      schedule.Store{MaxJobs: -1, MinEvery: cfg.Schedule.MinEvery, Location: zone}}
		if err := i.people(cmd.Context(), cfg, &t); err != nil {
			return err
		}
		t.History = func(scope memory.Scope) *docversion.Tree {
			_, tree := historyOf(cfg, t.DB, scope)
			return tree
		}
		return withFolders(cfg, t.DB, func(m *memory.Memory, documents *document.Documents) (err error) {
			t.Memory, t.Documents = m, documents
			items, err = source.Import(cmd.Context(), t, i.dry)
			return err
		})
	})
	if err != nil {
		return err
	}
	return i.report(cmd, items)
}

// withStopped calls fn with the database, and returns an error if a gateway is running. A dry run
// changes nothing, so a gateway may be running then.
func withStopped(ctx context.Context, cfg *config.Config, dry bool, fn func(data) error) error {
	if dry {
		return withData(ctx, cfg, fn)
	}
	// An import may come before the first start of the gateway.
	if err := os.MkdirAll(cfg.Gateway.Home, 0o700); err != nil {
		return app.NewHomeError(cfg.Gateway.Home, err)
	}
	db, err := store.Open(ctx, cfg.Store.Path(), app.Migrations(), &store.Options{})
	if errors.Is(err, store.ErrLocked) {
		return fmt.Errorf("a gateway is running in %s: stop it, import, and start it again",
			cfg.Gateway.Home)
	}
	if err != nil {
		return app.NewHomeError(cfg.Gateway.Home, err)
	}
	return errors.Join(fn(data{cfg, db, db.Read(ctx)}), db.Close())
}

// places returns a function that maps a platform to an account, and the conversations in --as. The
// account is the one in --as, else the only account of that type, else the account named like the
// platform.
func (i importing) places(
	cfg *config.Config,
) (account func(platform string) string, chosen map[string]bus.Address, err error) {
	chosen = make(map[string]bus.Address)
	for _, s := range i.chosen {
		// A KEY may contain "=", so the last one separates it from the address.
		at := max(0, strings.LastIndexByte(s, '='))
		a, ok := addressOf(cfg, strings.TrimPrefix(s[at:], "="))
		// "ACCOUNT/" has a slash and no chat: it is a mistake and no account.
		if at == 0 || !ok || a.Chat == "" && strings.Contains(s[at:], "/") {
			return nil, nil, app.UsageErrorf("--as %s: want PLATFORM=ACCOUNT or KEY=ACCOUNT/CHAT with an "+
				"account of the configuration: %s", s, accountNames(cfg))
		}
		chosen[s[:at]] = a
	}
	return func(platform string) string {
		if a, ok := chosen[platform]; ok && a.Chat == "" {
			return a.Account
		}
		var list []string
		for name, c := range config.Sorted(cfg.Channels) {
			if c.Type == platform {
				list = append(list, name)
			}
		}
		if len(list) == 1 {
			return list[0]
		}
		return platform
	}, chosen, nil
}

// addressOf parses ACCOUNT, ACCOUNT/CHAT or ACCOUNT/CHAT/THREAD. It reports whether the account
// exists.
func addressOf(cfg *config.Config, s string) (bus.Address, bool) {
	account, rest, _ := strings.Cut(s, "/")
	chat, thread, _ := strings.Cut(rest, "/")
	_, known := cfg.Channels[account]
	return bus.Address{Account: account, Chat: chat, Thread: thread}, known
}

func accountNames(cfg *config.Config) string {
	return strings.Join(slices.Sorted(maps.Keys(cfg.Channels)), ", ")
}

// lookupChat returns a function that finds the direct chats of phone numbers.
func lookupChat(cfg *config.Config) func(context.Context, string, string) (string, error) {
	return func(ctx context.Context, account, person string) (string, error) {
		// Only a WhatsApp account has a store that maps people to chats.
		if cfg.Channels[account].Type != "whatsapp" {
			return "", nil
		}
		return whatsapp.Lookup(ctx, app.WhatsAppStore(cfg, account), person)
	}
}

// people sets the known people and the scope for personal data in t.
func (i importing) people(ctx context.Context, cfg *config.Config, t *importer.Target) (err error) {
	if t.People, err = (gate.People{}).List(t.DB.Read(ctx)); err != nil {
		return err
	}
	for j := range t.People {
		p := &t.People[j]
		account := cfg.Channels[p.Account]
		// The configuration overrides the role in the database, also that of an account that is
		// switched off meanwhile.
		if account.Type == "terminal" || slices.Contains(account.Owners, p.Sender) {
			p.Role = bus.Owner
		}
	}
	owners := ownersOf(t.People, func(p gate.Person) bool {
		return cfg.Channels[p.Account].Type != "terminal"
	})
	if len(owners) == 0 { // there may be nobody but the person at the terminal
		owners = ownersOf(t.People, func(gate.Person) bool { return true })
	}
	switch {
	case i.scope != "":
		if t.Scope, err = scopeOf(i.scope); err == nil && t.Scope == "" {
			err = app.UsageErrorf("personal data can't go to everybody: --scope needs a person's number " +
				"or a scope")
		}
	case len(owners) == 1:
		t.Scope = memory.OfPerson(owners[0])
	default:
		// With several owners, or none, the choice is not obvious.
		err = app.NewUsageError(errors.New(askScope(t.People)))
	}
	if err != nil {
		return err
	}
	person := t.Scope.Person()
	known := func(p gate.Person) bool { return p.ID == person }
	if person != 0 && !slices.ContainsFunc(t.People, known) {
		return app.UsageErrorf("there is no person %d: see gateway people list", person)
	}
	return i.owner(ctx, t)
}

// ownersOf returns the numbers of the owners among the people that fit.
func ownersOf(people []gate.Person, fits func(gate.Person) bool) (list []int64) {
	for _, p := range people {
		if p.Role == bus.Owner && fits(p) && !slices.Contains(list, p.ID) {
			list = append(list, p.ID)
		}
	}
	return list
}

// owner sets the direct chat of the scope's person in t.
func (i importing) owner(ctx context.Context, t *importer.Target) error {
	t.Owner.Person = t.Scope.Person()
	if t.Owner.Person == 0 {
		return nil
	}
	chats, err := bus.DirectChats(t.DB.Read(ctx), t.Owner.Person)
	if err != nil {
		return err
	}
	// A person has one entry for each account. The first one with a direct chat counts.
	for _, p := range t.People {
		if p.ID != t.Owner.Person {
			continue
		}
		for _, chat := range chats {
			if chat.Account == p.Account && t.Owner.Chat.Chat == "" {
				t.Owner.Chat = chat
				t.Owner.Sender = bus.Sender{ID: p.Sender, Name: p.Name}
			}
		}
	}
	return nil
}

// askScope returns the question for whom the personal data is.
func askScope(people []gate.Person) string {
	const ask = "whose memory is this? Choose the person or a conversation with --scope"
	var choices []string
	for _, p := range people {
		choices = append(choices, fmt.Sprintf("%d (%s, %s on %s)", p.ID, display.OneLine(p.Name), p.Role,
			p.Account))
	}
	if len(choices) == 0 {
		return "the gateway knows nobody yet, so it is unclear whose memory this is. Start the " +
			"gateway, write to it, approve yourself and stop it; then import again. Or choose a " +
			"conversation with --scope, such as chat-telegram+42"
	}
	return ask + ": " + strings.Join(choices, ", ")
}

// report prints the result of each item.
func (i importing) report(cmd *cobra.Command, items []importer.Item) (err error) {
	failed := 0
	var rows [][]any
	for _, item := range items {
		if item.State == importer.Failed {
			failed++
		}
		rows = append(rows, []any{item.State, item.Kind, item.From, item.To, item.Text})
	}
	if wantsJSON(cmd) {
		err = printJSON(cmd, map[string]any{"dry_run": i.dry, "items": items})
	} else {
		columns := []string{"STATE", "WHAT", "FROM", "TO", "NOTE"}
		err = table{columns, rows, "There is nothing to import."}.print(cmd)
		if err == nil && i.dry {
			cmd.Println("Nothing was changed: this was a dry run.")
		}
	}
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of these failed; solve the problems and import again", failed)
	}
	return err
}
