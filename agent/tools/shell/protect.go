package shell

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"gateway/agent/tool"
	"gateway/agent/tools/shell/sandbox"
	"gateway/bus"
)

// promptFiles and skillsFolder are what everybody's prompt is made of, at the top of the workspace.
var promptFiles = []string{
	"AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "IDENTITY.md", "HEARTBEAT.md",
}

const skillsFolder = "skills"

// protected returns what a call's commands may only read in the workspace: what everybody's prompt
// is made of, unless it is an admin who has them run. What is missing is made, empty, or else a
// command could make it. Where the sandbox can't protect it, there is nothing.
func (s *Shell) protected(box *sandbox.Sandbox, c tool.Call) ([]string, error) {
	if c.Role.AtLeast(bus.Admin) || !box.Protects() {
		return nil, nil
	}
	return PromptFiles(s.o.Workspace)
}

// PromptFiles returns the paths of what everybody's prompt is made of in a workspace. What is
// missing is made, empty.
func PromptFiles(workspace string) ([]string, error) {
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return nil, errors.New("the workspace can't be opened; the owner must look at it")
	}
	defer root.Close()
	var list []string
	for _, name := range append([]string{skillsFolder}, promptFiles...) {
		if err := makeEmpty(root, name); err != nil {
			return nil, fmt.Errorf("%s can't be protected from commands: %w", name, err)
		}
		list = append(list, filepath.Join(workspace, name))
	}
	return list, nil
}

// makeEmpty makes an empty file, or a folder for skills, if nothing has that name.
func makeEmpty(root *os.Root, name string) error {
	if _, err := root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if name == skillsFolder {
		if err := root.Mkdir(name, 0o700); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}
