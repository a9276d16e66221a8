package main

import (
	"context"

	"gateway/channels/telegram/telegramtest"
)

const telegramToken = "1234567:bench"

// onTelegram is the platform Telegram.
type onTelegram struct {
	*telegramtest.Server
	url string
}

// firstUser is the id of the user in the first chat.
const firstUser = 1000

func newTelegram(ctx context.Context, heard func(answer)) (*onTelegram, error) {
	s := telegramtest.New(telegramToken, &telegramtest.Options{
		Keep: 4, OnSend: func(m telegramtest.Sent) {
			heard(answer{int(m.Chat - firstUser), m.Received.Sub(m.Served)})
		}})
	url, err := s.Start(ctx)
	return &onTelegram{s, url}, err
}

func (o *onTelegram) environ() []string {
	return []string{
		"TELEGRAM_BOT_TOKEN=" + telegramToken,
		"GATEWAY_CHANNELS__TELEGRAM__API_URL=" + o.url,
		"GATEWAY_CHANNELS__TELEGRAM__ACCESS=open",
		"GATEWAY_CHANNELS__TELEGRAM__RATE_LIMIT=off",
		"GATEWAY_CHANNELS__TELEGRAM__SENDER_RATE=0",
	}
}

func (*onTelegram) prepare(context.Context, string) error { return nil }

func (o *onTelegram) ready(ctx context.Context) error { return o.Wait(ctx, o.Polling) }

func (o *onTelegram) say(_ context.Context, n size, text string) error {
	var all []telegramtest.Message
	for range n.messages {
		for i := range n.chats {
			all = append(all, telegramtest.Message{User: int64(firstUser + i), Text: text})
		}
	}
	o.Deliver(all...)
	return nil
}

func (*onTelegram) bursts() []size { return []size{{200, 1}, {1000, 1}, {5000, 1}} }

func (o *onTelegram) close() { o.Close() }
