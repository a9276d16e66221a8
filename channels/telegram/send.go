package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
)

// maxSource is the longest HTML in bytes that Telegram parses; the visible text is bounded apart.
const maxSource = 1 << 15

// Send implements [channels.Channel]. Three refusals are answered within the call, because what
// Telegram asks for is known: HTML that it can't parse goes as plain text, an unknown topic
// is left out, and a group that became a supergroup is followed to its new id.
func (c *Channel) Send(ctx context.Context, part bus.Part) (string, error) {
	p := textParams(part.To, part.Text)
	p.AddNonEmpty("message_thread_id", part.To.Thread)
	if id, err := strconv.ParseInt(part.ReplyTo, 10, 64); err == nil {
		p["reply_parameters"] = `{"message_id":` + strconv.FormatInt(id, 10) +
			`,"allow_sending_without_reply":true}`
	}
	result, err := c.call(ctx, callTimeout, "sendMessage", p)
	for err != nil && c.amend(ctx, p, part.To, part.Text, err) {
		result, err = c.call(ctx, callTimeout, "sendMessage", p)
	}
	if err != nil {
		return "", fmt.Errorf("telegram: send to %s: %w", part.To, verdict(err, true))
	}
	var sent struct {
		ID int64 `json:"message_id"`
	}
	if err := json.Unmarshal(result, &sent); err != nil {
		return "", fmt.Errorf("telegram: send to %s: %w: garbled answer",
			part.To, channels.ErrUncertain)
	}
	return strconv.FormatInt(sent.ID, 10), nil
}

// Edit implements [channels.Editor]. A message of a group that became a supergroup can't be
// edited any more.
func (c *Channel) Edit(ctx context.Context, to bus.Address, id, text string) error {
	p := textParams(to, text)
	p["message_id"] = id
	_, err := c.call(ctx, callTimeout, "editMessageText", p)
	if refusedHTML(p, err) {
		plain(p, text)
		_, err = c.call(ctx, callTimeout, "editMessageText", p)
	}
	if err == nil || said(err, "message is not modified") {
		return nil
	}
	return fmt.Errorf("telegram: edit %s in %s: %w", id, to, verdict(err, true))
}

// Remove implements [channels.Remover]. Telegram lets a bot delete its messages for two days.
func (c *Channel) Remove(ctx context.Context, to bus.Address, id string) error {
	p := tgbotapi.Params{"chat_id": to.Chat, "message_id": id}
	if _, err := c.call(ctx, callTimeout, "deleteMessage", p); err != nil {
		return fmt.Errorf("telegram: remove %s in %s: %w", id, to, verdict(err, true))
	}
	return nil
}

// Type implements [channels.Typer]. Telegram shows it for five seconds.
func (c *Channel) Type(ctx context.Context, to bus.Address) error {
	p := tgbotapi.Params{"chat_id": to.Chat, "action": "typing"}
	p.AddNonEmpty("message_thread_id", to.Thread)
	if _, err := c.call(ctx, callTimeout, "sendChatAction", p); err != nil {
		return fmt.Errorf("telegram: type to %s: %w", to, verdict(err, true))
	}
	return nil
}

// SetCommands implements [channels.Commander]. Telegram takes up to 100 commands with
// descriptions of up to 256 characters.
func (c *Channel) SetCommands(ctx context.Context, commands []channels.Command) error {
	type entry struct {
		Command     string `json:"command"`
		Description string `json:"description"`
	}
	menu := make([]entry, len(commands))
	for i, cmd := range commands {
		menu[i] = entry{cmd.Name, cmd.Description}
	}
	p := tgbotapi.Params{}
	if err := p.AddInterface("commands", menu); err != nil {
		return fmt.Errorf("telegram: set commands: %w", err)
	}
	if _, err := c.call(ctx, callTimeout, "setMyCommands", p); err != nil {
		return fmt.Errorf("telegram: set commands: %w", verdict(err, false))
	}
	return nil
}

// Limits implements [channels.Limiter]. The rates are those of
// https://core.telegram.org/bots/faq#my-bot-is-hitting-limits-how-do-i-avoid-this; short bursts
// are tolerated there, and 4096 UTF-16 units after parsing is the bound of sendMessage.
func (c *Channel) Limits(to bus.Address) channels.Limits {
	l := channels.Limits{
		Text:         4096,
		Measure:      markup.TelegramLen,
		EditInterval: time.Second,
		Chat:         channels.Rate{Every: time.Second, Burst: 3},
		Account:      channels.Rate{Every: time.Second / 30, Burst: 30},
	}
	if strings.HasPrefix(to.Chat, "-") { // ids of groups are negative
		l.EditInterval = 3 * time.Second
		l.Chat = channels.Rate{Every: time.Minute / 20, Burst: 5}
	}
	return l
}

// textParams returns what sendMessage and editMessageText have in common.
func textParams(to bus.Address, text string) tgbotapi.Params {
	p := tgbotapi.Params{
		"chat_id":              to.Chat,
		"text":                 markup.Telegram(text),
		"parse_mode":           "HTML",
		"link_preview_options": `{"is_disabled":true}`,
	}
	if len(p["text"]) > maxSource {
		plain(p, text)
	}
	return p
}

// plain makes p carry text without formatting.
func plain(p tgbotapi.Params, text string) {
	delete(p, "parse_mode")
	p["text"] = markup.Plain(text)
}

// amend changes p to meet Telegram's refusal err and reports whether that is worth another try.
// Each change can be made once, so trying ends.
func (c *Channel) amend(
	ctx context.Context, p tgbotapi.Params, to bus.Address, text string, err error,
) bool {
	change := ""
	switch {
	case refusedHTML(p, err):
		plain(p, text)
		change = "without formatting"
	case p["message_thread_id"] != "" && said(err, "message thread not found"):
		delete(p, "message_thread_id")
		change = "without topic"
	case p["chat_id"] == to.Chat && migration(err) != 0:
		p["chat_id"] = strconv.FormatInt(migration(err), 10)
		change = "to the supergroup"
	default:
		return false
	}
	c.log.WarnContext(ctx, "message is sent again", "to", to, "how", change)
	return true
}

func refusedHTML(p tgbotapi.Params, err error) bool {
	return p["parse_mode"] != "" && said(err, "can't parse entities")
}

// said reports whether err is an answer of Telegram with the given words.
func said(err error, words string) bool {
	answer, ok := errors.AsType[*tgbotapi.Error](err)
	return ok && strings.Contains(answer.Message, words)
}

// migration returns the id of the supergroup that a group became, or 0.
func migration(err error) int64 {
	if answer, ok := errors.AsType[*tgbotapi.Error](err); ok {
		return answer.MigrateToChatID
	}
	return 0
}
