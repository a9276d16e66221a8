package files

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"gateway/agent/tools/files/osfile"
)

// open opens the regular file at a place and returns its FileInfo. The caller must close the file.
// The model reads the error.
func (ts *trees) open(at place) (*os.File, fs.FileInfo, error) {
	info, err := at.tree.dir.Stat(at.path) // before opening, because opening some devices has effects
	if err != nil {
		return nil, nil, ts.explain(at, err)
	}
	if err := wantRegular(at.given, info); err != nil {
		return nil, nil, err
	}
	// The file may have become a pipe since the check. Opening a pipe without O_NONBLOCK would
	// block.
	f, err := at.tree.dir.OpenFile(at.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, ts.explain(at, err)
	}
	if info, err = f.Stat(); err == nil {
		err = wantRegular(at.given, info)
	}
	if err == nil && osfile.IsPseudo(f) {
		err = fmt.Errorf("%q is not a file on a disk but a part of the system, and can't be read",
			at.given)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, err
	}
	return f, info, nil
}

func wantRegular(name string, info fs.FileInfo) error {
	switch k := kind(info.Mode()); k {
	case "":
		return nil
	case "directory":
		return fmt.Errorf("%q is a directory; use list_dir", name)
	default:
		return fmt.Errorf("%q is a %s and can't be read; only regular files can", name, k)
	}
}
