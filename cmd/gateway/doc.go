// The gateway command connects chat channels to an AI agent: people write to it on Telegram,
// Discord, WhatsApp or in the terminal, a language model with tools answers.
//
// This page is the architecture.
//
// # The way of a message
//
//	platform                                                                     platform
//	   │ update                                                                      ▲ send, edit
//	   ▼                                                                             │
//	channels/telegram ─ Run ─▶ channels/gate ─▶ bus.Inbox    bus.Outbox ─▶ channels/router ─ Send
//	channels/discord           who may speak,   (durable)    (durable)     a worker per chat:
//	channels/whatsapp          and as whom         │             ▲         split, files, retry,
//	channels/terminal                              │             │         resume
//	                                               ▼             │
//	                                      agent.Dispatcher ─▶ turn ──┐ one transaction:
//	                                      a worker per        model  │ transcript + outbox
//	                                      busy session        ⇄ tools│ + inbox done
//	                                                          each step journaled
//
// It goes straight through, with no way back: channels and agent never import each other; they
// share bus.
//
// # The promise
//
// A message that the platform was told we have is answered exactly once, through kill -9, power
// loss, restart and outage; and an answer that was produced is delivered, in order, or lies in the
// dead letters, where the owner sees it (gateway outbox list). Each step is one transaction:
//
//	accept  inbox row, unique by account, chat and message id, with the platform's cursor;
//	        only then the platform is acknowledged. Discord knows no acknowledgement: after a gap
//	        the channel reads what came since its cursors
//	begin   turn row with the lease's epoch, its inbox rows taken, the user's message
//	step    the model's message with its tool calls before the first of them runs, each
//	        result as soon as it is there, each message that steers the turn
//	finish  the answer in the transcript and in the outbox, inbox rows done, turn done, usage
//	send    the part is marked before the call, or by finish if nothing has to wait, and again,
//	        with the platform's id, after it
//
// A turn that is found running at start is resumed from its transcript, at most three times. A
// tool call with an intent and no result is run again if its effect allows that (see
// agent/tool); else the model is told that its outcome is unknown. A part that was on its way
// is sent again under the same key, with which Discord and WhatsApp show it once. Telegram takes no
// key: there, and only in the time of one call per chat, a message may come twice. It never gets
// lost. The window is counted (the column uncertain of the outbox).
//
// Each process has a life in the database (store.Life). What was under way when one ends without a
// word is counted; what several ends have in common is tried alone before all else, and given up if
// it ends the process then, too. An error of one session ends its turn; the process ends only with
// the loss of the store. What waits in the tables and is in nobody's memory is found again every
// ten seconds.
//
// # Files
//
// What people send besides text is in the inbox as a reference, with which the turn that takes the
// message has the media.Store fetch it: nothing holds up receiving, nothing is fetched for
// strangers, and a kill in between costs only a second fetch. Files lie by chat below "media" in
// the gateway's home, where each conversation's tools see their own. What is sent lies there, too,
// and goes as a part of its own.
//
// # People
//
// The gate gives each message a role: owner, admin, user or, in groups, guest. Commands and tools
// say what role they want at least; a turn has the least one of those who wrote to it.
//
// # Hands
//
// A tool is a function that gets a call and returns a result; what it may know of where it is is
// in the call. Before a call happens the turn asks whether everything is halted and what the
// rules say of it (agent/policy), and before a model call what the budgets say (agent/budget).
// Commands run in a sandbox (agent/tools/shell/sandbox), files that others may have made are
// decoded in processes that can open nothing (agent/extract), connections that others have named go
// through one guard (agent/guard), and files are reached by os.Root only. What others may have
// written is framed in the prompt as information.
//
// A turn that waits, for an answer, for an approval or for a sub-agent, is a row (agent/question)
// and has no worker. What decides the question wakes it: a message, a command, the outcome of the
// sub-agent, or the clock. Sub-agents work in sessions of their own; their tasks and outcomes are
// messages in the inbox that the agent writes to itself.
//
// # Origins and sessions
//
// The Origin of a message says who began it: a person, a task, an outcome, a job, a heartbeat or a
// hook. A turn keeps the message that triggered it, and asks its origin whether people watch,
// whether the turn may end in silence, and which turn's budget pays. A session is a conversation,
// or it belongs to a parent: as the session of a sub-agent, a job, a hook, or one run of a job
// beside a conversation that waits for somebody. Its row says which (session.Place).
//
// # Proactive turns
//
// A job that is due is a message in the inbox: one transaction writes its run, unique by job and
// time, puts the message and sets the next time (agent/schedule). From there it is as durable as
// what people write. A run has a session of its own, which begins anew each time, or is a turn of
// the conversation by itself; the turn's last step says what came of it, and one that fails is
// tried again. Heartbeats are jobs, too. What programs post to hooks
// (cmd/gateway/internal/hooks) is put into the inbox before they are told so.
//
// # Memory
//
// A turn works with the memory of one scope: the person's in a direct chat, on all their platforms,
// and the group's in a group. There is no way to another: functions take a ScopedStore of one
// scope, terms of the index carry it, and the folders of scopes lie outside of what tools can
// reach.
//
//	transcript ──▶ notes ───────▶ history ───────▶ documents, skills
//	session        background     memory           memory/document, with versions
//	               when it gets   history.jsonl    agent/dream, every two hours
//	               long or rests  and an index
//
// The transcript is never cut: the prompt holds what comes after the session's start, which moves
// in the transaction that writes the notes of what is before it. What nobody waits for is a
// background task (agent/background), a row that says how far it has come. Facts that the agent was
// told to keep are rows of their own. The system prompt changes only when a document, a skill, a
// pinned fact or the notes do; what bears on one message stands with it, in the transcript.
//
// # Goroutines
//
// What lives long is a Run(ctx) error. They run in one group; the end of any of them is the end
// of the process, but for the channels, which a supervisor starts again. At the end the order
// is that of a message: what channels and hooks take in, scheduler, dispatcher, tools, router, the
// connections of the channels, store.
//
// A disk that is full, or somebody who locks the database, ends nothing: the write waits, and all
// behind it with it, platforms included, until there is room (store).
//
// # Operations
//
// cmd/gateway/internal/ops serves health, metrics and profiles; telemetry counts what
// the agent tells its Observer. What is over and old goes piece by piece (retention); backup
// copies the database first and then the files that it knows of; doctor says what is wrong with a
// home, and importer takes over those of other agents.
//
// A session has a worker while it has work, and so has each conversation that something is to
// be sent to. Reactions and receipts of an account are made by one more, which nothing waits for. A
// bounded number of model calls run at once, for four times as many sessions as there are slots for
// them; the others wait to be admitted. Each command runs on a goroutine of its own, and what comes
// after it in its conversation waits for it.
//
// # Configuration
//
// One Config is read at the start (cmd/gateway/internal/config). When its file changes
// (cmd/gateway/internal/watch), and on SIGHUP, a reloader merges what is live of the new one into
// the one that holds, and hands that to apply. A turn keeps the settings that it began with.
//
// # Packages
//
// Imports go down only. The table is in imports_test.go, and each package's comment says what
// it owns.
//
//	store, store/fault    database, leases; ends the process at chosen points, in test builds
//	store/atomicfile      replaces files as a whole
//	agent/llm             what a model is; below it openai, demo, failover
//	bus                   messages, inbox, outbox, live progress
//	session               transcripts and turns
//	agent/tool            what a tool is; agent/tools has them
//	agent/policy          rules about tool calls, and the kill switch
//	agent/audit           who has decided what
//	agent/question        what turns wait for
//	agent/budget          limits of tokens and dollars
//	agent/guard           connections to hosts that others name
//	agent/mcpserver       the gateway's own tools for other MCP clients
//	memory                scopes, facts, history and their index
//	memory/document       documents that people edit; memory/version keeps their versions
//	skills                what the agent can follow; some are built in
//	agent/prompt          what a model is asked, made out of data
//	agent/dream           makes lasting memory out of notes
//	agent/background      work that nobody waits for; agent/schedule what has a time
//	agent/extract         decodes files in processes of their own: document gets the text,
//	                      picture makes images fit for a model
//	agent/command         slash commands, each on a goroutine of its own
//	agent/modelcall       slots, budgets and costs of model calls; agent/observe measures them
//	agent/attachment      what models learn of the files that people send
//	agent/speech          says answers aloud
//	agent/activity        what tools are doing, in a few words for people
//	agent/heartbeat       for whom a heartbeat is
//	agent/turn            the work on one answer
//	agent/pool            the sessions under way: a worker each, or a suspended turn
//	agent                 the dispatcher: inbox, commands, background tasks
//	channels              what a channel is: the contract between gateway and platforms
//	channels/gate         who gets into the inbox, and as whom; people and pairings
//	channels/router       brings the outbox to the platforms
//	channels/supervisor   keeps a channel running; channels/media keeps files
//	channels/markup       Markdown for each platform, and splitting
//	channels/telegram     and discord, whatsapp, terminal: a platform each
//	cmd/gateway           the program; below internal: app puts it together and runs it, cli is
//	                      the command line, config the configuration
package main
