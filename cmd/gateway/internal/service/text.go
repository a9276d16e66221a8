package service

import (
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"

	"gateway/deploy"
)

// machineUnit returns the unit in deploy with the path of the program.
func (s Spec) machineUnit() (string, error) {
	for _, closed := range []string{"/root/", "/home/", "/tmp/", "/run/user/"} {
		if strings.HasPrefix(s.Program, closed) {
			return "", fmt.Errorf("the service can't read %s: copy the program to %s with \"install "+
				"-m 0755\", and install the service with that", s.Program, machineProgram)
		}
	}
	if s.Config != "" && s.Config != MachineConfig {
		return "", fmt.Errorf("the service of the whole machine reads %s: copy %s there, and leave "+
			"out -c", MachineConfig, s.Config)
	}
	return strings.ReplaceAll(deploy.Unit, machineProgram, quoteArgument(s.Program)), nil
}

// arguments returns the program and its arguments.
func (s Spec) arguments() []string {
	if s.Config == "" {
		return []string{s.Program, "run"}
	}
	return []string{s.Program, "run", "--config", s.Config}
}

// personalUnit returns the unit for a person's own systemd. That systemd may not confine the
// gateway as the machine's does. The sandbox of the agent's commands does not depend on it.
func (s Spec) personalUnit() string {
	var command []string
	for _, arg := range s.arguments() {
		command = append(command, quoteArgument(arg))
	}
	return `# Written by "gateway service install".

[Unit]
Description=Gateway from chat platforms to an AI agent
StartLimitIntervalSec=10min
StartLimitBurst=10

[Service]
Type=exec
Environment=` + quoteUnit("GATEWAY_HOME="+s.Home) + `
# Variables such as OPENAI_API_KEY=..., one in a line. Only you should be able to read the file.
EnvironmentFile=-` + strings.ReplaceAll(filepath.Join(s.Home, "environment"), "%", "%%") + `
ExecStart=` + strings.Join(command, " ") + `
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
# A mistake in the configuration does not go away by trying again.
RestartPreventExitStatus=2
# A turn has 20 s to reach its next step. Commands of the agent end with the gateway by themselves.
KillMode=mixed
TimeoutStopSec=30
OOMPolicy=continue
UMask=0077

[Install]
WantedBy=default.target
`
}

// quoteArgument quotes an argument of a command in a unit, where "$" begins a variable.
func quoteArgument(s string) string { return strings.ReplaceAll(quoteUnit(s), "$", "$$") }

// quoteUnit quotes a value in a unit, where "%" begins a specifier.
func quoteUnit(s string) string {
	plain := strings.ReplaceAll(s, "%", "%%")
	if !strings.ContainsAny(s, " \t'\"\\;") {
		return plain
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(plain) + `"`
}

// agent returns the property list for launchd. launchd can't tell exit code 2, a mistake in the
// configuration, from other codes, so it waits ten seconds between two attempts.
func (s Spec) agent() string {
	var b strings.Builder
	text := func(s string) string {
		var e strings.Builder
		_ = xml.EscapeText(&e, []byte(s)) // a strings.Builder does not fail
		return "<string>" + e.String() + "</string>"
	}
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN"
	"http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>Label</key>
	` + text(label) + `
	<key>ProgramArguments</key>
	<array>
`)
	for _, arg := range s.arguments() {
		b.WriteString("\t\t" + text(arg) + "\n")
	}
	log := text(filepath.Join(s.Home, "gateway.log"))
	b.WriteString(`	</array>
	<key>EnvironmentVariables</key>
	<dict>
		<key>GATEWAY_HOME</key>
		` + text(s.Home) + `
	</dict>
	<key>RunAtLoad</key>
	<true/>
	<key>KeepAlive</key>
	<dict>
		<key>SuccessfulExit</key>
		<false/>
	</dict>
	<key>ThrottleInterval</key>
	<integer>10</integer>
	<key>ExitTimeOut</key>
	<integer>30</integer>
	<key>Umask</key>
	<integer>63</integer>
	<key>StandardOutPath</key>
	` + log + `
	<key>StandardErrorPath</key>
	` + log + `
</dict>
</plist>
`)
	return b.String()
}
