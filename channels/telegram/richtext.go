package telegram

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"

	"gateway/bus"
)

// A richMessage is formatted text that a person has pasted or a bot has written. Such a message has
// neither text nor caption: see https://core.telegram.org/bots/api#richmessage.
type richMessage struct {
	Blocks []json.RawMessage `json:"blocks"`
}

// A richBlock is a part of a rich message. Each kind has some of the fields. Texts are decoded
// later: they may be strings, lists or objects.
type richBlock struct {
	Type       string          `json:"type"`
	Text       json.RawMessage `json:"text"`
	Size       int             `json:"size"` // of a heading
	Language   string          `json:"language"`
	Expression string          `json:"expression"` // LaTeX
	Items      []struct {
		Label   string            `json:"label"`
		Blocks  []json.RawMessage `json:"blocks"`
		Box     bool              `json:"has_checkbox"`
		Checked bool              `json:"is_checked"`
	} `json:"items"`
	Blocks  []json.RawMessage `json:"blocks"`
	Credit  json.RawMessage   `json:"credit"`
	Caption json.RawMessage   `json:"caption"` // of a table a text, else an object with a text
	Summary json.RawMessage   `json:"summary"`
	Cells   [][]struct {
		Text json.RawMessage `json:"text"`
	} `json:"cells"`
	VoiceNote json.RawMessage `json:"voice_note"`
	media                     // of a map, or with a file
}

// A richPiece is a part of a text with a style or a meaning.
type richPiece struct {
	Type        string          `json:"type"`
	Text        json.RawMessage `json:"text"`
	URL         string          `json:"url"`
	User        *user           `json:"user"`
	Alternative string          `json:"alternative_text"` // of an emoji
	Expression  string          `json:"expression"`       // LaTeX
}

// maxRichDepth is how deep blocks and texts may be nested. Telegram allows less.
const maxRichDepth = 32

// maxRichFiles is how many files of a rich message are fetched.
const maxRichFiles = 10

// files returns the first files of r. r may be nil.
func (r *richMessage) files() []bus.Attachment {
	if r == nil {
		return nil
	}
	w := &richWriter{}
	w.blocks(r.Blocks, "", 0)
	return w.files[:min(len(w.files), maxRichFiles)]
}

// written returns the text of r in Markdown, and the entities in it.
func (r *richMessage) written() (string, []entity) {
	w := &richWriter{}
	w.blocks(r.Blocks, "\n\n", 0)
	text := strings.TrimRight(w.out.String(), " \n")
	if strings.TrimSpace(text) == "" {
		return "[rich message]", nil // of unknown parts
	}
	return text, w.entities
}

// A richWriter collects the text of a rich message.
type richWriter struct {
	out      strings.Builder
	units    int // UTF-16 units in out, in which entities count
	entities []entity
	files    []bus.Attachment
	indent   string // at the beginning of each further line
}

func (w *richWriter) write(s string) {
	s = strings.ReplaceAll(s, "\n", "\n"+w.indent)
	w.out.WriteString(s)
	for _, r := range s {
		w.units += max(1, utf16.RuneLen(r))
	}
}

// within writes with a longer indent.
func (w *richWriter) within(indent string, write func()) {
	before := w.indent
	w.indent += indent
	write()
	w.indent = before
}

// blocks writes blocks with a separator between them.
func (w *richWriter) blocks(list []json.RawMessage, separator string, depth int) {
	for i, raw := range list {
		var b richBlock
		_ = json.Unmarshal(raw, &b) // keep the fields that have a known form
		if i > 0 {
			w.write(separator)
		}
		if depth < maxRichDepth {
			w.block(&b, depth+1)
		}
	}
}

func (w *richWriter) block(b *richBlock, depth int) {
	switch b.Type {
	case "heading":
		w.write(strings.Repeat("#", min(max(b.Size, 1), 6)) + " ")
	case "pre":
		w.write("```" + b.Language + "\n")
		defer w.write("\n```")
	case "divider":
		w.write("---")
	case "mathematical_expression":
		w.write("$$" + b.Expression + "$$")
	case "blockquote":
		w.write("> ")
		w.within("> ", func() { w.blocks(b.Blocks, "\n", depth) })
		b.Blocks = nil
	}
	// A block of any kind may carry a file or a place.
	if b.VoiceNote != nil {
		b.Voice = b.VoiceNote
	}
	w.write(b.media.name())
	w.files = append(w.files, b.attachments()...)
	w.text(b.Text, depth)
	w.text(b.Summary, depth)
	if len(b.Summary) > 0 {
		w.write("\n")
	}
	w.blocks(b.Blocks, "\n", depth)
	w.items(b, depth)
	w.table(b, depth)
	for _, after := range []json.RawMessage{b.Caption, b.Credit} {
		if len(after) > 0 {
			w.write("\n")
			w.text(after, depth)
		}
	}
}

// items writes the items of a list.
func (w *richWriter) items(b *richBlock, depth int) {
	for i, item := range b.Items {
		mark := "- "
		switch {
		case item.Box && item.Checked:
			mark = "- [x] "
		case item.Box:
			mark = "- [ ] "
		case item.Label != "" && item.Label != "•":
			mark = item.Label + " "
		}
		if i > 0 {
			w.write("\n")
		}
		w.write(mark)
		w.within("  ", func() { w.blocks(item.Blocks, "\n", depth) })
	}
}

// table writes the rows of a table. The first row counts as its header.
func (w *richWriter) table(b *richBlock, depth int) {
	for i, row := range b.Cells {
		if i > 0 {
			w.write("\n")
		}
		for _, cell := range row {
			w.write("| ")
			w.text(cell.Text, depth)
			w.write(" ")
		}
		w.write("|")
		if i == 0 {
			w.write("\n" + strings.Repeat("|---", len(row)) + "|")
		}
	}
}

// text writes a text, which is a string, a list of texts, or an object with a text.
func (w *richWriter) text(raw json.RawMessage, depth int) {
	var plain string
	var list []json.RawMessage
	var p richPiece
	switch {
	case len(raw) == 0 || depth >= maxRichDepth:
	case json.Unmarshal(raw, &plain) == nil:
		w.write(plain)
	case json.Unmarshal(raw, &list) == nil:
		for _, one := range list {
			w.text(one, depth+1)
		}
	case json.Unmarshal(raw, &p) == nil:
		w.piece(&p, depth+1)
	}
}

// piece writes a part of a text. What [user.read] has to know becomes an entity.
func (w *richWriter) piece(p *richPiece, depth int) {
	begin, known := w.units, len(w.entities)
	w.write(p.Alternative)
	if p.Expression != "" {
		w.write(fmt.Sprintf("$%s$", p.Expression))
	}
	w.text(p.Text, depth)
	kind := p.Type
	if kind == "url" {
		kind = "text_link"
	}
	switch kind {
	case "mention", "text_mention", "bot_command", "text_link":
		// The entities of a message don't contain one another.
		if len(w.entities) == known && w.units > begin {
			w.entities = append(w.entities, entity{Type: kind, Offset: begin, Length: w.units - begin,
				User: p.User, URL: p.URL})
		}
	}
}
