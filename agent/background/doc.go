// Package background does work in the background: it summarises conversations into notes,
// has Dream turn notes into lasting memory, keeps versions of documents, merges the memory of
// people who turn out to be the same, and erases.
//
// A [Task] is a row, so that it survives the process. [Runner.Add] adds one in the transaction that
// makes it necessary, and [Runner.Run] does what is due, with retries: each [Kind] has a [Handler],
// in a file of its own. Of each [Work] there is one task at most. Adding a task that is under way
// makes it run once more.
//
// A handler may be ended at any point and is called again in the next process, so it must be safe
// to repeat a task that is half done. It saves its progress with [Store.Save], in the transaction
// that makes the progress.
//
// Tables: chores.
package background
