package service

import (
	"context"
	_ "embed"
	"encoding/xml"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// label is the name of the service in launchd, whose names are reversed domains.
const label = "io.github.gateway"

// domain returns the launchd domain of this person's session.
func domain() string { return "gui/" + strconv.Itoa(os.Getuid()) }

// An agent that is unloaded is gone once its process has ended, for which agent.plist gives it 30
// seconds, and some seconds later. Until then launchd refuses an agent of the same name.
const (
	endTime  = 45 * time.Second
	endPause = 200 * time.Millisecond
)

// inProgress is the exit code of launchctl for an agent whose process has not ended yet.
const inProgress = 36

// load makes launchd run the agent in file, instead of the one that it may run already.
func (r Runner) load(ctx context.Context, file string) error {
	limit := time.After(0) // for an agent that was not loaded
	if r.unload(ctx) == nil {
		limit = time.After(endTime)
	}
	err := r.run(ctx, "launchctl", "bootstrap", domain(), file)
	for err != nil {
		select {
		case <-limit:
			return err
		case <-ctx.Done():
			return err
		case <-time.After(endPause):
		}
		err = execute(ctx, "launchctl", "bootstrap", domain(), file)
	}
	return nil
}

// unload makes launchd end the agent. It returns an error if launchd does not have it.
func (r Runner) unload(ctx context.Context) error {
	err := r.run(ctx, "launchctl", "bootout", domain()+"/"+label)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == inProgress {
		return nil
	}
	return err
}

// agentList is the property list for launchd. As systemd, launchd starts the gateway again after
// each failure. It waits ten seconds between two attempts.
//
//go:embed agent.plist
var agentList string

// agent returns the property list for launchd.
func (s Spec) agent() string {
	text := func(s string) string {
		var e strings.Builder
		_ = xml.EscapeText(&e, []byte(s)) // a strings.Builder does not fail
		return "<string>" + e.String() + "</string>"
	}
	var command []string
	for _, arg := range s.arguments() {
		command = append(command, text(arg))
	}
	return strings.NewReplacer("@LABEL@", text(label), "@HOME@", text(s.Home),
		"@COMMAND@", strings.Join(command, "\n\t\t"),
		"@LOG@", text(filepath.Join(s.Home, "gateway.log"))).Replace(agentList)
}
