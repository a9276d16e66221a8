package telegram

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// The types below are the parts of the Bot API's objects that the gateway reads.
type (
	update struct {
		ID      int64    `json:"update_id"`
		Message *message `json:"message"`
	}

	message struct {
		ID              int64           `json:"message_id"`
		Thread          int64           `json:"message_thread_id"`
		InTopic         bool            `json:"is_topic_message"`
		From            *user           `json:"from"`
		SenderChat      *chat           `json:"sender_chat"`
		Chat            chat            `json:"chat"`
		Date            int64           `json:"date"`
		Text            string          `json:"text"`
		TextEntities    []entity        `json:"entities"`
		Caption         string          `json:"caption"`
		CaptionEntities []entity        `json:"caption_entities"`
		ReplyTo         *message        `json:"reply_to_message"`
		External        *external       `json:"external_reply"`
		Quote           *quote          `json:"quote"`
		Origin          *origin         `json:"forward_origin"`
		TopicCreated    json.RawMessage `json:"forum_topic_created"`
		media
	}

	user struct {
		ID       int64  `json:"id"`
		Bot      bool   `json:"is_bot"`
		First    string `json:"first_name"`
		Last     string `json:"last_name"`
		Username string `json:"username"`
	}

	chat struct {
		ID    int64  `json:"id"`
		Type  string `json:"type"`
		Title string `json:"title"`
	}

	entity struct {
		Type   string `json:"type"`
		Offset int    `json:"offset"` // UTF-16 units
		Length int    `json:"length"`
		User   *user  `json:"user"`
	}

	quote struct {
		Text string `json:"text"`
	}

	external struct {
		ID     int64   `json:"message_id"`
		Origin *origin `json:"origin"`
	}

	origin struct {
		User       *user  `json:"sender_user"`
		UserName   string `json:"sender_user_name"` // of somebody who hides the account
		SenderChat *chat  `json:"sender_chat"`
		Chat       *chat  `json:"chat"`
	}

	// media is everything that a message may carry besides text. What is only
	// looked at for being there stays undecoded, so that no change to it can do harm.
	media struct {
		Animation json.RawMessage `json:"animation"`
		Audio     *file           `json:"audio"`
		Document  *file           `json:"document"`
		Photo     json.RawMessage `json:"photo"`
		Sticker   *symbol         `json:"sticker"`
		Story     json.RawMessage `json:"story"`
		Video     json.RawMessage `json:"video"`
		VideoNote json.RawMessage `json:"video_note"`
		Voice     json.RawMessage `json:"voice"`
		Contact   *contact        `json:"contact"`
		Dice      *symbol         `json:"dice"`
		Game      json.RawMessage `json:"game"`
		Poll      *poll           `json:"poll"`
		Venue     *venue          `json:"venue"`
		Location  *location       `json:"location"`
		PaidMedia json.RawMessage `json:"paid_media"`
		Checklist json.RawMessage `json:"checklist"`
	}

	file struct {
		Name      string `json:"file_name"`
		Title     string `json:"title"`
		Performer string `json:"performer"`
	}

	symbol struct {
		Emoji string `json:"emoji"`
		Value int    `json:"value"`
	}

	contact struct {
		Phone string `json:"phone_number"`
		First string `json:"first_name"`
		Last  string `json:"last_name"`
	}

	poll struct {
		Question string `json:"question"`
	}

	venue struct {
		Title   string `json:"title"`
		Address string `json:"address"`
	}

	location struct {
		Latitude  float64 `json:"latitude"`
		Longitude float64 `json:"longitude"`
	}
)

// content returns m's text or caption, and false if m is a service message.
func (m *message) content() (string, bool) {
	if m.Text != "" {
		return m.Text, true
	}
	return m.Caption, m.Caption != "" || m.media.label() != ""
}

// entities returns what marks parts of the content.
func (m *message) entities() []entity {
	if m.Text != "" {
		return m.TextEntities
	}
	return m.CaptionEntities
}

// label puts the name of what m carries in front of text: "[photo] at the lake".
func (m *message) label(text string) string {
	return strings.TrimSpace(m.media.label() + " " + text)
}

// label names the media, or returns "" if there are none.
func (m *media) label() string { return cmp.Or(m.fileLabel(), m.objectLabel()) }

// fileLabel names a file. The order matters: an animation is a document as well.
func (m *media) fileLabel() string {
	switch {
	case m.Photo != nil:
		return "[photo]"
	case m.Animation != nil:
		return "[animation]"
	case m.Audio != nil:
		return bracket("audio", m.Audio.Performer+" "+m.Audio.Title)
	case m.Document != nil:
		return bracket("document", m.Document.Name)
	case m.Sticker != nil:
		return bracket("sticker", m.Sticker.Emoji)
	case m.Story != nil:
		return "[story]"
	case m.Video != nil:
		return "[video]"
	case m.VideoNote != nil:
		return "[video note]"
	case m.Voice != nil:
		return "[voice]"
	}
	return ""
}

// objectLabel names what is no file. The order matters: a venue has a location.
func (m *media) objectLabel() string {
	switch {
	case m.Contact != nil:
		c := m.Contact
		return bracket("contact", c.First+" "+c.Last+" "+c.Phone)
	case m.Dice != nil:
		return bracket("dice", fmt.Sprint(m.Dice.Emoji, " ", m.Dice.Value))
	case m.Game != nil:
		return "[game]"
	case m.Poll != nil:
		return bracket("poll", m.Poll.Question)
	case m.Venue != nil:
		return bracket("venue", m.Venue.Title+", "+m.Venue.Address)
	case m.Location != nil:
		return fmt.Sprintf("[location: %g, %g]", m.Location.Latitude, m.Location.Longitude)
	case m.PaidMedia != nil:
		return "[paid media]"
	case m.Checklist != nil:
		return "[checklist]"
	}
	return ""
}

// bracket returns "[kind: detail]". The detail is foreign text and can't end the bracket.
func bracket(kind, detail string) string {
	detail = strings.NewReplacer("[", "(", "]", ")").Replace(clean(detail, 200))
	if detail == "" {
		return "[" + kind + "]"
	}
	return "[" + kind + ": " + detail + "]"
}

// maxName is the longest name of a person or chat that is passed on, in runes.
const maxName = 128

// clean makes one line of a name that a stranger chose, at most limit runes long: control
// characters and line breaks become blanks, marks that are invisible or turn the direction of
// writing go. The two joiners stay, since scripts and emoji need them.
func clean(s string, limit int) string {
	var b strings.Builder
	blank, n := false, 0
	for _, r := range s {
		const joiner, nonJoiner = '\u200d', '\u200c'
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp):
			blank = true
			continue
		case unicode.Is(unicode.Cf, r) && r != joiner && r != nonJoiner:
			continue
		}
		if n >= limit {
			break
		}
		if blank && b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
		blank = false
		n++
	}
	return b.String()
}

// span returns the byte offsets of what lies offset UTF-16 units into s and is length units long.
func span(s string, offset, length int) (start, end int, ok bool) {
	if offset < 0 || length <= 0 {
		return 0, 0, false
	}
	start = -1
	units := 0
	for i, r := range s {
		if units == offset {
			start = i
		}
		if units == offset+length {
			return start, i, start >= 0
		}
		units += max(1, utf16.RuneLen(r))
	}
	if units == offset+length {
		return start, len(s), start >= 0
	}
	return 0, 0, false
}
