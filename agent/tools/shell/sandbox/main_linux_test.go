//go:build amd64 || arm64

package sandbox

import (
	"flag"
	"os"
	"testing"
)

// The test binary is its own supervisor, and the program that tries to break out.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == escapeArgument {
		os.Exit(escape(os.Args[2], os.Args[3:]))
	}
	// Most of these tests wait. A number that is set by -parallel is parsed later, and counts.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
