package telegramtest

import (
	"fmt"
	"strconv"
	"time"
)

// A User is a person or a bot.
type User struct {
	ID       int64  `json:"id"`
	Bot      bool   `json:"is_bot"`
	First    string `json:"first_name"`
	Last     string `json:"last_name,omitempty"`
	Username string `json:"username,omitempty"`
}

// A Message is a message that a person writes.
type Message struct {
	Chat    int64 // 0: the direct chat with User
	User    int64
	Thread  int    // topic of a forum or of a direct chat, or 0
	Text    string // the caption if there is a File; mentions and commands become entities
	ReplyTo int    // id of a message in the same chat, or 0
	File    *File  // or nil
	Album   string // the same for files sent together, or ""

	// Extra holds further fields of the Bot API's Message, such as "photo" or "caption".
	Extra map[string]any
}

// A Sent is a message of the bot in its current state.
type Sent struct {
	Chat    int64
	ID      int
	Thread  int
	ReplyTo int
	Text    string // text after parsing, as people read it; the caption if there is a File
	Source  string // text as the bot sent it, such as HTML
	Rich    bool   // a rich message; Text is its Markdown
	File    *File  // or nil
	Edits   int
	Deleted bool

	// Received is when the server had read the call. Served is when it last gave the bot an update
	// of this chat before that. The difference is the bot's response time.
	Received, Served time.Time

	// Hanging is the number of hanging calls about this chat when this one arrived.
	Hanging int
}

// A chat is a conversation. Its messages have the ids first, first+1, …
type chat struct {
	id        int64
	kind      string // "private", "group" or "supergroup"
	title     string
	forum     bool
	topics    map[int]bool
	refusal   string // why the bot may not write here, or ""
	migrated  int64  // id of the supergroup that it became, or 0
	served    time.Time
	typing    map[int]int // by topic
	reactions []string    // allowed reactions; nil: all
	drafts    []Draft     // all drafts so far
	drafting  bool        // the last draft is visible
	first     int
	messages  []message
	sentCount int
}

// A message is an entry of a chat, by a person or by the bot.
type message struct {
	from     int64
	sent     Sent
	file     any // in the Bot API's form, or nil
	keyboard keyboard
	reaction string   // the bot's
	said     *Message // what a person wrote, or nil
	edited   int64    // time of the edit in Unix seconds, or 0
}

func (c *chat) find(id int) *message {
	if i := id - c.first; i >= 0 && i < len(c.messages) && !c.messages[i].sent.Deleted {
		return &c.messages[i]
	}
	return nil
}

// add stores m under the next id and removes the oldest messages beyond keep.
func (c *chat) add(m message, keep int) int {
	m.sent.ID = c.first + len(c.messages)
	c.messages = append(c.messages, m)
	if n := len(c.messages) - keep; keep > 0 && n > 0 {
		c.messages = c.messages[n:]
		c.first += n
	}
	return m.sent.ID
}

// AddUser adds or replaces a person, with a direct chat with the bot.
func (s *Server) AddUser(u User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addUser(u)
}

func (s *Server) addUser(u User) {
	s.users[u.ID] = u
	if s.chats[u.ID] == nil {
		s.chats[u.ID] = &chat{id: u.ID, kind: "private", first: 1}
	}
}

// AddGroup adds a group, or a supergroup if the id is below -1000000000000. With topics it is a
// forum.
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

// AddTopics adds topics to a chat. A direct chat can have topics if its bot is configured for that.
func (s *Server) AddTopics(chatID int64, topics ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chatID]
	if c.topics == nil {
		c.topics = make(map[int]bool)
	}
	for _, t := range topics {
		c.topics[t] = true
	}
}

// Delete deletes a message of the bot, as a person can.
func (s *Server) Delete(chatID int64, id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.chats[chatID].find(id); m != nil {
		m.sent.Deleted = true
	}
}

// Say makes user write text in a chat and returns the message's id. It adds an unknown person. A
// direct chat has the id of its person.
func (s *Server) Say(chatID, user int64, text string) int {
	return s.Deliver(Message{Chat: chatID, User: user, Text: text})[0]
}

// Deliver queues messages together, so that one getUpdates call can return them all, and returns
// their ids. It panics if a group is unknown.
func (s *Server) Deliver(messages ...Message) []int {
	ids := make([]int, 0, len(messages))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		ids = append(ids, s.deliver(m))
	}
	s.changed.Notify()
	return ids
}

// user returns a person, adding them if necessary. s.mu is held.
func (s *Server) user(id int64) User {
	u, ok := s.users[id]
	if !ok {
		u = User{ID: id, First: "User " + strconv.FormatInt(id, 10)}
		s.addUser(u)
	}
	return u
}

func (s *Server) deliver(said Message) int {
	s.user(said.User)
	if said.Chat == 0 {
		said.Chat = said.User
	}
	c := s.chats[said.Chat]
	if c == nil {
		panic(fmt.Sprintf("telegramtest: no chat %d", said.Chat))
	}
	m := message{from: said.User, said: &said, sent: Sent{
		Chat: said.Chat, Thread: said.Thread, ReplyTo: said.ReplyTo, Text: said.Text,
		Received: time.Now(), File: said.File,
	}}
	if said.File != nil {
		m.file = s.keepFile(said.File)
	}
	id := c.add(m, s.opts.Keep)
	m.sent.ID = id
	if !c.gone() {
		s.enqueue("message", s.wire(c, &m), c, id)
	}
	return id
}

// History returns the bot's messages in a chat, oldest first, including deleted ones.
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

// SentCount returns how many messages the bot has sent to a chat, including removed ones.
func (s *Server) SentCount(chatID int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.chats[chatID]; c != nil {
		return c.sentCount
	}
	return 0
}

// Typing returns how often the bot has shown the typing indicator in a topic (0: outside of
// topics).
func (s *Server) Typing(chatID int64, thread int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chats[chatID].typing[thread]
}
