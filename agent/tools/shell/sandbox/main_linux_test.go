//go:build amd64 || arm64

package sandbox

import (
	"flag"
	"os"
	"testing"
)

// The test binary also runs as the supervisor, and as the program that tries to break out.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == escapeArgument {
		os.Exit(escape(os.Args[2], os.Args[3:]))
	}
	// Most of these tests wait, so many can run in parallel. A number given with -parallel is parsed
	// later and takes precedence.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
