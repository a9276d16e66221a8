//go:build unix

package e2e

import (
	"fmt"
	"slices"
)

// renew gives a chat another secret word.
func (c *chaos) renew(chat *chaosChat) {
	c.words++
	chat.secret = fmt.Sprintf("secret%dx", c.words)
}

// forget makes Bob erase all that the gateway knows about him on a platform. Discord does not tell
// the gateway what it missed in the chat of a stranger. On WhatsApp the gateway also erases Bob's
// keys: it asks again for the messages that it can't decrypt, and newer messages overtake them if
// that takes long. So on both platforms, forget waits until all messages are answered, and Bob
// writes again afterwards.
func (c *chaos) forget(chat *chaosChat) {
	c.t.Helper()
	const command = "/forget me now"
	if chat.at.Account == "telegram" {
		chat.say[0](command)
		c.erase(chat)
		return
	}
	if c.p == nil || c.dead.tired {
		return
	}
	c.rest()
	chat.say[0](command)
	c.erase(chat)
	c.erasing = true
	c.rest()
	c.erasing = false
	c.speak(chat, 0)
	c.rest()
}

// erase records that the gateway must forget all that was said in a chat.
func (c *chaos) erase(chat *chaosChat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range slices.Concat(c.said, c.reminders) {
		s.erased = s.erased || s.chat == chat
	}
	c.forgotten = append(c.forgotten, chat.secret)
	chat.others = 0
	c.renew(chat)
}

// checkForgotten checks that no file of the gateway contains what people have erased.
func (c *chaos) checkForgotten() {
	c.t.Helper()
	for _, word := range c.forgotten {
		if left := (&guestWorld{world: c.world}).traces(word); len(left) > 0 {
			c.t.Errorf("traces of %s are left in %q", word, left)
		}
	}
	if len(c.said) > 0 && len((&guestWorld{world: c.world}).traces(c.said[0].secret)) == 0 &&
		!c.said[0].erased {
		c.t.Error("there are no traces of what nobody has erased")
	}
}

// checkSecrets checks that a text in a chat has only the words that the model may know when it
// answers the messages that the text names. It reports whether the text is an answer from before a
// /forget.
func (c *chaos) checkSecrets(chat *chaosChat, text string) (erased bool) {
	c.t.Helper()
	words := chaosSecret.FindAllString(text, -1)
	if len(words) == 0 {
		return false
	}
	var all []string // words that the chat has or had
	for _, s := range c.said {
		if s.chat == chat || chat.linked && s.chat.linked {
			all = append(all, s.secret)
		}
	}
	for _, n := range append(marksIn(text, chaosAnswered), marksIn(text, chaosDecided)...) {
		for _, word := range words {
			if want := c.said[n].secret; word != want && !chat.linked {
				c.t.Errorf("%s shows %q; the word of message %d is %s", chat.at, text, n, want)
			}
		}
	}
	for _, word := range words {
		if !slices.Contains(all, word) {
			c.t.Errorf("%s shows a word of another chat: %q", chat.at, text)
		}
	}
	return !chat.linked && !slices.Contains(words, chat.secret)
}
