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

// An HMAC signs the body but not the key. So an attacker who has seen a post could send it again
// with another key or without one. Therefore the package remembers the signatures of posts with a
// key. A sender that uses keys gives each post a different one, so an equal signature means the
// same post. A sender without keys may send the same body twice on purpose.

// Migration creates the table of this package.
var Migration = store.Migration{Package: "hooks", Steps: []string{`
CREATE TABLE hook_signatures (
	hook        TEXT NOT NULL,
	signature   TEXT NOT NULL, -- SHA-256 of it, in hexadecimal
	message     TEXT NOT NULL, -- ID of the inbound message
	accepted_ms BIGINT NOT NULL,
	PRIMARY KEY (hook, signature)
);
CREATE INDEX hook_signatures_old ON hook_signatures (accepted_ms);`}}

// signatureTime is how long a signature is remembered. GitHub can redeliver posts of the last
// three days: https://docs.github.com/en/webhooks/testing-and-troubleshooting-webhooks.
const signatureTime = 72 * time.Hour

// signedBefore returns the ID of the message that an earlier post with a key and the same
// signature made, or "".
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

// rememberSignature stores the signature of a post with the ID of its message, and deletes old
// ones.
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
	return store.Wrap(err, "hooks: remember a signature of %s", hook)
}

// digest returns the hash of a signature. With the signature itself, a reader of the database
// could send the post again.
func digest(signature []byte) string {
	sum := sha256.Sum256(signature)
	return hex.EncodeToString(sum[:])
}
