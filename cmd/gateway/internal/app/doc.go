// Package app puts the gateway together from its parts, runs it, stops it and reloads its
// configuration.
package app
