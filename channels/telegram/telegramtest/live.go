package telegramtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// reactions are the emoji that https://core.telegram.org/bots/api#reactiontypeemoji lists.
const reactions = " 👍 👎 ❤ 🔥 🥰 👏 😁 🤔 🤯 😱 🤬 😢 🎉 🤩 🤮 💩 🙏 👌 🕊 🤡 🥱 🥴 😍 🐳 ❤‍🔥 🌚 🌭 💯 🤣 ⚡ 🍌 🏆 " +
	"💔 🤨 😐 🍓 🍾 💋 🖕 😈 😴 😭 🤓 👻 👨‍💻 👀 🎃 🙈 😇 😨 🤝 ✍ 🤗 🫡 🎅 🎄 ☃ 💅 🤪 🗿 🆒 💘 🙉 🦄 😘 💊 " +
	"🙊 😎 👾 🤷‍♂ 🤷 🤷‍♀ 😡 "

// SetReactions allows only some reactions in a chat, or none.
func (s *Server) SetReactions(chatID int64, emoji ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chats[chatID].reactions = append([]string{}, emoji...)
}

// Reaction returns the bot's reaction to a message, or "".
func (s *Server) Reaction(chatID int64, id int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.chats[chatID].find(id); m != nil {
		return m.reaction
	}
	return ""
}

// setMessageReaction replaces the bot's reaction to a message. s.mu is held.
func (s *Server) setMessageReaction(c call) reply {
	ch, refused := s.target(c)
	if refused.code != 0 {
		return refused
	}
	var list []struct {
		Type  string `json:"type"`
		Emoji string `json:"emoji"`
	}
	source := c.params.Get("reaction")
	if err := json.Unmarshal([]byte(orNull(source)), &list); err != nil {
		return refuse(http.StatusBadRequest, "Bad Request: can't parse reaction types JSON object")
	}
	m := ch.find(c.int("message_id"))
	emoji := ""
	switch {
	case m == nil:
		return refuse(http.StatusBadRequest, "Bad Request: message to react not found")
	case len(list) > 1:
		return refuse(http.StatusBadRequest, "Bad Request: REACTIONS_TOO_MANY")
	case len(list) == 1:
		emoji = list[0].Emoji
		if list[0].Type != "emoji" || emoji == "" || !strings.Contains(reactions, " "+emoji+" ") ||
			ch.reactions != nil && !slices.Contains(ch.reactions, emoji) {
			return refuse(http.StatusBadRequest, "Bad Request: REACTION_INVALID")
		}
	}
	m.reaction = emoji
	return reply{result: true}
}

// A Draft is one state of a draft.
type Draft struct {
	ID     int64 // the same for all states of one draft
	Thread int
	Text   string // after parsing
	Source string // as the bot sent it

	canStop bool // it has a button that stops it
}

// Drafts returns all states of drafts in a direct chat, oldest first.
func (s *Server) Drafts(chatID int64) []Draft {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.chats[chatID].drafts)
}

// Drafting returns the visible draft of a chat, or "". A draft disappears when a message is sent.
func (s *Server) Drafting(chatID int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.chats[chatID]; c.drafting {
		return c.drafts[len(c.drafts)-1].Text
	}
	return ""
}

// StopDraft presses the button that stops the visible draft of a chat. It panics if there is none.
func (s *Server) StopDraft(chatID int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chatID]
	if !c.drafting || !c.drafts[len(c.drafts)-1].canStop {
		panic(fmt.Sprintf("telegramtest: no draft to stop in chat %d", chatID))
	}
	last := c.drafts[len(c.drafts)-1]
	who := s.user(chatID)
	update := map[string]any{"draft_id": last.ID, "chat": map[string]any{"id": c.id, "type": c.kind,
		"first_name": who.First, "username": who.Username}}
	if last.Thread != 0 {
		update["message_thread_id"] = last.Thread
	}
	s.enqueue("stopped_message_generation", marshal(update, nil), nil, 0)
	s.changed.Notify()
}

// sendMessageDraft shows a draft. s.mu is held.
func (s *Server) sendMessageDraft(c call) reply {
	text, refused := visible(c, "text", maxText)
	if refused.code != 0 {
		return refused
	}
	ch, refused := s.target(c)
	if refused.code != 0 {
		return refused
	}
	id, err := strconv.ParseInt(c.params.Get("draft_id"), 10, 64)
	switch {
	case err != nil || id == 0:
		return refuse(http.StatusBadRequest, "Bad Request: invalid draft identifier specified")
	case ch.kind != "private":
		return refuse(http.StatusBadRequest, "Bad Request: TEXTDRAFT_PEER_INVALID")
	}
	ch.drafts = append(ch.drafts, Draft{
		ID: id, Thread: c.int("message_thread_id"), Text: text, Source: c.params.Get("text"),
		canStop: c.params.Get("can_stop") == "true",
	})
	ch.drafting = true
	return reply{result: true}
}
