package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"gateway/channels"
)

const (
	awaitPoll  = 25 * time.Second // time for which one call waits for messages
	awaitPause = time.Second      // between calls while other messages wait
	awaitMost  = 100              // maximum number of messages that one call returns
)

// errManyWait means that older messages fill the answer of the platform, so newer ones can't be
// seen.
var errManyWait = errors.New("too many messages wait for this bot: start the gateway, which " +
	"receives them, and then write to it")

// AwaitSender waits until somebody sends the bot a direct message that contains text. It returns
// the sender's id and name. It does not confirm messages to Telegram, so a gateway that starts
// afterwards gets all of them. It returns an error if ctx ends, the platform refuses, or too many
// messages wait.
func AwaitSender(ctx context.Context, c *Channel, text string) (id, name string, err error) {
	for {
		raw, err := c.api.call(ctx, awaitPoll+callTimeout, "getUpdates", tgbotapi.Params{
			"timeout": strconv.Itoa(int(awaitPoll.Seconds()))})
		if err != nil {
			return "", "", classify(err, false)
		}
		var updates []update
		if err := json.Unmarshal(raw, &updates); err != nil {
			return "", "", err
		}
		for _, u := range updates {
			m := u.Message
			if m == nil || m.From == nil || m.Chat.Type != "private" || !strings.Contains(m.Text, text) {
				continue
			}
			name := strings.TrimSpace(m.From.First + " " + m.From.Last)
			return strconv.FormatInt(m.From.ID, 10), name, nil
		}
		if len(updates) >= awaitMost {
			return "", "", errManyWait
		}
		if len(updates) > 0 && !channels.Sleep(ctx, awaitPause) {
			return "", "", ctx.Err()
		}
	}
}
