// Package cli implements the command line of the gateway, with one file per command.
package cli
