package telegram

import (
	"encoding/json"
	"regexp"
)

// Rich messages came with Bot API 10.1. sendRichMessage takes chat_id, message_thread_id,
// reply_parameters, reply_markup and rich_message, an InputRichMessage with exactly one of
// "markdown", "html" and "blocks" of up to 32,768 characters. editMessageText takes the same
// rich_message in place of a text. Link previews can't be switched off because there are none. This
// is what the documentation and other programs say. The package was tested only against its own
// fake, so after any refusal it sends plain HTML.

// withoutRich is a change of applyRefusal. deliver recognises it and remembers that the server has
// no rich messages.
const withoutRich = "as HTML instead of a rich message"

// setRich makes o a rich message. It returns false for Markdown that contains images or HTML:
// Telegram would fetch their addresses, and a prompt injection could make a model put secrets into
// such an address. HTML shows only their text.
func (o *outgoing) setRich() bool {
	if o.text == "" || embedding.MatchString(o.text) {
		return false
	}
	message, err := json.Marshal(map[string]string{"markdown": o.text})
	if err != nil {
		return false // strings can always be encoded
	}
	o.params["rich_message"] = string(message)
	if o.method == "sendMessage" {
		o.method = "sendRichMessage"
	}
	return true
}

// embedding matches more than it must, such as HTML in code. That only costs the rich form.
var embedding = regexp.MustCompile(`!\[|<[A-Za-z!?/]`)

// refusedRich reports whether err may be caused by the rich message and not by the chat. A refusal
// with "not found" or "not modified" is about the chat or the message.
func refusedRich(err error) bool {
	return isUnknownMethod(err) ||
		isBadRequest(err) && !hasText(err, "not found") && !hasText(err, "not modified")
}
