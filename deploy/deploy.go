// Package deploy embeds the files of this folder that the program writes.
package deploy

import _ "embed"

// Unit is the systemd unit for the service of the whole machine.
//
//go:embed gateway.service
var Unit string
