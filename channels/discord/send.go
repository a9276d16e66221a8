package discord

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bwmarrin/discordgo"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
)

// Limits of messages.
const (
	maxText    = 2000     // code points
	maxNonce   = 25       // runes
	maxFile    = 10 << 20 // bytes
	maxButtons = 25       // five rows
	rowButtons = 5
	maxLabel   = 80  // runes
	maxData    = 100 // runes of the text that a button sends
	maxMenu    = 100 // runes of a command's description
)

// fields is an object of the REST API.
type fields map[string]any

// silent keeps a text from notifying anybody, whatever it mentions. replied says whether the author
// of the message that is replied to is notified nevertheless.
func silent(replied bool) fields {
	return fields{"parse": []string{}, "replied_user": replied}
}

// Send implements [channels.Channel]. The part's key is the nonce. For some minutes Discord answers
// a second message with the same nonce with the first one, so a lost answer is harmless if the part
// is sent again soon. Send reports ErrUncertain only for a part without a key. If Discord refuses a
// part only as a reply, Send sends it as a plain message, and a refused voice message as a file.
func (c *Channel) Send(ctx context.Context, part bus.Part) (string, error) {
	body := fields{
		"allowed_mentions": silent(false),
		"flags":            discordgo.MessageFlagsSuppressEmbeds,
	}
	if text := markup.Discord(part.Text); text != "" {
		body["content"] = text
	}
	if part.Key != "" {
		body["nonce"], body["enforce_nonce"] = nonce(part.Key), true
	}
	if id, ok := messageID(part.ReplyTo); ok {
		body["message_reference"] = fields{"message_id": id, "fail_if_not_exists": false}
		body["allowed_mentions"] = silent(true)
	}
	if list := rows(part.Buttons); len(list) > 0 {
		body["components"] = list
	}
	// A voice message has no text, and so no previews of links to suppress.
	voice := voiceFields(part)
	if voice != nil {
		body["flags"] = discordgo.MessageFlagsIsVoiceMessage
		body["attachments"] = []fields{voice}
	}
	answer, err := c.post(ctx, part, body)
	if body["message_reference"] != nil && refusesReply(err) {
		c.log.WarnContext(ctx, "refused as a reply; sent as a plain message",
			"to", part.To.String(), "replyTo", part.ReplyTo, "err", err)
		delete(body, "message_reference")
		body["allowed_mentions"] = silent(false)
		answer, err = c.post(ctx, part, body)
	}
	if voice != nil && errors.Is(err, channels.ErrRefused) { // for example without the permission
		c.log.WarnContext(ctx, "refused as a voice message; sent as a file",
			"to", part.To.String(), "err", err)
		body["flags"] = discordgo.MessageFlagsSuppressEmbeds
		delete(body, "attachments")
		answer, err = c.post(ctx, part, body)
	}
	var sent struct {
		ID string `json:"id"`
	}
	if err == nil && (json.Unmarshal(answer, &sent) != nil || sent.ID == "") {
		err = errors.New("garbled answer")
	}
	if err != nil {
		if part.Key == "" && !isDefinite(err) {
			err = fmt.Errorf("%w: %w", channels.ErrUncertain, err)
		}
		return "", fmt.Errorf("discord: send to %s: %w", part.To, err)
	}
	return sent.ID, nil
}

// post makes one attempt to send a part. Each attempt opens the part's file anew.
func (c *Channel) post(ctx context.Context, part bus.Part, body fields) ([]byte, error) {
	address := discordgo.EndpointChannelMessages(channelOf(part.To))
	if part.File != nil {
		return c.upload(ctx, address, part.File, body)
	}
	return c.call(ctx, http.MethodPost, address, body)
}

// isDefinite reports whether err proves that nothing was executed.
func isDefinite(err error) bool {
	_, limit := errors.AsType[*channels.RateError](err)
	_, account := errors.AsType[*channels.AccountError](err)
	return limit || account || errors.Is(err, channels.ErrRefused)
}

// nonce returns the nonce for a part's key. A key that is too long becomes 24 hexadecimal digits of
// its hash.
func nonce(key string) string {
	if utf8.RuneCountInString(key) <= maxNonce && channels.Clean(key, maxNonce) == key {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:maxNonce/2])
}

// channelOf returns the id of the channel of an address, escaped for a path.
func channelOf(to bus.Address) string {
	if to.Thread != "" {
		return url.PathEscape(to.Thread)
	}
	return url.PathEscape(to.Chat)
}

// messageID returns Discord's id of the message that the gateway calls id. The id of an edit begins
// with it; an interaction has none.
func messageID(id string) (string, bool) {
	id, _, _ = strings.Cut(id, ":")
	return id, idNumber(id) > 0
}

// rows arranges buttons in rows. It leaves out duplicates and other buttons because of which
// Discord would refuse the message. The text of the message says what else the person can do.
func rows(buttons []bus.Button) []fields {
	seen := make(map[string]bool)
	var row, all []fields
	for _, b := range buttons[:min(maxButtons, len(buttons))] {
		label := cmp.Or(channels.Clean(b.Label, maxLabel), channels.Clean(b.Text, maxLabel))
		n := utf8.RuneCountInString(b.Text)
		if seen[b.Text] || label == "" || n == 0 || n > maxData {
			continue
		}
		seen[b.Text] = true
		row = append(row, fields{"type": discordgo.ButtonComponent,
			"style": discordgo.SecondaryButton, "label": label, "custom_id": b.Text})
	}
	for part := range slices.Chunk(row, rowButtons) {
		all = append(all, fields{"type": discordgo.ActionsRowComponent, "components": part})
	}
	return all
}

// Edit implements [channels.Editor].
func (c *Channel) Edit(ctx context.Context, to bus.Address, id, text string) error {
	_, err := c.call(ctx, http.MethodPatch, c.message(to, id), fields{
		"content":          markup.Discord(text),
		"allowed_mentions": silent(false),
		"flags":            discordgo.MessageFlagsSuppressEmbeds,
	})
	if err != nil {
		return fmt.Errorf("discord: edit %s in %s: %w", id, to, err)
	}
	return nil
}

// message returns the address of a message in the API.
func (c *Channel) message(to bus.Address, id string) string {
	return discordgo.EndpointChannelMessages(channelOf(to)) + "/" + url.PathEscape(id)
}

// Remove implements [channels.Remover].
func (c *Channel) Remove(ctx context.Context, to bus.Address, id string) error {
	if _, err := c.call(ctx, http.MethodDelete, c.message(to, id), nil); err != nil {
		return fmt.Errorf("discord: remove %s in %s: %w", id, to, err)
	}
	return nil
}

// Type implements [channels.Typer]. Discord shows it for ten seconds.
func (c *Channel) Type(ctx context.Context, to bus.Address) error {
	address := discordgo.EndpointChannelTyping(channelOf(to))
	if _, err := c.call(ctx, http.MethodPost, address, nil); err != nil {
		return fmt.Errorf("discord: type to %s: %w", to, err)
	}
	return nil
}

// React implements [channels.Reactor]. Our earlier reactions are visible on the message itself,
// even if an earlier process set them. A command or a press is not a message and gets no reaction.
func (c *Channel) React(ctx context.Context, to bus.Address, id, emoji string) error {
	id, ok := messageID(id)
	if !ok {
		return nil
	}
	if err := c.react(ctx, to, id, emoji); err != nil {
		return fmt.Errorf("discord: react to %s in %s: %w", id, to, err)
	}
	return nil
}

func (c *Channel) react(ctx context.Context, to bus.Address, id, emoji string) error {
	var m message
	if err := c.get(ctx, c.message(to, id), &m); err != nil {
		return err
	}
	set := func(method, name string) error {
		address := c.message(to, id) + "/reactions/" + url.PathEscape(name) + "/@me"
		_, err := c.call(ctx, method, address, nil)
		return err
	}
	// Only one emoji may stay. It is not set again if it is there.
	there := false
	for _, r := range m.Reactions {
		name := r.Emoji.Name
		if r.Emoji.ID != "" {
			name += ":" + r.Emoji.ID
		}
		if !r.Mine || name == emoji {
			there = there || r.Mine
			continue
		}
		if err := set(http.MethodDelete, name); err != nil {
			return err
		}
	}
	if emoji == "" || there {
		return nil
	}
	return set(http.MethodPut, emoji)
}

// SetCommands implements [channels.Commander]. Every command has a text parameter, which it may
// ignore. New commands appear at once, in all servers and direct chats.
func (c *Channel) SetCommands(ctx context.Context, commands []channels.Command) error {
	var app struct {
		ID string `json:"id"`
	}
	address := discordgo.EndpointOAuth2Application("@me")
	if err := c.get(ctx, address, &app); err != nil {
		return fmt.Errorf("discord: get own application: %w", err)
	}
	menu := make([]fields, len(commands))
	for i, cmd := range commands {
		menu[i] = fields{
			"name": cmd.Name, "type": discordgo.ChatApplicationCommand,
			"description": channels.Clean(cmd.Description, maxMenu),
			"contexts":    []int{0, 1}, // guilds and direct chats with the bot: see isElsewhere
			"options": []fields{{"name": "input", "description": "what follows the command",
				"type": discordgo.ApplicationCommandOptionString, "required": false}},
		}
	}
	address = discordgo.EndpointApplicationGlobalCommands(app.ID)
	if _, err := c.call(ctx, http.MethodPut, address, menu); err != nil {
		return fmt.Errorf("discord: set commands: %w", err)
	}
	return nil
}

// Limits implements [channels.Limiter]. Discord publishes only its global rate. The rates per
// channel or thread are those that its answers have announced for years. [Channel.Wait] returns
// their current state.
func (c *Channel) Limits(bus.Address) channels.Limits {
	return channels.Limits{
		Text:         maxText,
		Measure:      markup.DiscordLen,
		Render:       markup.Discord,
		Caption:      maxText,
		File:         maxFile,
		Buttons:      maxButtons,
		EditInterval: 1200 * time.Millisecond,
		PerThread:    true,
		Chat:         channels.Rate{Every: time.Second, Burst: 5},
		Account:      channels.Rate{Every: time.Second / 50, Burst: 50},
	}
}
