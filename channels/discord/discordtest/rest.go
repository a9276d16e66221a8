package discordtest

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// routes maps verbs and paths to method names. A "*" stands for one segment of the path.
var routes = []struct{ verb, path, method string }{
	{"POST", "channels/*/messages", "createMessage"},
	{"GET", "channels/*/messages", "listMessages"},
	{"GET", "channels/*/messages/*", "getMessage"},
	{"PATCH", "channels/*/messages/*", "editMessage"},
	{"DELETE", "channels/*/messages/*", "deleteMessage"},
	{"PUT", "channels/*/messages/*/reactions/*/@me", "putReaction"},
	{"DELETE", "channels/*/messages/*/reactions/*/@me", "deleteReaction"},
	{"POST", "channels/*/typing", "typing"},
	{"GET", "channels/*", "getChannel"},
	{"GET", "guilds/*", "getGuild"},
	{"GET", "guilds/*/channels", "guildChannels"},
	{"DELETE", "users/@me/guilds/*", "leaveGuild"},
	{"GET", "guilds/*/threads/active", "activeThreads"},
	{"GET", "users/@me", "getMe"},
	{"GET", "oauth2/applications/@me", "getApplication"},
	{"GET", "applications/@me", "getApplication"},
	{"PUT", "applications/*/commands", "putCommands"},
	{"POST", "interactions/*/*/callback", "callback"},
	{"DELETE", "webhooks/*/*/messages/@original", "deleteResponse"},
	{"GET", "gateway", "getGateway"},
	{"GET", "gateway/bot", "getGatewayBot"},
}

// A call is one request of the bot.
type call struct {
	method  string   // method name, or "" if there is no such method
	vars    []string // the segments for "*"
	channel string   // its channel, or ""
	query   url.Values
	body    []byte
	files   map[string]File // of a multipart form, by field
	at      time.Time       // when it was fully read
}

// route determines the method of r.
func (s *Server) route(r *http.Request) *call {
	c := &call{query: r.URL.Query()}
	switch {
	case strings.HasPrefix(r.URL.Path, "/attachments/") && r.Method == http.MethodGet:
		c.method = "file"
	case r.URL.Path == "/gateway/":
		c.method = "gateway"
	}
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), "/api/v9/")
	if !ok {
		return c
	}
	for _, route := range routes {
		if vars, ok := match(route.path, path); ok && route.verb == r.Method {
			c.method, c.vars = route.method, vars
			break
		}
	}
	if c.method != "" && strings.HasPrefix(path, "channels/") {
		c.channel = c.vars[0]
	}
	return c
}

func match(pattern, path string) (vars []string, ok bool) {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return nil, false
	}
	for i := range want {
		if want[i] == "*" {
			v, err := url.PathUnescape(got[i])
			if err != nil || v == "" {
				return nil, false
			}
			vars = append(vars, v)
		} else if want[i] != got[i] {
			return nil, false
		}
	}
	return vars, true
}

// open reports whether a call needs no token.
func (c *call) open() bool {
	switch c.method {
	case "file", "gateway", "getGateway", "callback", "deleteResponse":
		return true
	}
	return false
}

// read reads the body: JSON, or a form with JSON and files.
func (c *call) read(r *http.Request) reply {
	defer func() { c.at = time.Now() }()
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // missing: no body
	if kind != "multipart/form-data" {
		body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, 32<<20))
		if err != nil || len(body) > 0 && (kind != "application/json" || !json.Valid(body)) {
			return refuse(400, 50109, "The request body contains invalid JSON.")
		}
		c.body = body
		return reply{}
	}
	c.files = make(map[string]File)
	form := multipart.NewReader(r.Body, params["boundary"])
	for {
		part, err := form.NextPart()
		if err == io.EOF {
			return reply{}
		}
		if err != nil {
			return refuse(400, 50035, "Invalid Form Body")
		}
		var content bytes.Buffer
		if _, err := content.ReadFrom(io.LimitReader(part, 32<<20)); err != nil {
			return refuse(400, 50035, "Invalid Form Body")
		}
		if part.FormName() == "payload_json" {
			c.body = content.Bytes()
			continue
		}
		c.files[part.FormName()] = File{
			Name: part.FileName(), Type: part.Header.Get("Content-Type"), Content: content.Bytes(),
		}
	}
}

// text returns the content of a message that is sent or edited.
func (c *call) text() string {
	var body struct{ Content string }
	_ = json.Unmarshal(c.body, &body) // no JSON: no content
	return body.Content
}

// decode reads the body into v. A field of the body that v doesn't have is an error.
func (c *call) decode(v any) reply {
	d := json.NewDecoder(bytes.NewReader(c.body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return invalid("body", "BASE_TYPE", err.Error())
	}
	return reply{}
}

// A reply is the answer to a call: a result or a failure.
type reply struct {
	result any // nil: an answer without content

	status     int // of a failure, or 0
	code       int // one of Discord's error codes
	message    string
	errors     any
	retryAfter time.Duration
	global     bool
}

func refuse(status, code int, message string) reply {
	return reply{status: status, code: code, message: message}
}

// invalid returns the answer to a body with an invalid field.
func invalid(field, kind, message string) reply {
	r := refuse(400, 50035, "Invalid Form Body")
	type problem struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	r.errors = map[string]any{field: map[string]any{"_errors": []problem{{kind, message}}}}
	return r
}

// execute executes c.
func (s *Server) execute(c *call) reply {
	s.mu.Lock()
	answer, sent := s.executeLocked(c)
	s.changed.Notify()
	s.mu.Unlock()
	if sent != nil && s.opts.OnSend != nil {
		s.opts.OnSend(*sent)
	}
	return answer
}

func (s *Server) executeLocked(c *call) (answer reply, sent *Sent) {
	switch c.method {
	case "getMe":
		return reply{result: s.bot}, nil
	case "getApplication":
		return reply{result: s.application()}, nil
	case "getGateway":
		url := "ws" + strings.TrimPrefix(s.base, "http") + "/gateway"
		return reply{result: map[string]any{"url": url}}, nil
	case "getGatewayBot":
		return s.getGatewayBot(), nil
	case "getGuild", "guildChannels", "leaveGuild", "activeThreads":
		return s.guildCall(c), nil
	case "putCommands":
		return s.putCommands(c), nil
	case "callback":
		return s.callback(c), nil
	case "deleteResponse":
		return s.deleteResponse(c), nil
	}
	ch := s.channels[c.channel]
	switch {
	case ch == nil:
		return refuse(404, 10003, "Unknown Channel"), nil
	case ch.guild != nil && ch.guild.left:
		return refuse(403, 50001, "Missing Access"), nil
	case ch.refusal.status != 0:
		return ch.refusal, nil
	}
	switch c.method {
	case "getChannel":
		return reply{result: ch.wire()}, nil
	case "typing":
		ch.typing++
		return reply{}, nil
	case "listMessages":
		if ch.denies(ReadMessageHistory) {
			return reply{result: []any{}}, nil
		}
		return s.listMessages(c, ch), nil
	case "createMessage":
		return s.createMessage(c, ch)
	}
	if c.forbidden(ch) {
		return refuse(403, 50013, "Missing Permissions"), nil
	}
	m := ch.find(c.vars[1])
	if m == nil {
		return refuse(404, 10008, "Unknown Message"), nil
	}
	switch c.method {
	case "editMessage":
		return s.editMessage(c, ch, m), nil
	case "deleteMessage":
		if m.author != s.bot.ID {
			return refuse(403, 50013, "Missing Permissions"), nil
		}
		m.sent.Deleted = true
		return reply{}, nil
	case "putReaction", "deleteReaction":
		return s.react(m, c.vars[2], c.method == "putReaction"), nil
	}
	return reply{result: s.wire(ch, m)}, nil // getMessage
}

// forbidden reports whether the bot lacks a permission that a call about one message of ch needs.
func (c *call) forbidden(ch *channel) bool {
	switch c.method {
	case "getMessage":
		return ch.denies(ReadMessageHistory)
	case "putReaction":
		return ch.denies(ReadMessageHistory) || ch.denies(AddReactions)
	}
	return false
}

func (ch *channel) wire() any {
	w := map[string]any{"id": ch.id, "type": ch.kind}
	if ch.name != "" {
		w["name"] = ch.name
	}
	if ch.guild != nil {
		w["guild_id"] = ch.guild.id
	}
	if ch.parent != nil {
		w["parent_id"] = ch.parent.id
	}
	if n := len(ch.messages); n > 0 {
		w["last_message_id"] = ch.messages[n-1].sent.ID
	}
	return w
}

// guildCall executes a call about a guild.
func (s *Server) guildCall(c *call) reply {
	g := s.guilds[c.vars[0]]
	switch {
	case (g == nil || g.left) && c.method == "activeThreads":
		return refuse(403, 50001, "Missing Access")
	case g == nil || g.left:
		return refuse(404, 10004, "Unknown Guild")
	}
	switch c.method {
	case "guildChannels":
		return s.guildChannels(g)
	case "activeThreads":
		return s.activeThreads(g)
	case "leaveGuild":
		if g.owned {
			return refuse(400, 50055, "Invalid Guild")
		}
		g.left = true
		return reply{}
	}
	return reply{result: map[string]any{"id": g.id, "name": g.name, "roles": g.wire()}} // getGuild
}

// guildChannels returns the channels of a guild without its threads.
func (s *Server) guildChannels(g *guild) reply {
	list := []any{}
	for _, ch := range s.channels {
		if ch.guild == g && ch.kind != kindThread {
			list = append(list, ch.wire())
		}
	}
	return reply{result: list}
}

// activeThreads returns the threads of a guild that the bot may see.
func (s *Server) activeThreads(g *guild) reply {
	threads := []any{}
	for _, ch := range s.channels {
		if ch.kind == kindThread && ch.guild == g && ch.refusal.status == 0 &&
			ch.parent.refusal.status == 0 {
			threads = append(threads, ch.wire())
		}
	}
	return reply{result: map[string]any{"threads": threads, "members": []any{}}}
}

// listMessages returns up to 100 messages, newest first: the last ones before an id, or the first
// ones after it.
func (s *Server) listMessages(c *call, ch *channel) reply {
	limit := 50
	if l := c.query.Get("limit"); l != "" {
		n, err := strconv.Atoi(l)
		if err != nil || n < 1 || n > 100 {
			return invalid("limit", "NUMBER_TYPE_MAX", "int value should be 1 to 100.")
		}
		limit = n
	}
	after, before := number(c.query.Get("after")), number(c.query.Get("before"))
	if after > 0 && before > 0 {
		return invalid("after", "MUTUALLY_EXCLUSIVE", "after and before can't be mixed.")
	}
	var found []*message
	for _, m := range ch.messages {
		id := number(m.sent.ID)
		if !m.sent.Deleted && id > after && (before == 0 || id < before) {
			found = append(found, m)
		}
	}
	if after > 0 {
		found = found[:min(limit, len(found))]
	} else {
		found = found[max(0, len(found)-limit):]
	}
	list := make([]any, 0, len(found))
	for i := range found {
		list = append(list, s.wire(ch, found[len(found)-1-i]))
	}
	return reply{result: list}
}

func (s *Server) react(m *message, emoji string, on bool) reply {
	if emoji == "" || len(emoji) < 3 || !on && !m.reactions[emoji][s.bot.ID] {
		return refuse(400, 10014, "Unknown Emoji")
	}
	if m.reactions == nil {
		m.reactions = make(map[string]map[string]bool)
	}
	if m.reactions[emoji] == nil {
		m.reactions[emoji] = make(map[string]bool)
	}
	if on {
		m.reactions[emoji][s.bot.ID] = true
	} else {
		delete(m.reactions[emoji], s.bot.ID)
	}
	return reply{}
}

// write writes an answer as Discord does.
func write(w http.ResponseWriter, a reply) {
	h := w.Header()
	status := a.status
	var v any = a.result
	switch {
	case status == 0 && a.result == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	case status == 0:
		status = http.StatusOK
	case a.retryAfter > 0:
		v = map[string]any{"message": a.message, "retry_after": a.retryAfter.Seconds(),
			"global": a.global, "code": a.code}
		h.Set("Retry-After", strconv.Itoa(int((a.retryAfter+time.Second-1)/time.Second)))
		if a.global {
			h.Set("X-RateLimit-Global", "true")
			h.Set("X-RateLimit-Scope", "global")
		} else {
			h.Set("X-RateLimit-Bucket", "abcd1234")
			h.Set("X-RateLimit-Limit", "5")
			h.Set("X-RateLimit-Remaining", "0")
			h.Set("X-RateLimit-Reset-After", strconv.FormatFloat(a.retryAfter.Seconds(), 'f', 3, 64))
			h.Set("X-RateLimit-Scope", "user")
		}
	default:
		failure := map[string]any{"message": a.message, "code": a.code}
		if a.errors != nil {
			failure["errors"] = a.errors
		}
		v = failure
	}
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // a test put something into Extra that is not JSON
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}
