package discord

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"gateway/bus"
	"gateway/channels/markup"
)

const (
	// keyTime is how long Discord knows a nonce, at least. Its documentation says "a few minutes".
	keyTime = 2 * time.Minute
	// clockSlack is how much our clock and Discord's may differ.
	clockSlack = time.Minute
	// findPages is how many pages of messages are looked at.
	findPages = 5
)

// KeyTime implements [channels.Finder].
func (c *Channel) KeyTime() time.Duration { return keyTime }

// Find implements [channels.Finder]. Messages are looked at that came after all known ones. A
// message of the bot that says the same, with a file if the part has one, is that of the part.
func (c *Channel) Find(
	ctx context.Context, part bus.Part, known []string, since time.Time,
) (string, error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("discord: look for a message in %s: %w", part.To, err)
	}
	var me user
	if err := c.ask(ctx, http.MethodGet, discordgo.EndpointUser("@me"), nil, &me); err != nil {
		return fail(err)
	}
	after := strconv.FormatInt(max(since.Add(-clockSlack).UnixMilli()-epoch, 0)<<22, 10)
	if len(known) > 0 {
		after = slices.MaxFunc(known, func(a, b string) int {
			return cmp.Compare(number(a), number(b))
		})
	}
	text := strings.TrimSpace(markup.Discord(part.Text))
	for range findPages {
		query := url.Values{"limit": {strconv.Itoa(pageSize)}, "after": {after}}
		address := discordgo.EndpointChannelMessages(channelOf(part.To)) + "?" + query.Encode()
		var list []message
		if err := c.ask(ctx, http.MethodGet, address, nil, &list); err != nil {
			return fail(err)
		}
		for _, m := range slices.Backward(list) { // the newest comes first
			if m.Author.ID == me.ID && strings.TrimSpace(m.Content) == text &&
				(len(m.Attachments) > 0) == (part.File != nil) {
				return m.ID, nil
			}
			after = m.ID
		}
		if len(list) < pageSize {
			break
		}
	}
	return "", nil
}
