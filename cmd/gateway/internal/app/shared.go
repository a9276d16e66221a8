package app

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"gateway/cmd/gateway/internal/config"
	"gateway/memory/document"
)

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
		err = os.CopyFS(copied, os.DirFS(from))
		if err != nil {
			return err
		}
	} else if err := copyFile(from, copied); err != nil {
		return err
	}
	return os.Rename(copied, to)
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// OpenIfExists opens a folder. It returns nil if the folder does not exist.
func OpenIfExists(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return root, err
}
