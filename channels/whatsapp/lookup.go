package whatsapp

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"go.mau.fi/whatsmeow/types"
)

// Lookup returns the address of the direct chat with a phone number, or "" if the store of the
// account at path does not know it. It only reads the store, also while a Channel has it open.
func Lookup(ctx context.Context, path, number string) (_ string, err error) {
	phone, err := parseChat("+" + strings.TrimPrefix(number, "+"))
	if err != nil {
		return "", nil // no phone number
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	db, err := sql.Open("sqlite", dsn(path, "busy_timeout(10000)", "query_only(1)"))
	if err != nil {
		return "", fmt.Errorf("whatsapp: look up: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var user string
	err = db.QueryRowContext(ctx, "SELECT lid FROM whatsmeow_lid_map WHERE pn = $1", phone.User).
		Scan(&user)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("whatsapp: look up: %w", err)
	}
	return types.NewJID(user, types.HiddenUserServer).String(), nil
}
