// Package app builds the gateway from its parts, runs and stops it, and reloads its
// configuration.
package app
