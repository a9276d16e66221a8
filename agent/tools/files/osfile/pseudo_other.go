//go:build !linux

package osfile

import "os"

// IsPseudo returns false, because such file systems do not exist or are rare on other systems.
func IsPseudo(*os.File) bool { return false }
