package telegramtest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gateway/channels/telegram/telegramtest"
)

// upload calls a method with a file in field.
func upload(t *testing.T, address, field, data string, params ...string) (a answer) {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	part, err := w.CreateFormFile(field, "a.bin")
	if err == nil {
		_, err = part.Write([]byte(data))
	}
	for i := 0; i < len(params) && err == nil; i += 2 {
		err = w.WriteField(params[i], params[i+1])
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(address, w.FormDataContentType(), &body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Error(err)
	}
	return a
}

// check checks that the description of an answer contains words. If words is "", the answer must
// be a success.
func check(t *testing.T, what string, a answer, words string) {
	t.Helper()
	if a.OK != (words == "") || !strings.Contains(a.Description, words) {
		t.Errorf("%s is answered with %+v, want %q", what, a, words)
	}
}

func TestUploadsAreStrict(t *testing.T) {
	s, api := start(t)
	s.AddUser(telegramtest.User{ID: 42, First: "Ada"})
	long := strings.Repeat("x", 1024)
	for _, tt := range []struct {
		name, method, field, data, want string
		params                          []string
	}{
		{"accepted", "sendDocument", "document", "x", "",
			[]string{"caption", "<b>" + long + "</b>", "parse_mode", "HTML"}},
		{"long caption", "sendDocument", "document", "x", "message caption is too long",
			[]string{"caption", "x" + long}},
		{"bad HTML", "sendDocument", "document", "x", "can't parse entities",
			[]string{"caption", "<p>", "parse_mode", "HTML"}},
		{"empty", "sendDocument", "document", "", "non-empty", nil},
		{"other field", "sendVideo", "document", "x", "unknown parameter document", nil},
		{"no photo", "sendPhoto", "photo", "x", "IMAGE_PROCESS_FAILED", nil},
		{"heavy photo", "sendPhoto", "photo", strings.Repeat("x", 10<<20+1), "too big for a photo",
			nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			params := append([]string{"chat_id", "42"}, tt.params...)
			check(t, "upload", upload(t, api+tt.method, tt.field, tt.data, params...), tt.want)
		})
	}
	check(t, "no file", call(t, api+"sendDocument", "chat_id", "42", "document", "x"),
		"there is no document in the request")
	if h := s.History(42); len(h) != 1 || string(h[0].File.Data) != "x" || h[0].Text != long {
		t.Errorf("sent %+v, want one file", h)
	}
}

func TestUploadThatIsTooLarge(t *testing.T) {
	_, api := start(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api+"sendDocument",
		strings.NewReader("never read"))
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = 52 << 20
	r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	r.Header.Set("Expect", "100-continue") // the body waits until the server wants it
	client := http.Client{Transport: &http.Transport{ExpectContinueTimeout: 10 * time.Second}}
	t.Cleanup(client.CloseIdleConnections)
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("the answer is %s", resp.Status)
	}
}

func TestButtonsAreStrict(t *testing.T) {
	s, api := start(t)
	s.AddUser(telegramtest.User{ID: 42, First: "Ada"})
	send := func(markup string) answer {
		return call(t, api+"sendMessage", "chat_id", "42", "text", "a", "reply_markup", markup)
	}
	button := func(label, data string) string {
		return `{"inline_keyboard":[[{"text":"` + label + `","callback_data":"` + data + `"}]]}`
	}
	check(t, "a button", send(button("A", "a")), "")
	check(t, "no JSON", send("x"), "can't parse reply keyboard markup")
	check(t, "no label", send(button("", "a")), "non-empty")
	check(t, "no data", send(button("A", "")), "BUTTON_DATA_INVALID")
	check(t, "long data", send(button("A", strings.Repeat("x", 65))), "BUTTON_DATA_INVALID")

	query := s.Press(42, 42, s.History(42)[0].ID, "A")
	if got := s.Unanswered(); !slices.Equal(got, []string{query}) {
		t.Errorf("unanswered are %v, want %s", got, query)
	}
	check(t, "the answer", call(t, api+"answerCallbackQuery", "callback_query_id", query), "")
	check(t, "a second answer", call(t, api+"answerCallbackQuery", "callback_query_id", query),
		"query is too old")
	if got := s.Unanswered(); len(got) != 0 {
		t.Errorf("unanswered are %v, want none", got)
	}
	check(t, "edit", call(t, api+"editMessageText", "chat_id", "42", "message_id", "1",
		"text", "a"), "")
	if got := s.Buttons(42, 1); got != nil {
		t.Errorf("the buttons are %v after an edit, want none", got)
	}
}

func TestFiles(t *testing.T) {
	s, api := start(t)
	s.SayDocument(42, 42, "", "a.txt", "text/plain", []byte("hello"))
	s.SayFile(42, 42, "", telegramtest.File{Kind: "video", Data: []byte("x"), Size: 20<<20 + 1})
	var updates []struct {
		Message struct{ Document, Video struct{ File_ID string } }
	}
	if err := json.Unmarshal(call(t, api+"getUpdates").Result, &updates); err != nil {
		t.Fatal(err)
	}
	check(t, "a large file", call(t, api+"getFile", "file_id", updates[1].Message.Video.File_ID),
		"file is too big")
	check(t, "no file", call(t, api+"getFile", "file_id", "x"), "invalid file_id")
	var file struct{ File_Path string }
	a := call(t, api+"getFile", "file_id", updates[0].Message.Document.File_ID)
	if err := json.Unmarshal(a.Result, &file); err != nil {
		t.Fatal(err)
	}
	address := strings.Replace(api, "/bot", "/file/bot", 1) + file.File_Path
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "hello" {
		t.Errorf("the file is %q, %v, want hello", body, err)
	}
	s.ForgetFiles()
	check(t, "a forgotten file", call(t, address), "Not Found")
	check(t, "another token", call(t, strings.Replace(address, token, "1:X", 1)), "Unauthorized")
}

func TestReactionsAndDrafts(t *testing.T) {
	s, api := start(t)
	s.AddGroup(-5, "club")
	id := strconv.Itoa(s.Say(42, 42, "hi"))
	react := func(list string) answer {
		return call(t, api+"setMessageReaction", "chat_id", "42", "message_id", id, "reaction", list)
	}
	check(t, "a reaction", react(`[{"type":"emoji","emoji":"👀"}]`), "")
	check(t, "two reactions", react(`[{"type":"emoji","emoji":"👀"},{"type":"emoji","emoji":"👍"}]`),
		"REACTIONS_TOO_MANY")
	check(t, "no emoji", react(`[{"type":"emoji","emoji":"x"}]`), "REACTION_INVALID")
	check(t, "no list", react(`x`), "can't parse")
	draft := func(params ...string) answer { return call(t, api+"sendMessageDraft", params...) }
	check(t, "a draft", draft("chat_id", "42", "draft_id", "1", "text", "a"), "")
	check(t, "no id", draft("chat_id", "42", "draft_id", "0", "text", "a"), "draft identifier")
	check(t, "in a group", draft("chat_id", "-5", "draft_id", "1", "text", "a"),
		"TEXTDRAFT_PEER_INVALID")
	check(t, "no text", draft("chat_id", "42", "draft_id", "1", "text", ""), "text is empty")
	rich := func(message string) answer {
		return call(t, api+"sendRichMessage", "chat_id", "42", "rich_message", message)
	}
	check(t, "rich", rich(`{"markdown":"a"}`), "")
	check(t, "two kinds", rich(`{"markdown":"a","html":"a"}`), "exactly one")
	check(t, "no JSON", rich(`a`), "can't parse")
	check(t, "long", rich(`{"markdown":"`+strings.Repeat("x", 32769)+`"}`), "too long")
}
