package bus

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"regexp"
)

// Folder returns where the files of a chat, all its threads together, lie below the media
// directory: a slash-separated path that is no other chat's.
func (a Address) Folder() string { return path.Join(folderName(a.Account), folderName(a.Chat)) }

// plainName is a name that every file system takes as it is.
var plainName = regexp.MustCompile(`^[a-z0-9-][a-z0-9@._-]{0,63}$`)

// folderName returns a name for s. One that might mean something to a file system, or be the same
// as another where case does not count, is a hash instead.
func folderName(s string) string {
	if plainName.MatchString(s) && s[len(s)-1] != '.' {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "_" + hex.EncodeToString(sum[:16])
}
