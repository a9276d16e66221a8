//go:build unix

package e2e

import (
	"fmt"

	"gateway/bus"
)

// A chaosChat is a chat of a [chaos].
type chaosChat struct {
	at     bus.Address
	secret string                          // a word that may be read only here
	exact  bool                            // nothing is ever seen twice
	say    []func(text string) (id string) // one function for each person who writes here
	read   func() []string                 // what people see from the gateway
}

// A chaosSaying is a message of a person.
type chaosSaying struct {
	chat   *chaosChat
	author int
}

// connect connects people to the gateway.
func (c *chaos) connect() {
	c.t.Helper()
	tg := openTelegram(c.telegram, c.url)
	c.configure(quiet + fmt.Sprintf("\ngroups = [%d]\nowners = [%d]", groupID, annID))
	ann := func(chat int64) func(string) string {
		return func(text string) string { return fmt.Sprint(tg.Say(chat, annID, text)) }
	}
	bob := func(chat int64) func(string) string {
		return func(text string) string { return fmt.Sprint(tg.Say(chat, bobID, text)) }
	}
	mention := func(say func(string) string) func(string) string {
		return func(text string) string { return say("@gateway_bot " + text) }
	}
	at := func(id int64) bus.Address {
		return bus.Address{Account: "telegram", Chat: fmt.Sprint(id)}
	}
	c.chats = append(c.chats,
		&chaosChat{at: at(annID), read: tg.direct, say: []func(string) string{ann(annID)}},
		&chaosChat{at: at(bobID), read: tg.stranger, say: []func(string) string{bob(bobID)}},
		&chaosChat{at: at(groupID), read: tg.group,
			say: []func(string) string{mention(ann(groupID)), mention(bob(groupID))}})
	for i, chat := range c.chats {
		chat.secret = fmt.Sprintf("secret%dx", i)
	}
	disturb := killTelegram{c.world}
	disturb.disturb(c.hide)
}

// hide records that a platform hides the outcome of a send.
func (c *chaos) hide(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost[text]++
}

// act makes people do n things.
func (c *chaos) act(n int) {
	for range n {
		chat := c.chats[c.n(len(c.chats))]
		c.speak(chat, c.n(len(chat.say)))
	}
}

// speak makes a person of a chat write a message.
func (c *chaos) speak(chat *chaosChat, author int) {
	c.mu.Lock()
	mark := len(c.said)
	c.said = append(c.said, &chaosSaying{chat, author})
	c.mu.Unlock()
	chat.say[author](fmt.Sprintf("please look at q%dz, %s", mark, chat.secret))
}
