package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
)

// Limits of the Bot API.
const (
	maxText      = 4096       // UTF-16 units of a message after parsing
	maxCaption   = 1024       // UTF-16 units of a caption after parsing
	maxButtons   = 24         // our own limit; Telegram's is 100, which nobody reads
	maxFile      = 50 << 20   // bytes of an upload to api.telegram.org
	maxLocalFile = 2000 << 20 // with your own Bot API server
)

// Send implements [channels.Channel]. It handles some refusals itself, because Telegram says what
// it wants: see [outgoing.applyRefusal].
func (c *Channel) Send(ctx context.Context, part bus.Part) (string, error) {
	o := c.outgoing(part)
	o.params.AddNonEmpty("message_thread_id", part.To.Thread)
	o.params.AddNonEmpty("reply_markup", keyboard(part.Buttons))
	if id, ok := messageID(part.ReplyTo); ok {
		o.params["reply_parameters"] = `{"message_id":` + id +
			`,"allow_sending_without_reply":true}`
	}
	result, err := c.deliver(ctx, o)
	if err != nil {
		return "", fmt.Errorf("telegram: send to %s: %w", part.To, classify(err, true))
	}
	var sent struct {
		ID int64 `json:"message_id"`
	}
	if err := json.Unmarshal(result, &sent); err != nil {
		return "", fmt.Errorf("telegram: send to %s: %w: garbled answer",
			part.To, channels.ErrUncertain)
	}
	id := strconv.FormatInt(sent.ID, 10)
	if chat := o.params["chat_id"]; chat != part.To.Chat {
		id = chat + idMark + id
	}
	return id, nil
}

// idMark follows the id of the supergroup in the id of a message that was sent there instead of to
// the group.
const idMark = "/"

// place returns the address of a message that Send has sent, and its id there. to is the address
// that Send got, and id is the id that Send returned.
func place(to bus.Address, id string) (bus.Address, string) {
	if chat, id, ok := strings.Cut(id, idMark); ok {
		to.Chat = chat
		return to, id
	}
	return to, id
}

// Edit implements [channels.Editor]. A message of a group that became a supergroup can't be edited
// any more. Editing removes the buttons of the message.
func (c *Channel) Edit(ctx context.Context, to bus.Address, id, text string) error {
	to, id = place(to, id)
	o := &outgoing{to: to, method: "editMessageText", field: "text", text: text, stays: true}
	c.setText(o)
	o.params["message_id"] = id
	if _, err := c.deliver(ctx, o); err != nil && !hasText(err, "message is not modified") {
		return fmt.Errorf("telegram: edit %s in %s: %w", id, to, classify(err, true))
	}
	return nil
}

// Remove implements [channels.Remover]. Telegram lets a bot delete its messages for two days.
func (c *Channel) Remove(ctx context.Context, to bus.Address, id string) error {
	to, id = place(to, id)
	p := tgbotapi.Params{"chat_id": to.Chat, "message_id": id}
	if _, err := c.api.call(ctx, callTimeout, "deleteMessage", p); err != nil {
		return fmt.Errorf("telegram: remove %s in %s: %w", id, to, classify(err, true))
	}
	return nil
}

// Leave implements [channels.Leaver].
func (c *Channel) Leave(ctx context.Context, id string) error {
	p := tgbotapi.Params{"chat_id": id}
	_, err := c.api.call(ctx, callTimeout, "leaveChat", p)
	// The group has become a supergroup, and the gateway may not know that yet.
	if to := migration(err); to != 0 {
		p["chat_id"] = strconv.FormatInt(to, 10)
		c.noteMove(move{id, p["chat_id"]})
		_, err = c.api.call(ctx, callTimeout, "leaveChat", p)
	}
	out := func(words string) bool { return hasText(err, words) }
	if err == nil || slices.ContainsFunc(notMember, out) {
		return nil
	}
	return fmt.Errorf("telegram: leave %s: %w", id, classify(err, true))
}

// notMember has the refusals that say that the bot is not in a group (any more). For a group that
// Telegram has restricted it answers CHAT_INVALID, and the bot has left it nevertheless: see
// https://github.com/tdlib/telegram-bot-api/issues/864.
var notMember = []string{"bot was kicked", "bot is not a member", "chat not found",
	"USER_NOT_PARTICIPANT", "CHANNEL_PRIVATE", "CHAT_INVALID", "group chat was deactivated",
	"chat was deleted"}

// Type implements [channels.Typer]. Telegram shows it for five seconds.
func (c *Channel) Type(ctx context.Context, to bus.Address) error {
	p := tgbotapi.Params{"chat_id": to.Chat, "action": "typing"}
	p.AddNonEmpty("message_thread_id", to.Thread)
	if _, err := c.api.call(ctx, callTimeout, "sendChatAction", p); err != nil {
		return fmt.Errorf("telegram: type to %s: %w", to, classify(err, true))
	}
	return nil
}

// SetCommands implements [channels.Commander]. Telegram accepts up to 100 commands with
// descriptions of up to 256 characters. Names can't contain "-", so the agent accepts "_" instead.
func (c *Channel) SetCommands(ctx context.Context, commands []channels.Command) error {
	type entry struct {
		Command     string `json:"command"`
		Description string `json:"description"`
	}
	menu := make([]entry, len(commands))
	for i, cmd := range commands {
		menu[i] = entry{strings.ReplaceAll(cmd.Name, "-", "_"), cmd.Description}
	}
	p := tgbotapi.Params{}
	if err := p.AddInterface("commands", menu); err != nil {
		return fmt.Errorf("telegram: set commands: %w", err)
	}
	if _, err := c.api.call(ctx, callTimeout, "setMyCommands", p); err != nil {
		return fmt.Errorf("telegram: set commands: %w", classify(err, false))
	}
	return nil
}

// React implements [channels.Reactor]. Telegram has a list of emoji that bots may use, and groups
// may shorten it.
func (c *Channel) React(ctx context.Context, to bus.Address, id, emoji string) error {
	message, ok := messageID(id)
	if !ok {
		return fmt.Errorf("telegram: react to %s in %s: %w: it is not a message",
			id, to, channels.ErrRefused)
	}
	type reaction struct {
		Type  string `json:"type"`
		Emoji string `json:"emoji"`
	}
	// An empty list removes the reaction. It must not be nil, which would be null in JSON.
	list := []reaction{}
	if emoji != "" { // Telegram's list has emoji without the variation selector
		list = append(list, reaction{"emoji", strings.ReplaceAll(emoji, "\ufe0f", "")})
	}
	p := tgbotapi.Params{"chat_id": to.Chat, "message_id": message}
	err := p.AddInterface("reaction", list)
	if err == nil {
		_, err = c.api.call(ctx, callTimeout, "setMessageReaction", p)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("telegram: react to %s in %s: %w", id, to, optional(err))
}

// Limits implements [channels.Limiter]. The rates are from
// https://core.telegram.org/bots/faq#my-bot-is-hitting-limits-how-do-i-avoid-this, which tolerates
// short bursts. Rich messages have the same limits, so that they can be sent as HTML instead.
func (c *Channel) Limits(to bus.Address) channels.Limits {
	l := channels.Limits{
		Text:         maxText,
		Measure:      markup.TelegramLen,
		Caption:      maxCaption,
		File:         maxFile,
		Buttons:      maxButtons,
		EditInterval: time.Second,
		Chat:         channels.Rate{Every: time.Second, Burst: 3},
		Account:      channels.Rate{Every: time.Second / 30, Burst: 30},
	}
	if c.api.localFiles != "" {
		l.File = maxLocalFile
	}
	if !c.rich { // Telegram renders rich messages itself
		l.Render = markup.Telegram
	}
	if isGroup(to) {
		l.EditInterval = 3 * time.Second
		l.Chat = channels.Rate{Every: time.Minute / 20, Burst: 5}
	}
	return l
}

// isGroup reports whether to is a group: groups have negative ids.
func isGroup(to bus.Address) bool { return strings.HasPrefix(to.Chat, "-") }

// An outgoing holds the parameters of a method that sends a message. applyRefusal changes it after
// a refusal.
type outgoing struct {
	to     bus.Address
	method string
	params tgbotapi.Params
	field  string    // parameter that holds the text
	text   string    // Markdown
	file   *attached // or nil
	stays  bool      // it is valid only in this chat and thread
}

// outgoing returns the call that sends part.
func (c *Channel) outgoing(part bus.Part) *outgoing {
	o := &outgoing{to: part.To, text: part.Text, method: "sendMessage", field: "text"}
	if part.File == nil {
		c.setText(o)
		return o
	}
	o.field = "caption"
	o.params = tgbotapi.Params{"chat_id": part.To.Chat}
	o.setFile(part.File)
	if part.Text != "" {
		o.setHTML()
	}
	return o
}

// setText makes o a text message.
func (c *Channel) setText(o *outgoing) {
	o.params = tgbotapi.Params{"chat_id": o.to.Chat}
	if c.rich && !c.noRich.Load() && o.setRich() {
		return
	}
	o.setHTML()
}

// setHTML makes the text HTML, or plain text if it is too long for Telegram to parse.
func (o *outgoing) setHTML() {
	o.params[o.field] = markup.Telegram(o.text)
	o.params["parse_mode"] = "HTML"
	// For a preview Telegram would request an address that the model wrote: see setRich.
	if o.field == "text" {
		o.params["link_preview_options"] = `{"is_disabled":true}`
	}
	if len(o.params[o.field]) > markup.TelegramSource {
		o.setPlain()
	}
}

// setPlain makes the text plain text.
func (o *outgoing) setPlain() {
	delete(o.params, "parse_mode")
	o.params[o.field] = markup.Plain(o.text)
}

// deliver calls o's method until Telegram accepts it or refuses it for a reason that applyRefusal
// can't handle. The error is that of call.
func (c *Channel) deliver(ctx context.Context, o *outgoing) (json.RawMessage, error) {
	for {
		result, err := c.post(ctx, o)
		if err == nil {
			return result, nil
		}
		change := o.applyRefusal(err)
		if change == "" {
			return nil, err
		}
		switch {
		case change == withoutRich && isUnknownMethod(err):
			c.noRich.Store(true)
		case change == toSupergroup:
			c.noteMove(move{o.to.Chat, o.params["chat_id"]})
		}
		c.log.WarnContext(ctx, "message is sent again", "to", o.to, "how", change)
	}
}

// post calls o's method once. A file makes it an upload, whose time limit depends on progress.
func (c *Channel) post(ctx context.Context, o *outgoing) (json.RawMessage, error) {
	if o.file != nil {
		return c.api.upload(ctx, c.stall, o.method, o.params, *o.file)
	}
	return c.api.call(ctx, callTimeout, o.method, o.params)
}

// toSupergroup is a change of applyRefusal. deliver recognises it and stores the move.
const toSupergroup = "to the supergroup"

// applyRefusal changes o according to Telegram's refusal err and describes the change, or returns
// "" if it can do nothing. It leaves out an unknown topic, follows a group to its supergroup, sends
// rich text as HTML, unparsable HTML as plain text, and refused photos and voice messages as
// documents. Each change can happen once, so the retries end.
func (o *outgoing) applyRefusal(err error) string {
	p := o.params
	switch {
	// Telegram has two answers for a deleted topic.
	case p["message_thread_id"] != "" && (hasText(err, "message thread not found") ||
		hasText(err, "TOPIC_DELETED")):
		delete(p, "message_thread_id")
		return "without topic"
	// The comparison makes this happen once: Telegram could name a further id for the new group.
	case !o.stays && p["chat_id"] == o.to.Chat && migration(err) != 0:
		p["chat_id"] = strconv.FormatInt(migration(err), 10)
		delete(p, "reply_parameters") // there the id is another message's
		return toSupergroup
	case p["rich_message"] != "" && refusedRich(err):
		if o.method == "sendRichMessage" {
			o.method = "sendMessage"
		}
		delete(p, "rich_message")
		o.setHTML()
		return withoutRich
	case p["parse_mode"] != "" && hasText(err, "can't parse entities"):
		o.setPlain()
		return "without formatting"
	case o.file != nil && o.method != "sendDocument" && isBadRequest(err) && refusedMedia(err):
		o.setDocument()
		return "as a document"
	}
	return ""
}

// hasText reports whether err is an answer of Telegram that contains words.
func hasText(err error, words string) bool {
	answer, ok := errors.AsType[*tgbotapi.Error](err)
	return ok && strings.Contains(answer.Message, words)
}

// hasCode reports whether err is an answer of Telegram with the given error code.
func hasCode(err error, code int) bool {
	answer, ok := errors.AsType[*tgbotapi.Error](err)
	return ok && answer.Code == code
}

func isBadRequest(err error) bool { return hasCode(err, http.StatusBadRequest) }

// isUnknownMethod reports whether the server is too old for a method. A server that does not know
// the token answers differently.
func isUnknownMethod(err error) bool { return hasCode(err, http.StatusNotFound) }

// optional is like classify, for a method that the gateway can do without.
func optional(err error) error {
	if isUnknownMethod(err) {
		return fmt.Errorf("%w: the Bot API server is too old", channels.ErrRefused)
	}
	return classify(err, true)
}

// migration returns the id of the supergroup that a group became, or 0.
func migration(err error) int64 {
	if answer, ok := errors.AsType[*tgbotapi.Error](err); ok {
		return answer.MigrateToChatID
	}
	return 0
}
