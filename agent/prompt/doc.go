// Package prompt builds the messages that a model gets: the system prompt, the messages of people
// with their envelope, and a transcript in a form that every provider accepts. It also estimates
// their tokens.
//
// The functions are pure: they read no file and no database. The caller loads the data,
// such as documents, facts and attachments, and passes it in. The package owns no tables.
package prompt
