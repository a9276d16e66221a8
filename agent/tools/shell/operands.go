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

// The bounds of what an approval of one command is bound to.
const (
	maxOperands    = 100       // files; more are shown as one that is too large
	maxOperandSize = 512 << 20 // bytes of all of them together
	maxLooks       = 10_000    // at what could be a file or a folder
)

// moreFiles stands for the files that were not looked at.
var moreFiles = tool.Operand{Name: "and more files"}

// operands returns the files that a command names and that it, and what runs beside it, may change:
// who approves the command approves them as they are. Files that a command reads without naming
// them, such as the parts of a program, are not among them.
func (s *Shell) operands(c tool.Call) []tool.Operand {
	var a execArgs
	if json.Unmarshal(c.Args, &a) != nil {
		return nil
	}
	argv, err := a.words()
	if err != nil {
		return nil // the call will say so
	}
	start, err := s.folder(a.Dir)
	if err != nil {
		return nil // likewise
	}
	return s.named(start, argv)
}

// typed returns the files that the input names which a call gives to a command: see operands.
func (s *Shell) typed(c tool.Call) []tool.Operand {
	var a inputArgs
	if json.Unmarshal(c.Args, &a) != nil || a.Text == "" {
		return nil
	}
	return s.named(s.o.Workspace, []string{a.Text})
}

// named returns the files that words name, seen from the folder start. A command may be made of
// thousands of names, and the turn waits: what is beyond maxLooks is not looked at.
func (s *Shell) named(start string, words []string) (list []tool.Operand) {
	names, all := mentioned(words)
	looks := len(names)
	folders := []string{start}
	for _, name := range names { // where a script may go before it names others
		if path := absolute(start, name); s.isFolder(path) && !slices.Contains(folders, path) {
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
			if looks++; looks > maxLooks {
				return append(list, moreFiles)
			}
			seen[path] = true
			o, ok := s.operand(path, left)
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

// tree opens the folder that commands may change and that path is in. No link leads out of it.
func (s *Shell) tree(path string) (root *os.Root, rel string, ok bool) {
	for _, top := range append([]string{s.o.Workspace}, s.o.ReadWrite...) {
		rel, err := filepath.Rel(top, path)
		if err != nil || !filepath.IsLocal(rel) {
			if top, err = filepath.EvalSymlinks(top); err == nil { // path may be without links
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

// reach opens the folder that commands may change and that the file at path is in, or what path
// leads to by links that leave the folder: absolute ones, also back into it, or into another such
// folder.
func (s *Shell) reach(path string) (root *os.Root, rel string, info os.FileInfo, ok bool) {
	places := []string{path}
	if target, err := filepath.EvalSymlinks(path); err == nil && target != path {
		places = append(places, target)
	}
	for _, place := range places {
		root, rel, ok := s.tree(place)
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

func (s *Shell) isFolder(path string) bool {
	root, _, info, ok := s.reach(path)
	if !ok {
		return false
	}
	defer root.Close()
	return info.IsDir()
}

// operand reads the file at path, if it is a regular one that commands may change.
func (s *Shell) operand(path string, most int64) (tool.Operand, bool) {
	root, rel, info, ok := s.reach(path)
	if !ok {
		return tool.Operand{}, false
	}
	defer root.Close()
	if !info.Mode().IsRegular() {
		return tool.Operand{}, false
	}
	// It may have become a pipe meanwhile: without O_NONBLOCK that would hang.
	f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return tool.Operand{Name: rel}, true // nobody knows what is in it
	}
	defer f.Close()
	o, err := tool.ReadOperand(rel, f, most)
	if err != nil {
		return tool.Operand{Name: rel}, true
	}
	return o, true
}

var (
	quotedText = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)
	escaped    = regexp.MustCompile(`\\(.)`)
)

// betweenNames are the signs that can stand between the names of files in a command: those of a
// shell, of options such as --file=name, and of programs that are given as an argument.
const betweenNames = " \t\r\n'\"`|&;<>(){}[]$=,:@!#*?+"

// mentioned returns what could be names of files in the words of a command: each word, what is
// quoted in it, and its pieces. More names than it has do no harm. Of very many it returns the
// first, and all is false.
func mentioned(argv []string) (names []string, all bool) {
	seen := make(map[string]bool)
	add := func(name string) {
		if name != "" && len(name) < 4096 && !seen[name] && len(names) <= maxLooks/2 {
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
	if len(names) > maxLooks/2 {
		return names[:maxLooks/2], false
	}
	return names, true
}
