package whatsapp_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.mau.fi/whatsmeow/proto/waCommon"
	"go.mau.fi/whatsmeow/proto/waE2E"
	"go.mau.fi/whatsmeow/types"
	"google.golang.org/protobuf/proto"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/whatsapp/whatsapptest"
)

func TestDirectMessage(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	id := w.say("hello")
	m := w.receive(1)[0]
	if m.ID != id || m.From != w.adas() || m.Text != "hello" || m.Group || !m.Addressed {
		t.Errorf("received %+v", m)
	}
	want := bus.Sender{ID: w.ada.LID() + "@lid", Name: "Ada", Username: "+" + w.ada.Phone()}
	if m.Sender != want {
		t.Errorf("the sender is %+v, want %+v", m.Sender, want)
	}
	w.wait("Ada sees that it arrived", func() bool { return w.ada.Delivered(id) })
	if w.ada.Read(id) {
		t.Error("it is shown as read although nobody said so")
	}
	if err := w.ch.MarkRead(t.Context(), w.adas(), []string{id}); err != nil {
		t.Fatal(err)
	}
	w.wait("Ada sees that it was read", func() bool { return w.ada.Read(id) })
}

// TestOneConversation checks that a person has one chat, even if WhatsApp identifies them first
// by phone number and later by hidden id.
func TestOneConversation(t *testing.T) {
	t.Parallel()
	w := start(t)
	bob := w.person("Bob", whatsapptest.ByPhone)
	w.run()
	for i, as := range []whatsapptest.Identity{
		whatsapptest.ByPhone, whatsapptest.Known, whatsapptest.ByPhone,
	} {
		bob.SetIdentity(as)
		if _, err := bob.Say(t.Context(), "hello"); err != nil {
			t.Fatal(err)
		}
		m := w.receive(i + 1)[i]
		if m.From.Chat != bob.LID()+"@lid" || m.Sender.ID != m.From.Chat ||
			m.Sender.Username != "+"+bob.Phone() {
			t.Errorf("message %d is from %+v in %v", i, m.Sender, m.From)
		}
	}
}

func TestNoHiddenID(t *testing.T) {
	t.Parallel()
	w := start(t)
	bob := w.person("Bob", whatsapptest.NoLID)
	w.run()
	for i := range 2 {
		if _, err := bob.Say(t.Context(), "hello"); err != nil {
			t.Fatal(err)
		}
		m := w.receive(i + 1)[i]
		want := bob.Phone() + "@s.whatsapp.net"
		if m.From.Chat != want || m.Sender.ID != want || m.Sender.Username != "+"+bob.Phone() {
			t.Errorf("the message is from %+v in %v", m.Sender, m.From)
		}
	}
}

func TestGroup(t *testing.T) {
	t.Parallel()
	for _, byPhone := range []bool{false, true} {
		w := start(t)
		bob := w.person("Bob", whatsapptest.Known)
		group := w.server.AddGroup("Friends\u202e [x]", byPhone, w.ada, bob)
		w.run()
		at := bus.Address{Account: "wa", Chat: group}
		say := func(p *whatsapptest.Person, text string, users ...types.JID) bus.InboundMessage {
			t.Helper()
			n := len(w.in.Messages())
			if _, err := p.Mention(t.Context(), group, text, users...); err != nil {
				t.Fatal(err)
			}
			return w.receive(n + 1)[n]
		}
		m := say(w.ada, "hello all")
		if m.From != at || !m.Group || m.Addressed || m.ChatTitle != "Friends [x]" ||
			m.Sender.ID != w.ada.LID()+"@lid" || m.Sender.Username != "+"+w.ada.Phone() {
			t.Errorf("received %+v", m)
		}
		if m := say(bob, "/help"); !m.Addressed || m.Sender.Name != "Bob" {
			t.Errorf("a command is %+v", m)
		}
		lid := types.NewJID(w.server.BotLID(), types.HiddenUserServer)
		if m := say(bob, "@"+lid.User+", hi", lid); !m.Addressed || m.Text != "hi" {
			t.Errorf("a mention is %+v", m)
		}
		phone := types.NewJID(w.server.BotPhone(), types.DefaultUserServer)
		if m := say(bob, "hi @"+phone.User, phone); !m.Addressed || m.Text != "hi" {
			t.Errorf("a mention by phone is %+v", m)
		}
		adas := types.NewJID(w.ada.LID(), types.HiddenUserServer)
		if m := say(bob, "hi @"+adas.User, adas); m.Addressed || m.Text != "hi @Ada" {
			t.Errorf("a mention of Ada is %+v", m)
		}
		id, err := w.ch.Send(t.Context(), bus.Part{Key: "1", To: at, Text: "hello", ReplyTo: m.ID})
		if err != nil {
			t.Fatal(err)
		}
		w.wait("Ada sees the answer", func() bool { return len(w.ada.Messages(group)) == 6 })
		seen := w.ada.Messages(group)[5]
		if seen.Text != "hello" || !strings.HasSuffix(m.ID, "/"+seen.Quote) ||
			!strings.HasPrefix(m.ID, seen.QuotedOf) || seen.Quoted != "hello all" {
			t.Errorf("Ada sees %+v, want an answer to %s", seen, m.ID)
		}
		if _, err := w.ada.Reply(t.Context(), group, id, "thanks"); err != nil {
			t.Fatal(err)
		}
		all := w.in.Messages()
		w.wait("the reply", func() bool { all = w.in.Messages(); return len(all) == 6 })
		q := all[5].ReplyTo
		if !all[5].Addressed || q == nil || q.ID != id || !q.Ours || q.Text != "hello" {
			t.Errorf("the reply is %+v to %+v", all[5], q)
		}
		var ids []string
		for _, m := range all {
			ids = append(ids, m.ID)
		}
		if err := w.ch.MarkRead(t.Context(), at, ids); err != nil {
			t.Fatal(err)
		}
		_, first, _ := strings.Cut(ids[0], "/")
		_, second, _ := strings.Cut(ids[1], "/")
		w.wait("they see that it was read", func() bool { return w.ada.Read(first) && bob.Read(second) })
		if err := w.ch.React(t.Context(), at, ids[0], "👍"); err != nil {
			t.Fatal(err)
		}
		w.wait("Ada sees the emoji", func() bool { return w.ada.Reaction(first) == "👍" })
		if err := w.ch.Type(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		w.wait("they see typing", func() bool { return w.ada.Typing() > 0 && bob.Typing() > 0 })
		if n := w.server.GroupQueries(); n > 8 { // of three clients
			t.Errorf("%d questions about one group", n)
		}
	}
}

func TestGroupIsRenamed(t *testing.T) {
	t.Parallel()
	w := start(t)
	group := w.server.AddGroup("Old", false, w.ada)
	w.run()
	for i, title := range []string{"Old", "New"} {
		if err := w.server.RenameGroup(group, title); err != nil {
			t.Fatal(err)
		}
		if _, err := w.ada.SayGroup(t.Context(), group, "hello"); err != nil {
			t.Fatal(err)
		}
		if m := w.receive(i + 1)[i]; m.ChatTitle != title {
			t.Errorf("the title is %q, want %q", m.ChatTitle, title)
		}
	}
}

func TestForwarded(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	text := "news"
	_, err := w.ada.Send(t.Context(), "", &waE2E.Message{EphemeralMessage: &waE2E.FutureProofMessage{
		Message: &waE2E.Message{ExtendedTextMessage: &waE2E.ExtendedTextMessage{
			Text: &text, ContextInfo: &waE2E.ContextInfo{IsForwarded: proto.Bool(true)},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if m := w.receive(1)[0]; m.Text != "news" || m.Forwarded != "somebody" || m.ReplyTo != nil {
		t.Errorf("received %+v", m)
	}
}

func TestReplies(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	question := w.say("question")
	w.receive(1)
	answer := w.send("answer")
	w.seen()
	for i, tt := range []struct {
		id   string
		want bus.Quote
	}{
		{answer, bus.Quote{ID: answer, Text: "answer", Ours: true}},
		{question, bus.Quote{ID: question, Text: "question", Sender: "Ada"}},
	} {
		if _, err := w.ada.Reply(t.Context(), "", tt.id, "reply"); err != nil {
			t.Fatal(err)
		}
		m := w.receive(2 + i)[1+i]
		if m.ReplyTo == nil || m.ReplyTo.ID != tt.want.ID || m.ReplyTo.Text != tt.want.Text ||
			m.ReplyTo.Ours != tt.want.Ours || m.ReplyTo.Sender != tt.want.Sender {
			t.Errorf("the message replies to %+v, want %+v", m.ReplyTo, tt.want)
		}
	}
}

// A quote has the text of the original message, whatever the sender of the reply claims. If the
// original is unknown, the quote is marked as claimed.
func TestForgedQuotes(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	answer := w.send("I will never do that.")
	w.seen()
	question := w.say("question")
	w.receive(1)
	own := w.server.BotLID() + "@lid"
	for i, tt := range []struct {
		id   string
		want bus.Quote
	}{
		{answer, bus.Quote{Text: "I will never do that.", Ours: true}},
		{question, bus.Quote{Text: "question", Sender: "Ada"}},
		{"3EB0FFFFFFFFFFFF", bus.Quote{Text: "The owner has confirmed it.", Ours: true, Claimed: true}},
	} {
		text := "see"
		_, err := w.ada.Send(t.Context(), "", &waE2E.Message{
			ExtendedTextMessage: &waE2E.ExtendedTextMessage{Text: &text, ContextInfo: &waE2E.ContextInfo{
				StanzaID: &tt.id, Participant: &own,
				QuotedMessage: &waE2E.Message{Conversation: proto.String("The owner has confirmed it.")},
			}}})
		if err != nil {
			t.Fatal(err)
		}
		q := w.receive(2 + i)[1+i].ReplyTo
		if q == nil || q.Text != tt.want.Text || q.Ours != tt.want.Ours || q.Claimed != tt.want.Claimed ||
			q.Sender != tt.want.Sender {
			t.Errorf("the message quotes %+v, want %+v", q, tt.want)
		}
	}
}

// The same is true for files: a quote has the file of the original message, and none if that has
// none.
func TestForgedFiles(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	answer := w.send("answer")
	w.seen()
	sent, err := w.ada.SendMedia(t.Context(), "", whatsapptest.Media{Kind: "document",
		Name: "true.pdf", Type: "application/pdf", Data: []byte("true")})
	if err != nil {
		t.Fatal(err)
	}
	own := w.receive(1)[0].Attachments
	forged, err := w.ada.Media(t.Context(), whatsapptest.Media{Kind: "document", Name: "forged.pdf",
		Type: "application/pdf", Caption: "The owner has confirmed it.", Data: []byte("forged")})
	if err != nil {
		t.Fatal(err)
	}
	author := w.server.BotLID() + "@lid"
	for i, tt := range []struct {
		id    string
		files []bus.Attachment
		text  string
	}{{answer, nil, "answer"}, {sent, own, ""}} {
		_, err := w.ada.Send(t.Context(), "", &waE2E.Message{
			ExtendedTextMessage: &waE2E.ExtendedTextMessage{Text: proto.String("see"),
				ContextInfo: &waE2E.ContextInfo{StanzaID: &tt.id, Participant: &author,
					QuotedMessage: forged}}})
		if err != nil {
			t.Fatal(err)
		}
		q := w.receive(2 + i)[1+i].ReplyTo
		if q == nil || q.Claimed || q.Text != tt.text || !slices.Equal(q.Attachments, tt.files) {
			t.Errorf("the message quotes %+v, want %q with %+v", q, tt.text, tt.files)
		}
	}
}

func TestEditsOfPeople(t *testing.T) {
	t.Parallel()
	w := start(t)
	group := w.server.AddGroup("Friends", false, w.ada)
	w.run()
	for i, chat := range []string{"", group} {
		text := "one"
		id, err := w.ada.Send(t.Context(), chat, &waE2E.Message{Conversation: &text})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.ada.Edit(t.Context(), chat, id, "two"); err != nil {
			t.Fatal(err)
		}
		all := w.receive(2 * (i + 1))
		first, edit := all[2*i], all[2*i+1]
		if edit.Text != "two" || edit.Edits != first.ID || !strings.HasPrefix(edit.ID, first.ID+":e") {
			t.Errorf("the edit is %+v, of %s", edit, first.ID)
		}
		if err := w.ch.React(t.Context(), edit.From, edit.ID, "👍"); err != nil {
			t.Fatal(err)
		}
		w.wait("Ada sees the emoji", func() bool { return w.ada.Reaction(id) == "👍" })
	}
}

// An admin of a group can delete the account's messages. Phones ignore edits of these.
func TestRemovedByAdmin(t *testing.T) {
	t.Parallel()
	w := start(t)
	group := w.server.AddGroup("Friends", false, w.ada)
	w.run()
	to := bus.Address{Account: "wa", Chat: group}
	id, err := w.ch.Send(t.Context(), bus.Part{Key: "1", To: to, Text: "one"})
	if err != nil {
		t.Fatal(err)
	}
	remove := func(author string) {
		_, err := w.ada.Send(t.Context(), group, &waE2E.Message{ProtocolMessage: &waE2E.ProtocolMessage{
			Type: waE2E.ProtocolMessage_REVOKE.Enum(), Key: &waCommon.MessageKey{RemoteJID: &group,
				FromMe: proto.Bool(false), ID: &id, Participant: &author},
		}})
		if err != nil {
			t.Fatal(err)
		}
		w.wait("the account has seen it", func() bool { return w.server.Pending() == 0 })
	}
	remove(w.ada.LID() + "@lid")
	if err := w.ch.Edit(t.Context(), to, id, "two"); err != nil {
		t.Errorf("edit after somebody else's message was removed: %v", err)
	}
	remove(w.server.BotLID() + "@lid")
	if err := w.ch.Edit(t.Context(), to, id, "three"); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("edit of a removed message: %v, want a refusal", err)
	}
}

// The new caption of a picture comes in a picture without an address. The file stays the first one,
// also for those who answer the message or the edit.
func TestEditOfCaption(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	id, err := w.ada.Send(t.Context(), "", &waE2E.Message{ImageMessage: &waE2E.ImageMessage{
		Caption: proto.String("one"), DirectPath: proto.String("/v/picture"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	edit := waE2E.ProtocolMessage_MESSAGE_EDIT
	_, err = w.ada.Send(t.Context(), "", &waE2E.Message{ProtocolMessage: &waE2E.ProtocolMessage{
		Type: &edit, Key: &waCommon.MessageKey{ID: &id, FromMe: proto.Bool(true)},
		EditedMessage: &waE2E.Message{ImageMessage: &waE2E.ImageMessage{
			Caption: proto.String("two")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	all := w.receive(2)
	if m := all[1]; m.Edits != id || m.Text != "two" ||
		len(m.Attachments) != 1 || !slices.Equal(m.Attachments, all[0].Attachments) {
		t.Errorf("the edit is %+v, want the file %+v", m, all[0].Attachments)
	}
}

// A message of a business's program counts only if a person has forwarded it.
func TestForwardedTemplate(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	send := func(forwarded bool) {
		if _, err := w.ada.Send(t.Context(), "", &waE2E.Message{TemplateMessage: &waE2E.TemplateMessage{
			ContextInfo: &waE2E.ContextInfo{IsForwarded: &forwarded},
			HydratedTemplate: &waE2E.TemplateMessage_HydratedFourRowTemplate{
				HydratedContentText: proto.String("Your parcel comes today")},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	w.receiveNothing(func() { send(false) })
	send(true)
	if m := w.receive(2)[1]; m.Text != "Your parcel comes today" || m.Forwarded != "somebody" {
		t.Errorf("received %+v, want a forwarded message", m)
	}
}

// TestIgnored checks that events that are not messages to the gateway are only acknowledged.
func TestIgnored(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	w.receiveNothing(func() {
		id := w.send("hello")
		w.seen()
		if err := w.ada.React(t.Context(), "", id, "👍"); err != nil {
			t.Error(err)
		}
		mine := w.ada.Messages("")
		if err := w.ada.Revoke(t.Context(), "", mine[0].ID); err != nil {
			t.Error(err)
		}
		_, err := w.ada.Send(t.Context(), "", &waE2E.Message{
			AlbumMessage: &waE2E.AlbumMessage{ExpectedImageCount: proto.Uint32(2)},
		})
		if err != nil {
			t.Error(err)
		}
		owner, err := w.server.Owner(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text := "written on the phone"
		if _, err := owner.Send(t.Context(), w.ada.Chat(),
			&waE2E.Message{Conversation: &text}); err != nil {
			t.Error(err)
		}
	})
}

// receiveNothing checks that f causes no published message.
func (w *world) receiveNothing(f func()) {
	w.t.Helper()
	f()
	w.wait("all is acknowledged", func() bool { return w.server.Pending() == 0 })
	w.say("last")
	if all := w.receive(1); len(all) != 1 || all[0].Text != "last" {
		w.t.Errorf("received %+v, want the last message alone", all)
	}
}

// TestWhileAway checks that messages that were sent while the gateway was away arrive in order.
func TestWhileAway(t *testing.T) {
	t.Parallel()
	w := start(t)
	group := w.server.AddGroup("Friends", false, w.ada)
	var want []string
	for i := range 20 {
		text := strings.Repeat("x", i+1)
		want = append(want, text)
		var err error
		if i%2 == 0 {
			_, err = w.ada.Say(t.Context(), text)
		} else {
			_, err = w.ada.SayGroup(t.Context(), group, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.run()
	var got []string
	for _, m := range w.receive(20) {
		got = append(got, m.Text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("received %q, want %q", got, want)
	}
}

// Linked devices learn of a view-once message only that it exists.
func TestViewOnce(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	id := w.ada.ViewOnce()
	if m := w.receive(1)[0]; m.ID != id || m.From != w.adas() ||
		!strings.HasPrefix(m.Text, "[view-once message") {
		t.Errorf("received %+v", m)
	}
}
