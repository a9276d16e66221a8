package export

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
	"gateway/store/plainjson"
)

const timeLayout = "2006-01-02 15:04"

// transcript writes a session as Markdown: the messages of the person and of the agent, and the
// names of the tools that the agent used.
func (r *run) transcript(key session.Key, out io.Writer) error {
	info, err := session.ReadSummary(r.read, key)
	if err != nil {
		return err
	}
	title := r.clean.Replace(key.String())
	if _, err := fmt.Fprintf(out, "# %s\n", title); err != nil {
		return err
	}
	if info.Text != "" {
		_, err := fmt.Fprintf(out, "\n## Notes on the older part\n\n%s\n", r.clean.Replace(info.Text))
		if err != nil {
			return err
		}
	}
	for at := int64(0); ; {
		entries, err := session.EntriesAfter(r.read, key, at, page)
		if err != nil || len(entries) == 0 {
			return err
		}
		for _, e := range entries {
			at = e.ID
			if err := r.message(out, e); err != nil {
				return err
			}
		}
	}
}

// message writes a message of a transcript. It leaves out what is not for people: results of tools,
// and messages without content.
func (r *run) message(out io.Writer, e session.Entry) error {
	who := map[llm.Role]string{llm.User: "You", llm.Assistant: "Assistant"}[e.Message.Role]
	if who == "" {
		return nil // results of tools are in the JSON
	}
	text := strings.TrimSpace(e.Message.Text)
	for _, c := range e.Message.ToolCalls {
		text += fmt.Sprintf("\n\n(used the tool `%s`)", c.Name)
	}
	for _, i := range e.Message.Images {
		text += fmt.Sprintf("\n\n(picture: files/%s)", i.Path)
	}
	if text == "" {
		return nil
	}
	_, err := fmt.Fprintf(out, "\n**%s** %s\n\n%s\n", who, e.Time.In(r.Zone).Format(timeLayout),
		r.clean.Replace(strings.TrimSpace(text)))
	return err
}

// A groupMessage is a message that the person wrote in a group, with the answers to it.
type groupMessage struct {
	Time    time.Time `json:"time"`
	Group   string    `json:"group,omitempty"`
	Text    string    `json:"text"`
	Files   []string  `json:"files,omitempty"` // names
	Answers []string  `json:"answers,omitempty"`

	seq int64 // its place in the order of arrival
}

// A group is what the person wrote in a group.
type group struct {
	own      map[string]*groupMessage // by the platform's ids
	repeated map[string]bool          // ids that other messages have had, too
	list     []*groupMessage
	mixed    int // answers that also answer other people, or may
}

// groups writes the person's messages in each group, and the answers to these messages alone. It
// leaves out the messages of others, and so also the messages that the person's quote.
func (r *run) groups(context.Context) error {
	groups := make(map[bus.Address]*group)
	for _, person := range r.owned.People() {
		if err := r.ownMessages(person, groups); err != nil {
			return err
		}
	}
	if len(groups) == 0 {
		return nil
	}
	if err := r.answers(groups); err != nil {
		return err
	}
	for _, a := range slices.SortedFunc(maps.Keys(groups), func(a, b bus.Address) int {
		return cmp.Or(strings.Compare(a.Account, b.Account), strings.Compare(a.Chat, b.Chat))
	}) {
		if err := r.group(a, groups[a]); err != nil {
			return err
		}
	}
	return nil
}

// group writes the person's messages in one group, and the answers to them, as JSON and as
// Markdown.
func (r *run) group(a bus.Address, g *group) error {
	base := "groups/" + FileName(a.String())
	jsonl, md := new(strings.Builder), new(strings.Builder)
	fmt.Fprintf(md, "# %s\n", r.clean.Replace(a.String()))
	slices.SortFunc(g.list, func(a, b *groupMessage) int { return cmp.Compare(a.seq, b.seq) })
	for _, s := range g.list {
		jsonl.WriteString(plainjson.Text(s) + "\n")
		fmt.Fprintf(md, "\n**You** %s\n\n%s\n", s.Time.In(r.Zone).Format(timeLayout), s.Text)
		for _, name := range s.Files {
			fmt.Fprintf(md, "\n(file: %s)\n", name)
		}
		for _, answer := range s.Answers {
			fmt.Fprintf(md, "\n**Assistant**\n\n%s\n", answer)
		}
	}
	if g.mixed > 0 {
		r.leftOut = append(r.leftOut, fmt.Sprintf(
			"%d answers in the group %s, which answer other people, too, or may do so", g.mixed, a))
	}
	for _, f := range []struct{ name, text string }{
		{base + ".jsonl", jsonl.String()}, {base + ".md", md.String()},
	} {
		w, err := r.to.Create(f.name)
		if err == nil {
			_, err = io.WriteString(w, f.text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ownMessages adds the messages in groups that have the number of a person to groups.
func (r *run) ownMessages(person int64, groups map[bus.Address]*group) error {
	chats, err := bus.Groups(r.read, person)
	for i := 0; i < len(chats) && err == nil; i++ {
		g := groups[chats[i]]
		if g == nil {
			g = &group{own: make(map[string]*groupMessage)}
			if g.repeated, err = bus.RepeatedIDs(r.read, chats[i]); err != nil {
				return err
			}
		}
		err = r.bodies(`SELECT id, account, chat, body FROM inbox WHERE person = $1 AND person <> 0
			AND shared = TRUE AND account = $2 AND chat = $3 AND origin = 'person' AND id > $4
			ORDER BY id LIMIT 256`, []any{person, chats[i].Account, chats[i].Chat}, func(w *row) {
			var m bus.InboundMessage
			if json.Unmarshal(w.body, &m) != nil {
				return
			}
			s := &groupMessage{Time: m.Time, Group: r.clean.Replace(m.ChatTitle),
				Text: r.clean.Replace(m.Text), seq: w.id}
			for _, f := range m.Attachments {
				s.Files = append(s.Files, string(f.Kind)+" "+r.clean.Replace(f.Name))
			}
			groups[w.at], g.own[m.ID], g.list = g, s, append(g.list, s)
		})
	}
	return err
}

// answers adds the answers to the person's messages to them, in one pass through the outbox. It
// leaves out those that also answer other people's messages, or may, and counts them. The number
// appears in the README.
func (r *run) answers(groups map[bus.Address]*group) error {
	return r.bodies(`SELECT id, account, chat, body FROM outbox WHERE id > $1 ORDER BY id LIMIT 256`,
		nil, func(w *row) {
			g := groups[w.at]
			var m bus.OutboundMessage
			if g == nil || json.Unmarshal(w.body, &m) != nil {
				return
			}
			mine := func(id string) bool { return g.own[id] != nil }
			perhaps := func(id string) bool { return g.own[id] == nil || g.repeated[id] }
			switch {
			case !slices.ContainsFunc(m.Answers, mine):
			case slices.ContainsFunc(m.Answers, perhaps):
				g.mixed++
			default:
				// An answer to several messages follows the last of them.
				s := g.own[m.Answers[len(m.Answers)-1]]
				s.Answers = append(s.Answers, r.clean.Replace(m.Text))
			}
		})
}

// A row is a row of the inbox or the outbox.
type row struct {
	id   int64
	at   bus.Address // without the thread
	body []byte
}

// bodies calls do with the rows that a query returns, a page at a time. The last parameter of the
// query is the id after which a page begins.
func (r *run) bodies(query string, args []any, do func(*row)) error {
	for after := int64(0); ; {
		list, err := store.Collect(r.read, "read messages", func(scan store.Scan, w *row) error {
			return scan(&w.id, &w.at.Account, &w.at.Chat, &w.body)
		}, query, append(slices.Clip(args), after)...)
		if err != nil {
			return err
		}
		for i := range list {
			after = list[i].id
			do(&list[i])
		}
		if len(list) < page {
			return nil
		}
	}
}

// withheld stands in place of a secret.
const withheld = "[withheld]"

// cleaner returns a replacer for secrets. It finds them in texts and in JSON strings. No secret may
// be empty, because "" is in every text. If one secret begins with another one, it replaces the
// longer one.
func cleaner(secrets []string) *strings.Replacer {
	var forms []string
	for _, s := range secrets {
		quoted := plainjson.Text(s)
		forms = append(forms, s, quoted[1:len(quoted)-1])
		// JSON in the database may have <, > and & escaped.
		if html, err := json.Marshal(s); err == nil {
			forms = append(forms, string(html[1:len(html)-1]))
		}
	}
	// At each place in a text, the first form in the list that fits counts.
	slices.SortStableFunc(forms, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, form := range forms {
		pairs = append(pairs, form, withheld)
	}
	return strings.NewReplacer(pairs...)
}

// A lineCleaner removes secrets from the lines that are written to it. It holds back an incomplete
// line, because a secret may be split between two writes.
type lineCleaner struct {
	to    io.Writer
	clean *strings.Replacer
	part  []byte // of a line
}

// Write implements [io.Writer].
func (c *lineCleaner) Write(p []byte) (int, error) {
	c.part = append(c.part, p...)
	if end := strings.LastIndexByte(string(p), '\n'); end >= 0 {
		end += len(c.part) - len(p) + 1
		if _, err := c.clean.WriteString(c.to, string(c.part[:end])); err != nil {
			return 0, err
		}
		c.part = append(c.part[:0], c.part[end:]...)
	}
	return len(p), nil
}

// flush writes a last line that has no end.
func (c *lineCleaner) flush() error {
	_, err := c.clean.WriteString(c.to, string(c.part))
	c.part = nil
	return errors.Join(err)
}
