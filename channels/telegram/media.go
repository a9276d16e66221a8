package telegram

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"gateway/bus"
	"gateway/channels"
)

// In the following types, a nil pointer or an empty message means that Telegram has sent no such
// object.
type (
	// media is everything that a message may carry besides text. Files are decoded later, so that
	// an undecodable file does not lose the message.
	media struct {
		Animation json.RawMessage `json:"animation"`
		Audio     json.RawMessage `json:"audio"`
		Document  json.RawMessage `json:"document"`
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
		Checklist *checklist      `json:"checklist"`
	}

	// file has the fields that the Bot API's kinds of files share, and some more.
	file struct {
		ID        string `json:"file_id"`
		Size      int64  `json:"file_size"`
		Name      string `json:"file_name"`
		Type      string `json:"mime_type"`
		Duration  int    `json:"duration"` // seconds
		Title     string `json:"title"`
		Performer string `json:"performer"`
		Width     int64  `json:"width"` // pixels
		Height    int64  `json:"height"`
	}

	// A symbol is a sticker or a dice. Only a dice has a value.
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
		Options  []struct {
			Text string `json:"text"`
		} `json:"options"`
	}

	checklist struct {
		Title string `json:"title"`
		Tasks []struct {
			Text string `json:"text"`
			Done int64  `json:"completion_date"` // Unix time; 0: not done
		} `json:"tasks"`
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

// attachments returns the file of m, or nil if it has none that can be fetched.
func (m *media) attachments() []bus.Attachment {
	kind, raw, standard := m.file() // a message has one file at most
	if raw == nil {
		return nil
	}
	f, ok := largest(raw)
	if !ok {
		return nil
	}
	a := bus.Attachment{
		Kind:    kind,
		Name:    fileName(f.Name),
		Type:    cmp.Or(channels.MIMEType(f.Type), standard),
		Size:    max(f.Size, 0),
		Seconds: max(f.Duration, 0),
		Ref:     f.ID,
	}
	if kind == bus.Audio && a.Name == "" {
		a.Name = fileName(f.performance())
	}
	return []bus.Attachment{a}
}

// file returns the undecoded file of m and its default type. For old clients an animation is also a
// document. Hence the animation is asked for before the document.
func (m *media) file() (kind bus.Kind, raw json.RawMessage, standard string) {
	switch {
	case m.Photo != nil:
		return bus.Photo, m.Photo, "image/jpeg"
	case m.Animation != nil:
		return bus.Animation, m.Animation, "video/mp4"
	case m.Audio != nil:
		return bus.Audio, m.Audio, ""
	case m.Document != nil:
		return bus.Document, m.Document, ""
	case m.Video != nil:
		return bus.Video, m.Video, "video/mp4"
	case m.VideoNote != nil:
		return bus.Video, m.VideoNote, "video/mp4"
	case m.Voice != nil:
		return bus.Voice, m.Voice, "audio/ogg"
	}
	return "", nil, ""
}

// largest decodes a file; for a photo, the largest size. It returns false if nothing can be
// fetched. Telegram sends a photo as a list of its sizes, and any other file as one object.
func largest(raw json.RawMessage) (file, bool) {
	var best file
	if raw[0] != '[' {
		err := json.Unmarshal(raw, &best)
		return best, err == nil && best.ID != ""
	}
	var sizes []file
	if err := json.Unmarshal(raw, &sizes); err != nil {
		return file{}, false
	}
	for _, f := range sizes {
		if f.ID != "" && (best.ID == "" || f.Width*f.Height >= best.Width*best.Height) {
			best = f
		}
	}
	return best, best.ID != ""
}

// performance returns the performer and the title of a piece of music, or "".
func (f *file) performance() string {
	if f.Performer == "" || f.Title == "" {
		return f.Performer + f.Title
	}
	return f.Performer + " - " + f.Title
}

// fileName returns the name of a file as one line. If it is too long, its stem is cut.
func fileName(s string) string {
	const longest = 1024 // bytes to examine
	if len(s) > longest {
		// Both ends stay: the end has the extension, by which programs know the type.
		s = s[:longest/2] + s[len(s)-longest/2:]
	}
	s = channels.Clean(strings.ToValidUTF8(s, ""), longest)
	excess := utf8.RuneCountInString(s) - channels.MaxName
	if excess <= 0 {
		return s
	}
	ext := path.Ext(s)
	// That is the end of a sentence, not an extension.
	if utf8.RuneCountInString(ext) > 16 {
		ext = ""
	}
	stem := []rune(strings.TrimSuffix(s, ext))
	return string(stem[:len(stem)-excess]) + ext
}

// label prefixes text with the label of the file or object in m: "[photo] at the lake".
func (m *media) label(text string) string {
	return strings.TrimSpace(m.name() + " " + text)
}

// name returns the label of the file or object in m, such as "[photo]", or "".
func (m *media) name() string { return cmp.Or(m.fileLabel(), m.objectLabel()) }

// fileLabel returns the label of a file. The order matters: an animation is also a document.
func (m *media) fileLabel() string {
	switch {
	case m.Audio != nil:
		f, _ := largest(m.Audio) // if it can't be decoded, the kind remains
		return channels.Placeholder("audio", f.performance())
	case m.Document != nil && m.Animation == nil:
		f, _ := largest(m.Document)
		return channels.Placeholder("document", f.Name)
	case m.VideoNote != nil:
		return "[video note]"
	case m.Sticker != nil:
		return channels.Placeholder("sticker", m.Sticker.Emoji)
	case m.Story != nil:
		return "[story]"
	}
	if kind, _, _ := m.file(); kind != "" {
		return channels.Placeholder(string(kind), "")
	}
	return ""
}

// objectLabel returns the label of something that is not a file. The order matters: a venue also
// has a location.
func (m *media) objectLabel() string {
	switch {
	case m.Contact != nil:
		c := m.Contact
		return channels.Placeholder("contact", c.First+" "+c.Last+" "+c.Phone)
	case m.Dice != nil:
		return channels.Placeholder("dice", fmt.Sprint(m.Dice.Emoji, " ", m.Dice.Value))
	case m.Game != nil:
		return "[game]"
	case m.Poll != nil:
		var options []string
		for _, o := range m.Poll.Options {
			options = append(options, o.Text)
		}
		return channels.List("poll", m.Poll.Question, options)
	case m.Venue != nil:
		return channels.Placeholder("venue", m.Venue.Title+", "+m.Venue.Address)
	case m.Location != nil:
		return fmt.Sprintf("[location: %g, %g]", m.Location.Latitude, m.Location.Longitude)
	case m.PaidMedia != nil:
		return "[paid media]"
	case m.Checklist != nil:
		return m.Checklist.label()
	}
	return ""
}

// label returns the text that stands for a list of tasks.
func (c *checklist) label() string {
	var tasks []string
	for _, t := range c.Tasks {
		box := "[ ] "
		if t.Done > 0 {
			box = "[x] "
		}
		tasks = append(tasks, box+t.Text)
	}
	return channels.List("checklist", c.Title, tasks)
}
