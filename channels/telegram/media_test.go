package telegram_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"gateway/bus"
	"gateway/channels/telegram"
	"gateway/channels/telegram/telegramtest"
)

// sole returns the only message of a list and its only attachment.
func sole(t *testing.T, list []bus.InboundMessage) (bus.InboundMessage, bus.Attachment) {
	t.Helper()
	if len(list) != 1 || len(list[0].Attachments) != 1 {
		t.Fatalf("received %+v, want one message with one attachment", list)
	}
	return list[0], list[0].Attachments[0]
}

func TestAttachments(t *testing.T) {
	for _, tt := range []struct {
		name string
		file telegramtest.File
		want bus.Attachment
	}{
		{"photo", telegramtest.File{Kind: "photo", Data: []byte("pixels")},
			bus.Attachment{Kind: bus.Photo, Type: "image/jpeg", Size: 6}},
		{"voice", telegramtest.File{Kind: "voice", Type: "audio/ogg", Seconds: 3, Data: []byte("abc")},
			bus.Attachment{Kind: bus.Voice, Type: "audio/ogg", Size: 3, Seconds: 3}},
		{"audio", telegramtest.File{Kind: "audio", Name: "a.mp3", Type: "audio/MPEG", Seconds: 200},
			bus.Attachment{Kind: bus.Audio, Name: "a.mp3", Type: "audio/mpeg", Seconds: 200}},
		{"video", telegramtest.File{Kind: "video", Name: "v.mp4", Seconds: 9},
			bus.Attachment{Kind: bus.Video, Name: "v.mp4", Type: "video/mp4", Seconds: 9}},
		{"video note", telegramtest.File{Kind: "video_note", Seconds: 5},
			bus.Attachment{Kind: bus.Video, Type: "video/mp4", Seconds: 5}},
		{"animation", telegramtest.File{Kind: "animation", Name: "x.mp4", Type: "video/mp4"},
			bus.Attachment{Kind: bus.Animation, Name: "x.mp4", Type: "video/mp4"}},
		{"document", telegramtest.File{Kind: "document", Name: "r\u202efdp.exe",
			Type: "application/pdf; a=b", Size: 5 << 30},
			bus.Attachment{Kind: bus.Document, Name: "rfdp.exe", Type: "application/pdf",
				Size: 5 << 30}},
		{"no type", telegramtest.File{Kind: "document", Name: "../../etc/x\n.txt",
			Type: "text/html\r\nX: y"},
			bus.Attachment{Kind: bus.Document, Name: "../../etc/x .txt"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, c, _ := start(t)
			api.SayFile(42, 42, "/note look", tt.file)
			m, a := sole(t, receive(t, api, c))
			if m.Text != "/note look" {
				t.Errorf("the text is %q, want the caption", m.Text)
			}
			if a.Ref == "" {
				t.Error("the attachment can't be fetched")
			}
			a.Ref = ""
			if a != tt.want {
				t.Errorf("the attachment is %+v, want %+v", a, tt.want)
			}
		})
	}
}

func TestStickerIsNoAttachment(t *testing.T) {
	api, c, _ := start(t)
	api.SayFile(42, 42, "", telegramtest.File{Kind: "sticker", Emoji: "😀", Data: []byte("x")})
	got := receive(t, api, c)
	if len(got) != 1 || got[0].Text != "[sticker: 😀]" || got[0].Attachments != nil {
		t.Errorf("received %+v, want the emoji alone", got)
	}
}

func TestQuotedAttachment(t *testing.T) {
	api, c, _ := start(t)
	photo := api.SayPhoto(42, 42, "my dog", []byte("pixels"))
	voice := api.SayVoice(42, 42, []byte("woof"), 2)
	api.Deliver(telegramtest.Message{User: 42, Text: "what breed?", ReplyTo: photo},
		telegramtest.Message{User: 42, Text: "what did I say?", ReplyTo: voice},
		telegramtest.Message{User: 42, Text: "this?", Extra: fields{
			"external_reply": fields{"message_id": 5, "origin": fields{"sender_user_name": "Eve"},
				"document": fields{"file_id": "D1", "file_name": "a.pdf"}}}})
	got := receive(t, api, c)
	if len(got) != 5 {
		t.Fatalf("received %+v, want five messages", got)
	}
	want := []bus.Quote{
		{ID: itoa(photo), Sender: "Ada Lovelace", Text: "[photo] my dog",
			Attachments: got[0].Attachments},
		{ID: itoa(voice), Sender: "Ada Lovelace", Text: "[voice]", Attachments: got[1].Attachments},
		{ID: "5", Sender: "Eve", Text: "[document: a.pdf]", Attachments: []bus.Attachment{
			{Kind: bus.Document, Name: "a.pdf", Ref: "D1"}}},
	}
	for i, m := range got[2:] {
		if !reflect.DeepEqual(*m.ReplyTo, want[i]) || m.Attachments != nil {
			t.Errorf("the quote is %+v\nwant %+v", *m.ReplyTo, want[i])
		}
	}
}

func TestAlbum(t *testing.T) {
	api, c, _ := start(t)
	api.AddGroup(-5, "club")
	api.SayAlbum(-5, 42, "@gateway_bot which one?", []byte("1"), []byte("2"), []byte("3"))
	api.SayAlbum(-5, 42, "nice ones", []byte("4"), []byte("5"))
	got := receive(t, api, c)
	if got[0].Album == "" || got[0].Album != got[2].Album || got[0].Album == got[3].Album {
		t.Errorf("the albums are %s, %s and %s", got[0].Album, got[2].Album, got[3].Album)
	}
	if got[0].Text != "which one?" || got[1].Text != "" {
		t.Errorf("the captions are %q and %q", got[0].Text, got[1].Text)
	}
}

// Messages that one person sends one right after another have the same Album if they can be parts
// of one text.
func TestPartsOfText(t *testing.T) {
	api, c, _ := start(t)
	api.AddGroup(-5, "club")
	long := strings.Repeat("😀", 1024)
	for _, tt := range []struct {
		name   string
		second telegramtest.Message
		extra  map[string]any
		joined bool
	}{
		{"at once", telegramtest.Message{Text: "b"}, nil, true},
		{"long, too", telegramtest.Message{Text: long}, nil, true},
		{"two seconds later", telegramtest.Message{Text: "b"}, map[string]any{"date": 102}, true},
		{"three seconds later", telegramtest.Message{Text: "b"}, map[string]any{"date": 103}, false},
		{"a second before", telegramtest.Message{Text: "b"}, map[string]any{"date": 99}, false},
		{"another person", telegramtest.Message{User: 43, Text: "b"}, nil, false},
		{"another chat", telegramtest.Message{Chat: -5, Text: "b"}, nil, false},
		{"a command", telegramtest.Message{Text: "/stop"}, nil, false},
		{"a path", telegramtest.Message{Text: "/var/log is full"}, nil, true},
		{"a reply", telegramtest.Message{Text: "b", ReplyTo: 1}, nil, false},
		{"forwarded", telegramtest.Message{Text: "b"}, map[string]any{"forward_origin": map[string]any{
			"type": "hidden_user", "sender_user_name": "Eve"}}, false},
		{"a file", telegramtest.Message{Text: "b",
			File: &telegramtest.File{Kind: "photo", Data: []byte("x")}}, nil, false},
	} {
		at := func(m telegramtest.Message, extra map[string]any) telegramtest.Message {
			if m.User == 0 {
				m.User = 42
			}
			m.Extra = map[string]any{"date": 100}
			maps.Copy(m.Extra, extra)
			return m
		}
		api.Deliver(at(telegramtest.Message{Text: long}, nil), at(tt.second, tt.extra),
			at(telegramtest.Message{Text: "c"}, map[string]any{"date": 200}))
		got := receive(t, api, c)
		if got[0].Album == "" || (got[0].Album == got[1].Album) != tt.joined || got[2].Album != "" {
			t.Errorf("%s: the albums are %q, %q and %q", tt.name, got[0].Album, got[1].Album, got[2].Album)
		}
	}
}

// A reconnection between two parts of a text does not keep them apart.
func TestPartsOfTextAfterReconnection(t *testing.T) {
	api, c, _ := start(t)
	var albums []string
	for _, text := range []string{strings.Repeat("a", 4096), "b"} {
		api.Deliver(telegramtest.Message{User: 42, Text: text, Extra: map[string]any{"date": 100}})
		albums = append(albums, receive(t, api, c)[0].Album)
	}
	if albums[0] == "" || albums[0] != albums[1] {
		t.Errorf("the albums are %q", albums)
	}
}

// channelOf returns a Channel that has no server.
func channelOf(t testing.TB) *telegram.Channel {
	t.Helper()
	return telegram.New("tg", token, &telegram.Options{BaseURL: "http://127.0.0.1:1"})
}

func TestHostileFiles(t *testing.T) {
	c := channelOf(t)
	const message = `{"update_id":1,"message":{"message_id":1,"date":1,"from":{"id":42},` +
		`"chat":{"id":42,"type":"private"},%s}}`
	for _, tt := range []struct{ name, fields, text string }{
		{"no sizes", `"photo":[]`, "[photo]"},
		{"no object", `"photo":7`, "[photo]"},
		{"null", `"voice":null,"text":"a"`, "[voice] a"},
		{"no id", `"document":{"file_name":"x[1]"},"caption":"a"`, "[document: x(1)] a"},
		{"wrong types", `"video":{"file_id":7},"caption":"a"`, "[video] a"},
		{"too large a number", `"audio":{"file_id":"A","file_size":1e99,"title":"T"}`, "[audio: T]"},
		{"fraction", `"voice":{"file_id":"A","duration":1.5}`, "[voice]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := c.Translate(t.Context(), fmt.Sprintf(message, tt.fields))
			if len(b.Messages) != 1 || b.Messages[0].Text != tt.text ||
				b.Messages[0].Attachments != nil {
				t.Errorf("received %+v, want the text %q", b.Messages, tt.text)
			}
		})
	}
	negative := c.Translate(t.Context(), fmt.Sprintf(message,
		`"voice":{"file_id":"A","duration":-1,"file_size":-9223372036854775808}`))
	if _, a := sole(t, negative.Messages); a.Size != 0 || a.Seconds != 0 {
		t.Errorf("the attachment is %+v", a)
	}
	name := strings.Repeat("é", 40_000) + ".tar.gz"
	long := c.Translate(t.Context(), fmt.Sprintf(message,
		`"document":{"file_id":"A","file_name":"`+name+`"},"caption":"`+
			strings.Repeat("x", 64<<10)+`"`))
	m, a := sole(t, long.Messages)
	if n := utf8.RuneCountInString(a.Name); n != 128 || !strings.HasSuffix(a.Name, ".gz") ||
		len(m.Text) != 64<<10 {
		t.Errorf("the name %q has %d characters, the text %d", a.Name, n, len(m.Text))
	}
}

func FuzzUpdate(f *testing.F) {
	for _, seed := range []string{
		`{"update_id":1,"message":{"message_id":1,"date":1,"from":{"id":42,"first_name":"A"},` +
			`"chat":{"id":-5,"type":"group","title":"t"},"text":"/a@b c","entities":` +
			`[{"type":"bot_command","offset":0,"length":4},{"type":"mention","offset":-1,"length":9}]}}`,
		`{"update_id":2,"edited_message":{"message_id":1,"edit_date":4102444800,"from":{"id":42},` +
			`"chat":{"id":42,"type":"private"},"caption":"x","photo":[{"file_id":"A","width":1}]}}`,
		`{"update_id":3,"callback_query":{"id":"7","from":{"id":42},"data":"/yes","message":` +
			`{"message_id":9,"date":0,"chat":{"id":-5,"type":"supergroup"}}}}`,
		`{"update_id":4,"my_chat_member":{"chat":{"id":42},"new_chat_member":{"status":"kicked"}}}`,
		`{"update_id":9223372036854775807,"message":{"message_id":99999999999999999999}}`,
		`{"update_id":5,"message":{"message_id":1,"from":{"id":1},"chat":{"id":1,"type":"private"},` +
			`"external_reply":{"voice":{}},"quote":{"text":"q"},"reply_to_message":{"message_id":2,` +
			`"sender_chat":{"title":"\u202e"},"photo":[]},"media_group_id":"1","video":{}}}`,
	} {
		f.Add(seed)
	}
	c := channelOf(f)
	f.Fuzz(func(t *testing.T, update string) {
		for _, m := range c.Translate(t.Context(), update, update).Messages {
			if m.ID == "" || m.Sender.ID == "" || m.From.Chat == "" || m.From.Account != "tg" {
				t.Errorf("received %+v, in which something is missing", m)
			}
			if !m.Group && !m.Addressed {
				t.Errorf("received %+v, which is for nobody", m)
			}
			if _, err := json.Marshal(m); err != nil {
				t.Error(err)
			}
			for _, a := range m.Attachments {
				if a.Ref == "" || a.Size < 0 || a.Seconds < 0 || strings.ContainsAny(a.Name, "\n\x00") {
					t.Errorf("the attachment is %+v", a)
				}
			}
		}
	})
}
