package plaintext

import (
	"regexp"
	"sync"
)

// Pattern returns a function that compiles expr at its first call and returns the compiled
// expression. If the program compiled all patterns when it starts, the start would take one or two
// milliseconds longer. The function is safe for concurrent use. It panics if expr is not valid.
func Pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
