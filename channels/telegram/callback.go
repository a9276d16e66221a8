package telegram

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"gateway/bus"
	"gateway/channels"
)

const (
	answerTimeout = 5 * time.Second // for confirming a press
	maxData       = 64              // bytes of data of a button
	maxLabel      = 64              // runes of a label; clients show no more
)

// pressed translates the press of a button. It returns false if the button is not below one of our
// messages, or belongs to a game.
func (r *receiver) pressed(q *callback) (bus.InboundMessage, bool) {
	m := q.Message
	if m == nil || q.Data == "" || q.ID == "" || q.From.Bot || q.From.ID == 0 || !m.Chat.read() {
		return bus.InboundMessage{}, false
	}
	// The message stands for the text that the person would otherwise type: see keyboard.
	in := envelope(r.name, m)
	// The prefix keeps the id apart from the ids of messages, which are numbers.
	in.ID = "cb" + q.ID
	in.Sender = q.From.sender()
	in.Text = q.Data
	in.Addressed = true
	in.Time = time.Now().UTC() // Telegram doesn't send the time of the press
	return in, true
}

// answerPresses ends the progress indicator on pressed buttons, until ctx is done. A failure is
// only logged, because the press itself is stored.
func (r *receiver) answerPresses(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-r.presses:
			p := tgbotapi.Params{"callback_query_id": id}
			if _, err := r.api.call(ctx, r.answer, "answerCallbackQuery", p); err != nil {
				r.log.DebugContext(ctx, "button not answered", "account", r.name,
					"err", classify(err, true))
			}
		}
	}
}

// keyboard returns buttons in Telegram's JSON form, or "" if there are none. It leaves out buttons
// because of which Telegram would refuse the message.
func keyboard(buttons []bus.Button) string {
	type key struct {
		Label string `json:"text"`
		Data  string `json:"callback_data"`
	}
	var rows [][]key
	width := 0 // total width of the labels in the last row
	for _, b := range buttons {
		k := key{channels.Clean(b.Label, maxLabel), b.Text}
		if k.Label == "" {
			k.Label = channels.Clean(b.Text, maxLabel)
		}
		// JSON can't carry invalid UTF-8 unchanged, so the press would send another text.
		if b.Text == "" || k.Label == "" || len(b.Text) > maxData || !utf8.ValidString(b.Text) {
			continue
		}
		n := utf8.RuneCountInString(k.Label)
		if last := len(rows) - 1; last >= 0 && fitsRow(len(rows[last]), width, n) {
			rows[last] = append(rows[last], k)
			width += n
		} else {
			rows = append(rows, []key{k})
			width = n
		}
	}
	if rows == nil {
		return ""
	}
	markup, err := json.Marshal(map[string]any{"inline_keyboard": rows})
	if err != nil {
		return "" // strings can always be encoded
	}
	return string(markup)
}

// fitsRow reports whether a label of n runes fits beside count others with a total of width runes
// on a phone's screen. All buttons of a row are as wide as the widest one.
func fitsRow(count, width, n int) bool {
	const perRow, wide = 3, 27 // buttons, and runes of their labels
	return count < perRow && n <= wide/(count+1) && width <= wide*count/(count+1)
}

// messageID returns Telegram's id of the message that the gateway calls id. The gateway's id of an
// edit begins with it. The press of a button is not a message.
func messageID(id string) (string, bool) {
	id, _, _ = strings.Cut(id, ":")
	n, err := strconv.ParseInt(id, 10, 64)
	return strconv.FormatInt(n, 10), err == nil
}
