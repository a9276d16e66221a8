// The gateway command connects chat channels to an AI agent: people write to it on Telegram,
// Discord, WhatsApp or in the terminal, and a language model with tools answers.
//
// This page describes the architecture.
//
// # The path of a message
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
// Messages flow in one direction only. channels and agent never import each other; they share bus.
//
// # The promise
//
// A message that was acknowledged to its platform is answered exactly once, through kill -9, power
// loss, restart and outage. A finished answer is delivered in order, or ends up in the dead
// letters, where the owner sees it (gateway outbox list). Each step is one transaction:
//
//	accept  inbox row, unique by account, chat and message id, with the platform's cursor;
//	        the platform is acknowledged once the row is on the disk; the turn need not wait
//	        for that, because its own rows reach the disk later. Discord has no
//	        acknowledgement: after a gap the channel reads the messages since its cursors
//	begin   turn row with the lease's epoch, its inbox rows claimed, the user's message
//	step    the model's message with its tool calls before the first of them runs, each
//	        result as soon as it exists, each message that steers the turn
//	finish  the answer in the transcript and in the outbox, inbox rows done, turn done, usage
//	send    the part is marked before the call, or by finish if nothing has to wait, and again,
//	        with the platform's id, after it; where a repetition would show, the id first goes
//	        to a file, which is quicker (bus.SentLog)
//
// A turn that is running when a process starts is resumed from its transcript, at most three times.
// A tool call with an intent and without a result runs again if its effect allows that (see
// agent/tool); otherwise the model is told that the outcome is unknown. A part that was under way
// is sent again with the same key, and Discord and WhatsApp show it once. Telegram has no keys:
// there a message may come twice if the process dies or the connection breaks during a call, but it
// never gets lost. These cases are counted (the column uncertain of the outbox).
//
// Each process has a life in the database (store.Life). When a process crashes, the crash is
// counted against everything that was under way. Work that was under way in several crashes is
// tried alone before anything else, and given up if the process crashes again. An error in a
// session ends its turn; the process ends only if the store is lost. Every ten seconds the
// dispatcher looks for pending rows that are not in memory.
//
// # Files
//
// The inbox holds a reference for each received file. The turn that claims the message fetches the
// file with the media.Store. So files never delay receiving, nothing is fetched for strangers, and
// a kill costs only a second fetch. Files are stored by chat in the folder "media" of the gateway's
// home, where the tools of each conversation see only their own. Sent files are stored there, too,
// and each is sent as a part of its own.
//
// The words of a short voice message decide whether it is a command and, in a group, whether it is
// for the agent. So the gateway fetches and transcribes it before it hands it out (agent/voice).
// Only later messages of its conversation wait for that. Its row keeps the transcript.
//
// # People
//
// The gate gives each message a role: owner, admin, user or, in groups, guest. Commands and tools
// require a minimum role. A turn has the lowest role among the people who wrote to it.
//
// The gate also knows what owners have decided about groups. The decision to leave a group is a
// message of the outbox, which the router retries until the platform confirms or refuses.
//
// # Tools
//
// A tool is a function from a call to a result; the call contains everything that the tool may know
// about its surroundings. Before each tool call the turn checks the halt switch and the rules
// (agent/policy), and before each model call the budgets (agent/budget). Commands run in a sandbox
// (agent/tools/shell/sandbox). Files from others are decoded in processes that can't open anything
// (agent/extract). Connections to addresses from others go through the SSRF guard (agent/guard).
// Files are accessed only through os.Root. Text from others is framed in the prompt as information.
//
// A policy of an account, a chat or a person (agent/persona) names a persona and a model, and
// withholds tools. The first message of a turn decides which policies apply to it. Each author who
// joins the turn adds the limits that apply to them. The turn's row has the persona.
//
// A turn that waits for an answer, an approval or a sub-agent is suspended: it is a row
// (agent/question) and has no worker. It resumes when its question is decided: by a message, a
// command, the outcome of the sub-agent, or a timeout. Sub-agents work in sessions of their own.
// Their tasks and outcomes are messages that the agent writes to its own inbox.
//
// # Origins and sessions
//
// The Origin of a message says who began it: a person, a task, an outcome, a job, a heartbeat or a
// hook. A turn keeps its first message. The Origin of this message says whether people are
// watching, whether the turn may end without an answer, and which turn's budget pays. A session is
// a conversation or belongs to a parent: it is the session of a sub-agent, a job, a hook, or one
// run of a job beside a suspended conversation. The fields of its key say which (bus.Session). They
// are columns of the session's row. Other tables have the key's name, which no code takes apart.
//
// By default a conversation is a chat or a thread. An account can have one conversation for each
// member of a group, or one for all direct chats of a person (bus.SessionScope). The inbox chooses
// the conversation when it stores a message, and stores its key with the message if the account has
// such a setting. While a message of a person is unfinished, their later messages in the same chat
// join its conversation, so that the order holds when the setting changes. A turn answers in one
// chat. Messages of other chats get other turns.
//
// # Proactive turns
//
// A due job is a message in the inbox: one transaction inserts its run, unique by job and time,
// inserts the message and sets the next time (agent/schedule). From then on it is as durable as the
// messages of people. A run has a session of its own, which begins anew each time, or is a
// standalone turn in the conversation. The last step of the turn stores the result of the run, and
// a failed run is retried. Heartbeats are jobs, too. A post to a hook (cmd/gateway/internal/hooks)
// is stored in the inbox before it is acknowledged.
//
// # Memory
//
// A turn uses the memory of one scope: the person's in a direct chat, on all their platforms, and
// the group's in a group. It can't reach another scope: functions take a ScopedStore of one scope,
// the terms of the index contain the scope, and the folders of scopes are outside of what tools can
// reach.
//
//	transcript ──▶ notes ───────▶ history ───────▶ documents, skills
//	session        background     memory           memory/document, with versions
//	               when it gets   history.jsonl    agent/dream, every two hours
//	               long or rests  and an index
//
// The transcript is never cut. The prompt holds the messages after the session's start. The
// transaction that writes notes of the messages before it also moves the start. Work that nobody
// waits for is a background task (agent/background): a row with its progress. Facts that the agent
// was told to remember are rows of their own. The system prompt changes only when a document, a
// skill, a pinned fact or the notes change. Information about a single message is stored with
// that message in the transcript.
//
// # Goroutines
//
// Each long-lived component has a method Run(ctx) error. They run in one group, and when one of
// them ends, the process ends. Only channels are restarted, by a supervisor. The process stops in
// the order of a message: first the intake of channels and hooks, then scheduler, dispatcher,
// tools, router, the connections of the channels, and the store.
//
// A full disk or a locked database ends nothing: writes wait, and everything behind them, including
// the platforms, until the problem is solved (store).
//
// # Operations
//
// cmd/gateway/internal/ops serves health, metrics and profiles, and telemetry counts what the agent
// reports to its Observer. Old rows and files are deleted in small steps (retention). backup copies
// the database first and then its files. doctor reports problems of a home, and importer imports
// the homes of other agents. collector lets the heap grow while the program starts or is busy.
//
// A session has a worker while it has work, and so has each conversation with messages to send.
// Another worker per account makes reactions and receipts, for which nothing waits. The number of
// concurrent model calls is bounded. Four times as many sessions may work; the others wait to be
// admitted. Each command runs on its own goroutine, and later messages of its conversation wait for
// it.
//
// # Configuration
//
// One Config is read at the start (cmd/gateway/internal/config). When its file changes
// (cmd/gateway/internal/watch), and on SIGHUP, a reloader merges the live settings of the new
// Config into the current one and applies the result. A turn keeps the settings with which it
// began.
//
// # Packages
//
// Imports go down only. The table is in cmd/gateway/internal/checks/imports_test.go, and each
// package's comment says what it owns.
//
//	store, store/fault    database, leases; ends the process at chosen points, in test builds
//	store/atomicfile      replaces files atomically; store/plainjson encodes JSON for people
//	                      and models; store/plaintext shortens texts
//	agent/llm             the interface of models; below it openai and anthropic, which share wire,
//	                      demo, and failover
//	bus                   messages, inbox, outbox, live progress
//	session               transcripts and turns
//	agent/tool            the interface of tools; agent/tools contains the tools
//	agent/persona         who the agent is in a chat, and what it may use there
//	agent/policy          rules for tool calls, and the halt switch
//	agent/audit           records who decided what
//	agent/question        questions that suspended turns wait for
//	agent/budget          limits of tokens and dollars
//	agent/guard           the SSRF guard for addresses from others
//	agent/mcpserver       the gateway's own tools for other MCP clients
//	memory                scopes, facts, history and their index
//	memory/document       documents that people edit; memory/version keeps their versions
//	skills                instructions that the agent can follow; some are built in
//	agent/prompt          makes requests to the model from data
//	agent/dream           updates the documents of the memory from notes
//	agent/background      tasks that nobody waits for; agent/schedule runs jobs
//	agent/export          writes what is stored about a person, the counterpart of erasing
//	agent/extract         decodes files in separate processes: document gets the text,
//	                      picture converts images for a model
//	agent/command         slash commands, each on a goroutine of its own
//	agent/modelcall       slots, budgets and costs of model calls; agent/observe measures them
//	agent/attachment      converts the files that people send into input for models; agent/opus
//	                      measures voice messages
//	agent/speech          makes voice notes of answers
//	agent/voice           transcribes voice messages, and decides whether they are commands
//	agent/activity        describes running tools in a few words; agent/suggest finds the name that
//	                      somebody has mistyped
//	agent/heartbeat       finds the people and groups that need a heartbeat
//	agent/turn            runs one turn
//	agent/pool            the active sessions: each has a worker or a suspended turn
//	agent                 the dispatcher: inbox, commands, background tasks
//	channels              the contract between the gateway and the platforms
//	channels/gate         decides who may write, with which role; people and pairings
//	channels/router       delivers the outbox to the platforms
//	channels/supervisor   keeps a channel running; channels/media keeps files, channels/recent the
//	                      values added last
//	channels/markup       Markdown for each platform, and splitting
//	channels/telegram     and discord, whatsapp, terminal: a platform each
//	cmd/gateway           the program; below internal: app builds and runs the gateway, cli is
//	                      the command line, config the configuration, setup asks for it, service
//	                      installs the gateway with systemd or launchd, display formats output;
//	                      e2e tests the running gateway, checks tests the code and the docs
//	deploy                files for operators; below it bench measures, sbom lists the libraries
package main
