// Package agent answers messages: it takes them from the inbox, runs turns, and
// puts the answers into the outbox.
//
// The main type is [Dispatcher]. A session has a worker while it has work; within a session
// turns run one after another, and any number of sessions run side by side. A turn is
// a loop of model calls and tool calls whose every step is written to the session's
// transcript before its effects, so that after a crash it goes on where it was:
//
//	waiting message ─▶ turn begins ─▶ model ⇄ tools ─▶ answer
//	                   inbox: taken   transcript       transcript, outbox, inbox: done
//	                   └─ one tx ──┘  └ a tx a step ┘  └──────────── one tx ─────────┘
//
// Messages that begin with "/" are commands. They are answered at once, without the
// model and without waiting for a turn.
//
// A turn that waits for somebody is parked: its question is a row, and nothing of it runs.
// Sub-agents are sessions whose messages the agent writes to itself.
//
// What nobody has asked for just now, a job that is due, a heartbeat or a post to a hook, is a
// message, too, and begins a turn by itself.
//
// What does not fit into the prompt becomes notes in the memory of the turn's scope. That, and
// other work that nobody waits for, is done by background tasks beside the turns.
//
// The package owns no tables; [Migrations] names those of the packages below it that it needs.
package agent
