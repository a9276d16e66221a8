package discordtest

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a message.
const (
	maxContent = 2000 // code points
	maxNonce   = 25
	maxFiles   = 10
	maxUpload  = 10 << 20 // bytes of a file
)

// Flags of messages.
const (
	suppressEmbeds        = 1 << 2
	ephemeral             = 1 << 6
	suppressNotifications = 1 << 12
	voiceMessage          = 1 << 13
)

// A draft is the body of createMessage and editMessage.
type draft struct {
	Content      *string         `json:"content"`
	Nonce        json.RawMessage `json:"nonce"`
	EnforceNonce bool            `json:"enforce_nonce"`
	Flags        int             `json:"flags"`
	Mentions     *struct {
		Parse       []string `json:"parse"`
		Users       []string `json:"users"`
		Roles       []string `json:"roles"`
		RepliedUser bool     `json:"replied_user"`
	} `json:"allowed_mentions"`
	Reference *struct {
		Type     int    `json:"type"`
		Message  string `json:"message_id"`
		Channel  string `json:"channel_id"`
		MustFind *bool  `json:"fail_if_not_exists"` // true if it is left out
	} `json:"message_reference"`
	Components  []component `json:"components"`
	Attachments []struct {
		ID   json.RawMessage `json:"id"` // a number, bare or as a string
		Name string          `json:"filename"`

		Seconds  float64 `json:"duration_secs"` // of a voice message
		Waveform string  `json:"waveform"`
	} `json:"attachments"`
}

type component struct {
	Type       int         `json:"type"`
	Components []component `json:"components,omitempty"`
	Style      int         `json:"style,omitempty"`
	Label      string      `json:"label,omitempty"`
	ID         string      `json:"custom_id,omitempty"`
}

// createMessage stores a message of the bot, unless an earlier one has the same nonce.
func (s *Server) createMessage(c *call, ch *channel) (reply, *Sent) {
	var d draft
	if refused := c.decode(&d); refused.status != 0 {
		return refused, nil
	}
	m := &message{author: s.bot.ID, sent: Sent{Flags: d.Flags, Received: c.at, Served: ch.served}}
	for _, check := range []func(*call, *channel, *draft, *message) reply{
		s.checkTarget, s.checkText, s.checkReference, s.checkButtons, s.checkFiles, s.checkVoice,
		s.checkNonce,
	} {
		if refused := check(c, ch, &d, m); refused.status != 0 {
			return refused, nil
		}
	}
	if m.sent.Text == "" && len(m.files) == 0 {
		return refuse(400, 50006, "Cannot send an empty message"), nil
	}
	if n, ok := s.nonces[m.sent.Nonce]; ok && d.EnforceNonce {
		if time.Since(n.at) < s.opts.NonceTime && n.message.sent.Channel == ch.id {
			return reply{result: s.wire(ch, n.message)}, nil
		}
	}
	m.sent.Pings = s.pings(ch, &d, m)
	s.add(ch, m)
	ch.sentCount++
	if m.sent.Nonce != "" {
		s.nonces[m.sent.Nonce] = nonce{m, time.Now()}
	}
	s.dispatchMessage("MESSAGE_CREATE", ch, m)
	sent := m.sent
	return reply{result: s.wire(ch, m)}, &sent
}

func (s *Server) checkTarget(_ *call, ch *channel, _ *draft, _ *message) reply {
	if ch.kind == kindForum {
		return refuse(400, 50008, "Cannot send messages in a non-text channel")
	}
	if ch.denies(SendMessages) {
		return refuse(403, 50013, "Missing Permissions")
	}
	return reply{}
}

func (s *Server) checkText(_ *call, _ *channel, d *draft, m *message) reply {
	if d.Content != nil {
		m.sent.Text = strings.TrimSpace(*d.Content)
	}
	if utf8.RuneCountInString(m.sent.Text) > maxContent {
		return invalid("content", "BASE_TYPE_MAX_LENGTH", "Must be 2000 or fewer in length.")
	}
	if d.Flags&^(suppressEmbeds|suppressNotifications|voiceMessage) != 0 {
		return invalid("flags", "INVALID_FLAGS", "Can't be set on a message.")
	}
	return reply{}
}

func (s *Server) checkReference(_ *call, ch *channel, d *draft, m *message) reply {
	if d.Reference == nil {
		return reply{}
	}
	if _, err := strconv.ParseUint(d.Reference.Message, 10, 64); err != nil {
		return invalid("message_reference", "NUMBER_TYPE_COERCE", "Value is not snowflake.")
	}
	if ch.denies(ReadMessageHistory) {
		return refuse(400, 160002, "Cannot reply without permission to read message history")
	}
	found := ch.find(d.Reference.Message)
	if found != nil && found.isSystem() {
		return invalid("message_reference", "REPLIES_CANNOT_REPLY_TO_SYSTEM_MESSAGE",
			"Cannot reply to a system message")
	}
	if found == nil && (d.Reference.MustFind == nil || *d.Reference.MustFind) {
		return invalid("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message")
	}
	if found != nil {
		m.sent.ReplyTo, m.kind = d.Reference.Message, 19
	}
	return reply{}
}

func (s *Server) checkButtons(_ *call, _ *channel, d *draft, m *message) reply {
	wrong := func(what string) reply { return invalid("components", "INVALID_COMPONENT", what) }
	if len(d.Components) > 5 {
		return wrong("Must be 5 or fewer rows.")
	}
	seen := make(map[string]bool)
	for _, row := range d.Components {
		if row.Type != 1 || len(row.Components) == 0 || len(row.Components) > 5 {
			return wrong("A row has 1 to 5 buttons.")
		}
		for _, b := range row.Components {
			id, label := utf8.RuneCountInString(b.ID), utf8.RuneCountInString(b.Label)
			switch {
			case b.Type != 2 || b.Style < 1 || b.Style > 4:
				return wrong("Must be a button.")
			case id < 1 || id > 100:
				return wrong("custom_id must be 1 to 100 in length.")
			case seen[b.ID]:
				return wrong("Component custom id cannot be duplicated")
			case strings.TrimSpace(b.Label) == "" || label > 80:
				return wrong("label must be 1 to 80 in length.")
			}
			seen[b.ID] = true
			m.sent.Buttons = append(m.sent.Buttons, Button{Label: b.Label, ID: b.ID})
		}
	}
	return reply{}
}

func (s *Server) checkFiles(c *call, ch *channel, d *draft, m *message) reply {
	if len(c.files) > maxFiles || len(d.Attachments) != len(c.files) {
		return invalid("attachments", "BASE_TYPE_BAD_LENGTH", "There must be one for each file.")
	}
	for _, a := range d.Attachments {
		id := strings.Trim(string(a.ID), `"`)
		f, ok := c.files["files["+id+"]"]
		if !ok {
			return invalid("attachments", "ATTACHMENT_NOT_FOUND", "No file has this id.")
		}
		if len(f.Content) > maxUpload {
			return refuse(413, 40005, "Request entity too large")
		}
		if a.Name != "" {
			f.Name = a.Name
		}
		if f.Name == "" || strings.ContainsAny(f.Name, "/\\\n\"") {
			return invalid("attachments", "BASE_TYPE_REQUIRED", "filename is not valid.")
		}
		f.Seconds, f.Waveform = a.Seconds, a.Waveform
		m.sent.Files = append(m.sent.Files, f)
		m.files = append(m.files, storedFile{File: f, id: s.nextID(), channel: ch.id})
	}
	return reply{}
}

// checkVoice checks a voice message: one sound with its length and waveform, and nothing else.
func (s *Server) checkVoice(_ *call, ch *channel, d *draft, m *message) reply {
	if d.Flags&voiceMessage == 0 {
		return reply{}
	}
	if ch.denies(SendVoiceMessages) {
		return refuse(403, 50173, "Cannot send voice messages in this channel")
	}
	if m.sent.Text != "" || len(d.Components) > 0 {
		return refuse(400, 50159, "Voice messages do not support additional content.")
	}
	if len(m.sent.Files) != 1 || !strings.HasPrefix(m.sent.Files[0].Type, "audio/") {
		return refuse(400, 50160, "Voice messages must have a single audio attachment.")
	}
	f := m.sent.Files[0]
	wave, err := base64.StdEncoding.DecodeString(f.Waveform)
	if f.Seconds <= 0 || err != nil || len(wave) == 0 || len(wave) > 256 {
		return refuse(400, 50161, "Voice messages must have supporting metadata.")
	}
	return reply{}
}

func (s *Server) checkNonce(_ *call, _ *channel, d *draft, m *message) reply {
	if len(d.Nonce) == 0 {
		if d.EnforceNonce {
			return invalid("enforce_nonce", "NONCE_REQUIRED", "There is no nonce.")
		}
		return reply{}
	}
	var text string
	if json.Unmarshal(d.Nonce, &text) != nil {
		text = string(d.Nonce) // a number
	}
	if text == "" || utf8.RuneCountInString(text) > maxNonce {
		return invalid("nonce", "NONCE_TYPE_TOO_LONG", "Must be between 1 and 25 in length.")
	}
	m.sent.Nonce = text
	return reply{}
}

var mention = regexp.MustCompile(`<@(!|&)?([0-9]+)>|@everyone|@here`)

// pings returns the ids of the users and roles that a message of the bot notifies.
func (s *Server) pings(ch *channel, d *draft, m *message) []string {
	all, parse := d.Mentions == nil, []string(nil)
	var users, roles []string
	if !all {
		parse, users, roles = d.Mentions.Parse, d.Mentions.Users, d.Mentions.Roles
	}
	allowed := func(kind string) bool { return all || slices.Contains(parse, kind) }
	var pings []string
	for _, found := range mention.FindAllStringSubmatch(m.sent.Text, -1) {
		switch id := found[2]; {
		case id == "":
			if allowed("everyone") {
				pings = append(pings, "everyone")
			}
		case found[1] == "&":
			if allowed("roles") || slices.Contains(roles, id) {
				pings = append(pings, id)
			}
		case allowed("users") || slices.Contains(users, id):
			pings = append(pings, id)
		}
	}
	if r := ch.find(m.sent.ReplyTo); r != nil && (all || d.Mentions.RepliedUser) {
		pings = append(pings, r.author)
	}
	return pings
}

// editMessage changes a message of the bot.
func (s *Server) editMessage(c *call, ch *channel, m *message) reply {
	if m.author != s.bot.ID {
		return refuse(403, 50005, "Cannot edit a message authored by another user")
	}
	var d draft
	if refused := c.decode(&d); refused.status != 0 {
		return refused
	}
	if len(d.Nonce) > 0 || d.EnforceNonce || d.Reference != nil || d.Flags&^suppressEmbeds != 0 {
		return invalid("body", "NOT_EDITABLE", "A field can't be edited.")
	}
	if m.sent.Flags&voiceMessage != 0 {
		return refuse(400, 50162, "Voice messages cannot be edited.")
	}
	edited := &message{}
	for _, check := range []func(*call, *channel, *draft, *message) reply{
		s.checkText, s.checkButtons,
	} {
		if refused := check(c, ch, &d, edited); refused.status != 0 {
			return refused
		}
	}
	if d.Content != nil {
		if edited.sent.Text == "" && len(m.files) == 0 {
			return refuse(400, 50006, "Cannot send an empty message")
		}
		m.sent.Text = edited.sent.Text
	}
	if d.Components != nil {
		m.sent.Buttons = edited.sent.Buttons
	}
	m.sent.Edits++
	m.edited = time.Now()
	s.dispatchMessage("MESSAGE_UPDATE", ch, m)
	return reply{result: s.wire(ch, m)}
}
