package main

import (
	"context"
	"strconv"

	"gateway/channels/discord/discordtest"
)

const discordToken = "BENCH.DISCORD.TOKEN"

// onDiscord is the platform Discord. Its chats are direct chats, each with the id of its user.
type onDiscord struct {
	*discordtest.Server
	url   string
	known int // number of chats that exist
}

func newDiscord(ctx context.Context, heard func(answer)) (*onDiscord, error) {
	s := discordtest.New(discordToken, &discordtest.Options{
		Keep: 4, OnSend: func(m discordtest.Sent) {
			id, _ := strconv.Atoi(m.Channel) // the id of a chat that say has made
			heard(answer{id - firstUser, m.Received.Sub(m.Served)})
		}})
	url, err := s.Start(ctx)
	return &onDiscord{Server: s, url: url}, err
}

func (o *onDiscord) environ() []string {
	return []string{
		"DISCORD_BOT_TOKEN=" + discordToken,
		"GATEWAY_CHANNELS__DISCORD__API_URL=" + o.url,
		"GATEWAY_CHANNELS__DISCORD__ACCESS=open",
		"GATEWAY_CHANNELS__DISCORD__RATE_LIMIT=off",
		"GATEWAY_CHANNELS__DISCORD__SENDER_RATE=0",
	}
}

func (*onDiscord) prepare(context.Context, string) error { return nil }

func (o *onDiscord) ready(ctx context.Context) error {
	return o.Wait(ctx, func() bool { return o.Connected() > 0 })
}

func (o *onDiscord) say(_ context.Context, n size, text string) error {
	for ; o.known < n.chats; o.known++ {
		id := strconv.Itoa(firstUser + o.known)
		o.AddUser(discordtest.User{ID: id, Username: "user" + id})
		o.AddDM(id, id)
	}
	var all []discordtest.Message
	for range n.messages {
		for i := range n.chats {
			id := strconv.Itoa(firstUser + i)
			all = append(all, discordtest.Message{Channel: id, User: id, Text: text})
		}
	}
	o.Deliver(all...)
	return nil
}

// bursts returns the bursts to measure. The largest one has as many events as the adapter lets wait
// to be stored. A larger one would end the connection, and people who write for the first time
// would get their answers only after a new connection.
func (*onDiscord) bursts() []size { return []size{{200, 1}, {1000, 1}} }

func (o *onDiscord) close() { o.Close() }
