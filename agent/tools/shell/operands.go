package shell

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"gateway/agent/tool"
)

// Limits of the files that an approval covers.
const (
	maxOperands    = 100       // files; if there are more, moreFiles stands for them
	maxOperandSize = 512 << 20 // total number of bytes
	maxTested      = 10_000    // number of names that are tested for a file or folder
)

// moreFiles stands for the files beyond the limits.
var moreFiles = tool.Operand{Name: "and more files"}

// operands returns the files that a command names and that commands may change. The approval of the
// command holds only while these files have the same content. Files that a command reads without
// naming them, such as the modules of a program, are not included.
func (s *Shell) operands(c tool.Call) []tool.Operand {
	var a execArgs
	if json.Unmarshal(c.Args, &a) != nil {
		return nil
	}
	argv, err := a.words()
	if err != nil {
		return nil // the call itself reports the error
	}
	start, err := s.folder(a.Dir)
	if err != nil {
		return nil // the call itself reports the error
	}
	return s.writable.named(start, argv)
}

// inputOperands returns the files that are named in the input for a running command. See operands.
func (s *Shell) inputOperands(c tool.Call) []tool.Operand {
	var a inputArgs
	if json.Unmarshal(c.Args, &a) != nil || a.Text == "" {
		return nil
	}
	return s.writable.named(s.opts.Workspace, []string{a.Text})
}

// writable lists the folders that commands may change.
type writable []string

// named returns the files that words name, relative to the folder start. A command may contain
// thousands of names while the turn waits, so named tests at most maxTested of them.
func (w writable) named(start string, words []string) (list []tool.Operand) {
	names, all := mentioned(words)
	tested := len(names)
	folders := []string{start}
	for _, name := range names { // a script may change to such a folder before it names files
		if path := absolute(start, name); w.isFolder(path) && !slices.Contains(folders, path) {
			folders = append(folders, path)
		}
	}
	left := int64(maxOperandSize)
	seen := make(map[string]bool)
	for _, folder := range folders {
		for _, name := range names {
			path := absolute(folder, name)
			if seen[path] {
				continue
			}
			if tested++; tested > maxTested {
				return append(list, moreFiles)
			}
			seen[path] = true
			o, ok := w.operand(path, left)
			if !ok {
				continue
			}
			if len(list) == maxOperands {
				return append(list, moreFiles)
			}
			if o.Sum != "" {
				left -= o.Size
			}
			list = append(list, o)
		}
	}
	if !all {
		list = append(list, moreFiles)
	}
	return list
}

func absolute(folder, name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(folder, name)
}

// tree opens the folder that contains path and that commands may change. Links can't lead out of
// the returned root.
func (w writable) tree(path string) (root *os.Root, rel string, ok bool) {
	for _, top := range w {
		rel, err := filepath.Rel(top, path)
		if err != nil || !filepath.IsLocal(rel) {
			if top, err = filepath.EvalSymlinks(top); err == nil { // path may have no links in it
				rel, err = filepath.Rel(top, path)
			}
		}
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if root, err := os.OpenRoot(top); err == nil {
			return root, rel, true
		}
	}
	return nil, "", false
}

// open opens the folder that contains the file at path and that commands may change. It follows
// links that leave this folder: absolute links, also those back into it, and links to another such
// folder.
func (w writable) open(path string) (root *os.Root, rel string, info os.FileInfo, ok bool) {
	places := []string{path}
	if target, err := filepath.EvalSymlinks(path); err == nil && target != path {
		places = append(places, target)
	}
	for _, place := range places {
		root, rel, ok := w.tree(place)
		if !ok {
			continue
		}
		if info, err := root.Stat(rel); err == nil {
			return root, rel, info, true
		}
		root.Close()
	}
	return nil, "", nil, false
}

func (w writable) isFolder(path string) bool {
	root, _, info, ok := w.open(path)
	if !ok {
		return false
	}
	defer root.Close()
	return info.IsDir()
}

// operand reads the file at path, if it is a regular file that commands may change.
func (w writable) operand(path string, most int64) (tool.Operand, bool) {
	root, rel, info, ok := w.open(path)
	if !ok {
		return tool.Operand{}, false
	}
	defer root.Close()
	if !info.Mode().IsRegular() {
		return tool.Operand{}, false
	}
	// The file may have been replaced by a pipe. O_NONBLOCK prevents that opening it hangs.
	f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return tool.Operand{Name: rel}, true // its content can't be read
	}
	defer f.Close()
	return tool.ReadOperand(rel, f, most), true
}

var (
	quotedText = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)
	escaped    = regexp.MustCompile(`\\(.)`)
)

// betweenNames are the characters that can separate the names of files in a command: those of the
// shell, of options such as --file=name, and of program text in an argument.
const betweenNames = " \t\r\n'\"`|&;<>(){}[]$=,:@!#*?+"

// mentioned returns the possible names of files in the words of a command: each word, the quoted
// parts in it, and its pieces. Names that do not exist do no harm. If there are very many names, it
// returns the first ones, and all is false.
func mentioned(argv []string) (names []string, all bool) {
	seen := make(map[string]bool)
	add := func(name string) {
		if name != "" && len(name) < 4096 && !seen[name] && len(names) <= maxTested/2 {
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, word := range argv {
		add(word)
		for _, q := range quotedText.FindAllStringSubmatch(word, -1) {
			add(q[1] + q[2])
		}
		for _, text := range []string{word, strings.ReplaceAll(word, `\ `, "\x00")} {
			for _, piece := range strings.FieldsFunc(text, func(r rune) bool {
				return strings.ContainsRune(betweenNames, r)
			}) {
				piece = strings.ReplaceAll(piece, "\x00", " ")
				add(piece)
				add(escaped.ReplaceAllString(piece, "$1"))
				if len(piece) > 2 && piece[0] == '-' && piece[1] != '-' {
					add(piece[2:]) // -ffile
				}
			}
		}
	}
	if len(names) > maxTested/2 {
		return names[:maxTested/2], false
	}
	return names, true
}
