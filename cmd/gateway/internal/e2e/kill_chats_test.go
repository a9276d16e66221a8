//go:build unix

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels/discord/discordtest"
	"gateway/channels/telegram/telegramtest"
	"gateway/channels/whatsapp/whatsapptest"
)

// A killPlatform is a platform on which the people of a trial talk to the gateway, each in their
// own chat. Chats are numbered from 1.
type killPlatform interface {
	address(chat int64) bus.Address
	ready()                    // waits until the gateway is connected
	say(list []saying)         // makes people write
	texts(chat int64) []string // texts that a person sees from the bot, oldest first

	remembers() bool                // reports whether the platform drops repeated sends
	disturb(hide func(text string)) // makes calls fail in each way that the platform has
	shake(r *rand.Rand)             // disturbs the connection once
	calm()                          // ends the disturbance by shake
	rest()                          // waits until nothing is on its way to people
}

// A saying is a message of a person.
type saying struct {
	chat int64
	text string
}

// rarely is how rarely each kind of failure happens: it affects one of so many sends.
const rarely = 25

// killTelegram is Telegram in a trial. It does not remember what it was sent.
type killTelegram struct{ *world }

func (v killTelegram) address(chat int64) bus.Address {
	return bus.Address{Account: "telegram", Chat: strconv.FormatInt(chat, 10)}
}

func (v killTelegram) say(list []saying) {
	var all []telegramtest.Message
	for _, s := range list {
		all = append(all, telegramtest.Message{User: s.chat, Text: s.text})
	}
	v.telegram.Deliver(all...)
}

func (v killTelegram) disturb(hide func(text string)) {
	faults := []telegramtest.Fault{
		{RetryAfter: 1},
		{Effect: telegramtest.Answer, Code: http.StatusInternalServerError},
		{Effect: telegramtest.Page},
		{Effect: telegramtest.Drop},
		{Effect: telegramtest.Lose},
	}
	for _, f := range faults {
		f.Method = "sendMessage"
		f.When = func(text string) bool { // there are no concurrent calls
			hit := rand.N(rarely) == 0
			if hit && f.RetryAfter == 0 {
				hide(text)
			}
			return hit
		}
		v.telegram.Inject(f)
	}
}

func (killTelegram) ready()           {}
func (killTelegram) remembers() bool  { return false }
func (killTelegram) shake(*rand.Rand) {}
func (killTelegram) calm()            {}
func (killTelegram) rest()            {}

// killDiscord is Discord in a trial. A direct chat has the same id as its user.
type killDiscord struct {
	*discordtest.Server
	t testing.TB
}

// openKillDiscord opens a Discord for tr.
func openKillDiscord(tr *trial) killDiscord {
	tr.t.Helper()
	s := discordtest.New(discordToken, &discordtest.Options{
		OnSend: func(m discordtest.Sent) { tr.ledger.heard(m.Text) }})
	url, err := s.Start(tr.t.Context())
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Cleanup(s.Close)
	for chat := range tr.chats {
		id := strconv.Itoa(chat + 1)
		s.AddUser(discordtest.User{ID: id, Username: "user" + id})
		s.AddDM(id, id)
	}
	tr.move(fmt.Sprintf("[channels.discord]\ntoken = %q\napi_url = %q\n", discordToken, url))
	return killDiscord{s, tr.t}
}

func (v killDiscord) address(chat int64) bus.Address {
	return bus.Address{Account: "discord", Chat: strconv.FormatInt(chat, 10)}
}

func (v killDiscord) ready() {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), patience)
	defer cancel()
	if err := v.Wait(ctx, func() bool { return v.Connected() > 0 }); err != nil {
		v.t.Fatalf("the gateway does not connect: %v", err)
	}
}

func (v killDiscord) say(list []saying) {
	var all []discordtest.Message
	for _, s := range list {
		id := strconv.FormatInt(s.chat, 10)
		all = append(all, discordtest.Message{Channel: id, User: id, Text: s.text})
	}
	v.Deliver(all...)
}

func (v killDiscord) texts(chat int64) (list []string) {
	for _, m := range v.History(strconv.FormatInt(chat, 10)) {
		if !m.Deleted {
			list = append(list, m.Text)
		}
	}
	return list
}

// disturb makes one send in five fail, and a few of the calls that read missed messages. One kind
// of failure breaks the connection of the call.
func (v killDiscord) disturb(func(text string)) {
	faults := []discordtest.Fault{
		{RetryAfter: 300 * time.Millisecond},
		{Effect: discordtest.Answer, Status: http.StatusInternalServerError},
		{Effect: discordtest.Page},
		{Effect: discordtest.Drop},
		{Effect: discordtest.Lose},
	}
	for method, n := range map[string]int{"createMessage": rarely, "listMessages": 100 * rarely} {
		for _, f := range faults {
			f.Method = method
			f.When = func(string) bool { return rand.N(n) == 0 }
			v.Inject(f)
		}
	}
}

func (v killDiscord) shake(r *rand.Rand) {
	switch r.IntN(6) {
	case 0:
		v.Drop()
	case 1:
		v.Reconnect()
	case 2:
		v.InvalidSession(r.IntN(2) == 0)
	case 3:
		v.RefuseResume(1)
		v.Drop()
	case 4:
		v.CloseGateway(4000)
	}
}

func (killDiscord) remembers() bool { return true }
func (killDiscord) calm()           {}
func (killDiscord) rest()           {}

// killWhatsApp is WhatsApp in a trial.
type killWhatsApp struct {
	*whatsapptest.Server
	t       testing.TB
	persons []*whatsapptest.Person
}

// openKillWhatsApp opens a WhatsApp for tr and links the gateway to it.
func openKillWhatsApp(tr *trial) *killWhatsApp {
	tr.t.Helper()
	v := &killWhatsApp{Server: whatsapptest.New(nil), t: tr.t}
	url, err := v.Start(tr.t.Context())
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Cleanup(v.Close)
	for chat := range tr.chats {
		p, err := v.NewPerson(tr.t.Context(), fmt.Sprint("Person ", chat+1), whatsapptest.Known)
		if err != nil {
			tr.t.Fatal(err)
		}
		v.persons = append(v.persons, p)
	}
	err = v.PairFile(tr.t.Context(), filepath.Join(tr.home, "whatsapp-whatsapp.db"))
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.move(fmt.Sprintf("[channels.whatsapp]\napi_url = %q\n", url))
	var listening sync.WaitGroup
	listening.Go(func() { v.listen(tr.ledger.heard) })
	tr.t.Cleanup(listening.Wait)
	return v
}

// listen calls heard with each message that a person sees, until the test ends.
func (v *killWhatsApp) listen(heard func(text string)) {
	seen := make([]int, len(v.persons))
	_ = v.Wait(v.t.Context(), func() bool { // Wait ends with the context
		for i := range v.persons {
			texts := v.texts(int64(i + 1))
			for _, text := range texts[seen[i]:] {
				heard(text)
			}
			seen[i] = len(texts)
		}
		return false
	})
}

func (v *killWhatsApp) address(chat int64) bus.Address {
	return bus.Address{Account: "whatsapp", Chat: v.persons[chat-1].Chat()}
}

// say makes people write concurrently. Each person writes one message after another.
func (v *killWhatsApp) say(list []saying) {
	all := make(map[int64][]string)
	for _, s := range list {
		all[s.chat] = append(all[s.chat], s.text)
	}
	var saying sync.WaitGroup
	for chat, texts := range all {
		saying.Go(func() {
			for _, text := range texts {
				if _, err := v.persons[chat-1].Say(v.t.Context(), text); err != nil {
					v.t.Errorf("person %d can't say %q: %v", chat, text, err)
				}
			}
		})
	}
	saying.Wait()
}

// texts returns each message once, as a phone shows it, even if it was sent repeatedly.
func (v *killWhatsApp) texts(chat int64) []string { return v.persons[chat-1].Texts() }

// disturb makes sends fail with the errors of a rate-limited WhatsApp.
func (v *killWhatsApp) disturb(func(text string)) { v.FailKeys(2) }

func (v *killWhatsApp) shake(r *rand.Rand) {
	switch r.IntN(5) {
	case 0:
		v.Drop()
	case 1:
		v.Restart(http.StatusServiceUnavailable)
	case 2:
		v.DelayAcks(time.Duration(r.IntN(300)) * time.Millisecond)
	case 3: // the client waits for acks that never come, until it gives up or is cut off
		v.SwallowAcks(1 + r.IntN(3))
		time.AfterFunc(time.Duration(r.IntN(400))*time.Millisecond, func() {
			v.SwallowAcks(0)
			v.Drop()
		})
	}
}

func (v *killWhatsApp) calm() {
	v.SwallowAcks(0)
	v.DelayAcks(0)
}

func (v *killWhatsApp) rest() {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), patience)
	defer cancel()
	err := v.Wait(ctx, func() bool {
		for _, p := range v.persons {
			if !p.Settled() {
				return false
			}
		}
		return v.Pending() == 0
	})
	if err != nil {
		v.t.Errorf("something is on its way for ever: %v", err)
	}
	for _, what := range v.Violations() {
		v.t.Errorf("WhatsApp does not understand: %s", what)
	}
}

func (*killWhatsApp) ready()          {}
func (*killWhatsApp) remembers() bool { return true }
