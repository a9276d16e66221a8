package router_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/gate"
	"gateway/channels/router"
	"gateway/store"
)

// A printer is the smallest channel: it receives nothing and prints the messages to send.
type printer struct{ sent chan struct{} }

// Run implements [channels.Channel].
func (p printer) Run(ctx context.Context, in channels.Intake) error {
	in.Report(channels.Connected, "connected")
	<-ctx.Done()
	return ctx.Err()
}

// Send implements [channels.Channel]. The text is Markdown.
func (p printer) Send(ctx context.Context, part bus.Part) (id string, err error) {
	if part.File != nil {
		return "", errors.Join(channels.ErrRefused, errors.New("printer: files can't be printed"))
	}
	fmt.Printf("to %s: %s\n", part.To, part.Text)
	close(p.sent)
	return "1", nil
}

// A router sends the messages in the outbox to a channel.
func ExampleChannel() {
	ctx, cancel := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := store.Open(ctx, filepath.Join(dir, "gateway.db"),
		[]store.Migration{bus.Migration, gate.Migration}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	paper := printer{sent: make(chan struct{})}
	outbox := bus.NewOutbox()
	router := router.New(router.Options{
		DB: db, Outbox: outbox, Live: bus.NewLive(), Owners: gate.People{},
		Accounts: []router.Account{{Name: "paper", Channel: paper}},
		Logger:   slog.New(slog.DiscardHandler),
	})
	err = db.Tx(ctx, func(tx *store.Tx) error {
		return outbox.Put(tx, bus.OutboundMessage{
			To:   bus.Address{Account: "paper", Chat: "7"},
			Text: "*Hello*",
		}, time.Now())
	})
	if err != nil {
		log.Fatal(err)
	}

	ended := make(chan error)
	go func() { ended <- router.Run(ctx) }()
	<-paper.sent
	cancel()
	fmt.Println(<-ended)
	// Output:
	// to paper/7: *Hello*
	// <nil>
}
