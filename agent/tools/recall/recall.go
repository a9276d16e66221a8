// Package recall has the tools "remember", "recall", "forget" and "history_search", with which the
// agent works with what it knows for longer than a conversation.
//
// A tool sees the scope of the call that uses it, and no other. The package owns no tables.
package recall

import (
	"time"

	"gateway/agent/tool"
	"gateway/memory"
	"gateway/store"
)

// Options are what the tools work with. All are required.
type Options struct {
	DB     *store.DB
	Memory *memory.Memory
	Now    func() time.Time
}

// Tools returns the tools.
func Tools(o Options) []tool.Tool { return nil }
