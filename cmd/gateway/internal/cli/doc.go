// Package cli is the command line of the gateway: a file for each command.
package cli
