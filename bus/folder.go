package bus

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"regexp"
)

// Folder returns the folder for the files of a chat with all its threads: a slash-separated path
// relative to the media directory. No two chats share a folder.
func (a Address) Folder() string { return path.Join(folderName(a.Account), folderName(a.Chat)) }

// plainName matches a name that is valid on every file system, if it is not too long.
var plainName = regexp.MustCompile(`^[a-z0-9-][a-z0-9@._-]*$`)

// folderName returns s if it is a plain name. Otherwise it returns a hash, because s might have a
// special meaning to a file system or differ from another name only in case.
func folderName(s string) string {
	if len(s) <= 64 && plainName.MatchString(s) && s[len(s)-1] != '.' {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "_" + hex.EncodeToString(sum[:16])
}
