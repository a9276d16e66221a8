//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.mau.fi/whatsmeow/proto/waCommon"
	"go.mau.fi/whatsmeow/proto/waE2E"
	"google.golang.org/protobuf/proto"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/discord/discordtest"
	"gateway/channels/telegram/telegramtest"
	"gateway/channels/whatsapp/whatsapptest"
)

// album makes Bob send an album to the group. The caption, which mentions the bot, is that of one
// of the pictures.
func (o *onWhatsApp) album(pictures [][]byte, captioned int) {
	parent, err := o.bob.Send(o.t.Context(), o.garden, &waE2E.Message{
		AlbumMessage: &waE2E.AlbumMessage{ExpectedImageCount: proto.Uint32(uint32(len(pictures)))}})
	o.must(err)
	for i, p := range pictures {
		m, err := o.bob.Media(o.t.Context(),
			whatsapptest.Media{Kind: "image", Type: "image/png", Data: p})
		o.must(err)
		m.MessageContextInfo = &waE2E.MessageContextInfo{MessageAssociation: &waE2E.MessageAssociation{
			AssociationType:  waE2E.MessageAssociation_MEDIA_ALBUM.Enum(),
			ParentMessageKey: &waCommon.MessageKey{ID: &parent},
		}}
		if i == captioned {
			m.ImageMessage.Caption = proto.String("@" + o.BotLID() + " which one?")
			m.ImageMessage.ContextInfo = &waE2E.ContextInfo{MentionedJID: []string{o.BotLID() + "@lid"}}
		}
		_, err = o.bob.Send(o.t.Context(), o.garden, m)
		o.must(err)
	}
}

// TestAlbumInGroup checks that the agent gets all pictures of an album of a group, although only
// one of them mentions it, whichever that is.
func TestAlbumInGroup(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := make(map[string]bool) // pictures in requests
	look := func(r openaitest.Request) openaitest.Reply {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range r.Messages {
			for _, im := range m.Images {
				seen[string(im.Data)] = true
			}
		}
		return repeat(r)
	}
	w, platforms := openPlatforms(t, "streaming = false\n", look)
	o := platforms["whatsapp"].(*onWhatsApp)
	s := &scene{chatPlatform: o, t: t, name: "whatsapp", w: w}
	s.until("the gateway", s.ready)
	for captioned := range 3 {
		o.album([][]byte{pixels(30 + captioned), pixels(40 + captioned), pixels(50 + captioned)},
			captioned)
		o.sayGroup(fmt.Sprintf("well %d?", captioned), true)
		s.until("an answer", func() bool { return has(s.group(), fmt.Sprintf("well %d?", captioned)) })
		mu.Lock()
		if n := len(seen); n != 3*(captioned+1) {
			t.Errorf("with a caption at picture %d of an album, the agent has seen %d pictures, want %d",
				captioned, n, 3*(captioned+1))
		}
		mu.Unlock()
	}
}

// TestAlbumThroughKill checks that a picture of an album that comes after a kill is for the agent,
// because the picture before the kill was.
func TestAlbumThroughKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat, channel: quiet + "\ngroups = [-42]"})
	w.model.Keep(10)
	w.telegram.AddGroup(-42, "Garden")
	item := func(caption string, size int) {
		w.telegram.Deliver(telegramtest.Message{Chat: -42, User: bobID, Text: caption, Album: "77",
			File: &telegramtest.File{Kind: "photo", Data: pixels(size)}})
		w.received()
	}
	p := w.start()
	p.ready()
	item("@gateway_bot look", 300)
	p.kill()
	w.start().ready()
	item("", 400)
	w.telegram.Say(-42, bobID, "@gateway_bot which one?")
	w.await("an answer", func() bool { return heard(w, -42, "which one?") })
	list := w.model.Requests()
	if n := images(list[len(list)-1]); n != 2 {
		t.Errorf("the agent has seen %d pictures, want 2", n)
	}
}

// TestLongTextInParts checks that a text that Telegram's apps send as several messages, because it
// is too long for one, is one message for the agent, although only its beginning mentions the bot.
func TestLongTextInParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{channel: quiet + "\ngroups = [-42]",
		answer: func(r openaitest.Request) openaitest.Reply {
			text := r.Messages[len(r.Messages)-1].Content
			return say("it ends with " + text[len(text)-8:])
		}})
	w.telegram.AddGroup(-42, "Garden")
	w.run()
	for _, chat := range []int64{-42, bobID} {
		part := telegramtest.Message{Chat: chat, User: bobID}
		first, second, third := part, part, part
		first.Text = "@gateway_bot summarise: " + strings.Repeat("cake and tea ", 300)
		second.Text = strings.Repeat("tea and cake ", 300)
		third.Text = "the end."
		w.telegram.Deliver(first, second, third)
		w.received()
	}
	for _, chat := range []int64{-42, bobID} {
		w.await("an answer", func() bool { return len(w.texts(chat)) > 0 })
		if texts := w.texts(chat); texts[0] != "it ends with the end." {
			t.Errorf("chat %d shows %q", chat, texts)
		}
	}
}

// TestForwardWithComment checks that the agent gets what somebody has forwarded to a group together
// with a comment that mentions it. Telegram delivers the comment first, Discord and WhatsApp last.
func TestForwardWithComment(t *testing.T) {
	t.Parallel()
	const news = "roses are blue"
	w, platforms := openPlatforms(t, "streaming = false\n", repeat)
	w.model.Keep(100)
	forward := map[string]func(){
		"telegram": func() {
			platforms["telegram"].(*onTelegram).Deliver(
				telegramtest.Message{Chat: groupID, User: bobID, Text: "@gateway_bot is this true?"},
				telegramtest.Message{Chat: groupID, User: bobID, Text: news, Extra: map[string]any{
					"forward_origin": map[string]any{"type": "hidden_user", "sender_user_name": "Eve"}}})
		},
		"discord": func() {
			o := platforms["discord"].(*onDiscord)
			o.Deliver(discordtest.Message{Channel: "30", User: "8", Extra: map[string]any{
				"message_reference": map[string]any{"type": 1, "channel_id": "31", "message_id": "5"},
				"message_snapshots": []any{map[string]any{"message": map[string]any{"content": news}}}}},
				discordtest.Message{Channel: "30", User: "8", Text: "<@99> is this true?"})
		},
		"whatsapp": func() {
			o := platforms["whatsapp"].(*onWhatsApp)
			defer o.StopClock()()
			_, err := o.bob.Send(t.Context(), o.garden, &waE2E.Message{
				ExtendedTextMessage: &waE2E.ExtendedTextMessage{Text: proto.String(news),
					ContextInfo: &waE2E.ContextInfo{IsForwarded: proto.Bool(true)}}})
			o.must(err)
			o.sayGroup("is this true?", true)
		},
	}
	for name, o := range platforms {
		s := &scene{chatPlatform: o, t: t, name: name, w: w}
		s.until("the gateway", s.ready)
		forward[name]()
		s.sayGroup("well, "+name+"?", true)
		s.until("an answer", func() bool { return has(s.group(), "well, "+name+"?") })
		list := w.model.Requests()
		told := fmt.Sprint(list[len(list)-1].Messages)
		if !strings.Contains(told, news) || strings.Contains(told, "What was said") {
			t.Errorf("on %s the agent was told %s", name, told)
		}
	}
}
