// Package prompt builds the messages for a model: the system prompt, the messages of
// people with their envelope, and a transcript in a form that every provider accepts. It
// also estimates their tokens.
//
// The functions are pure: they read no files and no database. The caller loads the data,
// such as documents, facts and attachments, and passes it in. The package owns no tables.
package prompt
