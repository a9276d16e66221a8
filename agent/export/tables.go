package export

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gateway/bus"
	"gateway/store/plainjson"
)

// An owner is the kind of object that the rows of a table belong to.
type owner int

const (
	ofPerson  owner = iota // $1 is their id
	ofScope                // $1 is its name
	ofSession              // $1 is its name
	ofChat                 // $1 is the account, $2 the chat
)

// A table selects the rows of one database table that belong into an export.
type table struct {
	name  string
	owner owner
	where string   // condition of the query; the comments of owner explain $1 and $2
	order string   // unique columns; "": id
	omit  []string // columns to leave out
}

// Conditions that several tables share.
const (
	ofNumber = "scope = (SELECT id FROM memory_scopes WHERE name = $1)"
	ofPlace  = "account = $1 AND chat = $2"
)

// tables lists the database tables of an export. Entries with the same name must follow one
// another. The table messages is not in the list: the conversations contain it.
var tables = []table{
	{name: "people", owner: ofPerson, where: "id = $1"},
	{name: "identities", owner: ofPerson, where: "person = $1", order: "account, sender"},
	{name: "pairings", owner: ofChat, where: ofPlace, order: "account, sender",
		omit: []string{"code"}},
	{name: "places", owner: ofChat, where: "account = $1 AND place = $2 AND place <> ''",
		order: "account, place"},
	{name: "notices", owner: ofChat, where: ofPlace, order: "account, chat"},
	{name: "moves", owner: ofChat, where: "account = $1 AND (chat = $2 OR before = $2)",
		order: "account, chat"},
	{name: "sessions", owner: ofSession, where: "key = $1", order: "key"},
	{name: "turns", owner: ofSession, where: "session = $1", omit: []string{"owner", "epoch"}},
	{name: "questions", owner: ofSession, where: "session = $1", omit: []string{"code"}},
	{name: "usage", owner: ofPerson, where: "kind = 'person' AND key = CAST($1 AS TEXT)",
		order: "day, kind, key"},
	{name: "usage", owner: ofSession, where: "kind = 'session' AND key = $1",
		order: "day, kind, key"},
	{name: "memory_scopes", owner: ofScope, where: "name = $1"},
	{name: "memory_facts", owner: ofScope, where: ofNumber},
	{name: "memory_entries", owner: ofScope, where: ofNumber},
	{name: "memory_messages", owner: ofScope, where: ofNumber},
	{name: "versions", owner: ofScope, where: "tree = $1"},
	{name: "version_files", owner: ofScope, where: "tree = $1", order: "version, file"},
	{name: "jobs", owner: ofScope, where: "scope = $1"},
	{name: "jobs", owner: ofChat, where: ofPlace},
	{name: "jobs", owner: ofPerson, where: "person = $1"},
	{name: "runs", owner: ofScope, where: "job IN (SELECT id FROM jobs WHERE scope = $1)"},
	{name: "runs", owner: ofChat, where: "job IN (SELECT id FROM jobs WHERE " + ofPlace + ")"},
	{name: "runs", owner: ofPerson, where: "job IN (SELECT id FROM jobs WHERE person = $1)"},
	{name: "zones", owner: ofScope, where: "scope = $1", order: "scope"},
	{name: "chores", owner: ofScope, where: "scope = $1 AND kind <> 'erase'"},
	{name: "inbox", owner: ofChat, where: ofPlace},
	{name: "outbox", owner: ofChat, where: ofPlace, omit: []string{"key"}},
	{name: "audits", owner: ofPerson, where: "person = $1", omit: []string{"rules"}},
	{name: "audits", owner: ofChat, where: ofPlace, omit: []string{"rules"}},
	// Other people have decided about the person: their names and chats stay out.
	{name: "audits", owner: ofPerson, where: "whom = $1 AND person <> $1",
		omit: []string{"rules", "by_whom", "name", "person", "account", "chat"}},
}

// Tables returns the names of the tables whose rows are in an export.
func Tables() []string {
	names := []string{"messages"}
	for _, t := range tables {
		names = append(names, t.name)
	}
	return slices.Compact(names)
}

// arguments returns the arguments of the queries, one list for each owner of a kind.
func (r *run) arguments(of owner) (list [][]any) {
	switch of {
	case ofPerson:
		for _, id := range r.owned.People() {
			list = append(list, []any{id})
		}
	case ofScope:
		for _, s := range r.owned.Scopes {
			list = append(list, []any{string(s)})
		}
	case ofSession:
		for _, key := range r.keys {
			list = append(list, []any{key.String()})
		}
	case ofChat:
		for _, a := range r.owned.Chats {
			list = append(list, []any{a.Account, a.Chat})
		}
	}
	return list
}

// rows writes a file for each table that has rows of the person.
func (r *run) rows(context.Context) error {
	var out *bufio.Writer
	var seen map[string]bool // lines written so far; nil if only one entry names the table
	for i, t := range tables {
		// The first entry of a table begins its file.
		if i == 0 || tables[i-1].name != t.name {
			out, seen = nil, nil
			if i+1 < len(tables) && tables[i+1].name == t.name {
				seen = make(map[string]bool)
			}
		}
		for _, args := range r.arguments(t.owner) {
			err := r.pages(t, args, func(line string) error {
				// Several entries of the table may select the same row.
				if seen[line] {
					return nil
				}
				if seen != nil {
					seen[line] = true
				}
				// A table without rows of the person gets no file.
				if out == nil {
					w, err := r.to.Create("data/" + t.name + ".jsonl")
					if err != nil {
						return err
					}
					out = bufio.NewWriter(w)
				}
				_, err := io.WriteString(out, line+"\n")
				return err
			})
			if err != nil {
				return err
			}
		}
		if out != nil {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// page is the number of rows that one query reads.
const page = 256

// pages calls write with the rows of t as JSON. It reads a page at a time, so no query stays open
// while write waits. Rows are read in the order of their ids, so that new rows do not shift the
// pages. Tables without an id are read by offset. An index may find the ids of a page without
// reading the rows that follow.
func (r *run) pages(t table, args []any, write func(line string) error) error {
	n := len(args) + 1
	query := fmt.Sprintf("SELECT * FROM %[1]s WHERE id IN (SELECT id FROM %[1]s WHERE (%[2]s) "+
		"AND id > $%[3]d ORDER BY id LIMIT %[4]d) ORDER BY id", t.name, t.where, n, page)
	if t.order != "" {
		query = fmt.Sprintf("SELECT * FROM %s WHERE %s ORDER BY %s LIMIT %d OFFSET $%d", t.name,
			t.where, t.order, page, n)
	}
	for after := int64(0); ; {
		lines, last, err := r.page(t, query, append(slices.Clip(args), after))
		if err != nil {
			return fmt.Errorf("table %s: %w", t.name, err)
		}
		for _, line := range lines {
			if err := write(line); err != nil {
				return err
			}
		}
		if len(lines) < page {
			return nil
		}
		if after += page; t.order == "" {
			after = last
		}
	}
}

// page returns the rows of a query as JSON, and the id of the last one.
func (r *run) page(t table, query string, args []any) (lines []string, last int64, err error) {
	rows, err := r.read.Query(query, args...)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, 0, err
	}
	values, into := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, 0, err
		}
		line := []byte("{")
		for i, column := range columns {
			// The id is needed for the next page, even if the export omits it.
			if id, ok := values[i].(int64); ok && column == "id" {
				last = id
			}
			if slices.Contains(t.omit, column) {
				continue
			}
			if len(line) > 1 {
				line = append(line, ',')
			}
			name, value := r.field(t.name, column, values[i])
			line = append(line, plainjson.Text(name)+":"+value...)
		}
		lines = append(lines, string(append(line, '}')))
	}
	return lines, last, rows.Err()
}

// field returns the name and the JSON value of a column. It formats times, and keeps JSON as JSON
// instead of a string. A column that ends in _ms is a time in Unix milliseconds, of which 0 means
// none. Bytes that are not text become base64.
func (r *run) field(table, column string, value any) (name, text string) {
	if b, ok := value.([]byte); ok {
		if !utf8.Valid(b) {
			return column, plainjson.Text(base64.StdEncoding.EncodeToString(b))
		}
		value = string(b)
	}
	switch v := value.(type) {
	case int64:
		if at, ok := strings.CutSuffix(column, "_ms"); ok {
			if v == 0 {
				return at, "null"
			}
			return at, plainjson.Text(time.UnixMilli(v).UTC().Format(time.RFC3339Nano))
		}
	case string:
		if table == "inbox" && column == "body" {
			v = withoutReferences(v)
		}
		v = r.clean.Replace(v)
		if strings.HasPrefix(v, "{") || strings.HasPrefix(v, "[") {
			var compact bytes.Buffer
			if json.Compact(&compact, []byte(v)) == nil {
				return column, compact.String()
			}
		}
		return column, plainjson.Text(v)
	}
	return column, plainjson.Text(value)
}

// withoutReferences returns an inbound message without the references to files on the platform.
// Those of WhatsApp contain keys.
func withoutReferences(body string) string {
	var m bus.InboundMessage
	if json.Unmarshal([]byte(body), &m) != nil {
		return body
	}
	return plainjson.Text(withoutRefs(m))
}

// withoutRefs returns a copy of m without the references of its own files and of the quoted ones. m
// stays as it is.
func withoutRefs(m bus.InboundMessage) bus.InboundMessage {
	clear := func(list []bus.Attachment) []bus.Attachment {
		list = slices.Clone(list)
		for i := range list {
			list[i].Ref = ""
		}
		return list
	}
	m.Attachments = clear(m.Attachments)
	if m.ReplyTo != nil {
		quote := *m.ReplyTo
		quote.Attachments = clear(quote.Attachments)
		m.ReplyTo = &quote
	}
	return m
}
