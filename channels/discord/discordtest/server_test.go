package discordtest_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bwmarrin/discordgo"

	"gateway/channels/discord/discordtest"
)

const (
	token  = "MTIz.SECRET"
	person = "4200000000000000042"
	direct = "5200000000000000001"
	club   = "6100000000000000001"
	room   = "6200000000000000001"
	bot    = "900000000000000001"
)

// A client speaks to a Server like a program that shares no code with our adapter.
type client struct {
	*discordtest.Server
	t    *testing.T
	base string
}

// start starts a server. Unless opts says otherwise, a bot has an hour to answer an interaction.
func start(t *testing.T, opts *discordtest.Options) *client {
	t.Helper()
	o := discordtest.Options{}
	if opts != nil {
		o = *opts
	}
	o.AnswerTime = cmp.Or(o.AnswerTime, time.Hour)
	s := discordtest.New(token, &o)
	base, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.AddUser(discordtest.User{ID: person, Username: "ada"})
	s.AddDM(person, direct)
	s.AddGuild(club, "Club")
	s.AddChannel(club, room, "general")
	return &client{Server: s, t: t, base: base}
}

// call makes a call and returns status, answer and headers.
func (c *client) call(method, path, body string) (int, string, http.Header) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.base+"/api/v9/"+path,
		strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bot "+token)
	req.Header.Set("User-Agent", "DiscordBot (https://example.com, 1)")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(answer), resp.Header
}

// send sends a message and returns its id.
func (c *client) send(channel, body string) string {
	c.t.Helper()
	status, answer, _ := c.call("POST", "channels/"+channel+"/messages", body)
	var sent struct{ ID string }
	if json.Unmarshal([]byte(answer), &sent); status != 200 || sent.ID == "" {
		c.t.Fatalf("send %s: %d %s", body, status, answer)
	}
	return sent.ID
}

func TestRefusals(t *testing.T) {
	c := start(t, nil)
	said := c.Say(direct, person, "hi")
	ours := c.send(direct, `{"content":"x"}`)
	c.Refuse(room, 50013, "Missing Permissions")
	const messages = "channels/" + direct + "/messages"
	long := strings.Repeat("é", 2001)
	row := func(buttons string) string {
		return `{"content":"x","components":[{"type":1,"components":[` + buttons + `]}]}`
	}
	const ok = `{"type":2,"style":2,"label":"a","custom_id":"a"}`
	for _, tt := range []struct {
		method, path, body string
		status, code       int
	}{
		{"POST", messages, `{"content":"` + long + `"}`, 400, 50035},
		{"POST", messages, `{"content":"  "}`, 400, 50006},
		{"POST", messages, `{}`, 400, 50006},
		{"POST", messages, `{"contents":"x"}`, 400, 50035},
		{"POST", messages, `{"content":`, 400, 50109},
		{"POST", messages, `{"content":"x","flags":64}`, 400, 50035},
		{"POST", messages, `{"content":"x","nonce":"12345678901234567890123456"}`, 400, 50035},
		{"POST", messages, `{"content":"x","nonce":""}`, 400, 50035},
		{"POST", messages, `{"content":"x","enforce_nonce":true}`, 400, 50035},
		{"POST", messages, `{"content":"x","message_reference":{"message_id":"5"}}`, 400, 50035},
		{"POST", messages, `{"content":"x","message_reference":{"message_id":"x"}}`, 400, 50035},
		{"POST", messages, `{"content":"x","attachments":[{"id":0,"filename":"a"}]}`, 400, 50035},
		{"POST", messages, row(""), 400, 50035},
		{"POST", messages, row(ok + "," + ok), 400, 50035},
		{"POST", messages, row(`{"type":2,"style":2,"label":"","custom_id":"a"}`), 400, 50035},
		{"POST", messages, row(`{"type":2,"style":5,"label":"a","custom_id":"a"}`), 400, 50035},
		{"POST", messages, row(`{"type":2,"style":2,"label":"a"}`), 400, 50035},
		{"POST", "channels/77/messages", `{"content":"x"}`, 404, 10003},
		{"POST", "channels/" + room + "/messages", `{"content":"x"}`, 403, 50013},
		{"GET", messages + "?limit=101", "", 400, 50035},
		{"GET", messages + "?after=1&before=2", "", 400, 50035},
		{"GET", messages + "/5", "", 404, 10008},
		{"PATCH", messages + "/5", `{"content":"x"}`, 404, 10008},
		{"PATCH", messages + "/" + said, `{"content":"x"}`, 403, 50005},
		{"PATCH", messages + "/" + ours, `{"content":""}`, 400, 50006},
		{"PATCH", messages + "/" + ours, `{"content":"x","nonce":"1"}`, 400, 50035},
		{"DELETE", messages + "/" + said, "", 403, 50013},
		{"PUT", messages + "/" + said + "/reactions/x/@me", "", 400, 10014},
		{"DELETE", messages + "/" + said + "/reactions/%F0%9F%91%80/@me", "", 400, 10014},
		{"GET", "guilds/77", "", 404, 10004},
		{"PUT", "applications/" + bot + "/commands",
			`[{"name":"No","description":""}]`, 400, 50035},
		{"PUT", "applications/77/commands", `[]`, 403, 20012},
		{"POST", "interactions/1/x/callback", `{"type":6}`, 404, 10062},
		{"DELETE", "webhooks/" + bot + "/x/messages/@original", "", 404, 10015},
		{"GET", "nonsense", "", 404, 0},
		{"PUT", messages, `{"content":"x"}`, 404, 0},
	} {
		status, answer, _ := c.call(tt.method, tt.path, tt.body)
		var e struct {
			Code    int
			Message string
		}
		if json.Unmarshal([]byte(answer), &e) != nil || status != tt.status || e.Code != tt.code ||
			e.Message == "" {
			t.Errorf("%s %s %.60s = %d %s, want %d with code %d", tt.method, tt.path, tt.body,
				status, answer, tt.status, tt.code)
		}
	}
	if n := len(c.History(direct)); n != 1 {
		t.Errorf("%d messages were sent, want 1", n)
	}
}

func TestAuthorization(t *testing.T) {
	c := start(t, nil)
	for _, tt := range []struct {
		auth, agent string
		want        int
	}{
		{"Bot " + token, "DiscordBot (x, 1)", 200}, {token, "DiscordBot (x, 1)", 401},
		{"", "DiscordBot (x, 1)", 401}, {"Bot " + token, "curl", 403},
	} {
		req, _ := http.NewRequest("GET", c.base+"/api/v9/users/@me", nil)
		req.Header.Set("Authorization", tt.auth)
		req.Header.Set("User-Agent", tt.agent)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // nothing in it matters
		if resp.StatusCode != tt.want {
			t.Errorf("%q by %q = %d, want %d", tt.auth, tt.agent, resp.StatusCode, tt.want)
		}
	}
}

func TestNonce(t *testing.T) {
	c := start(t, nil)
	const body = `{"content":"x","nonce":"n1","enforce_nonce":true}`
	first := c.send(direct, body)
	if again := c.send(direct, body); again != first {
		t.Errorf("the same nonce made message %s, want %s again", again, first)
	}
	if other := c.send(direct, `{"content":"x","nonce":"n1"}`); other == first {
		t.Error("the nonce was enforced without being asked for")
	}
	if other := c.send(room, body); other == first {
		t.Error("the nonce was enforced in another channel")
	}
	c = start(t, &discordtest.Options{NonceTime: time.Millisecond})
	first = c.send(direct, body)
	time.Sleep(2 * time.Millisecond)
	if later := c.send(direct, body); later == first {
		t.Error("the nonce was remembered for too long")
	}
}

func TestHistory(t *testing.T) {
	c := start(t, nil)
	var ids []string
	for i := range 10 {
		ids = append(ids, c.Say(direct, person, fmt.Sprint(i)))
	}
	c.Delete(direct, ids[5])
	for _, tt := range []struct{ query, want string }{
		{"", "9876 43210"},
		{"limit=3", "987"},
		{"limit=3&after=" + ids[1], "432"}, // the first ones after ids[1], newest first
		{"limit=3&before=" + ids[4], "321"},
		{"after=" + ids[9], ""},
	} {
		_, answer, _ := c.call("GET", "channels/"+direct+"/messages?"+tt.query, "")
		var list []struct{ Content string }
		if err := json.Unmarshal([]byte(answer), &list); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, m := range list {
			got += m.Content
		}
		if got != strings.ReplaceAll(tt.want, " ", "") {
			t.Errorf("%s listed %s, want %s", tt.query, got, tt.want)
		}
	}
}

func TestRateLimit(t *testing.T) {
	c := start(t, nil)
	for _, global := range []bool{false, true} {
		c.Inject(discordtest.Fault{Times: 1, RetryAfter: 1500 * time.Millisecond, Global: global})
		status, answer, h := c.call("GET", "users/@me", "")
		var body struct {
			After  float64 `json:"retry_after"`
			Global bool
		}
		if json.Unmarshal([]byte(answer), &body) != nil || status != 429 || body.After != 1.5 ||
			body.Global != global || h.Get("Retry-After") != "2" ||
			(h.Get("X-RateLimit-Global") != "") != global {
			t.Errorf("the answer is %d %s %v", status, answer, h)
		}
	}
	if n := c.Hits(discordtest.Answer, ""); n != 2 {
		t.Errorf("%d calls failed, want 2", n)
	}
}

func TestEffects(t *testing.T) {
	c := start(t, nil)
	const messages = "channels/" + direct + "/messages"
	c.Inject(discordtest.Fault{Method: "createMessage", Channel: direct, Times: 1,
		When: func(s string) bool { return s == "b" }, Effect: discordtest.Lose})
	c.send(direct, `{"content":"a"}`)
	if status, _, _ := c.call("POST", messages, `{"content":"b"}`); status != 0 {
		t.Errorf("a lost answer came with status %d", status)
	}
	remove := c.Inject(discordtest.Fault{Effect: discordtest.Page})
	if status, answer, _ := c.call("GET", messages, ""); status != 502 || answer[0] != '<' {
		t.Errorf("a page came as %d %s", status, answer)
	}
	remove()
	c.SetOutage(true)
	if status, _, _ := c.call("GET", messages, ""); status != 0 {
		t.Errorf("an outage came with status %d", status)
	}
	c.SetOutage(false)
	c.send(direct, `{"content":"c"}`)
	var texts []string
	for _, s := range c.History(direct) {
		texts = append(texts, s.Text)
	}
	if !slices.Equal(texts, []string{"a", "b", "c"}) {
		t.Errorf("sent %q", texts)
	}
}

func TestPings(t *testing.T) {
	c := start(t, nil)
	said := c.Say(room, person, "hi")
	const all = `"content":"@everyone <@` + person + `> <@&5>"`
	for _, tt := range []struct {
		mentions string
		want     []string
	}{
		{``, []string{"everyone", person, "5"}},
		{`,"allowed_mentions":{"parse":[]}`, nil},
		{`,"allowed_mentions":{"parse":["users"]}`, []string{person}},
		{`,"allowed_mentions":{"parse":[],"roles":["5"]}`, []string{"5"}},
		{`,"allowed_mentions":{"parse":[],"replied_user":true},"message_reference":{"message_id":"` +
			said + `"}`, []string{person}},
	} {
		id := c.send(room, "{"+all+tt.mentions+"}")
		h := c.History(room)
		if got := h[len(h)-1]; got.ID != id || !slices.Equal(got.Pings, tt.want) {
			t.Errorf("%s notified %q, want %q", tt.mentions, got.Pings, tt.want)
		}
	}
}

func TestFiles(t *testing.T) {
	content := []byte("PNG")
	say := func(c *client) (link string) {
		id := c.SayFile(direct, person, "", discordtest.File{Name: "a b.png", Type: "image/png",
			Content: content})
		_, answer, _ := c.call("GET", "channels/"+direct+"/messages/"+id, "")
		var m struct{ Attachments []struct{ URL string } }
		if err := json.Unmarshal([]byte(answer), &m); err != nil || len(m.Attachments) != 1 {
			t.Fatalf("the message is %s", answer)
		}
		return strings.Replace(m.Attachments[0].URL, "https://cdn.discordapp.com", c.base, 1)
	}
	get := func(link string) (int, []byte) {
		resp, err := http.Get(link)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, b
	}
	link := say(start(t, nil))
	if status, b := get(link); status != 200 || !bytes.Equal(b, content) {
		t.Errorf("the file is %d %q", status, b)
	}
	if status, _ := get(strings.Replace(link, "hm=", "hm=0", 1)); status != 404 {
		t.Errorf("a forged link leads to %d", status)
	}
	link = say(start(t, &discordtest.Options{LinkTime: time.Millisecond}))
	time.Sleep(2 * time.Millisecond)
	if status, _ := get(link); status != 404 {
		t.Errorf("an old link leads to %d", status)
	}
}

// TestLibrary checks that discordgo, the library that most bots use, works with the server
// unchanged.
func TestLibrary(t *testing.T) {
	c := start(t, nil)
	base, err := url.Parse(c.base)
	if err != nil {
		t.Fatal(err)
	}
	dg, err := discordgo.New("Bot " + token)
	if err != nil {
		t.Fatal(err)
	}
	dg.Client = &http.Client{Transport: redirect{base}}
	dg.Identify.Intents = discordgo.IntentsGuildMessages | discordgo.IntentsDirectMessages
	got := make(chan *discordgo.Message, 10)
	dg.AddHandler(func(_ *discordgo.Session, m *discordgo.MessageCreate) { got <- m.Message })
	if err := dg.Open(); err != nil {
		t.Fatal(err)
	}
	defer dg.Close()
	c.Say(direct, person, "hello")
	if m := <-got; m.Content != "hello" || m.Author.ID != person || m.GuildID != "" {
		t.Errorf("received %+v", m)
	}
	c.Say(room, person, "secret")
	if m := <-got; m.Content != "" || m.GuildID != club {
		t.Errorf("received %+v, want no content without the intent", m)
	}
	c.Say(room, person, "<@"+bot+"> hi")
	if m := <-got; !strings.HasSuffix(m.Content, "hi") {
		t.Errorf("received %+v, want the content of a mention", m)
	}
	if _, err := dg.ChannelMessageSend(direct, "answer"); err == nil {
		t.Error("the library's field sticker_ids is known, which the gateway does not use")
	}
	dg.AddHandler(func(_ *discordgo.Session, i *discordgo.InteractionCreate) {
		got <- &discordgo.Message{Content: i.ApplicationCommandData().Name}
		_ = dg.InteractionRespond(i.Interaction, &discordgo.InteractionResponse{
			Type: discordgo.InteractionResponseDeferredChannelMessageWithSource})
	})
	id := c.Slash(room, person, "help")
	if m := <-got; m.Content != "help" {
		t.Errorf("received %+v", m)
	}
	if err := c.Wait(t.Context(), func() bool { return c.Unanswered() == 0 }); err != nil {
		t.Error(err)
	}
	if i := c.Interaction(id); i.Answer != discordtest.AnswerLater || i.Late {
		t.Errorf("the interaction is %+v", i)
	}
}

// A redirect sends requests for Discord to the server.
type redirect struct{ base *url.URL }

func (r redirect) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host = r.base.Scheme, r.base.Host
	return http.DefaultTransport.RoundTrip(req)
}
