package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.mau.fi/whatsmeow/types"

	"gateway/channels/discord/discordtest"
	"gateway/channels/telegram/telegramtest"
	"gateway/channels/whatsapp/whatsapptest"
)

// A chatPlatform is a platform on which people talk to the gateway: Ann in a direct chat, and Ann
// and Bob in a group. Its methods return messages in the form in which the platform received
// them.
type chatPlatform interface {
	config() string // configuration of the account, which has the platform's name
	ready() bool    // whether the gateway is connected

	say(text string) (id string)
	reply(id, text string)
	edit(id, text string)
	photos(caption string, photos ...[]byte)
	file(name, mimeType string, data []byte)
	voice(data []byte)
	sayStranger(text string) (id string) // Bob writes in his direct chat
	stranger() []string                  // what Bob reads there
	refuse(on bool)                      // whether the platform refuses the bot's messages to Bob
	press(label string)                  // Ann presses a button of the bot

	sayGroup(text string, mention bool)               // Bob writes
	sayThread(thread int, text string)                // Ann writes in thread 1 or 2
	voiceGroup(data []byte)                           // Bob speaks, without a mention
	replyGroup(text string)                           // Bob replies to the bot's newest message
	direct() []string                                 // what Ann reads
	group() []string                                  // what Bob reads
	thread(thread int) []string                       // what both read
	marks(stranger bool, id string) string            // of a message: emoji, read, typing
	outage(on bool)                                   // whether the platform is down
	wait(ctx context.Context, cond func() bool) error // until cond is true
}

const (
	annID, bobID = 7, 8
	groupID      = -1001234567890
)

// onTelegram is the [chatPlatform] for Telegram.
type onTelegram struct {
	*telegramtest.Server
	url     string
	restore func() // ends the outage
}

func openTelegram(s *telegramtest.Server, url string) *onTelegram {
	s.AddUser(telegramtest.User{ID: annID, First: "Ann"})
	s.AddUser(telegramtest.User{ID: bobID, First: "Bob"})
	s.AddGroup(groupID, "Garden", 1, 2)
	return &onTelegram{Server: s, url: url}
}

func (o *onTelegram) ready() bool { return o.Polling() }

func (o *onTelegram) config() string {
	return fmt.Sprintf("token = %q\napi_url = %q\ngroups = [%d]\nowners = [%d]\n",
		testToken, o.url, groupID, annID)
}

func (o *onTelegram) say(text string) string { return strconv.Itoa(o.Say(annID, annID, text)) }

func (o *onTelegram) reply(id, text string) {
	n, _ := strconv.Atoi(id) // id is a result of say
	o.Deliver(telegramtest.Message{User: annID, Text: text, ReplyTo: n})
}

func (o *onTelegram) edit(id, text string) {
	n, _ := strconv.Atoi(id) // id is a result of say
	o.EditSay(annID, n, text)
}

func (o *onTelegram) photos(caption string, photos ...[]byte) {
	o.SayAlbum(annID, annID, caption, photos...)
}

func (o *onTelegram) file(name, mimeType string, data []byte) {
	o.SayDocument(annID, annID, "", name, mimeType, data)
}

func (o *onTelegram) voice(data []byte) { o.SayVoice(annID, annID, data, 3) }

func (o *onTelegram) sayStranger(text string) string {
	return strconv.Itoa(o.Say(bobID, bobID, text))
}

func (o *onTelegram) marks(stranger bool, id string) string {
	n, _ := strconv.Atoi(id) // id is a result of say
	chat := int64(annID)
	if stranger {
		chat = bobID
	}
	return o.Reaction(chat, n) + strings.Repeat(" typing", min(o.Typing(chat, 0), 1))
}

func (o *onTelegram) stranger() []string { return o.read(bobID, 0) }

func (o *onTelegram) refuse(on bool) {
	if on {
		o.Refuse(bobID, "bot was blocked by the user")
	} else {
		o.Refuse(bobID, "")
	}
}

func (o *onTelegram) press(label string) {
	for _, m := range slices.Backward(o.History(annID)) {
		for _, b := range slices.Concat(o.Buttons(annID, m.ID)...) {
			if b.Label == label {
				o.Press(annID, annID, m.ID, label)
				return
			}
		}
	}
}

func (o *onTelegram) sayGroup(text string, mention bool) {
	if mention {
		text = "@gateway_bot " + text
	}
	o.Say(groupID, bobID, text)
}

func (o *onTelegram) voiceGroup(data []byte) { o.SayVoice(groupID, bobID, data, 3) }

func (o *onTelegram) sayThread(thread int, text string) {
	o.Deliver(telegramtest.Message{Chat: groupID, User: annID, Thread: thread,
		Text: "@gateway_bot " + text})
}

func (o *onTelegram) replyGroup(text string) {
	list := o.History(groupID)
	o.Deliver(telegramtest.Message{Chat: groupID, User: bobID, Text: text,
		ReplyTo: list[len(list)-1].ID})
}

func (o *onTelegram) read(chat int64, thread int) (list []string) {
	for _, m := range o.History(chat) {
		if m.Deleted || m.Thread != thread {
			continue
		}
		line := m.Source
		if m.ReplyTo != 0 {
			line = "(reply) " + line
		}
		if m.File != nil {
			line += fmt.Sprintf(" {%s %s %d bytes}", m.File.Kind, m.File.Name, len(m.File.Data))
			if m.File.Kind == "voice" {
				line += fmt.Sprintf(" %d s", m.File.Seconds)
			}
		}
		for _, row := range o.Buttons(chat, m.ID) {
			for _, b := range row {
				line += " [" + b.Label + "]"
			}
		}
		list = append(list, line)
	}
	return list
}

func (o *onTelegram) direct() []string           { return o.read(annID, 0) }
func (o *onTelegram) group() []string            { return o.read(groupID, 0) }
func (o *onTelegram) thread(thread int) []string { return o.read(groupID, thread) }

func (o *onTelegram) wait(ctx context.Context, cond func() bool) error { return o.Wait(ctx, cond) }

func (o *onTelegram) outage(on bool) {
	if on {
		o.restore = o.Inject(telegramtest.Fault{Effect: telegramtest.Drop})
	} else {
		o.restore()
	}
}

// onDiscord is the [chatPlatform] for Discord. Channel 30 has the threads 31 and 32.
type onDiscord struct {
	*discordtest.Server
	url string
}

const discordToken = "TEST.DISCORD.TOKEN"

func openDiscord(t testing.TB) *onDiscord {
	s := discordtest.New(discordToken, &discordtest.Options{
		Bot:        discordtest.User{ID: "99", Username: "gateway", Name: "Gateway", Bot: true},
		AnswerTime: time.Hour, // the machine may be slow
	})
	url, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.AddUser(discordtest.User{ID: "7", Username: "ann", Name: "Ann"})
	s.AddUser(discordtest.User{ID: "8", Username: "bob", Name: "Bob"})
	s.AddDM("7", "20")
	s.AddDM("8", "21")
	s.AddGuild("10", "Garden")
	s.AddChannel("10", "30", "flowers")
	s.AddThread("30", "31", "roses")
	s.AddThread("30", "32", "tulips")
	return &onDiscord{s, url}
}

func (o *onDiscord) ready() bool { return o.Connected() > 0 }

func (o *onDiscord) config() string {
	return fmt.Sprintf("token = %q\napi_url = %q\ngroups = [30]\nowners = [7]\n", discordToken, o.url)
}

func (o *onDiscord) say(text string) string { return o.Say("20", "7", text) }
func (o *onDiscord) reply(id, text string)  { o.Reply("20", "7", text, id) }
func (o *onDiscord) edit(id, text string)   { o.EditSay("20", id, text) }

func (o *onDiscord) photos(caption string, photos ...[]byte) {
	var files []discordtest.File
	for i, p := range photos {
		files = append(files, discordtest.File{Name: fmt.Sprintf("photo%d.png", i),
			Type: "image/png", Content: p})
	}
	o.SayFile("20", "7", caption, files...)
}

func (o *onDiscord) file(name, mimeType string, data []byte) {
	o.SayFile("20", "7", "", discordtest.File{Name: name, Type: mimeType, Content: data})
}

func (o *onDiscord) voice(data []byte)      { o.speak("20", "7", data) }
func (o *onDiscord) voiceGroup(data []byte) { o.speak("30", "8", data) }

func (o *onDiscord) speak(channel, user string, data []byte) {
	o.Deliver(discordtest.Message{Channel: channel, User: user,
		Extra: map[string]any{"flags": 1 << 13}, Files: []discordtest.File{
			{Name: "voice-message.ogg", Type: "audio/ogg", Content: data}}})
}

func (o *onDiscord) sayStranger(text string) string { return o.Say("21", "8", text) }

func (o *onDiscord) marks(stranger bool, id string) string {
	chat := "20"
	if stranger {
		chat = "21"
	}
	return strings.Join(o.Reactions(chat, id), "") + strings.Repeat(" typing", min(o.Typing(chat), 1))
}

func (o *onDiscord) stranger() []string { return o.read("21") }

func (o *onDiscord) refuse(on bool) {
	if on {
		o.Refuse("21", 50007, "Cannot send messages to this user")
	} else {
		o.Refuse("21", 0, "")
	}
}

func (o *onDiscord) press(label string) {
	for _, m := range slices.Backward(o.History("20")) {
		for _, b := range m.Buttons {
			if b.Label == label {
				o.Press("20", m.ID, b.ID, "7")
				return
			}
		}
	}
}

func (o *onDiscord) sayGroup(text string, mention bool) {
	if name, ok := strings.CutPrefix(text, "/"); ok {
		o.Slash("30", "8", name)
		return
	}
	if mention {
		text = "<@99> " + text
	}
	o.Say("30", "8", text)
}

func (o *onDiscord) sayThread(thread int, text string) {
	o.Say(strconv.Itoa(30+thread), "7", "<@99> "+text)
}

func (o *onDiscord) replyGroup(text string) {
	list := o.History("30")
	o.Reply("30", "8", text, list[len(list)-1].ID)
}

func (o *onDiscord) read(channel string) (list []string) {
	for _, m := range o.History(channel) {
		if m.Deleted {
			continue
		}
		line := m.Text
		if m.ReplyTo != "" {
			line = "(reply) " + line
		}
		for _, f := range m.Files {
			line += fmt.Sprintf(" {%s %d bytes}", f.Name, len(f.Content))
			if m.Flags&(1<<13) != 0 {
				line += fmt.Sprintf(" voice message, %v s, waveform %.8s", f.Seconds, f.Waveform)
			}
		}
		for _, b := range m.Buttons {
			line += " [" + b.Label + "]"
		}
		if len(m.Pings) > 0 {
			line += fmt.Sprint(" pings ", m.Pings)
		}
		list = append(list, line)
	}
	return list
}

func (o *onDiscord) direct() []string           { return o.read("20") }
func (o *onDiscord) group() []string            { return o.read("30") }
func (o *onDiscord) thread(thread int) []string { return o.read(strconv.Itoa(30 + thread)) }
func (o *onDiscord) outage(on bool)             { o.SetOutage(on) }

func (o *onDiscord) wait(ctx context.Context, cond func() bool) error { return o.Wait(ctx, cond) }

// onWhatsApp is the [chatPlatform] for WhatsApp.
type onWhatsApp struct {
	*whatsapptest.Server
	t        testing.TB
	url      string
	ann, bob *whatsapptest.Person
	garden   string
}

// openWhatsApp opens a fake WhatsApp. The account in the given home is linked to it.
func openWhatsApp(t testing.TB, home string) *onWhatsApp {
	o := &onWhatsApp{Server: whatsapptest.New(nil), t: t}
	var err error
	if o.url, err = o.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	o.ann = o.person("Ann")
	o.bob = o.person("Bob")
	o.garden = o.AddGroup("Garden", false, o.ann, o.bob)
	if err := o.PairFile(t.Context(), filepath.Join(home, "whatsapp-whatsapp.db")); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *onWhatsApp) person(name string) *whatsapptest.Person {
	p, err := o.NewPerson(o.t.Context(), name, whatsapptest.Known)
	o.must(err)
	return p
}

func (o *onWhatsApp) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *onWhatsApp) ready() bool { return o.Connected() }

func (o *onWhatsApp) config() string {
	return fmt.Sprintf("api_url = %q\ngroups = [%q]\nowners = [%q]\n",
		o.url, o.garden, "+"+o.ann.Phone())
}

func (o *onWhatsApp) say(text string) string {
	id, err := o.ann.Say(o.t.Context(), text)
	o.must(err)
	return id
}

func (o *onWhatsApp) reply(id, text string) {
	_, err := o.ann.Reply(o.t.Context(), "", id, text)
	o.must(err)
}

func (o *onWhatsApp) edit(id, text string) { o.must(o.ann.Edit(o.t.Context(), "", id, text)) }

func (o *onWhatsApp) photos(caption string, photos ...[]byte) {
	for i, p := range photos {
		m := whatsapptest.Media{Kind: "image", Type: "image/png", Data: p}
		if i == 0 {
			m.Caption = caption
		}
		o.media(m)
	}
}

func (o *onWhatsApp) media(m whatsapptest.Media) {
	_, err := o.ann.SendMedia(o.t.Context(), "", m)
	o.must(err)
}

func (o *onWhatsApp) file(name, mimeType string, data []byte) {
	o.media(whatsapptest.Media{Kind: "document", Name: name, Type: mimeType, Data: data})
}

func (o *onWhatsApp) voice(data []byte) { o.media(voiceMessage(data)) }

func (o *onWhatsApp) voiceGroup(data []byte) {
	_, err := o.bob.SendMedia(o.t.Context(), o.garden, voiceMessage(data))
	o.must(err)
}

func voiceMessage(data []byte) whatsapptest.Media {
	return whatsapptest.Media{Kind: "voice", Type: "audio/ogg; codecs=opus", Seconds: 3, Data: data}
}

func (o *onWhatsApp) sayStranger(text string) string {
	id, err := o.bob.Say(o.t.Context(), text)
	o.must(err)
	return id
}

func (o *onWhatsApp) marks(stranger bool, id string) string {
	p := o.ann
	if stranger {
		p = o.bob
	}
	marks := p.Reaction(id)
	if p.Read(id) {
		marks += " read"
	}
	return marks + strings.Repeat(" typing", min(p.Typing(), 1))
}

func (o *onWhatsApp) stranger() []string { return o.read(o.bob, "") }

// refuse makes WhatsApp refuse the next message of the bot, no matter to whom.
func (o *onWhatsApp) refuse(on bool) {
	if on {
		o.RefuseSends(463)
	}
}

// press sends the number or text that stands for a button, because the platform has no buttons.
func (o *onWhatsApp) press(label string) {
	for _, text := range slices.Backward(o.ann.Texts()) {
		for line := range strings.SplitSeq(text, "\n") {
			if _, send, ok := strings.Cut(line, label+": send "); ok {
				o.say(strings.Trim(send, "`"))
				return
			}
		}
	}
}

func (o *onWhatsApp) sayGroup(text string, mention bool) {
	var err error
	if mention {
		_, err = o.bob.Mention(o.t.Context(), o.garden, "@"+o.BotLID()+" "+text,
			types.NewJID(o.BotLID(), types.HiddenUserServer))
	} else {
		_, err = o.bob.SayGroup(o.t.Context(), o.garden, text)
	}
	o.must(err)
}

func (o *onWhatsApp) sayThread(int, string) {}
func (o *onWhatsApp) thread(int) []string   { return nil }

func (o *onWhatsApp) replyGroup(text string) {
	var last string
	for _, m := range o.bob.Messages(o.garden) {
		if m.FromBot {
			last = m.ID
		}
	}
	_, err := o.bob.Reply(o.t.Context(), o.garden, last, text)
	o.must(err)
}

func (o *onWhatsApp) read(p *whatsapptest.Person, chat string) (list []string) {
	for _, m := range p.Messages(chat) {
		if m.Deleted || !m.FromBot {
			continue
		}
		line := m.Text
		if m.Quote != "" {
			line = "(reply) " + line
		}
		if m.Kind != "" {
			line += fmt.Sprintf(" {%s %s}", m.Kind, m.Name)
			if m.Kind == "voice" {
				line += fmt.Sprintf(" %d s, waveform of %d", m.Seconds, len(m.Waveform))
			}
		}
		list = append(list, line)
	}
	return list
}

func (o *onWhatsApp) direct() []string { return o.read(o.ann, "") }
func (o *onWhatsApp) group() []string  { return o.read(o.bob, o.garden) }
func (o *onWhatsApp) outage(on bool)   { o.SetOutage(on) }

func (o *onWhatsApp) wait(ctx context.Context, cond func() bool) error { return o.Wait(ctx, cond) }
