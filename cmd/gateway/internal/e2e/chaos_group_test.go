//go:build unix

package e2e

import (
	"fmt"
	"strconv"
	"strings"

	"gateway/bus"
	"gateway/channels/discord/discordtest"
)

// Ids of a group on Telegram, and of the supergroup that it becomes.
const chaosShed, chaosHall = -43, -1000000000043

// growingGroup adds a group on Telegram that becomes a supergroup.
func (c *chaos) growingGroup(o *onTelegram, say func(chat, user int64) func(string) string) {
	o.AddGroup(chaosShed, "Shed")
	chat := &chaosChat{slash: "@gateway_bot", read: func() []string {
		return append(o.read(chaosShed, 0), o.read(chaosHall, 0)...)
	}}
	var list []func(string) string
	for _, user := range []int64{annID, bobID} {
		list = append(list, func(text string) string {
			id, _ := strconv.ParseInt(chat.at.Chat, 10, 64) // it is one of the above
			return say(id, user)(text)
		})
	}
	chat.grow = func() {
		chat.was, chat.grow = chat.at, nil
		chat.at.Chat = fmt.Sprint(chaosHall)
		o.Migrate(chaosShed, chaosHall)
	}
	c.add(chat, "telegram", fmt.Sprint(chaosShed), list...)
}

// now returns the present address of a chat.
func (c *chaos) now(at bus.Address) bus.Address {
	for _, chat := range c.chats {
		if chat.was == at {
			return chat.at
		}
	}
	return at
}

// slashCommand makes a person use a command of Discord's own in the group, which may get lost.
func (c *chaos) slashCommand(o *onDiscord, chat *chaosChat) func(author int, text string) {
	return func(author int, text string) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(text, "/"), " ")
		chat.interrupts = chat.interrupts || rest == "interrupt"
		var options []discordtest.Option
		if rest != "" {
			options = append(options, discordtest.Option{Name: "text", Value: rest})
		}
		o.Slash("30", []string{"7", "8"}[author], name, options...)
	}
}
