package discordtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"gateway/channels/discord/discordtest"
)

// A frame is a message of the gateway.
type frame struct {
	Op   int             `json:"op"`
	Data json.RawMessage `json:"d"`
	Seq  int64           `json:"s"`
	Type string          `json:"t"`
}

// A peer is a bare connection to the gateway.
type peer struct {
	t  *testing.T
	ws *websocket.Conn
}

// dial connects and reads the greeting.
func (c *client) dial() *peer {
	c.t.Helper()
	p := c.connect()
	if f := p.read(); f.Op != 10 {
		c.t.Fatalf("the greeting is %+v", f)
	}
	return p
}

// connect connects.
func (c *client) connect() *peer {
	c.t.Helper()
	address := "ws" + strings.TrimPrefix(c.base, "http") + "/gateway/?v=9&encoding=json"
	ws, resp, err := websocket.DefaultDialer.DialContext(c.t.Context(), address, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = resp.Body.Close() // it is empty
	c.t.Cleanup(func() { _ = ws.Close() })
	return &peer{c.t, ws}
}

// patience bounds every wait. Only failing tests wait that long.
const patience = 3 * time.Minute

func (p *peer) read() frame {
	p.t.Helper()
	var f frame
	_ = p.ws.SetReadDeadline(time.Now().Add(patience)) // it never fails
	if err := p.ws.ReadJSON(&f); err != nil {
		p.t.Fatal(err)
	}
	return f
}

func (p *peer) write(format string, args ...any) {
	p.t.Helper()
	err := p.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...))
	if err != nil {
		p.t.Fatal(err)
	}
}

// closed reads until the connection ends and returns the code, or 0 if there was none.
func (p *peer) closed() int {
	p.t.Helper()
	_ = p.ws.SetReadDeadline(time.Now().Add(patience)) // it never fails
	for {
		if _, _, err := p.ws.ReadMessage(); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				p.t.Fatal("the connection was not closed")
			}
			e, ok := errors.AsType[*websocket.CloseError](err)
			if ok && e.Code != websocket.CloseAbnormalClosure {
				return e.Code
			}
			return 0
		}
	}
}

const identify = `{"op":2,"d":{"token":"` + token + `","intents":37376}}` // both messages, content

// begin identifies and returns the session's id.
func (p *peer) begin() string {
	p.t.Helper()
	p.write(identify)
	f := p.read()
	var ready struct {
		ID string `json:"session_id"`
	}
	if json.Unmarshal(f.Data, &ready) != nil || f.Type != "READY" || ready.ID == "" || f.Seq != 1 {
		p.t.Fatalf("the answer to IDENTIFY is %+v", f)
	}
	return ready.ID
}

func TestCloseCodes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		frames []string
		want   int
	}{
		{"no JSON", []string{"{"}, 4002},
		{"unknown operation", []string{`{"op":77}`}, 4001},
		{"presence first", []string{`{"op":3,"d":{}}`}, 4003},
		{"wrong token", []string{`{"op":2,"d":{"token":"x","intents":0}}`}, 4004},
		{"wrong token to resume", []string{`{"op":6,"d":{"token":"x","session_id":"y"}}`}, 4004},
		{"twice", []string{identify, identify}, 4005},
		{"shard", []string{`{"op":2,"d":{"token":"` + token + `","intents":0,"shard":[2,2]}}`}, 4010},
		{"no intents", []string{`{"op":2,"d":{"token":"` + token + `"}}`}, 4013},
		{"unknown intents", []string{`{"op":2,"d":{"token":"` + token +
			`","intents":1099511627776}}`}, 4013},
		{"members", []string{`{"op":2,"d":{"token":"` + token + `","intents":2}}`}, 4014},
	} {
		p := start(t, nil).dial()
		for _, f := range tt.frames {
			p.write("%s", f)
		}
		if got := p.closed(); got != tt.want {
			t.Errorf("%s: closed with %d, want %d", tt.name, got, tt.want)
		}
	}
	p := start(t, &discordtest.Options{NoContent: true}).dial()
	p.write(identify)
	if got := p.closed(); got != 4014 {
		t.Errorf("content: closed with %d, want 4014", got)
	}
}

func TestResume(t *testing.T) {
	c := start(t, nil)
	p := c.dial()
	id := p.begin()
	c.Say(direct, person, "one")
	if f := p.read(); f.Type != "MESSAGE_CREATE" || f.Seq != 2 {
		t.Errorf("received %+v", f)
	}
	c.Drop()
	if code := p.closed(); code != 0 {
		t.Errorf("a drop has code %d", code)
	}
	c.Say(direct, person, "two")
	resume := `{"op":6,"d":{"token":"` + token + `","session_id":"%s","seq":%d}}`
	p = c.dial()
	p.write(resume, id, 1)
	for i, want := range []string{"MESSAGE_CREATE", "MESSAGE_CREATE", "RESUMED"} {
		if f := p.read(); f.Type != want || f.Seq != int64(i+2) {
			t.Errorf("received %+v, want %s", f, want)
		}
	}
	c.Drop()
	p = c.dial()
	p.write(resume, id, 99)
	if code := p.closed(); code != 4007 {
		t.Errorf("a resume ahead of the time was closed with %d, want 4007", code)
	}
	p = c.dial()
	p.write(resume, id, 1)
	if f := p.read(); f.Op != 9 || string(f.Data) != "false" {
		t.Errorf("the answer to a resume of no session is %+v", f)
	}
	p.begin() // on the same connection
	goodbye := websocket.FormatCloseMessage(1000, "")
	if err := p.ws.WriteMessage(websocket.CloseMessage, goodbye); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(t.Context(), func() bool { return c.Connected() == 0 }); err != nil {
		t.Fatal(err)
	}
}

func TestOrders(t *testing.T) {
	c := start(t, nil)
	p := c.dial()
	id := p.begin()
	p.write(`{"op":1,"d":1}`)
	if f := p.read(); f.Op != 11 {
		t.Errorf("the answer to a heartbeat is %+v", f)
	}
	c.Mute(true)
	p.write(`{"op":1,"d":1}`)
	c.Reconnect()
	if f := p.read(); f.Op != 7 {
		t.Errorf("received %+v, want op 7 and no acknowledgement", f)
	}
	c.InvalidSession(true)
	if f := p.read(); f.Op != 9 || string(f.Data) != "true" {
		t.Errorf("received %+v, want op 9", f)
	}
	for _, op := range []int{9, 7} {
		if op == 9 {
			c.RefuseResume(1)
		} else {
			c.ReconnectOnResume(1)
		}
		p = c.dial()
		p.write(`{"op":6,"d":{"token":"%s","session_id":"%s","seq":1}}`, token, id)
		if f := p.read(); f.Op != op {
			t.Errorf("the answer to RESUME is %+v, want op %d", f, op)
		}
	}
	c.LimitStarts(0, time.Hour)
	p = c.dial()
	p.write(identify)
	if code := p.closed(); code != 4004 {
		t.Errorf("a session too many: closed with %d, want 4004", code)
	}
	c.SetToken(token)
	c.LimitStarts(1000, time.Hour)
	c.RefuseIdentify(4000)
	p = c.dial()
	p.write(identify)
	if code := p.closed(); code != 4000 {
		t.Errorf("closed with %d, want 4000", code)
	}
	c.Freeze(true)
	p = c.connect()
	_ = p.ws.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // it never fails
	if _, _, err := p.ws.ReadMessage(); err == nil {
		t.Error("a frozen gateway has spoken")
	}
	c = start(t, &discordtest.Options{Heartbeat: 50 * time.Millisecond})
	if code := c.connect().closed(); code != 0 {
		t.Errorf("closed with %d, want silence after no heartbeats", code)
	}
}

func TestShards(t *testing.T) {
	c := start(t, nil)
	var peers []*peer
	for i := range 2 {
		p := c.dial()
		p.write(`{"op":2,"d":{"token":"%s","intents":4608,"shard":[%d,2]}}`, token, i)
		p.read()
		peers = append(peers, p)
	}
	const odd = "4194304" // (1 << 22), of shard 1
	c.AddGuild(odd, "Odd")
	c.AddChannel(odd, "5", "general")
	c.Say("5", person, "a")
	c.Say(direct, person, "b")
	if f := peers[1].read(); !strings.Contains(string(f.Data), `"guild_id":"4194304"`) {
		t.Errorf("shard 1 received %+v", f)
	}
	if f := peers[0].read(); strings.Contains(string(f.Data), "guild_id") {
		t.Errorf("shard 0 received %+v", f)
	}
}

func TestLateAnswer(t *testing.T) {
	ask := func(c *client) (id, path string) {
		p := c.dial()
		p.begin()
		id = c.Slash(room, person, "help")
		var i struct{ Token string }
		if err := json.Unmarshal(p.read().Data, &i); err != nil {
			t.Fatal(err)
		}
		return id, "interactions/" + id + "/" + i.Token + "/callback"
	}
	c := start(t, nil)
	_, path := ask(c)
	if status, answer, _ := c.call("POST", path, `{"type":6}`); status != http.StatusBadRequest {
		t.Errorf("a command was answered like a button: %d %s", status, answer)
	}
	c = start(t, &discordtest.Options{AnswerTime: time.Millisecond})
	id, path := ask(c)
	time.Sleep(2 * time.Millisecond)
	if status, answer, _ := c.call("POST", path, `{"type":5}`); status != http.StatusNotFound {
		t.Errorf("a late answer was taken: %d %s", status, answer)
	}
	if got := c.Interaction(id); !got.Late || c.Unanswered() != 1 {
		t.Errorf("the interaction is %+v", got)
	}
}

func TestButtons(t *testing.T) {
	c := start(t, nil)
	p := c.dial()
	p.begin()
	m := c.send(room, `{"content":"x","components":[{"type":1,"components":[`+
		`{"type":2,"style":2,"label":"a","custom_id":"a"}]}]}`)
	p.read()
	id := c.Press(room, m, "a", person)
	var i struct {
		Token string
		Data  struct {
			ID string `json:"custom_id"`
		}
	}
	if err := json.Unmarshal(p.read().Data, &i); err != nil || i.Data.ID != "a" {
		t.Fatalf("the press is %+v, %v", i, err)
	}
	path := "interactions/" + id + "/" + i.Token + "/callback"
	if status, answer, _ := c.call("POST", path, `{"type":6}`); status != http.StatusNoContent {
		t.Errorf("the answer was refused: %d %s", status, answer)
	}
	if status, _, _ := c.call("POST", path, `{"type":6}`); status != http.StatusBadRequest {
		t.Errorf("a second answer was taken: %d", status)
	}
	if got := c.Interaction(id); got.Answer != discordtest.AnswerNothing || c.Unanswered() != 0 {
		t.Errorf("the interaction is %+v", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("a button that is not there was pressed")
		}
	}()
	c.Press(room, m, "b", person)
}
