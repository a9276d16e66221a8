package telegramtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// A Button is a button below a message of the bot.
type Button struct {
	Label string `json:"text"`
	Data  string `json:"callback_data"`
}

// A keyboard is the rows of buttons below a message.
type keyboard [][]Button

// keyboard returns the buttons in a call, or nil.
func (c *call) keyboard() (keyboard, reply) {
	source := c.params.Get("reply_markup")
	if source == "" {
		return nil, reply{}
	}
	var markup struct {
		Rows keyboard `json:"inline_keyboard"`
	}
	if err := json.Unmarshal([]byte(source), &markup); err != nil {
		return nil, refuse(http.StatusBadRequest,
			"Bad Request: can't parse reply keyboard markup JSON object")
	}
	n := 0
	for _, row := range markup.Rows {
		n += len(row)
		for _, b := range row {
			switch {
			case b.Label == "":
				return nil, refuse(http.StatusBadRequest, "Bad Request: can't parse inline keyboard "+
					"button: Text of the button must be non-empty")
			case b.Data == "" || len(b.Data) > 64:
				return nil, refuse(http.StatusBadRequest, "Bad Request: BUTTON_DATA_INVALID")
			}
		}
		if len(row) > 8 || n > 100 {
			return nil, refuse(http.StatusBadRequest, "Bad Request: reply markup is too long")
		}
	}
	return markup.Rows, reply{}
}

// Buttons returns the rows of buttons below a message of the bot.
func (s *Server) Buttons(chatID int64, id int) [][]Button {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.chats[chatID].find(id); m != nil {
		return m.keyboard
	}
	return nil
}

// Press makes user press a button below a message of the bot and returns the id of the callback
// query. It panics if there is no such button.
func (s *Server) Press(chatID, user int64, id int, label string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chatID]
	m := c.find(id)
	if m == nil {
		panic(fmt.Sprintf("telegramtest: no message %d in chat %d", id, chatID))
	}
	all := slices.Concat(m.keyboard...)
	i := slices.IndexFunc(all, func(b Button) bool { return b.Label == label })
	if i < 0 {
		panic(fmt.Sprintf("telegramtest: no button %q below message %d", label, id))
	}
	query := strconv.Itoa(4_382_000_000 + len(s.pressOrder))
	s.presses[query] = false
	s.pressOrder = append(s.pressOrder, query)
	s.enqueue("callback_query", marshal(map[string]any{
		"id": query, "from": s.user(user), "chat_instance": "1", "data": all[i].Data,
		"message": json.RawMessage(s.wire(c, m)),
	}, nil), c, id)
	s.changed.Notify()
	return query
}

// Unanswered returns the ids of the callback queries that the bot did not answer, oldest first.
// People see a clock on those buttons.
func (s *Server) Unanswered() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, id := range s.pressOrder {
		if !s.presses[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// answerCallbackQuery ends the clock on a button. s.mu is held.
func (s *Server) answerCallbackQuery(c call) reply {
	id := c.params.Get("callback_query_id")
	if answered, ok := s.presses[id]; !ok || answered {
		return refuse(http.StatusBadRequest, "Bad Request: query is too old and response timeout "+
			"expired or query ID is invalid")
	}
	s.presses[id] = true
	return reply{result: true}
}
