package app

import "errors"

// canRestart reports whether a process can replace itself. On Windows it can't: if a service
// started a new process and ended, Windows would consider the service stopped.
const canRestart = false

// Restart always returns [errors.ErrUnsupported].
func Restart() error { return errors.ErrUnsupported }
