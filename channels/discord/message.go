package discord

import (
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"gateway/channels"
)

// The following types are the parts of Discord's objects that the gateway reads. The library's own
// types are not used, because a single unknown component makes them fail on the whole message.
type (
	user struct {
		ID       string `json:"id"`
		Username string `json:"username"`
		Global   string `json:"global_name"` // name that people see, or ""
		Bot      bool   `json:"bot"`
	}

	member struct {
		Nick string `json:"nick"` // name in the guild, or ""
		User *user  `json:"user"`
	}

	message struct {
		ID        string     `json:"id"`
		Channel   string     `json:"channel_id"`
		Guild     string     `json:"guild_id"` // only in gateway events
		Author    user       `json:"author"`
		Member    *member    `json:"member"`     // only in gateway events
		Webhook   string     `json:"webhook_id"` // "" unless a webhook wrote it
		Type      int        `json:"type"`
		Edited    *time.Time `json:"edited_timestamp"` // nil: never
		Reference *reference `json:"message_reference"`
		Quoted    referenced `json:"referenced_message"`
		Snapshots []struct {
			Message content `json:"message"`
		} `json:"message_snapshots"`
		Reactions []reaction `json:"reactions"`
		content

		live bool // it is from a gateway event
	}

	// content is the content of a message or of a forwarded message.
	content struct {
		Content     string       `json:"content"`
		Flags       int          `json:"flags"`
		Mentions    []mentioned  `json:"mentions"`
		Roles       []string     `json:"mention_roles"` // ids
		Attachments []attachment `json:"attachments"`
		Stickers    []struct {
			Name string `json:"name"`
		} `json:"sticker_items"`
		Poll *struct {
			Question pollMedia `json:"question"`
			Answers  []struct {
				Media pollMedia `json:"poll_media"`
			} `json:"answers"`
		} `json:"poll"`

		// What bots write beside the content or instead of it. They are decoded later, so that an
		// unknown form does not lose the message.
		Embeds     json.RawMessage `json:"embeds"`
		Components json.RawMessage `json:"components"`
	}

	pollMedia struct {
		Text string `json:"text"`
	}

	// An embed is a box with text below a message. Only those of the type "rich" are written by bots;
	// the others are previews of links.
	embed struct {
		Type        string `json:"type"`
		Title       string `json:"title"`
		Description string `json:"description"`
		Author      struct {
			Name string `json:"name"`
		} `json:"author"`
		Fields []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"fields"`
		Footer struct {
			Text string `json:"text"`
		} `json:"footer"`
	}

	// A component is a part of a message that a bot has made of components.
	component struct {
		Type       int               `json:"type"`
		Content    string            `json:"content"`
		Components []json.RawMessage `json:"components"`
	}

	mentioned struct {
		user
		Member *member `json:"member"`
	}

	reference struct {
		Type    int    `json:"type"` // 1: forwarded
		Channel string `json:"channel_id"`
		Message string `json:"message_id"`
	}

	// A referenced message is the one to which another message replies, or nil. If Discord did not
	// look it up, known is false.
	referenced struct {
		message *message
		known   bool
	}

	reaction struct {
		Mine  bool `json:"me"` // the bot has set it
		Emoji struct {
			ID   string `json:"id"` // "" for an emoji of Unicode
			Name string `json:"name"`
		} `json:"emoji"`
	}

	attachment struct {
		ID      string  `json:"id"`
		Name    string  `json:"filename"` // of ASCII letters, digits and "_" only
		Title   string  `json:"title"`    // the sender's own name if Discord has changed it
		Type    string  `json:"content_type"`
		Size    int64   `json:"size"`
		URL     string  `json:"url"`
		Seconds float64 `json:"duration_secs"`
	}

	interaction struct {
		ID          string  `json:"id"`
		Application string  `json:"application_id"`
		Type        int     `json:"type"`
		Token       string  `json:"token"` // for answers, for 15 minutes; secret
		Channel     string  `json:"channel_id"`
		Guild       string  `json:"guild_id"`
		Member      *member `json:"member"`
		User        *user   `json:"user"`    // nil in a guild
		Context     int     `json:"context"` // where: see isElsewhere

		// Installed has the guild and the person for which the bot was added, by the kind of
		// installation. The values are ids.
		Installed map[string]any `json:"authorizing_integration_owners"`

		Data struct {
			Name    string   `json:"name"`
			ID      string   `json:"custom_id"` // of a button: the text that it sends
			Options []option `json:"options"`
		} `json:"data"`
	}

	// An option is a parameter of a command. The commands of the gateway have one, which is a text.
	option struct {
		Value any `json:"value"`
	}
)

// Types of messages that people write.
const (
	plainMessage = 0
	replyMessage = 19
)

// threadStarter is the type of a message of Discord's, at the beginning of a thread that was made
// from a message. It quotes that one, which is in the parent channel.
const threadStarter = 21

// Types of interactions.
const (
	commandUsed   = 2
	buttonPressed = 3
)

const (
	forwarded   = 1       // type of a reference
	voiceFlag   = 1 << 13 // flag of a message
	textDisplay = 10      // type of a component
)

// epoch is the zero time of Discord's ids, in Unix milliseconds.
const epoch = 1420070400000

// madeAt returns when an id was created.
func madeAt(id string) time.Time {
	return time.UnixMilli(int64(idNumber(id)>>22) + epoch).UTC()
}

// UnmarshalJSON implements [json.Unmarshaler]. A message that no longer exists is null.
func (r *referenced) UnmarshalJSON(b []byte) error {
	r.known = true
	return json.Unmarshal(b, &r.message)
}

// isFromPerson reports whether a person has written m: not a bot, a webhook or Discord itself.
func (m *message) isFromPerson() bool {
	return m.ID != "" && m.Author.ID != "" && !m.Author.Bot && m.Webhook == "" &&
		(m.Type == plainMessage || m.Type == replyMessage)
}

// body returns what m says: the content of the message that m forwards, or its own.
func (m *message) body() *content {
	if m.Reference != nil && m.Reference.Type == forwarded && len(m.Snapshots) > 0 {
		return &m.Snapshots[0].Message
	}
	return &m.content
}

// written returns the text of c with that of its embeds and components.
func (c *content) written() string {
	lines := []string{c.Content}
	var embeds []embed
	_ = json.Unmarshal(c.Embeds, &embeds) // whatever has a known form
	for _, e := range embeds {
		if e.Type != "rich" {
			continue
		}
		lines = append(lines, e.Author.Name, e.Title, e.Description)
		for _, f := range e.Fields {
			lines = append(lines, strings.Trim(f.Name+": "+f.Value, ": "))
		}
		lines = append(lines, e.Footer.Text)
	}
	var components []json.RawMessage
	_ = json.Unmarshal(c.Components, &components) // likewise
	lines = append(lines, displayed(components, maxNested)...)
	lines = slices.DeleteFunc(lines, func(s string) bool { return strings.TrimSpace(s) == "" })
	return strings.Join(lines, "\n")
}

// maxNested is how deep components may be nested. Discord allows less.
const maxNested = 8

// displayed returns the texts of components.
func displayed(components []json.RawMessage, depth int) (lines []string) {
	for _, raw := range components {
		var c component
		if json.Unmarshal(raw, &c) != nil || depth == 0 {
			continue // of an unknown kind
		}
		if c.Type == textDisplay {
			lines = append(lines, c.Content)
		}
		lines = append(lines, displayed(c.Components, depth-1)...)
	}
	return lines
}

// name returns the name that the sender's file had. It has the extension that Discord's name has.
func (a *attachment) name() string {
	title := channels.Clean(a.Title, channels.MaxName)
	ext := channels.Clean(path.Ext(a.Name), 16)
	if title == "" || strings.EqualFold(path.Ext(title), ext) {
		return cmp.Or(title, channels.Clean(a.Name, channels.MaxName))
	}
	return channels.Clean(title, channels.MaxName-len(ext)) + ext
}

func (u *user) name() string {
	return channels.Clean(cmp.Or(u.Global, u.Username), channels.MaxName)
}

// name returns the name of the person u in the guild of m.
func (m *member) name(u *user) string {
	if m != nil && m.Nick != "" {
		return channels.Clean(m.Nick, channels.MaxName)
	}
	return u.name()
}

// label prefixes text with the names of parts that are neither text nor a file.
func (c *content) label(text string) string {
	var labels []string
	for _, s := range c.Stickers {
		labels = append(labels, channels.Placeholder("sticker", s.Name))
	}
	if c.Poll != nil {
		var options []string
		for _, a := range c.Poll.Answers {
			options = append(options, a.Media.Text)
		}
		labels = append(labels, channels.List("poll", c.Poll.Question.Text, options))
	}
	return strings.TrimSpace(strings.Join(labels, " ") + " " + text)
}
