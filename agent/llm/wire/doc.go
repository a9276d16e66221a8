// Package wire has what the adapters of model providers have in common, whatever protocol they
// speak: an HTTP client, the watch over a silent provider, and the reading of errors.
//
// The package owns no tables.
package wire
