package plaintext

import (
	"regexp"
	"sync"
)

// Pattern returns a function that returns the compiled expression, which it compiles at its first
// call. To compile all of the program's at each start would take some milliseconds. The function is
// safe for concurrent use. It panics if expr is not valid.
func Pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
