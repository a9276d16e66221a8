package hooks

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"gateway/store"
)

// An HMAC signs the body and no key, so that who has seen a post could send it again under another
// key, or under none. So it is remembered which signatures have come with a key: a sender that uses
// keys gives each post one, and what has the same signature is the same post. A sender that uses
// none may say the same again, and means it.

// Migration makes the table of this package.
var Migration = store.Migration{Package: "hooks", Steps: []string{`
CREATE TABLE hook_signatures (
	hook        TEXT NOT NULL,
	signature   TEXT NOT NULL, -- SHA-256 of it, in hexadecimal
	message     TEXT NOT NULL, -- ID of the inbound message
	accepted_ms BIGINT NOT NULL,
	PRIMARY KEY (hook, signature)
);
CREATE INDEX hook_signatures_old ON hook_signatures (accepted_ms);`}}

// signatureTime is for how long a signature is remembered: GitHub posts again what is up to three
// days old, https://docs.github.com/en/webhooks/testing-and-troubleshooting-webhooks.
const signatureTime = 72 * time.Hour

// signedBefore returns the ID of the message that a post with a signature and a key has made, "" if
// there was none.
func signedBefore(
	tx *store.Tx, hook string, signature []byte, now time.Time,
) (id string, err error) {
	if signature == nil {
		return "", nil
	}
	err = tx.QueryRow("SELECT message FROM hook_signatures "+
		"WHERE hook = $1 AND signature = $2 AND accepted_ms > $3",
		hook, digest(signature), now.Add(-signatureTime).UnixMilli()).Scan(&id)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("hooks: look up a signature of %s: %w", hook, err)
	}
	return id, nil
}

// rememberSignature notes that a post with a signature has made a message, and forgets old ones.
func rememberSignature(
	tx *store.Tx, hook string, signature []byte, id string, now time.Time,
) error {
	if signature == nil {
		return nil
	}
	_, err := tx.Exec("DELETE FROM hook_signatures WHERE accepted_ms <= $1",
		now.Add(-signatureTime).UnixMilli())
	if err == nil {
		_, err = tx.Exec("INSERT INTO hook_signatures (hook, signature, message, accepted_ms) "+
			"VALUES ($1, $2, $3, $4)", hook, digest(signature), id, now.UnixMilli())
	}
	if err != nil {
		return fmt.Errorf("hooks: remember a signature of %s: %w", hook, err)
	}
	return nil
}

// digest returns what stands for a signature: with itself the body could be posted again.
func digest(signature []byte) string {
	sum := sha256.Sum256(signature)
	return hex.EncodeToString(sum[:])
}
