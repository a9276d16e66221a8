//go:build unix

package e2e

import (
	"fmt"
	"strings"

	"go.mau.fi/whatsmeow/types"

	"gateway/bus"
	"gateway/channels/whatsapp/whatsapptest"
)

// A chaosChat is a chat of a [chaos].
type chaosChat struct {
	at     bus.Address
	secret string                          // a word that may be read only here
	others int                             // number of messages without a mark since a /forget
	exact  bool                            // nothing is ever seen twice
	slash  string                          // after a command; "-": nobody uses commands
	read   func() []string                 // what people see from the gateway
	say    []func(text string) (id string) // one function for each person who writes here

	hook       string       // whose posts are answered here; or ""
	linked     bool         // its memory may contain words of the other linked chats
	ann        chatPlatform // its methods are about this chat; nil if it is not Ann's direct chat
	interrupts bool         // a message may interrupt an answer
	album      bool         // several photos are several messages

	use  func(author int, text string) // a command that can get lost
	grow func()                        // makes a group a supergroup
	was  bus.Address                   // its address before that
}

// A chaosSaying is a message of a person.
type chaosSaying struct {
	chat   *chaosChat
	author int
	secret string // the word of the chat at that time
	id     string // on the platform, if the message can be edited
	edited bool   // then the answer may name only the newest wording
	hook   bool   // a program has posted it
	edits  bool   // it is an edit of another message, which Discord can lose
	erased bool   // a /forget came later
	job    int64  // number of the job that it belongs to, if it comes repeatedly
}

// connect connects the gateway to the platforms, and lets people into their chats: Ann and Bob on
// each platform, in direct chats and in a group.
func (c *chaos) connect() {
	c.t.Helper()
	c.telegramChats()
	discord := c.discordChats()
	whatsapp := c.whatsAppChats()
	c.config, _, _ = strings.Cut(c.config, "[channels.")
	group := fmt.Sprintf("groups = [%d", groupID)
	telegram := strings.Replace(openTelegram(c.telegram, c.url).config(), group,
		fmt.Sprintf("%s, %d", group, chaosShed), 1)
	for name, config := range map[string]string{"discord": discord, "whatsapp": whatsapp,
		"telegram": telegram} {
		c.config += "[channels." + name + "]\n" + quiet + "\nedit_interval = \"20ms\"\n" + config
	}
	c.hooks()
	c.configure("[tools.exec]\nowner = \"ask\"")
	for _, chat := range c.chats {
		c.renew(chat)
	}
}

// add adds a chat.
func (c *chaos) add(chat *chaosChat, account, id string, say ...func(text string) string) {
	chat.at = bus.Address{Account: account, Chat: id}
	chat.say = say
	c.chats = append(c.chats, chat)
}

func (c *chaos) telegramChats() {
	o := openTelegram(c.telegram, c.url)
	say := func(chat, user int64, mention string) func(string) string {
		return func(text string) string {
			if !strings.HasPrefix(text, "/") { // a command names the bot itself
				text = mention + text
			}
			return fmt.Sprint(o.Say(chat, user, text))
		}
	}
	const bot = "@gateway_bot "
	c.add(&chaosChat{read: o.direct, ann: o, album: true}, "telegram",
		fmt.Sprint(annID), say(annID, annID, ""))
	c.add(&chaosChat{read: o.stranger}, "telegram", fmt.Sprint(bobID), say(bobID, bobID, ""))
	c.add(&chaosChat{read: o.group, slash: "@gateway_bot"}, "telegram", fmt.Sprint(groupID),
		say(groupID, annID, bot), say(groupID, bobID, bot))
	c.growingGroup(o, func(chat, user int64) func(string) string { return say(chat, user, bot) })
	killTelegram{c.world}.disturb(c.hide)
}

func (c *chaos) discordChats() (config string) {
	o := openDiscord(c.t)
	say := func(channel, user, mention string) func(string) string {
		return func(text string) string { return o.Say(channel, user, mention+text) }
	}
	const bot = "<@99> "
	c.add(&chaosChat{read: o.direct, exact: true, ann: o}, "discord", "20", say("20", "7", ""))
	c.add(&chaosChat{read: o.stranger, exact: true}, "discord", "21", say("21", "8", ""))
	c.add(&chaosChat{read: o.group, exact: true, slash: "-"}, "discord", "30",
		say("30", "7", bot), say("30", "8", bot))
	flowers := c.chats[len(c.chats)-1]
	flowers.use = c.slashCommand(o, flowers)
	v := killDiscord{o.Server, c.t}
	v.disturb(c.hide)
	c.shake = append(c.shake, v.shake)
	c.ready = append(c.ready, o.ready)
	return o.config()
}

func (c *chaos) whatsAppChats() (config string) {
	o := openWhatsApp(c.t, c.home)
	must := func(id string, err error) string {
		o.must(err)
		return id
	}
	direct := func(p *whatsapptest.Person) func(string) string {
		return func(text string) string { return must(p.Say(c.t.Context(), text)) }
	}
	group := func(p *whatsapptest.Person) func(string) string {
		return func(text string) string {
			return must(p.Mention(c.t.Context(), o.garden, "@"+o.BotLID()+" "+text,
				types.NewJID(o.BotLID(), types.HiddenUserServer)))
		}
	}
	c.add(&chaosChat{read: o.direct, exact: true, ann: o, album: true}, "whatsapp",
		o.ann.Chat(), direct(o.ann))
	c.add(&chaosChat{read: o.stranger, exact: true}, "whatsapp", o.bob.Chat(), direct(o.bob))
	c.add(&chaosChat{read: o.group, exact: true}, "whatsapp", o.garden, group(o.ann), group(o.bob))
	v := &killWhatsApp{Server: o.Server, t: c.t, persons: []*whatsapptest.Person{o.ann, o.bob}}
	c.shake = append(c.shake, v.shake)
	c.calm = append(c.calm, v.calm)
	c.arrive = v.rest
	c.ready = append(c.ready, o.ready)
	return o.config()
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
		author := c.n(len(chat.say))
		switch k := c.n(26); {
		case k >= 20:
			c.more(chat, author, k)
		case k < 2 && chat.slash != "-":
			c.remind(chat, author)
		case k == 3 && chat.album && c.n(2) == 0:
			c.special(chat, k)
		case k < 4 && chat.slash != "-":
			c.command(chat, author, chaosCommands[c.n(len(chaosCommands))])
		case k < 9 && chat.ann != nil:
			c.special(chat, k)
		case k < 11:
			c.decideOne()
		case k < 13 && chat.hook != "":
			c.post(chat)
		case k < 15 && chat.ann != nil:
			c.relate(chat)
		case k < 13 && chat.ann == nil && len(chat.say) == 1:
			c.forget(chat)
		default:
			c.speak(chat, author)
		}
	}
}

// more makes a person do one of the things that people do rarely.
func (c *chaos) more(chat *chaosChat, author, what int) {
	switch {
	case what == 20 && chat.use != nil:
		chat.use(author, chaosCommands[c.n(len(chaosCommands))])
	case what == 20 && chat.ann != nil && c.n(2) == 0:
		c.command(chat, author, "/restart")
	case what < 23 && chat.ann != nil && chat.at.Account != "whatsapp":
		chat.ann.press([]string{"Approve", "Deny", "x", "y"}[c.n(4)])
	case what < 24 && chat.slash != "-":
		c.job(chat)
	case what < 26 && chat.grow != nil:
		chat.grow()
	default:
		c.speak(chat, author)
	}
}

// chaosCommands are commands that people use.
var chaosCommands = []string{"/stop", "/stop", "/new", "/usage", "/status", "/memory", "/compact",
	"/queue steer", "/queue followup", "/queue collect", "/queue interrupt"}

// next returns the text of a new message.
func (c *chaos) next(s *chaosSaying) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.secret = s.chat.secret
	c.said = append(c.said, s)
	return fmt.Sprintf("please look at q%dz, %s", len(c.said)-1, s.chat.secret)
}

// speak makes a person of a chat write a message.
func (c *chaos) speak(chat *chaosChat, author int) {
	s := &chaosSaying{chat: chat, author: author}
	s.id = chat.say[author](c.next(s))
}

// command makes a person use a command.
func (c *chaos) command(chat *chaosChat, author int, text string) {
	name, rest, _ := strings.Cut(text, " ")
	chat.interrupts = chat.interrupts || rest == "interrupt"
	chat.say[author](strings.TrimSpace(name + chat.slash + " " + rest))
	c.mu.Lock()
	defer c.mu.Unlock()
	chat.others++
}

// remind makes a person ask for a reminder, which has a mark.
func (c *chaos) remind(chat *chaosChat, author int) {
	c.mu.Lock()
	c.reminders = append(c.reminders, &chaosSaying{chat: chat})
	text := fmt.Sprintf("/remind in 1s about r%dz", len(c.reminders)-1)
	c.mu.Unlock()
	c.command(chat, author, text)
}

// special makes Ann do one of the things that she can do with messages in her direct chat.
func (c *chaos) special(chat *chaosChat, what int) {
	var mine []*chaosSaying
	for _, s := range c.said {
		if s.chat == chat && s.id != "" {
			mine = append(mine, s)
		}
	}
	old := mine[len(mine)-1-c.n(min(3, len(mine)))]
	switch what {
	case 3:
		c.file(chat)
	case 4:
		chat.ann.photos(c.next(&chaosSaying{chat: chat}), pixels(20))
	case 5:
		chat.ann.photos(c.next(&chaosSaying{chat: chat}), pixels(20), pixels(30))
		if chat.album {
			chat.others++
		}
	case 6:
		chat.ann.reply(old.id, c.next(&chaosSaying{chat: chat}))
	default:
		old.edited = true
		chat.ann.edit(old.id, c.next(&chaosSaying{chat: chat, edits: true, edited: true}))
	}
}

// file makes Ann send a document or a voice message, which has no mark.
func (c *chaos) file(chat *chaosChat) {
	if c.n(2) == 0 {
		chat.ann.file("notes.txt", "text/plain", []byte(chat.secret))
	} else {
		chat.ann.voice([]byte("OggS" + chat.secret))
	}
	chat.others++
}
