// Package wire has the code that the adapters of all model providers share: an HTTP client, a
// watchdog for providers that send nothing, and the parsing of errors.
//
// The package has no database tables.
package wire
