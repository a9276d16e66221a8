package bus_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"gateway/bus"
	"gateway/store"
)

// A message that is put twice, for example after a crash, is in the inbox once.
func ExampleInbox() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := store.Open(ctx, filepath.Join(dir, "gateway.db"),
		[]store.Migration{bus.Migration}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	inbox := bus.NewInbox()
	m := bus.InboundMessage{
		ID:   "17",
		From: bus.Address{Account: "telegram", Chat: "42"},
		Text: "hello",
	}
	for range 2 {
		err := db.Tx(ctx, func(tx *store.Tx) error {
			fresh, err := inbox.Put(tx, m, time.Now())
			fmt.Println("new:", fresh)
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	list, err := inbox.Waiting(db.Read(ctx), 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range list {
		fmt.Println(r.Message.From, r.Message.Text)
	}
	// Output:
	// new: true
	// new: false
	// telegram/42 hello
}
