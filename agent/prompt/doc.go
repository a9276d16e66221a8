// Package prompt makes what a model is asked out of data: the system prompt, the messages of people
// with their envelope, and a transcript in a form that every provider takes. It also estimates how
// many tokens that has.
//
// The functions are pure: they read no file and no database. Whoever asks a model loads the data,
// such as documents, facts and attachments, and passes it in. The package owns no tables.
package prompt
