package store_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"gateway/store"
)

// A package defines its tables in a migration and writes in transactions.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	notes := store.Migration{Package: "notes", Steps: []string{
		"CREATE TABLE notes (id IDENTITY PRIMARY KEY, text TEXT NOT NULL);",
	}}
	db, err := store.Open(ctx, filepath.Join(dir, "gateway.db"), []store.Migration{notes}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	// Tx may run the function more than once, so that the function must set id at each run.
	var id int64
	err = db.Tx(ctx, func(tx *store.Tx) error {
		return tx.QueryRow("INSERT INTO notes (text) VALUES ($1) RETURNING id", "tea").Scan(&id)
	})
	if err != nil {
		log.Fatal(err)
	}
	var text string
	err = db.Read(ctx).QueryRow("SELECT text FROM notes WHERE id = $1", id).Scan(&text)
	fmt.Println(id, text, err)
	// Output: 1 tea <nil>
}
