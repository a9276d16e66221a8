package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"gateway/agent/llm"
	"gateway/agent/turn"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/memory"
	"gateway/memory/document"
	docversion "gateway/memory/version"
	"gateway/skills"
	"gateway/store"
)

// knowledge is the agent's long-term memory, its documents and its skills.
type knowledge struct {
	db        *store.DB
	shared    *os.Root // shared documents and skills
	scopes    *os.Root // one folder per scope
	builtin   *os.Root // the built-in skills
	home      *os.Root // nil until a persona is configured; see personaDocuments
	memory    *memory.Memory
	documents *document.Documents
	personas  *document.Documents // nil until a persona is configured
	versions  *docversion.Store
	skills    *skills.Library
	pins      skills.Pins
	log       *slog.Logger
}

// MemoryFolder returns the folder with the documents and the history of each scope.
func MemoryFolder(cfg *config.Config) string { return filepath.Join(cfg.Gateway.Home, "memory") }

// VersionsFolder returns the folder in which earlier versions of the gateway kept document
// versions.
func VersionsFolder(cfg *config.Config) string {
	return filepath.Join(cfg.Gateway.Home, "versions")
}

// builtinFolder returns the folder to which the built-in skills are written.
func builtinFolder(cfg *config.Config) string {
	return filepath.Join(cfg.Gateway.Home, builtinName)
}

// builtinName is the path prefix of built-in skills.
const builtinName = "builtin-skills"

// PinsFile returns the file that records which skills the operator has installed.
func PinsFile(cfg *config.Config) string { return filepath.Join(cfg.Gateway.Home, "skills.json") }

// openKnowledge opens the memory, the documents and the skills, and writes templates in a new
// home.
func openKnowledge(
	cfg *config.Config, db *store.DB, workspace *os.Root, log *slog.Logger,
) (*knowledge, error) {
	m := &knowledge{db: db, pins: skills.Pins(PinsFile(cfg)), log: log}
	var err error
	if m.scopes, err = OpenFolder(MemoryFolder(cfg)); err != nil {
		return nil, err
	}
	if m.shared, err = OpenShared(cfg, log); err != nil {
		return nil, errors.Join(err, m.close())
	}
	// They must match this version of the gateway, so each start updates them.
	if err := skills.Unpack(builtinFolder(cfg)); err != nil {
		return nil, errors.Join(err, m.close())
	}
	if m.builtin, err = os.OpenRoot(builtinFolder(cfg)); err != nil {
		return nil, errors.Join(err, m.close())
	}
	m.memory = memory.New(db, m.scopes, nil)
	m.documents = document.New(m.shared, m.scopes, &document.Options{Logger: log})
	m.versions = NewVersions(cfg, db, log)
	m.skills = NewSkills(cfg, m.shared, m.scopes, log)
	if err := m.skills.Recover(); err != nil {
		log.Warn("replacement of a skill not undone", "err", err)
	}
	// The agent works without these templates.
	if err := errors.Join(m.documents.WriteTemplates(), m.documents.Link(workspace)); err != nil {
		log.Warn("shared documents not prepared", "err", err)
	}
	return m, nil
}

// NewVersions returns the store of document versions.
func NewVersions(cfg *config.Config, db *store.DB, log *slog.Logger) *docversion.Store {
	return docversion.New(db, &docversion.Options{Before: VersionsFolder(cfg), Logger: log})
}

// NewSkills returns the library of the shared skills and the skills of scopes.
func NewSkills(cfg *config.Config, shared, scopes *os.Root, log *slog.Logger) *skills.Library {
	return skills.New(&skills.Options{Shared: shared, Memory: scopes, Logger: log,
		Disabled: cfg.Skills.Disabled, Config: cfg.Has,
		// A skill can use only the variables that its commands see.
		Env: func(name string) bool {
			return os.Getenv(name) != "" && slices.Contains(cfg.Exec.Env, name)
		},
	})
}

// skillNames returns the names of all skills, including those of single scopes.
func skillNames(cfg *config.Config) (names []string, err error) {
	shared, err := SharedIfThere(cfg)
	if err != nil || shared == nil {
		return nil, err
	}
	defer shared.Close()
	scopes, err := OpenIfExists(MemoryFolder(cfg))
	if err != nil {
		return nil, err
	}
	library := NewSkills(cfg, shared, scopes, slog.New(slog.DiscardHandler))
	places := []string{""}
	if scopes != nil {
		defer scopes.Close()
		found, err := library.Scopes()
		if err != nil {
			return nil, err
		}
		places = append(places, found...)
	}
	for _, scope := range places {
		for _, s := range library.List(scope) {
			names = append(names, s.Name)
		}
	}
	return names, nil
}

// PersonasFolder returns the path of the folder that has a folder of documents for each persona. No
// tool can reach it.
func PersonasFolder(cfg *config.Config) string {
	return filepath.Join(cfg.Gateway.Home, turn.PersonasFolder)
}

// personaDocuments returns the documents of personas, or nil if the home can't be opened. It must
// not be called concurrently.
func (m *knowledge) personaDocuments(cfg *config.Config) *document.Documents {
	if m.personas != nil {
		return m.personas
	}
	var err error
	if m.home, err = os.OpenRoot(cfg.Gateway.Home); err != nil {
		m.log.Error("personas answer without documents of their own", "err", err)
		return nil
	}
	m.personas = document.New(m.home, nil, &document.Options{Logger: m.log})
	return m.personas
}

func (m *knowledge) close() error {
	var errs []error
	for _, root := range []*os.Root{m.shared, m.scopes, m.builtin, m.home} {
		if root != nil {
			errs = append(errs, root.Close())
		}
	}
	return errors.Join(errs...)
}

// run logs a warning for each skill that differs from what was installed, and waits until ctx
// ends.
func (m *knowledge) run(ctx context.Context) error {
	states, err := m.pins.Review(ctx, m.skills)
	if err != nil {
		m.log.WarnContext(ctx, "skills can't be compared with their installed versions", "err", err)
	}
	for folder, state := range config.Sorted(states) {
		m.log.WarnContext(ctx, "a skill differs from its installed version; see gateway skills list",
			"skill", display.OneLine(folder), "state", state)
	}
	<-ctx.Done()
	return nil
}

// newNotes returns the model that summarises conversations, and its name.
func newNotes(cfg *config.Config, log *slog.Logger) (llm.Model, string) {
	name := cfg.Memory.Model
	if name == "" || name == cfg.Agent.Model {
		return nil, cfg.Agent.Model // nil means the default model
	}
	return newModel(cfg, name, log), name
}

// SharedFolder returns the folder with the shared documents, and the shared skills in "skills".
// They are part of everybody's prompt. Commands and confined servers may read the folder but not
// write it, so it is outside the workspace.
func SharedFolder(cfg *config.Config) string {
	return filepath.Join(cfg.Gateway.Home, "shared")
}

// OpenShared opens the shared folder. If it does not exist, it is created with the documents that
// earlier versions kept in the workspace.
func OpenShared(cfg *config.Config, log *slog.Logger) (*os.Root, error) {
	if _, err := os.Lstat(SharedFolder(cfg)); errors.Is(err, fs.ErrNotExist) {
		if err := createSharedFolder(cfg, log); err != nil {
			return nil, err
		}
	}
	return os.OpenRoot(SharedFolder(cfg))
}

// PrepareShared creates the shared folder if it does not exist.
func PrepareShared(cfg *config.Config) error {
	root, err := OpenShared(cfg, slog.Default())
	if err != nil {
		return err
	}
	return root.Close()
}

// SharedIfThere opens the shared folder for reading. If it does not exist, it opens the
// workspace, where earlier versions kept the documents. It returns nil if neither exists.
func SharedIfThere(cfg *config.Config) (*os.Root, error) {
	root, err := OpenIfExists(SharedFolder(cfg))
	if root == nil && err == nil {
		root, err = OpenIfExists(cfg.Gateway.Workspace)
	}
	return root, err
}

// createSharedFolder creates the shared folder. It fills a draft folder and renames it at the end.
// After that nothing is ever moved from the workspace, since commands can write there. If a process
// dies during the move, the next one continues.
func createSharedFolder(cfg *config.Config, log *slog.Logger) error {
	draft := SharedFolder(cfg) + ".new"
	if err := os.MkdirAll(draft, 0o700); err != nil {
		return err
	}
	moved := 0
	names := append([]string{document.SkillsFolder, document.Heartbeat}, document.SharedNames...)
	for _, name := range names {
		from, to := filepath.Join(cfg.Gateway.Workspace, name), filepath.Join(draft, name)
		info, err := os.Lstat(from)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if folder := name == document.SkillsFolder; info.IsDir() != folder ||
			!folder && !info.Mode().IsRegular() {
			log.Warn("not moved to the shared documents: it is a link or has the wrong type",
				"path", from)
			continue
		}
		if err := moveTo(from, to); err != nil {
			return fmt.Errorf("%s can't be moved to the shared documents: %w; free disk space or "+
				"correct the permissions, and start again", from, err)
		}
		moved++
	}
	if err := os.Rename(draft, SharedFolder(cfg)); err != nil {
		return err
	}
	if moved > 0 {
		log.Info("shared documents and skills moved out of the workspace, where commands can write",
			"from", cfg.Gateway.Workspace, "to", SharedFolder(cfg), "entries", moved)
	}
	return nil
}

// moveTo renames a file or folder. If the target is on another file system, it copies instead;
// then the original stays in the workspace and has no effect.
func moveTo(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return nil // an earlier process has moved it
	}
	if err := os.Rename(from, to); err == nil {
		return nil
	}
	copied := to + ".new"
	if err := os.RemoveAll(copied); err != nil { // left by a process that died
		return err
	}
	if info, err := os.Lstat(from); err != nil {
		return err
	} else if info.IsDir() {
		if err := os.CopyFS(copied, os.DirFS(from)); err != nil {
			return err
		}
	} else {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(copied, text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return os.Rename(copied, to)
}

// OpenFolder opens a folder and creates it if necessary.
func OpenFolder(dir string) (*os.Root, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// OpenIfExists opens a folder. It returns nil if the folder does not exist.
func OpenIfExists(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return root, err
}
