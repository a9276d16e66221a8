package document

import (
	"path"
	"strings"
)

// Versioned reports whether a file of a scope's folder, or of the shared one, is one whose history
// is kept: a document or a skill. rel is a path with slashes; that of a folder ends in one.
func Versioned(rel string) bool {
	first, _, below := strings.Cut(rel, "/")
	if below {
		return first == SkillsFolder
	}
	return path.Ext(rel) == ".md"
}
