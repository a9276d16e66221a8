package skills

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"gateway/store/plaintext"
)

// Limits of a skill's files. maxBytes is the sum of the sizes of all files.
const (
	maxFiles = 1000
	maxBytes = 64 << 20
	maxLevel = 16 // nested folders
)

// A File is one of a skill's files.
type File struct {
	Name      string // slash-separated path below the skill's folder
	Size      int64  // bytes
	Script    bool   // it is executable or looks like a script
	Irregular string // kind of a non-regular file, such as "a link"; otherwise ""

	run bool // its mode has an executable bit
}

// folder is the folder of a skill's files.
type folder struct {
	fs.FS
	open func(name string) (fs.File, error)
}

// folderOf returns a folder on disk.
func folderOf(root *os.Root) folder {
	return folder{root.FS(), func(name string) (fs.File, error) {
		return openFile(root, filepath.FromSlash(name))
	}}
}

// files returns the files of a skill of [Library.List], in order, and a hash of all their
// names, executable bits and contents. Links are not followed; their targets are part of
// the hash.
func (l *Library) files(s Skill) (files []File, sum string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("skills: files of %s: %w", s.Name, err)
		}
	}()
	if s.Source == Builtin {
		sub, err := fs.Sub(builtins, path.Join("builtin", s.Folder))
		if err != nil {
			return nil, "", err
		}
		return survey(folder{sub, sub.Open}, "")
	}
	skillsDir, err := l.open(s)
	if err != nil {
		return nil, "", err
	}
	defer skillsDir.Close()
	root, err := skillsDir.OpenRoot(s.Folder)
	if err != nil {
		return nil, "", err
	}
	defer root.Close()
	return survey(folderOf(root), "")
}

// survey lists and hashes the files of a folder, except the file or folder with the name without.
func survey(f folder, without string) ([]File, string, error) {
	files, err := walk(f, without)
	if err != nil {
		return nil, "", err
	}
	sum, left := sha256.New(), int64(maxBytes)
	// left is shared by all files, so that maxBytes limits their sum.
	for i := range files {
		if err := files[i].add(sum, f, &left); err != nil {
			return nil, "", err
		}
	}
	return files, "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// walk lists the files of a folder by name, except the file or folder with the name without.
func walk(f folder, without string) ([]File, error) {
	var files []File
	err := fs.WalkDir(f, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == without && d.IsDir():
			return fs.SkipDir
		case name == without:
			return nil
		case strings.Count(name, "/") >= maxLevel:
			return fmt.Errorf("more than %d folders in each other", maxLevel)
		case d.IsDir():
			return nil
		case len(files) == maxFiles:
			return fmt.Errorf("more than %d files", maxFiles)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files = append(files, File{Name: name, Size: info.Size(), Irregular: irregular(info.Mode()),
			run: info.Mode().IsRegular() && info.Mode()&0o111 != 0})
		return nil
	})
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return files, err
}

// irregular returns the kind of a file that is not regular.
func irregular(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return ""
	case mode&fs.ModeSymlink != 0:
		return "a link"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

// add writes a file to a hash, each part after its length, so that different files never
// yield the same input.
func (f *File) add(sum hash.Hash, in folder, left *int64) error {
	fmt.Fprintf(sum, "%d:%s %t %s\n", len(f.Name), f.Name, f.run, f.Irregular)
	if f.Irregular != "" {
		target := ""
		if f.Irregular == "a link" {
			var err error
			if target, err = fs.ReadLink(in.FS, f.Name); err != nil {
				return err
			}
		}
		fmt.Fprintf(sum, "%d:%s\n", len(target), target)
		return nil
	}
	file, err := in.open(f.Name)
	if err != nil {
		return err
	}
	defer file.Close()
	// The file may have been replaced since walk has seen it.
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("%s is no longer a file", f.Name))
	}
	content := bufio.NewReaderSize(io.LimitReader(file, *left+1), 32<<10)
	head, _ := content.Peek(2) // fewer bytes in a short file; Copy returns another error
	f.Script = f.run || isScript(f.Name, head)
	hash := sha256.New()
	n, err := io.Copy(hash, content)
	if *left -= n; err == nil && *left < 0 {
		err = fmt.Errorf("more than %d MB", maxBytes>>20)
	}
	f.Size = n
	fmt.Fprintf(sum, "%d:%x\n", n, hash.Sum(nil))
	return err
}

var scriptEndings = []string{".sh", ".bash", ".zsh", ".fish", ".py", ".js", ".mjs", ".cjs", ".ts",
	".rb", ".pl", ".php", ".lua", ".ps1", ".bat", ".cmd", ".exe", ".com", ".jar", ".so", ".dll",
	".dylib", ".wasm", ".awk", ".tcl", ".r"}

// isScript reports whether a file is a script.
func isScript(name string, head []byte) bool {
	return slices.Contains(scriptEndings, strings.ToLower(path.Ext(name))) ||
		string(head) == "#!" || string(head) == "MZ" || string(head) == "\x7fE"
}

// isPortable reports whether the name of a file below a skill's folder can be shown, and is
// valid on all systems.
func isPortable(name string) bool {
	if !utf8.ValidString(name) || plaintext.OneLine(name) != name || !filepath.IsLocal(name) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > 200 || strings.ContainsAny(part, `\:*?"<>|`) ||
			strings.TrimRight(part, ". ") != part {
			return false
		}
	}
	return true
}
