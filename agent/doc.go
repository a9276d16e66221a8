// Package agent answers messages: it takes them from the inbox, runs turns, and puts the answers
// into the outbox.
//
// The main type is [Dispatcher]. A session has a worker while it has work. Within a session turns
// run one after another; any number of sessions run side by side. Package turn does the work of a
// turn:
//
//	waiting message ─▶ turn begins ─▶ model ⇄ tools ─▶ answer
//	                   inbox: claimed transcript       transcript, outbox, inbox: done
//	                   └─ one tx ──┘  └ a tx a step ┘  └──────────── one tx ─────────┘
//
// Messages that begin with "/" are commands (package command). Each runs on a goroutine of its own,
// without the model, and does not wait for a turn.
//
// A turn that waits for somebody is suspended: its question is a row, and nothing of it runs. Once
// the question is decided, a new worker resumes the turn. Sub-agents are sessions whose messages
// the agent writes to itself. A job that is due, a heartbeat or a post to a hook is a message, too,
// and begins a proactive turn.
//
// Work that nobody waits for is done by background tasks beside the turns (package background).
//
// The package owns no tables; [Migrations] names those of the packages below it that it needs.
package agent
