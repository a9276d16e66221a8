package telegramtest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// A User is a person or a bot.
type User struct {
	ID       int64  `json:"id"`
	Bot      bool   `json:"is_bot"`
	First    string `json:"first_name"`
	Last     string `json:"last_name,omitempty"`
	Username string `json:"username,omitempty"`
}

// A Message is what a person writes.
type Message struct {
	Chat    int64 // 0 means the direct chat with User
	User    int64
	Thread  int    // topic of a forum, or 0
	Text    string // mentions and commands in it become entities
	ReplyTo int    // id of a message in the same chat, or 0

	// Extra holds further fields of the Bot API's Message, such as "photo" or "caption".
	Extra map[string]any
}

// A Sent is a message that the bot sent, as it stands now.
type Sent struct {
	Chat    int64
	ID      int
	Thread  int
	ReplyTo int
	Text    string // what people read: after parsing
	Source  string // as the bot sent it: HTML if it asked for that
	Edits   int
	Deleted bool

	// Received is when the server had read the call, and Served when it last gave the
	// bot an update of this chat before that: their difference is what the bot took.
	Received, Served time.Time
}

// A chat is one conversation. Its messages have the ids first, first+1, …
type chat struct {
	id        int64
	kind      string // "private", "group" or "supergroup"
	title     string
	forum     bool
	topics    map[int]bool
	refusal   string // why the bot may not write here, or ""
	migrated  int64  // id of the supergroup it became, or 0
	served    time.Time
	typing    map[int]int // by topic
	first     int
	messages  []message
	sentCount int
}

// A message is one entry of a chat, written by a person or by the bot.
type message struct {
	from int64
	sent Sent
}

func (c *chat) find(id int) *message {
	if i := id - c.first; i >= 0 && i < len(c.messages) && !c.messages[i].sent.Deleted {
		return &c.messages[i]
	}
	return nil
}

// add stores m under the next id and forgets the oldest beyond keep.
func (c *chat) add(m message, keep int) int {
	m.sent.ID = c.first + len(c.messages)
	c.messages = append(c.messages, m)
	if n := len(c.messages) - keep; keep > 0 && n > 0 {
		c.messages = c.messages[n:]
		c.first += n
	}
	return m.sent.ID
}

// AddUser adds or replaces a person. Their direct chat with the bot exists from then on.
func (s *Server) AddUser(u User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addUser(u)
}

func (s *Server) addUser(u User) *chat {
	s.users[u.ID] = u
	if s.chats[u.ID] == nil {
		s.chats[u.ID] = &chat{id: u.ID, kind: "private", first: 1}
	}
	return s.chats[u.ID]
}

// AddGroup adds a group, or a supergroup if the id is below -1000000000000 as theirs are. It
// is a forum if it has topics.
func (s *Server) AddGroup(id int64, title string, topics ...int) {
	if id >= 0 {
		panic("telegramtest: a group's id is negative")
	}
	c := &chat{id: id, kind: "group", title: title, forum: len(topics) > 0, first: 1}
	if id < -1_000_000_000_000 {
		c.kind = "supergroup"
	}
	c.topics = make(map[int]bool)
	for _, t := range topics {
		c.topics[t] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chats[id] = c
}

// Migrate turns a group into the supergroup with the given id: sending to the old one is
// refused with a pointer to the new one.
func (s *Server) Migrate(group, supergroup int64) {
	s.mu.Lock()
	title := s.chats[group].title
	s.chats[group].migrated = supergroup
	s.mu.Unlock()
	s.AddGroup(supergroup, title)
}

// Refuse makes Telegram answer 403 with reason, such as "bot was blocked by the user", to
// whatever the bot sends to the chat; "" takes it back.
func (s *Server) Refuse(chatID int64, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chats[chatID].refusal = reason
}

// Delete deletes a message of the bot, as a person can.
func (s *Server) Delete(chatID int64, id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.chats[chatID].find(id); m != nil {
		m.sent.Deleted = true
	}
}

// Say makes user write text in a chat and returns the message's id. A person who is not
// known is added; a direct chat has the person's own id.
func (s *Server) Say(chatID, user int64, text string) int {
	return s.Deliver(Message{Chat: chatID, User: user, Text: text})[0]
}

// Deliver queues messages at once, so that one getUpdates call can return them all, and
// returns their ids. It panics if a group is not known.
func (s *Server) Deliver(messages ...Message) []int {
	ids := make([]int, 0, len(messages))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		ids = append(ids, s.deliver(m))
	}
	s.change()
	return ids
}

func (s *Server) deliver(m Message) int {
	u, ok := s.users[m.User]
	if !ok {
		u = User{ID: m.User, First: "User " + strconv.FormatInt(m.User, 10)}
		s.addUser(u)
	}
	if m.Chat == 0 {
		m.Chat = m.User
	}
	c := s.chats[m.Chat]
	if c == nil {
		panic(fmt.Sprintf("telegramtest: no chat %d", m.Chat))
	}
	now := time.Now()
	id := c.add(message{from: m.User, sent: Sent{
		Chat: m.Chat, Thread: m.Thread, Text: m.Text, Received: now,
	}}, s.keep)
	w := wireMessage{
		ID: id, From: &u, Chat: c.wire(), Date: now.Unix(),
		Text: m.Text, Entities: entities(m.Text), Thread: m.Thread, Topic: m.Thread != 0,
	}
	if r := c.find(m.ReplyTo); r != nil {
		from := s.users[r.from]
		w.ReplyTo = &wireMessage{
			ID: m.ReplyTo, From: &from, Chat: c.wire(), Date: r.sent.Received.Unix(),
			Text: r.sent.Text,
		}
	}
	s.enqueue(append([]byte(`"message":`), marshal(w, m.Extra)...), c, id)
	return id
}

// marshal returns w as JSON with further fields added.
func marshal(w wireMessage, extra map[string]any) []byte {
	b, err := json.Marshal(w)
	if err == nil && len(extra) > 0 {
		var more []byte
		more, err = json.Marshal(extra)
		b = append(append(b[:len(b)-1], ','), more[min(1, len(more)):]...)
	}
	if err != nil {
		panic(err) // the test put something into Extra that is no JSON
	}
	return b
}

// History returns what the bot sent to a chat, oldest first, deleted messages too.
func (s *Server) History(chatID int64) []Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chatID]
	if c == nil {
		return nil
	}
	var sent []Sent
	for _, m := range c.messages {
		if m.from == s.bot.ID {
			sent = append(sent, m.sent)
		}
	}
	return sent
}

// SentCount returns how many messages the bot sent to a chat, forgotten ones too.
func (s *Server) SentCount(chatID int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.chats[chatID]; c != nil {
		return c.sentCount
	}
	return 0
}

// Typing returns how often the bot showed that it is typing in a topic (0: outside topics).
func (s *Server) Typing(chatID int64, thread int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chats[chatID].typing[thread]
}

// wireMessage and those below are the parts of the Bot API's objects that the server sends.
type wireMessage struct {
	ID       int          `json:"message_id"`
	Thread   int          `json:"message_thread_id,omitempty"`
	Topic    bool         `json:"is_topic_message,omitempty"`
	From     *User        `json:"from,omitempty"`
	Chat     wireChat     `json:"chat"`
	Date     int64        `json:"date"`
	ReplyTo  *wireMessage `json:"reply_to_message,omitempty"`
	Text     string       `json:"text,omitempty"`
	Entities []wireEntity `json:"entities,omitempty"`
}

type wireChat struct {
	ID    int64  `json:"id"`
	Type  string `json:"type"`
	Title string `json:"title,omitempty"`
	Forum bool   `json:"is_forum,omitempty"`
}

type wireEntity struct {
	Type   string `json:"type"`
	Offset int    `json:"offset"` // UTF-16 units
	Length int    `json:"length"`
}

func (c *chat) wire() wireChat {
	return wireChat{ID: c.id, Type: c.kind, Title: c.title, Forum: c.forum}
}

// entities finds the mentions and commands in text: words that begin with "@" or "/".
func entities(text string) []wireEntity {
	if !strings.ContainsAny(text, "@/") {
		return nil
	}
	var found []wireEntity
	units := 0
	for word := range strings.FieldsSeq(text) {
		at := strings.Index(text, word)
		units += utf16Len(text[:at])
		text = text[at+len(word):]
		name := strings.TrimRight(word, ",.:;!?")
		switch {
		case len(name) > 1 && name[0] == '@':
			found = append(found, wireEntity{"mention", units, utf16Len(name)})
		case len(name) > 1 && name[0] == '/':
			found = append(found, wireEntity{"bot_command", units, utf16Len(name)})
		}
		units += utf16Len(word)
	}
	return found
}

func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += max(1, utf16.RuneLen(r))
	}
	return n
}
