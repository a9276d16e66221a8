package memory_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// A fact about one person is not found for another person.
func ExampleMemory() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := store.Open(ctx, filepath.Join(dir, "gateway.db"),
		[]store.Migration{bus.Migration, memory.Migration}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	folder, err := os.OpenRoot(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer folder.Close()

	m := memory.New(db, folder, nil)
	ada, bob := m.In(memory.OfPerson(1)), m.In(memory.OfPerson(2))
	err = db.Tx(ctx, func(tx *store.Tx) error {
		return ada.Set(tx, memory.Fact{Key: "drink", Value: "tea with milk"})
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, space := range []*memory.ScopedStore{ada, bob} {
		hits, err := space.Search(db.Read(ctx), "milk", 5)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(len(hits))
	}
	// Output:
	// 1
	// 0
}
