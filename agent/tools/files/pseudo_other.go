//go:build !linux

package files

import "os"

// isPseudo always returns false: other systems have no such file systems, or rarely use them.
func isPseudo(*os.File) bool { return false }
