package discord

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/bwmarrin/discordgo"

	"gateway/channels"
)

// Leave implements [channels.Leaver]. id is that of a guild.
func (c *Channel) Leave(ctx context.Context, id string) error {
	address := discordgo.EndpointUserGuild("@me", url.PathEscape(id))
	_, err := c.call(ctx, http.MethodDelete, address, nil)
	// Discord answers "unknown guild" for a guild of which the bot is not a member.
	if refused, ok := errors.AsType[*refusedError](err); err == nil || ok && refused.code == noGuild {
		return nil
	}
	return fmt.Errorf("discord: leave server %s: %w", id, err)
}

// Server implements [channels.ServerFinder].
func (c *Channel) Server(ctx context.Context, group string) (channels.Server, error) {
	var where place
	var answer struct {
		Name string `json:"name"`
	}
	var list []place
	err := c.get(ctx, discordgo.EndpointChannel(url.PathEscape(group)), &where)
	if err == nil && where.Guild == "" {
		err = fmt.Errorf("%w: it is not a channel of a server", channels.ErrRefused)
	}
	if err == nil {
		address := discordgo.EndpointGuild(url.PathEscape(where.Guild))
		err = c.get(ctx, address, &answer)
	}
	if err == nil {
		address := discordgo.EndpointGuildChannels(url.PathEscape(where.Guild))
		err = c.get(ctx, address, &list)
	}
	if err != nil {
		return channels.Server{}, fmt.Errorf("discord: find server of channel %s: %w", group, err)
	}
	found := channels.Server{ID: where.Guild, Name: channels.Clean(answer.Name, channels.MaxName),
		Groups: make(map[string]string, len(list))}
	for _, p := range list {
		found.Groups[p.ID] = channels.Clean(p.Name, channels.MaxName)
	}
	return found, nil
}
