// Package background does work in the background: it makes notes of conversations, runs Dream to
// turn notes into lasting memory, stores versions of documents, merges the memory of people who
// turn out to be the same, and erases data.
//
// A [Task] is a row, so it survives the process. [Runner.Add] adds a task in the transaction that
// makes it necessary. [Runner.Run] does the tasks that are due, and retries them. Each [Kind] has a
// [Handler] in a file of its own. There is at most one task for each [Work]. Adding a task that is
// under way makes it run once more.
//
// A handler may be stopped at any point, and the next process calls it again. It must therefore be
// safe to repeat a half-done task. A handler saves its progress with [Store.Save], in the
// transaction that makes the progress.
//
// Tables: chores.
package background
