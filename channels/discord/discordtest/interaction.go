package discordtest

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"
)

// Types of answers to an interaction.
const (
	AnswerMessage  = 4 // a message
	AnswerLater    = 5 // "thinking …" until the bot says something
	AnswerNothing  = 6 // to a button: invisible
	AnswerOverride = 7 // to a button: a change of its message
)

// An Interaction is the press of a button or the use of a command, in its current state.
type Interaction struct {
	ID      string
	Channel string
	User    string
	Made    time.Time

	Answer    int       // type of the answer, or 0
	Answered  time.Time // zero: not yet
	Late      bool      // an answer came too late and was refused
	Ephemeral bool      // only the user sees the answer
	Text      string    // of the answer
	Deleted   bool      // the bot deleted the answer

	token  string
	button bool
}

// A Command is one of the bot's commands, as the bot set it.
type Command struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Type        int             `json:"type"`
	Options     []CommandOption `json:"options"`
	Contexts    []int           `json:"contexts"` // where people see it; nil: everywhere
}

// A CommandOption is a parameter of a [Command].
type CommandOption struct {
	Type        int    `json:"type"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Required    bool   `json:"required"`
}

// An Option is the value of a command's parameter.
type Option struct {
	Name  string `json:"name"`
	Type  int    `json:"type"` // default 3, a string
	Value any    `json:"value"`
}

// Press makes a person press a button of a message and returns the interaction's id. It panics if
// there is no such button.
func (s *Server) Press(channelID, messageID, customID, userID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.must(channelID)
	m := ch.find(messageID)
	isPressed := func(b Button) bool { return b.ID == customID }
	if m == nil || !slices.ContainsFunc(m.sent.Buttons, isPressed) {
		panic(fmt.Sprintf("discordtest: message %s has no button %q", messageID, customID))
	}
	return s.interact(ch, userID, true, 3, map[string]any{
		"data":    map[string]any{"component_type": 2, "custom_id": customID},
		"message": s.wire(ch, m),
	})
}

// Slash makes a person use a command, known or unknown, and returns the interaction's id.
func (s *Server) Slash(channelID, userID, name string, options ...Option) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range options {
		options[i].Type = cmp.Or(options[i].Type, 3)
	}
	data := map[string]any{"id": s.nextID(), "name": name, "type": 1}
	if len(options) > 0 {
		data["options"] = options
	}
	return s.interact(s.must(channelID), userID, false, 2, map[string]any{"data": data})
}

// SlashElsewhere is like [Server.Slash], but the bot is not a member of the place. The person has
// added the bot to their own account. The place is a guild, or a chat with other people if guildID
// is "". SlashElsewhere returns the interaction's id.
func (s *Server) SlashElsewhere(guildID, userID, name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := map[string]any{
		"data":    map[string]any{"id": s.nextID(), "name": name, "type": 1},
		"context": 2, "authorizing_integration_owners": map[string]string{"1": userID},
	}
	ch := &channel{id: s.nextID(), kind: kindGroup, name: "elsewhere"}
	if guildID != "" {
		w["context"] = 0
		ch.kind, ch.guild = kindText, &guild{id: guildID}
	}
	return s.interact(ch, userID, false, 2, w)
}

func (s *Server) interact(
	ch *channel, userID string, button bool, kind int, w map[string]any,
) string {
	i := &Interaction{ID: s.nextID(), Channel: ch.id, User: userID, Made: time.Now(),
		token: rand.Text(), button: button}
	s.interactions[i.ID] = i
	w["id"], w["application_id"], w["type"], w["token"] = i.ID, s.bot.ID, kind, i.token
	w["version"], w["channel_id"], w["channel"] = 1, ch.id, ch.wire()
	u := s.user(userID)
	owner, context := "0", 1 // a direct chat with the bot
	if ch.guild != nil {
		owner, context = ch.guild.id, 0
	}
	if w["context"] == nil {
		w["context"], w["authorizing_integration_owners"] = context, map[string]string{"0": owner}
	}
	if ch.guild == nil {
		w["user"] = u
	} else {
		w["guild_id"] = ch.guild.id
		w["member"] = map[string]any{"user": u, "nick": ch.guild.nicks[userID],
			"roles": []string{}, "permissions": "0"}
	}
	s.dispatch("INTERACTION_CREATE", ch.guild, 0, func(int) any { return w })
	s.changed.Notify()
	return i.ID
}

// Interaction returns an interaction in its current state.
func (s *Server) Interaction(id string) Interaction {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.interactions[id]; i != nil {
		return *i
	}
	return Interaction{}
}

// Unanswered returns how many interactions have no answer yet or got none in time.
func (s *Server) Unanswered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, i := range s.interactions {
		if i.Answer == 0 {
			n++
		}
	}
	return n
}

// callback handles the answer to an interaction.
func (s *Server) callback(c *call) reply {
	i := s.interactions[c.vars[0]]
	switch {
	case i == nil || i.token != c.vars[1]:
		return refuse(404, 10062, "Unknown interaction")
	case i.Answer != 0:
		return refuse(400, 40060, "Interaction has already been acknowledged.")
	case time.Since(i.Made) > s.opts.AnswerTime:
		i.Late = true
		return refuse(404, 10062, "Unknown interaction")
	}
	var body struct {
		Type int `json:"type"`
		Data struct {
			Content    string          `json:"content"`
			Flags      int             `json:"flags"`
			Mentions   json.RawMessage `json:"allowed_mentions"`
			Components []component     `json:"components"`
		} `json:"data"`
	}
	if refused := c.decode(&body); refused.status != 0 {
		return refused
	}
	switch body.Type {
	case AnswerMessage:
		n := utf8.RuneCountInString(body.Data.Content)
		if n == 0 || n > maxContent {
			return invalid("content", "BASE_TYPE_BAD_LENGTH", "Must be 1 to 2000 in length.")
		}
	case AnswerLater:
	case AnswerNothing, AnswerOverride:
		if !i.button {
			return invalid("type", "BASE_TYPE_CHOICES", "Only a button can be answered so.")
		}
	default:
		return invalid("type", "BASE_TYPE_CHOICES", "Value must be one of {4, 5, 6, 7}.")
	}
	i.Answer, i.Answered = body.Type, time.Now()
	i.Text, i.Ephemeral = body.Data.Content, body.Data.Flags&ephemeral != 0
	return reply{}
}

// deleteResponse deletes the answer to an interaction.
func (s *Server) deleteResponse(c *call) reply {
	for _, i := range s.interactions {
		if i.token != c.vars[1] || c.vars[0] != s.bot.ID {
			continue
		}
		if i.Deleted || i.Answer != AnswerMessage && i.Answer != AnswerLater {
			return refuse(404, 10008, "Unknown Message")
		}
		i.Deleted = true
		return reply{}
	}
	return refuse(404, 10015, "Unknown Webhook")
}

var commandName = regexp.MustCompile(`^[-_\p{L}\p{N}]{1,32}$`)

// putCommands replaces the bot's commands.
func (s *Server) putCommands(c *call) reply {
	if c.vars[0] != s.bot.ID {
		return refuse(http.StatusForbidden, 20012, "You are not authorized for this application")
	}
	var commands []Command
	if refused := c.decode(&commands); refused.status != 0 {
		return refused
	}
	if len(commands) > 100 {
		return refuse(400, 30032, "Maximum number of application commands reached (100)")
	}
	seen := make(map[string]bool)
	for _, cmd := range commands {
		bad := seen[cmd.Name] || !describes(cmd.Name, cmd.Description) ||
			cmd.Type > 1 || len(cmd.Options) > 25 || slices.Max(append(cmd.Contexts, 0)) > 2
		for _, o := range cmd.Options {
			bad = bad || !describes(o.Name, o.Description) || o.Type < 1 || o.Type > 11
		}
		if bad {
			return invalid("0", "APPLICATION_COMMAND_INVALID", "Command is invalid: "+cmd.Name)
		}
		seen[cmd.Name] = true
	}
	s.commands = commands
	return reply{result: commands}
}

func describes(name, description string) bool {
	n := utf8.RuneCountInString(description)
	return commandName.MatchString(name) && n >= 1 && n <= 100
}
