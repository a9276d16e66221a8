package telegramtest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"gateway/channels/telegram/telegramtest"
)

// A receiver is a webhook that refuses the first calls.
type receiver struct {
	mu       sync.Mutex
	refuse   int
	texts    []string
	secrets  map[string]bool
	atOnce   int
	mostOnce int
}

func (h *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var u struct{ Message struct{ Text string } }
	err := json.NewDecoder(r.Body).Decode(&u)
	h.mu.Lock()
	h.atOnce++
	h.mostOnce = max(h.mostOnce, h.atOnce)
	h.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body) // there is nothing after the JSON
	h.mu.Lock()
	defer h.mu.Unlock()
	h.atOnce--
	h.secrets[r.Header.Get("X-Telegram-Bot-Api-Secret-Token")] = true
	if h.refuse--; h.refuse >= 0 || err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	h.texts = append(h.texts, u.Message.Text)
}

func TestWebhook(t *testing.T) {
	s, api := start(t)
	h := &receiver{refuse: 3, secrets: make(map[string]bool)}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	s.Say(42, 42, "1")
	set := func(params ...string) answer { return call(t, api+"setWebhook", params...) }
	check(t, "no HTTPS", set("url", "http://example.com/"), "HTTPS")
	check(t, "bad secret", set("url", srv.URL, "secret_token", "a b"), "unallowed")
	check(t, "connections", set("url", srv.URL, "max_connections", "101"), "max_connections")
	check(t, "updates", set("url", srv.URL, "allowed_updates", "x"), "allowed updates")
	check(t, "the webhook", set("url", srv.URL, "secret_token", "abc", "max_connections", "1",
		"allowed_updates", `["message"]`), "")
	check(t, "getUpdates", call(t, api+"getUpdates"), "webhook is active")
	s.Say(42, 42, "2")
	s.EditSay(42, 2, "not wanted")
	s.Say(42, 42, "3")
	if err := s.Wait(t.Context(), func() bool { return s.Pending() == 0 }); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	if !slices.Equal(h.texts, []string{"1", "2", "3"}) || h.mostOnce != 1 ||
		len(h.secrets) != 1 || !h.secrets["abc"] {
		t.Errorf("received %v, %d at once, with the secrets %v", h.texts, h.mostOnce, h.secrets)
	}
	h.mu.Unlock()
	info := string(call(t, api+"getWebhookInfo").Result)
	if !strings.Contains(info, srv.URL) || !strings.Contains(info, "503") {
		t.Errorf("the webhook's info is %s", info)
	}
	check(t, "deleteWebhook", call(t, api+"deleteWebhook"), "")
	s.Say(42, 42, "4")
	if a := call(t, api+"getUpdates"); !strings.Contains(string(a.Result), `"text":"4"`) {
		t.Errorf("getUpdates is answered with %+v", a)
	}
}

func TestWebhookSeveralAtOnce(t *testing.T) {
	s, api := start(t)
	h := &receiver{secrets: make(map[string]bool)}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	for i := range 100 {
		s.Say(42, 42, fmt.Sprint(i))
	}
	check(t, "the webhook", call(t, api+"setWebhook", "url", srv.URL), "")
	if err := s.Wait(t.Context(), func() bool { return s.Pending() == 0 }); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.texts) != 100 {
		t.Errorf("%d updates arrived, want 100", len(h.texts))
	}
}

func TestPeople(t *testing.T) {
	s, api := start(t)
	s.AddGroup(-5, "club")
	s.SayAlbum(-5, 42, "look", []byte("1"), []byte("2"))
	s.SetMember(42, 42, "kicked")
	check(t, "blocked", call(t, api+"sendMessage", "chat_id", "42", "text", "a"),
		"bot was blocked by the user")
	s.SetMember(42, 42, "member")
	check(t, "not blocked", call(t, api+"sendMessage", "chat_id", "42", "text", "a"), "")
	s.SetMember(-5, 42, "kicked")
	check(t, "thrown out", call(t, api+"sendMessage", "chat_id", "-5", "text", "a"),
		"bot was kicked from the group chat")
	s.AddTopics(42, 7)
	check(t, "a topic", call(t, api+"sendMessage", "chat_id", "42", "message_thread_id", "7",
		"text", "a"), "")
	updates := string(call(t, api+"getUpdates").Result)
	if n := strings.Count(updates, "media_group_id"); n != 2 {
		t.Errorf("%d messages are of an album, want 2: %s", n, updates)
	}
	if n := strings.Count(updates, "my_chat_member"); n != 3 {
		t.Errorf("%d changes of membership were told, want 3", n)
	}
	s2 := telegramtest.New(token, &telegramtest.Options{Missing: []string{"getFile"}})
	base, err := s2.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s2.Close)
	check(t, "a missing method", call(t, base+"/bot"+token+"/getFile"), "method not found")
}
