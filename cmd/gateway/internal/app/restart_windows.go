package app

import "errors"

// canRestart says whether this process can become another one. A service that ends and leaves
// another process behind would be taken for one that has stopped.
const canRestart = false

// StartAgain always fails.
func StartAgain() error { return errors.ErrUnsupported }
