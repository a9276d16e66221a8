package telegramtest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"gateway/channels/telegram/telegramtest"
)

const token = "1:T"

func start(t *testing.T) (*telegramtest.Server, string) {
	t.Helper()
	s := telegramtest.New(token, nil)
	base, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, base + "/bot" + token + "/"
}

// An answer is an answer of the Bot API.
type answer struct {
	OK          bool            `json:"ok"`
	Code        int             `json:"error_code"`
	Description string          `json:"description"`
	Result      json.RawMessage `json:"result"`
}

// call invokes a method with parameters given as name, value, …
func call(t *testing.T, address string, params ...string) (a answer) {
	t.Helper()
	form := url.Values{}
	for i := 0; i < len(params); i += 2 {
		form.Set(params[i], params[i+1])
	}
	resp, err := http.PostForm(address, form)
	if err != nil {
		t.Error(err)
		return a
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Error(err)
	}
	return a
}

func TestSendMessageIsStrict(t *testing.T) {
	s, api := start(t)
	s.AddUser(telegramtest.User{ID: 42, First: "Ada"})
	s.AddGroup(-1001, "group")
	long := strings.Repeat("x", 4096)
	for _, tt := range []struct{ name, want, params string }{
		{"accepted", "", "chat_id=42&text=a"},
		{"longest", "", "chat_id=42&parse_mode=HTML&text=<b>" + long + "</b>"},
		{"too long", "message is too long", "chat_id=42&text=x" + long},
		{"empty", "message text is empty", "chat_id=42&text="},
		{"empty HTML", "message text is empty", "chat_id=42&parse_mode=HTML&text=<b> </b>"},
		{"bad HTML", `can't parse entities: Unsupported start tag "p"`,
			"chat_id=42&parse_mode=HTML&text=<p>a</p>"},
		{"no chat", "chat not found", "chat_id=43&text=a"},
		{"no topic", "message thread not found", "chat_id=-1001&message_thread_id=3&text=a"},
		{"no original", "message to be replied not found",
			`chat_id=42&text=a&reply_parameters={"message_id":99}`},
		{"unknown parameter", "unknown parameter reply_to", "chat_id=42&text=a&reply_to=3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			form, err := url.ParseQuery(tt.params)
			if err != nil {
				t.Fatal(err)
			}
			var params []string
			for name := range form {
				params = append(params, name, form.Get(name))
			}
			a := call(t, api+"sendMessage", params...)
			if a.OK != (tt.want == "") || !strings.Contains(a.Description, tt.want) {
				t.Errorf("answer is %+v, want %s", a, tt.want)
			}
		})
	}
	if a := call(t, strings.Replace(api, token, "1:X", 1)+"getMe"); a.Code != 401 {
		t.Errorf("a wrong token is answered with %+v", a)
	}
}

func TestEditMessageText(t *testing.T) {
	s, api := start(t)
	s.AddUser(telegramtest.User{ID: 42, First: "Ada"})
	call(t, api+"sendMessage", "chat_id", "42", "text", "a")
	edit := func(id, text string) answer {
		return call(t, api+"editMessageText", "chat_id", "42", "message_id", id, "text", text)
	}
	if a := edit("1", "b"); !a.OK {
		t.Errorf("edit is answered with %+v", a)
	}
	if a := edit("1", "b"); !strings.Contains(a.Description, "message is not modified") {
		t.Errorf("the same edit is answered with %+v", a)
	}
	s.Delete(42, 1)
	if a := edit("1", "c"); !strings.Contains(a.Description, "message to edit not found") {
		t.Errorf("edit of a deleted message is answered with %+v", a)
	}
}

func TestDeleteMessage(t *testing.T) {
	s, api := start(t)
	s.AddUser(telegramtest.User{ID: 42, First: "Ada"})
	theirs := s.Say(42, 42, "question")
	call(t, api+"sendMessage", "chat_id", "42", "text", "a")
	remove := func(id int) answer {
		return call(t, api+"deleteMessage", "chat_id", "42", "message_id", strconv.Itoa(id))
	}
	ours := s.History(42)[0].ID
	if a := remove(ours); !a.OK || !s.History(42)[0].Deleted {
		t.Errorf("deletion is answered with %+v", a)
	}
	if a := remove(ours); !strings.Contains(a.Description, "message to delete not found") {
		t.Errorf("the same deletion is answered with %+v", a)
	}
	if a := remove(theirs); !strings.Contains(a.Description, "message can't be deleted") {
		t.Errorf("deletion of a person's message is answered with %+v", a)
	}
}

func TestGetUpdates(t *testing.T) {
	s, api := start(t)
	s.Deliver(
		telegramtest.Message{User: 42, Text: "a"}, telegramtest.Message{User: 42, Text: "b"},
	)
	ids := func(a answer) (all []int) {
		var updates []struct {
			ID int `json:"update_id"`
		}
		if err := json.Unmarshal(a.Result, &updates); err != nil {
			t.Error(err)
		}
		for _, u := range updates {
			all = append(all, u.ID)
		}
		return all
	}
	first := ids(call(t, api+"getUpdates", "limit", "1"))
	again := ids(call(t, api+"getUpdates"))
	if len(first) != 1 || len(again) != 2 || again[0] != first[0] || again[1] != first[0]+1 {
		t.Fatalf("updates are %v, then %v", first, again)
	}
	// A waiting call ends when the next call begins, and returns when somebody writes.
	done := make(chan answer, 2)
	poll := func() { done <- call(t, api+"getUpdates", "offset", "100003", "timeout", "20") }
	go poll()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := s.Wait(ctx, func() bool { return s.Polling() && s.Pending() == 0 }); err != nil {
		t.Fatal(err)
	}
	go poll()
	if a := <-done; a.Code != 409 {
		t.Errorf("the first poll is answered with %+v", a)
	}
	s.Say(42, 42, "c")
	if a := <-done; len(ids(a)) != 1 {
		t.Errorf("the second poll is answered with %+v", a)
	}
}

func TestParseHTML(t *testing.T) {
	for _, tt := range []struct{ name, html, text, err string }{
		{"plain", "a > b", "a > b", ""},
		{"tags", `<b>a<I>b</i></b> <a href="http://x">c</a>`, "ab c", ""},
		{"code", `<pre><code class="language-go">a &lt; b</code></pre>`, "a < b", ""},
		{"spoilers", `<tg-spoiler>a</tg-spoiler><span class="tg-spoiler">b</span>`, "ab", ""},
		{"references", "&lt;&#65;&#x42;&quot;&nope;&", `<AB"&nope;&`, ""},
		{"unknown tag", "<br>", "", `Unsupported start tag "br" at byte offset 0`},
		{"other span", `<span class="x">a</span>`, "", "must have class"},
		{"not closed", "<b>a", "", `Can't find end tag corresponding to start tag "b"`},
		{"crossed", "<b><i>a</b></i>", "", `expected "</i>", found "</b>"`},
		{"never opened", "a</b>", "", "Unexpected end tag at byte offset 1"},
		{"cut tag", "a <b", "", "Unclosed start tag at byte offset 2"},
		{"cut attribute", `<a href="x`, "", "Unclosed start tag"},
		{"no value", "<a href>x</a>", "", "Expected equal sign"},
		{"half a pair", "&#xd83d;", "", "invalid Unicode"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, err := telegramtest.ParseHTML(tt.html)
			if tt.err == "" && (err != nil || text != tt.text) {
				t.Errorf("ParseHTML(%q) = %q, %v, want %q", tt.html, text, err, tt.text)
			}
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("ParseHTML(%q) = %v, want %s", tt.html, err, tt.err)
			}
		})
	}
}

func TestCheckHTML(t *testing.T) {
	for _, bad := range []string{
		"a > b", "&", "&lt", "<b>a</>", "<pre><b>a</b></pre>", "<code><i>a</i></code>",
		"<blockquote><blockquote>a</blockquote></blockquote>",
		`<a href="x"><b><a href="y">a</a></b></a>`, `<a href="<">a</a>`,
	} {
		if err := telegramtest.CheckHTML(bad); err == nil {
			t.Errorf("CheckHTML(%q) finds nothing", bad)
		}
	}
}
