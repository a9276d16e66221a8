//go:build !linux

package files

import "os"

// isPseudo reports nothing: other systems have no such files, or not in common use.
func isPseudo(*os.File) bool { return false }
