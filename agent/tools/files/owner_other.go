//go:build !unix

package files

import (
	"io/fs"
	"os"
)

// keepOwner does nothing: what is made in a directory gets its owner from there.
func keepOwner(*os.File, fs.FileInfo) {}
