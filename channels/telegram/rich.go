package telegram

import (
	"encoding/json"
	"regexp"
)

// Rich messages came with Bot API 10.1: sendRichMessage takes chat_id, message_thread_id,
// reply_parameters, reply_markup and rich_message, an InputRichMessage with exactly one of
// "markdown", "html" and "blocks", of up to 32,768 characters; editMessageText takes the same
// rich_message in place of a text. There are no link previews to be switched off. That is what
// the documentation and other programs say; this package was tried against its own fake alone,
// so any refusal ends in plain HTML.

const withoutRich = "as HTML instead of a rich message"

// setRich makes o a rich message. It reports false for Markdown with images or HTML in it:
// Telegram would fetch what they name, and a prompt that came from a stranger could make a model
// put what it knows into such an address. HTML shows their text.
func (o *outgoing) setRich() bool {
	if o.text == "" || embedding.MatchString(o.text) {
		return false
	}
	message, err := json.Marshal(map[string]string{"markdown": o.text})
	if err != nil {
		return false // strings always marshal
	}
	o.params["rich_message"] = string(message)
	if o.method == "sendMessage" {
		o.method = "sendRichMessage"
	}
	return true
}

// embedding finds more than it should, such as HTML in code: that is only shown less richly.
var embedding = regexp.MustCompile(`!\[|<[A-Za-z!?/]`)

// refusedRich reports whether err may be about the rich message rather than about the chat.
func refusedRich(err error) bool {
	return isUnknownMethod(err) ||
		isBadRequest(err) && !said(err, "not found") && !said(err, "not modified")
}
