package document

import (
	"path"
	"strings"
)

// IsVersioned reports whether the history of a file is kept: it is for documents and skills. rel is
// a slash-separated path relative to a scope's folder or to the shared folder; the path of a folder
// ends in a slash.
func IsVersioned(rel string) bool {
	first, _, below := strings.Cut(rel, "/")
	if below {
		return first == SkillsFolder
	}
	return path.Ext(rel) == ".md"
}
