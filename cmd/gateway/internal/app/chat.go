package app

import (
	"context"
	"errors"
	"fmt"

	"gateway/channels/terminal"
)

// greeting is the first thing that a person at the terminal sees.
const greeting = "Talk to %s. /help shows the commands.\n" +
	"Ctrl-C stops an answer, or leaves if there is none.\n"

// chat lets the person at the screen talk to this gateway.
func (g *Gateway) chat(ctx context.Context, screen *terminal.Screen) error {
	if g.terminal == nil {
		return BadUsage(errors.New("the terminal is disabled in the configuration: " +
			"set channels.terminal.enabled = true to chat here"))
	}
	conn, err := g.terminal.Dial(ctx)
	if err != nil {
		return nil // the gateway is being stopped
	}
	fmt.Fprintf(screen, greeting, g.name)
	defer screen.Close() // while turns come to their end, Ctrl-C is a signal again
	return terminal.Chat(ctx, conn, screen)
}
