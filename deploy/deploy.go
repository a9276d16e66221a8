// Package deploy has the files of this folder that the program itself writes.
package deploy

import _ "embed"

// Unit is the unit of systemd for a service of the whole machine.
//
//go:embed gateway.service
var Unit string
