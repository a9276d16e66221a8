package discord

import (
	"cmp"
	"context"
	"fmt"
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
	// keyTime is the minimum time for which Discord remembers a nonce. Its documentation says "a
	// few minutes".
	keyTime = 2 * time.Minute
	// clockSlack is the maximum difference between our clock and Discord's.
	clockSlack = time.Minute
	// findPages is the maximum number of pages to search.
	findPages = 5
)

// KeyTime implements [channels.Finder].
func (c *Channel) KeyTime() time.Duration { return keyTime }

// Find implements [channels.Finder]. It searches the messages after all known ones for a message of
// the bot with the same text, and with a file if the part has one.
func (c *Channel) Find(
	ctx context.Context, part bus.Part, known []string, since time.Time,
) (string, error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("discord: look for a message in %s: %w", part.To, err)
	}
	var me user
	if err := c.get(ctx, discordgo.EndpointUser("@me"), &me); err != nil {
		return fail(err)
	}
	// This is the smallest id of that time: see madeAt.
	after := strconv.FormatInt(max(since.Add(-clockSlack).UnixMilli()-epoch, 0)<<22, 10)
	if len(known) > 0 {
		after = slices.MaxFunc(known, func(a, b string) int {
			return cmp.Compare(idNumber(a), idNumber(b))
		})
	}
	text := strings.TrimSpace(markup.Discord(part.Text)) // Discord trims what it stores
	for range findPages {
		query := url.Values{"limit": {strconv.Itoa(pageSize)}, "after": {after}}
		address := discordgo.EndpointChannelMessages(channelOf(part.To)) + "?" + query.Encode()
		var list []message
		if err := c.get(ctx, address, &list); err != nil {
			return fail(err)
		}
		for _, m := range slices.Backward(list) { // newest first
			if m.Author.ID == me.ID && strings.TrimSpace(m.Content) == text &&
				(len(m.Attachments) > 0) == (part.File != nil) {
				return m.ID, nil
			}
			after = m.ID // at the end, the newest of the page
		}
		if len(list) < pageSize {
			break
		}
	}
	return "", nil
}
