package whatsapp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	waBinary "go.mau.fi/whatsmeow/binary"
	"go.mau.fi/whatsmeow/proto/waAICommonDeprecated"
	"go.mau.fi/whatsmeow/proto/waE2E"
	"go.mau.fi/whatsmeow/store"
	"go.mau.fi/whatsmeow/types"
	"go.mau.fi/whatsmeow/types/events"
	"google.golang.org/protobuf/proto"

	"gateway/bus"
	"gateway/channels"
)

func text(s string) *waE2E.Message { return &waE2E.Message{Conversation: &s} }

func wrapped(m *waE2E.Message) *waE2E.FutureProofMessage {
	return &waE2E.FutureProofMessage{Message: m}
}

func TestRead(t *testing.T) {
	t.Parallel()
	str := proto.String
	for _, tt := range []struct {
		name string
		m    *waE2E.Message
		want string
	}{
		{"nothing", nil, ""},
		{"keys", &waE2E.Message{SenderKeyDistributionMessage: &waE2E.SenderKeyDistributionMessage{}}, ""},
		{"reaction", &waE2E.Message{ReactionMessage: &waE2E.ReactionMessage{Text: str("x")}}, ""},
		{"text", text("hi"), "hi"},
		{"no text", text("a\x8ab"), "a\ufffdb"},
		{"for a time", &waE2E.Message{EphemeralMessage: wrapped(text("hi"))}, "hi"},
		{"once", &waE2E.Message{ViewOnceMessageV2: wrapped(text("hi"))}, "hi"},
		{"twice wrapped", &waE2E.Message{EphemeralMessage: wrapped(
			&waE2E.Message{ViewOnceMessage: wrapped(text("hi"))})}, "hi"},
		{"location", &waE2E.Message{LocationMessage: &waE2E.LocationMessage{
			DegreesLatitude: proto.Float64(52.5), DegreesLongitude: proto.Float64(13.25),
			Name: str("Café"), Address: str("Main] Street")}},
			"[location: 52.5, 13.25 Café Main) Street]"},
		{"live location", &waE2E.Message{LiveLocationMessage: &waE2E.LiveLocationMessage{}},
			"[location: 0, 0]"},
		{"contact", &waE2E.Message{ContactMessage: &waE2E.ContactMessage{DisplayName: str("Bob\n"),
			Vcard: str("BEGIN:VCARD\r\nitem1.TEL;waid=1:+1 555\r\nTEL:+2\r\nEND:VCARD")}},
			"[contact: Bob +1 555 +2]"},
		{"contacts", &waE2E.Message{ContactsArrayMessage: &waE2E.ContactsArrayMessage{
			Contacts: []*waE2E.ContactMessage{{DisplayName: str("A")}, {DisplayName: str("B")}}}},
			"[contact: A]\n[contact: B]"},
		{"poll", &waE2E.Message{PollCreationMessageV3: &waE2E.PollCreationMessage{Name: str("Where?"),
			Options: []*waE2E.PollCreationMessage_Option{{OptionName: str("Here")},
				{OptionName: str("There")}}}}, "[poll: Where?]\n- Here\n- There"},
		{"wrapped poll", &waE2E.Message{PollCreationMessageV4: wrapped(&waE2E.Message{
			PollCreationMessage: &waE2E.PollCreationMessage{Name: str("When?")}})}, "[poll: When?]"},
		{"event", &waE2E.Message{EventMessage: &waE2E.EventMessage{Name: str("Party")}},
			"[event: Party]"},
		{"whole event", &waE2E.Message{EventMessage: &waE2E.EventMessage{Name: str("Party"),
			StartTime: proto.Int64(1798131600), EndTime: proto.Int64(1798142400),
			Location:    &waE2E.LocationMessage{Name: str("Café"), Address: str("Main St")},
			Description: str("Bring\nsalad"), JoinLink: str("https://call.whatsapp.com/x"),
			IsCanceled: proto.Bool(true)}},
			"[event: Party]\n- cancelled\n- begins: Thursday 2026-12-24 17:00 UTC\n" +
				"- ends: Thursday 2026-12-24 20:00 UTC\n- place: Café Main St\n" +
				"- description: Bring salad\n- link: https://call.whatsapp.com/x"},
		{"invitation", &waE2E.Message{GroupInviteMessage: &waE2E.GroupInviteMessage{
			GroupName: str("Friends")}}, "[invitation to a group: Friends]"},
		{"invitation to a channel", &waE2E.Message{
			NewsletterFollowerInviteMessageV2: &waE2E.NewsletterFollowerInviteMessage{
				NewsletterName: str("News"), Caption: str("Look")}},
			"[invitation to a channel: News]\nLook"},
		{"invitation to manage a channel", &waE2E.Message{
			NewsletterAdminInviteMessage: &waE2E.NewsletterAdminInviteMessage{
				NewsletterName: str("News")}}, "[invitation to manage a channel: News]"},
		{"invitation to an event", &waE2E.Message{EventInviteMessage: &waE2E.EventInviteMessage{
			EventTitle: str("Party"), StartTime: proto.Int64(1798131600), IsCanceled: proto.Bool(true),
			CallLink: str("https://call.whatsapp.com/x"), Caption: str("Come!")}},
			"[invitation to an event: Party]\n- cancelled\n- begins: Thursday 2026-12-24 17:00 UTC\n" +
				"- link: https://call.whatsapp.com/x\nCome!"},
		{"sticker pack", &waE2E.Message{StickerPackMessage: &waE2E.StickerPackMessage{
			Name: str("Cats"), Publisher: str("Bob"), Caption: str("for you")}},
			"[sticker pack: Cats Bob]\nfor you"},
		{"music", &waE2E.Message{MusicMessage: &waE2E.MusicMessage{SongUri: str("https://a.b/c"),
			EmbeddedMusic: &waE2E.EmbeddedMusic{Title: str("Song"), Author: str("Singer")}}},
			"[music: Song Singer]\nhttps://a.b/c"},
		{"results of a poll", &waE2E.Message{
			PollResultSnapshotMessage: &waE2E.PollResultSnapshotMessage{Name: str("Where?"),
				PollVotes: []*waE2E.PollResultSnapshotMessage_PollVote{
					{OptionName: str("Here"), OptionVoteCount: proto.Int64(3)}}}},
			"[results of a poll: Where?]\n- Here: 3"},
		{"list", &waE2E.Message{ListResponseMessage: &waE2E.ListResponseMessage{Title: str("One")}},
			"One"},
		{"button", &waE2E.Message{ButtonsResponseMessage: &waE2E.ButtonsResponseMessage{
			Response: &waE2E.ButtonsResponseMessage_SelectedDisplayText{SelectedDisplayText: "Yes"}}},
			"Yes"},
		{"template", &waE2E.Message{TemplateButtonReplyMessage: &waE2E.TemplateButtonReplyMessage{
			SelectedDisplayText: str("No")}}, "No"},
		{"message of a business", &waE2E.Message{TemplateMessage: &waE2E.TemplateMessage{
			HydratedTemplate: &waE2E.TemplateMessage_HydratedFourRowTemplate{
				HydratedContentText: str("Your parcel comes today"), HydratedFooterText: str("Post")}}},
			"Your parcel comes today\nPost"},
		{"interactive", &waE2E.Message{ViewOnceMessage: wrapped(&waE2E.Message{
			InteractiveMessage: &waE2E.InteractiveMessage{
				Body: &waE2E.InteractiveMessage_Body{Text: str("Choose")}}})}, "Choose"},
		{"menu", &waE2E.Message{ListMessage: &waE2E.ListMessage{Title: str("A"),
			Description: str("B")}}, "A\nB"},
		{"buttons", &waE2E.Message{ButtonsMessage: &waE2E.ButtonsMessage{ContentText: str("Yes?")}},
			"Yes?"},
		{"product", &waE2E.Message{ProductMessage: &waE2E.ProductMessage{
			Product: &waE2E.ProductMessage_ProductSnapshot{Title: str("Tea"), CurrencyCode: str("EUR"),
				PriceAmount1000: proto.Int64(4500)}}}, "[product: Tea 4.50 EUR]"},
		{"answer of Meta AI", &waE2E.Message{BotForwardedMessage: wrapped(&waE2E.Message{
			RichResponseMessage: &waE2E.AIRichResponseMessage{
				Submessages: []*waAICommonDeprecated.AIRichResponseSubMessage{
					{MessageText: str("Four.")}, {MessageText: str("Or five.")}}}})}, "Four.\nOr five."},
		{"album", &waE2E.Message{AlbumMessage: &waE2E.AlbumMessage{}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := read(tt.m)
			if got.text != tt.want || ok != (tt.want != "") {
				t.Errorf("read = %q, %v, want %q", got.text, ok, tt.want)
			}
		})
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		m    *waE2E.Message
		want bus.Kind
	}{
		{&waE2E.Message{ImageMessage: &waE2E.ImageMessage{}}, bus.Photo},
		{&waE2E.Message{VideoMessage: &waE2E.VideoMessage{}}, bus.Video},
		{&waE2E.Message{VideoMessage: &waE2E.VideoMessage{GifPlayback: proto.Bool(true)}}, bus.Animation},
		{&waE2E.Message{PtvMessage: &waE2E.VideoMessage{}}, bus.Video},
		{&waE2E.Message{AudioMessage: &waE2E.AudioMessage{}}, bus.Audio},
		{&waE2E.Message{AudioMessage: &waE2E.AudioMessage{PTT: proto.Bool(true)}}, bus.Voice},
		{&waE2E.Message{LottieStickerMessage: wrapped(&waE2E.Message{
			StickerMessage: &waE2E.StickerMessage{}})}, bus.Sticker},
		{&waE2E.Message{DocumentWithCaptionMessage: wrapped(&waE2E.Message{
			DocumentMessage: &waE2E.DocumentMessage{Caption: proto.String("x")}})}, bus.Document},
	} {
		c, ok := read(tt.m)
		if !ok || len(c.files) != 1 || c.files[0].Kind != tt.want || c.files[0].Ref == "" {
			t.Errorf("read(%v) = %+v, %v, want a %s", tt.m, c, ok, tt.want)
		}
	}
}

// An envelope passes on what belongs to its content, unless the content has its own.
func TestUnwrap(t *testing.T) {
	t.Parallel()
	about := func(secret string) *waE2E.MessageContextInfo {
		return &waE2E.MessageContextInfo{MessageSecret: []byte(secret)}
	}
	for _, tt := range []struct{ outer, inner, want *waE2E.MessageContextInfo }{
		{about("outer"), nil, about("outer")},
		{about("outer"), about("inner"), about("inner")},
		{nil, about("inner"), about("inner")},
	} {
		m := unwrap(&waE2E.Message{MessageContextInfo: tt.outer, EphemeralMessage: wrapped(
			&waE2E.Message{MessageContextInfo: tt.inner})})
		if got := m.GetMessageContextInfo(); !proto.Equal(got, tt.want) {
			t.Errorf("the content has %v, want %v", got, tt.want)
		}
	}
}

// The owner of an account whose hidden id is unknown has the address of the phone.
func TestOwner(t *testing.T) {
	t.Parallel()
	phone := types.NewADJID("4366012345", 0, 7)
	me := identity{phone: phone}
	if got := me.person(); got != (person{phone.ToNonAD(), "4366012345"}) {
		t.Errorf("the owner is %+v", got)
	}
	me.hidden = types.NewJID("777", types.HiddenUserServer)
	if got := me.person(); got != (person{me.hidden, "4366012345"}) {
		t.Errorf("the owner with a hidden id is %+v", got)
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		" a \n\t b ":                 "a b",
		"a\u202eb\u200bc":            "abc",
		"\U0001f469\u200d\U0001f4bb": "\U0001f469\u200d\U0001f4bb",
		"abcdefghij":                 "abcdefgh",
		"\xffa":                      "a",
	} {
		if got := channels.Clean(in, 8); got != want {
			t.Errorf("channels.Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestSplitID(t *testing.T) {
	t.Parallel()
	group := types.NewJID("120363", types.GroupServer)
	direct := types.NewJID("1", types.HiddenUserServer)
	for _, tt := range []struct {
		chat       types.JID
		id, of, as string
	}{
		{direct, "ABC", "1@lid", "ABC"},
		{direct, "ABC:e1700", "1@lid", "ABC"},
		{group, "ABC", "", "ABC"},
		{group, "2@lid/ABC", "2@lid", "ABC"},
		{group, "2@lid/ABC:e1700", "2@lid", "ABC"},
	} {
		if of, as := splitID(tt.chat, tt.id); of.String() != tt.of || as != tt.as {
			t.Errorf("splitID(%v, %s) = %v, %s, want %s, %s", tt.chat, tt.id, of, as, tt.of, tt.as)
		}
	}
}

func TestMessageKey(t *testing.T) {
	t.Parallel()
	a, b := New("a", "x.db", nil), New("b", "x.db", nil)
	again := a.messageKey("1/2")
	if id := a.messageKey("1/2"); id != again || id == b.messageKey("1/2") ||
		id == a.messageKey("1/3") || !strings.HasPrefix(id, "3EB0") || len(id) != 22 {
		t.Errorf("the id is %s", id)
	}
	if one, two := a.messageKey(""), a.messageKey(""); one == two {
		t.Error("messages without a key have one id")
	}
}

func TestRecent(t *testing.T) {
	t.Parallel()
	r := newMessages()
	long := strings.Repeat("x", maxQuoted)
	r.add("c", "long", remembered{message: &waE2E.Message{ImageMessage: &waE2E.ImageMessage{
		JPEGThumbnail: []byte(long)}}, text: "look"})
	if m, ok := r.find("c", "long"); !ok || m.message.GetConversation() != "look" {
		t.Errorf("a long message is remembered as %v", m.message)
	}
	for i := range maxRecent {
		r.add("c", strings.Repeat("y", i+1), remembered{})
	}
	if _, ok := r.find("c", "long"); ok {
		t.Error("the oldest message is still remembered")
	}
	for i := range maxRecent {
		if _, ok := r.find("c", strings.Repeat("y", i+1)); !ok {
			t.Errorf("message %d is not remembered", i)
		}
	}
	r.remove("c", "y")
	if m, ok := r.find("c", "y"); !ok || !m.removed {
		t.Errorf("a removed message is %+v", m)
	}
}

// TestQRCodes checks that the QR codes are shown one after another.
func TestQRCodes(t *testing.T) {
	t.Parallel()
	var shown []string
	p := &pairing{show: func(c channels.PairingCode) { shown = append(shown, c.QR) }}
	codes := []string{"a", "b"}
	next := time.NewTimer(time.Hour)
	defer next.Stop()
	for range 3 {
		p.showQR(&codes, next, laterCode)
	}
	if !slices.Equal(shown, []string{"a", "b"}) || len(codes) != 0 {
		t.Errorf("shown are %q, left %q", shown, codes)
	}
	<-next.C // without a further code, the timer fires at once
}

// TestPairFailures checks that each kind of failure has a message of its own.
func TestPairFailures(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, evt := range []any{
		&events.QRScannedWithoutMultidevice{}, &events.PairPasskeyError{Error: errLate},
		&events.PairError{Error: channels.ErrRefused}, &events.ClientOutdated{},
		&events.TemporaryBan{Code: 101}, &events.ConnectFailure{Reason: 400},
		&events.CATRefreshError{}, &events.Disconnected{},
	} {
		err := failure(evt)
		if err == nil || seen[err.Error()] {
			t.Errorf("%T means %v", evt, err)
			continue
		}
		seen[err.Error()] = true
	}
}

// TestCompareCode checks that a code is compared only if WhatsApp does not know who has scanned the
// QR code.
func TestCompareCode(t *testing.T) {
	t.Parallel()
	var shown []channels.PairingCode
	p := &pairing{answers: make(chan *types.WebAuthnResponse, 1),
		show: func(c channels.PairingCode) { shown = append(shown, c) }}
	p.compare(&events.PairPasskeyConfirmation{Code: "ABCD-EFGH", SkipHandoffUX: true})
	if a := <-p.answers; a != nil || len(shown) != 0 {
		t.Errorf("got the answer %v, shown are %v", a, shown)
	}
	p.compare(&events.PairPasskeyConfirmation{Code: "ABCD-EFGH"})
	if len(shown) != 1 || shown[0].Compare != "ABCD-EFGH" || len(p.answers) != 0 {
		t.Fatalf("shown are %v, %d answers wait", shown, len(p.answers))
	}
	for range 2 { // a second answer must not block
		if err := shown[0].Answer(""); err != nil {
			t.Error(err)
		}
	}
	if a := <-p.answers; a != nil || len(p.answers) != 0 {
		t.Errorf("got the answer %v, %d more wait", a, len(p.answers))
	}
}

func TestClientLog(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	over := false
	l := newLog(slog.New(slog.NewTextHandler(&b, nil)), "client", func() bool { return over })
	n := waBinary.Node{Tag: "message", Content: []byte("PRIVATE")}
	l.Debugf("PRIVATE")
	l.Sub("Recv").Warnf("bad %s and %s\nbroken", n, &n)
	over = true
	l.Errorf("PRIVATE")
	if got := b.String(); strings.Contains(got, "PRIVATE") ||
		!strings.Contains(got, "bad <message> and <message> broken") {
		t.Errorf("the log says %s", got)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	if err := classify(nil); err != nil {
		t.Errorf("classify(nil) = %v", err)
	}
	for status, refused := range map[int]bool{413: true, 500: false} {
		err := classify(fmt.Errorf("failed to upload: %w", // as the library does
			fmt.Errorf("upload failed with status code %d", status)))
		if errors.Is(err, channels.ErrRefused) != refused {
			t.Errorf("an upload with status %d: %v", status, err)
		}
	}
	c := New("a", "x.db", nil)
	if err := c.rated(channels.ErrRefused); err != channels.ErrRefused {
		t.Errorf("rated = %v", err)
	}
}

// FuzzRead checks that any message can be translated, and that labels and names stay unchanged.
func FuzzRead(f *testing.F) {
	for _, m := range []*waE2E.Message{
		text("hi"),
		{ImageMessage: &waE2E.ImageMessage{Caption: proto.String("x")}},
		{ContactMessage: &waE2E.ContactMessage{DisplayName: proto.String("a]b"),
			Vcard: proto.String("TEL:1\nTEL;x")}},
		{EphemeralMessage: wrapped(&waE2E.Message{ExtendedTextMessage: &waE2E.ExtendedTextMessage{
			Text: proto.String("hi"), ContextInfo: &waE2E.ContextInfo{StanzaID: proto.String("1"),
				QuotedMessage: text("old")}}})},
		{PollCreationMessageV4: wrapped(&waE2E.Message{
			PollCreationMessage: &waE2E.PollCreationMessage{Name: proto.String("[")}})},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m waE2E.Message
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		c, ok := read(&m)
		if ok && c.text == "" && len(c.files) == 0 {
			t.Error("a message without content")
		}
		for _, a := range c.files {
			if a.Ref == "" || strings.ContainsAny(a.Name+a.Type, "\n\r") || a.Size < 0 {
				t.Errorf("a bad attachment: %+v", a)
			}
		}
		album(&m)
		quotable(&m)
		inner := unwrap(&m)
		if inner.GetContactMessage() != nil && inner.Conversation == nil &&
			inner.ExtendedTextMessage == nil && len(c.files) == 0 &&
			strings.HasPrefix(c.text, "[contact") && strings.Count(c.text, "]") != 1 {
			t.Errorf("a label that ends early: %q", c.text)
		}
		if !utf8.ValidString(c.text) {
			t.Errorf("text is no UTF-8: %q", c.text)
		}
	})
}

// contacts is a store in which all people have the same name.
type contacts struct {
	store.ContactStore
	name  string
	asked int
}

func (c *contacts) GetContact(context.Context, types.JID) (types.ContactInfo, error) {
	c.asked++
	return types.ContactInfo{Found: true, PushName: c.name}, nil
}

// A name that looks like a mention is inserted unchanged, no matter how often the person is
// mentioned.
func TestNamesLikeMentions(t *testing.T) {
	t.Parallel()
	const name = "@15550001 @15550001"
	b := &addressBook{contacts: &contacts{name: name}}
	users := slices.Repeat([]string{"15550001@lid"}, 6)
	text, _ := b.mentions(t.Context(), "Is @15550001 there?", users)
	if want := "Is @" + name + " there?"; text != want {
		t.Errorf("the text is %q, want %q", text, want)
	}
}

// The client's store remembers everybody whom it is asked about. A stranger can put many people
// into a message, so the number of questions is limited.
func TestManyMentions(t *testing.T) {
	t.Parallel()
	known := &contacts{name: "Ada"}
	b := &addressBook{contacts: known}
	var users []string
	for i := range 1000 {
		users = append(users, fmt.Sprintf("1555%04d@lid", i))
	}
	if text, _ := b.mentions(t.Context(), "hi @15550007", users); text != "hi @Ada" {
		t.Errorf("the text is %q", text)
	}
	if known.asked != 1 {
		t.Errorf("it was asked about %d people, and one is mentioned", known.asked)
	}
	b.mentions(t.Context(), "@"+strings.ReplaceAll(strings.Join(users, " @"), "@lid", ""), users)
	if known.asked > 1+maxMentions {
		t.Errorf("it was asked about %d people", known.asked)
	}
}

// Reading a contact with twice as many numbers takes about twice as much work.
func TestManyNumbers(t *testing.T) {
	label := func(numbers int) uint64 {
		m := &waE2E.Message{ContactMessage: &waE2E.ContactMessage{
			Vcard: proto.String(strings.Repeat("TEL:+49 151 1234567\n", numbers))}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if c, _ := read(m); !strings.HasPrefix(c.text, "[contact: +49 151 1234567 ") {
			t.Errorf("the contact is %.100q", c.text)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if once, twice := label(2000), label(4000); twice > 3*once {
		t.Errorf("2,000 numbers take %d bytes, and 4,000 take %d", once, twice)
	}
}
