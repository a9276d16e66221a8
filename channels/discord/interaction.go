package discord

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/bwmarrin/discordgo"

	"gateway/bus"
	"gateway/channels"
)

// pressed translates the use of a command or the press of a button.
func (t *translator) pressed(
	ctx context.Context, i *interaction,
) (bus.InboundMessage, bool, error) {
	// In a guild Discord sends a member, in a direct chat a user.
	who := i.User
	if i.Member != nil && i.Member.User != nil {
		who = i.Member.User
	}
	text := i.text()
	if i.ID == "" || who == nil || who.Bot || text == "" {
		return bus.InboundMessage{}, false, nil
	}
	where, err := t.places.placeOf(ctx, i.Channel, i.Guild, true)
	if err != nil {
		return bus.InboundMessage{}, false, err
	}
	in := where.message(t.account)
	in.ID, in.Time, in.Text, in.Addressed = pressID(i), madeAt(i.ID), text, true
	in.Sender = bus.Sender{ID: who.ID, Name: i.Member.name(who),
		Username: channels.Clean(who.Username, channels.MaxName)}
	return in, true, nil
}

// isElsewhere reports whether the bot is not a member where i was made, so that it can't answer
// there. People can add a bot to their own account, and then use its commands in any guild and in
// their chats with others.
func (i *interaction) isElsewhere() bool {
	const guild, private = 0, 2 // contexts; 1 is a direct chat with the bot
	_, member := i.Installed["0"]
	return i.Context == private || i.Context == guild && i.Installed != nil && !member
}

// textElsewhere answers an interaction that isElsewhere.
const textElsewhere = "I am not a member here, so I can't answer. Write to me in a direct chat."

// pressID returns the ID of the message that stands for an interaction. The prefix keeps it apart
// from the ids of messages, which are numbers.
func pressID(i *interaction) string { return "i" + i.ID }

// text returns the equivalent text message, or "".
func (i *interaction) text() string {
	switch i.Type {
	case buttonPressed:
		return i.Data.ID
	case commandUsed:
		text := "/" + i.Data.Name
		for _, o := range i.Data.Options {
			if o.Value != nil {
				text += " " + fmt.Sprint(o.Value)
			}
		}
		return strings.TrimSpace(text)
	}
	return ""
}

// acknowledge answers an interaction that is stored. The real answer is a separate message, so this
// answer should be invisible. For a button Discord has such an answer. For a command, the person
// briefly sees that the bot is thinking, until we delete that message. Discord waits three seconds
// for the answer, but not for the deletion. If no real answer follows, the answer is say, which
// only the person sees.
func (c *Channel) acknowledge(ctx context.Context, i *interaction, say string) {
	type data map[string]any
	body := data{"type": discordgo.InteractionResponseDeferredMessageUpdate}
	switch {
	case say != "":
		body = data{"type": discordgo.InteractionResponseChannelMessageWithSource,
			"data": data{"flags": discordgo.MessageFlagsEphemeral, "content": say}}
	case i.Type == commandUsed:
		body = data{"type": discordgo.InteractionResponseDeferredChannelMessageWithSource,
			"data": data{"flags": discordgo.MessageFlagsEphemeral}}
	}
	address := discordgo.EndpointInteractionResponse(i.ID, i.Token)
	_, err := c.call(ctx, http.MethodPost, address, body)
	if err == nil && i.Type == commandUsed && say == "" {
		address = discordgo.EndpointWebhookMessage(i.Application, i.Token, "@original")
		_, err = c.call(ctx, http.MethodDelete, address, nil)
	}
	if err != nil { // it is stored and will be handled anyway
		c.log.WarnContext(ctx, "interaction not acknowledged", "account", c.name,
			"id", i.ID, "err", err)
	}
}
