package main

import (
	"context"
	"os"
	"time"

	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/agent/tools/clock"
	"gateway/agent/tools/files"
	"gateway/agent/tools/message"
	"gateway/agent/tools/spawn"
	"gateway/bus"
	"gateway/cmd/gateway/internal/config"
)

// newTools returns the tools of the agent, which works in the folders root, its own, and media.
func (g *gateway) newTools(
	cfg *config.Config, inbox *bus.Inbox, outbox *bus.Outbox, root, media *os.Root,
) (*tool.Registry, error) {
	reach := files.New(files.Options{Workspace: root, Path: cfg.Gateway.Workspace, Media: media})
	list, err := webTools(cfg, newGuard(cfg), g.log)
	if err != nil {
		return nil, err
	}
	list = append(append(list, reach.Tools()...), clock.New(time.Now, cfg.Gateway.Location), ask.New(),
		message.New(message.Options{DB: g.db, Outbox: outbox, Now: time.Now,
			Open: reach.Open, Put: g.media.Put}))
	list = append(list, spawn.Tools(spawn.Options{DB: g.db, Inbox: inbox, Now: time.Now,
		Stop: func(ctx context.Context, session string) (bool, error) {
			return g.dispatcher.StopTask(ctx, session)
		}})...)
	return tool.NewRegistry(list...)
}
