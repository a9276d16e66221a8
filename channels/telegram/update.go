package telegram

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf16"

	"gateway/channels"
)

// The types below are the parts of the Bot API's objects that the gateway reads.
type (
	// An update has one of the objects below, or another object that the gateway does not ask for.
	update struct {
		ID       int64     `json:"update_id"`
		Message  *message  `json:"message"`
		Edited   *message  `json:"edited_message"`
		Callback *callback `json:"callback_query"`
		Member   *member   `json:"my_chat_member"`
		Stopped  *stopped  `json:"stopped_message_generation"`
	}

	message struct {
		ID           int64           `json:"message_id"`
		Thread       int64           `json:"message_thread_id"` // topic, or chain of replies
		InTopic      bool            `json:"is_topic_message"`
		From         *user           `json:"from"`
		SenderChat   *chat           `json:"sender_chat"` // chat in whose name a person writes
		Chat         chat            `json:"chat"`
		Date         int64           `json:"date"`             // Unix time in seconds
		EditDate     int64           `json:"edit_date"`        // likewise; 0: never edited
		ReplyTo      *message        `json:"reply_to_message"` // its own ReplyTo is always nil
		External     *external       `json:"external_reply"`   // in another chat
		Quote        *quote          `json:"quote"`            // the part that is selected
		Origin       *origin         `json:"forward_origin"`
		Album        string          `json:"media_group_id"` // the same for all its items
		TopicCreated json.RawMessage `json:"forum_topic_created"`
		MigrateTo    int64           `json:"migrate_to_chat_id"`   // in the old group: its new id
		MigrateFrom  int64           `json:"migrate_from_chat_id"` // in the new group: its old id
		wording
		media
	}

	// wording is what a person has written: the text of a message, the caption of its file, or a rich
	// message.
	wording struct {
		Text            string   `json:"text"`
		TextEntities    []entity `json:"entities"`
		Caption         string   `json:"caption"`
		CaptionEntities []entity `json:"caption_entities"`

		Rich *richMessage `json:"rich_message"`
	}

	user struct {
		ID       int64  `json:"id"`
		Bot      bool   `json:"is_bot"`
		First    string `json:"first_name"`
		Last     string `json:"last_name"`
		Username string `json:"username"`
	}

	chat struct {
		ID    int64  `json:"id"`
		Type  string `json:"type"` // "private", "group", "supergroup" or "channel"
		Title string `json:"title"`

		// Names of the person in a private chat.
		First    string `json:"first_name"`
		Last     string `json:"last_name"`
		Username string `json:"username"`

		// The chat is a supergroup in which people write to a channel, each in a topic that only they
		// and the administrators see.
		Direct bool `json:"is_direct_messages"`
	}

	// An entity marks a part of a text, such as a mention, a command or a link.
	entity struct {
		Type   string `json:"type"`
		Offset int    `json:"offset"` // UTF-16 units
		Length int    `json:"length"`
		User   *user  `json:"user"` // of a mention of a person without a user name
		URL    string `json:"url"`  // of a link whose text is a label
	}

	quote struct {
		Text     string   `json:"text"`
		Entities []entity `json:"entities"`
	}

	// An external describes the message of another chat to which a message replies.
	external struct {
		ID     int64   `json:"message_id"`
		Origin *origin `json:"origin"`
		media
	}

	// A callback is the press of a button below a message.
	callback struct {
		ID      string   `json:"id"`
		From    user     `json:"from"`
		Message *message `json:"message"` // an old one has only chat and id
		Data    string   `json:"data"`
	}

	// A stopped reports that the person of a private chat has stopped a draft.
	stopped struct {
		Chat   chat  `json:"chat"`
		Thread int64 `json:"message_thread_id"`
		Draft  int64 `json:"draft_id"`
	}

	// A member reports a change of the bot's own membership in a chat. From has made the change.
	member struct {
		Chat chat       `json:"chat"`
		From *user      `json:"from"`
		Date int64      `json:"date"`
		Old  membership `json:"old_chat_member"`
		New  membership `json:"new_chat_member"`
	}

	membership struct {
		Status string `json:"status"`
	}

	// An origin is the author of a forwarded message. Telegram sets one of its fields.
	origin struct {
		User       *user  `json:"sender_user"`
		UserName   string `json:"sender_user_name"` // of a person who hides their account
		SenderChat *chat  `json:"sender_chat"`
		Chat       *chat  `json:"chat"`
	}
)

// beginsCommand reports whether e is a command at the beginning of a text. For Telegram a path such
// as /etc/hosts is not a command.
func (e entity) beginsCommand() bool { return e.Type == "bot_command" && e.Offset == 0 }

// written returns the text, caption or rich message, and the entities that mark parts of it. A
// service message has none of them.
func (w *wording) written() (string, []entity) {
	switch {
	case w.Text != "":
		return w.Text, w.TextEntities
	case w.Caption == "" && w.Rich != nil:
		return w.Rich.written()
	}
	return w.Caption, w.CaptionEntities
}

// text returns what a person has written, with the addresses of links.
func (w *wording) text() string { return withAddresses(w.written()) }

// text returns the quoted part, with the addresses of links.
func (q *quote) text() string { return withAddresses(q.Text, q.Entities) }

// withAddresses returns s with the address of each link behind its label.
func withAddresses(s string, entities []entity) string {
	// Work backwards, so that adding text changes no offset that is still needed.
	for _, e := range slices.Backward(entities) {
		s = e.withAddress(s)
	}
	return s
}

// maxAddress is the maximum length of the address of a link, in runes.
const maxAddress = 2048

// withAddress returns s with the address of e behind its label if e is a link, and otherwise s.
func (e *entity) withAddress(s string) string {
	start, end, ok := span(s, e.Offset, e.Length)
	if e.Type != "text_link" || !ok {
		return s
	}
	label := strings.TrimSpace(s[start:end])
	address := channels.Clean(e.URL, maxAddress)
	if address == "" || address == label {
		return s
	}
	end = start + len(strings.TrimRight(s[start:end], " \n"))
	return s[:end] + " (" + address + ")" + s[end:]
}

// span returns the byte range in s of the given offset and length in UTF-16 units. Telegram counts
// in UTF-16 units: a character outside the basic plane, such as most emoji, has two. span returns
// false if the range does not begin and end between two characters of s.
func span(s string, offset, length int) (start, end int, ok bool) {
	if offset < 0 || length <= 0 {
		return 0, 0, false
	}
	start = -1
	units := 0
	for i, r := range s {
		if units == offset {
			start = i
		}
		if units == offset+length {
			return start, i, start >= 0
		}
		units += max(1, utf16.RuneLen(r))
	}
	if units == offset+length {
		return start, len(s), start >= 0
	}
	return 0, 0, false
}
