//go:build !linux

package files

import "os"

// isPseudo returns false, because such file systems do not exist or are rare on other systems.
func isPseudo(*os.File) bool { return false }
