// Package agent answers messages: it takes them from the inbox, runs turns, and puts the answers
// into the outbox.
//
// The main type is [Dispatcher]. A session has a worker while it has work. Within a session turns
// run one after another; different sessions run concurrently. Package turn runs a turn:
//
//	waiting message ─▶ turn begins ─▶ model ⇄ tools ─▶ answer
//	                   inbox: claimed transcript       transcript, outbox, inbox: done
//	                   └─ one tx ──┘  └ a tx a step ┘  └──────────── one tx ─────────┘
//
// Messages that begin with "/" are commands (package command). Each runs on its own goroutine,
// without the model, and does not wait for a turn.
//
// A turn that waits for a person or a sub-agent is suspended: its question is a row, and no
// goroutine is left. When the question is decided, a new worker resumes the turn. Sub-agents are
// sessions whose messages the agent writes to itself. A due job, a heartbeat and a post to a hook
// are messages, too, and begin a proactive turn.
//
// Background tasks do the work that nobody waits for, beside the turns (package background).
//
// The package owns no tables; [Migrations] names those of the packages below it that it needs.
package agent
