package command

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"gateway/agent/audit"
	"gateway/agent/prompt"
	"gateway/bus"
	"gateway/store"
)

// auditPage is the number of decisions on one page of /audit.
const auditPage = 10

// audit answers /audit [PAGE].
func (d decisions) audit(ctx context.Context, r *Request) (Reply, error) {
	if r.Message.Group {
		return Reply{Text: "Other people read this chat. Send me `/audit` in our direct chat."}, nil
	}
	page := 1
	if r.Args != "" {
		var err error
		if page, err = strconv.Atoi(r.Args); err != nil || page < 1 || page > 1e6 {
			return Reply{Text: "Use `/audit`, or `/audit 2` for the second page."}, nil
		}
	}
	// One more than is shown, to know whether there is another page.
	list, err := audit.List(d.DB.Read(ctx), auditPage+1, (page-1)*auditPage)
	if err != nil {
		return Reply{}, err
	}
	if len(list) == 0 {
		return Reply{Text: "There is nothing (more) in the audit log."}, nil
	}
	var b strings.Builder
	for _, e := range list[:min(len(list), auditPage)] {
		b.WriteString("- " + d.auditLine(e) + "\n")
	}
	reply := Reply{Text: b.String()}
	if len(list) > auditPage {
		reply.Buttons = []bus.Button{{Label: "Older", Text: fmt.Sprintf("/audit %d", page+1)}}
	}
	return reply, nil
}

// auditLine returns an entry as one line, short enough for a phone.
func (d decisions) auditLine(e audit.Entry) string {
	line := e.Time.In(d.Location).Format("2 Jan 15:04") + " **" + e.Action + "**"
	if e.About != "" {
		line += " `" + e.About + "`"
	}
	line += ", by `" + prompt.SourceName(strings.ReplaceAll(e.Author(), "`", "'")) + "`"
	if e.Where.Chat != "" {
		line += " in `" + ChatName(e.Where) + "`"
	}
	return line
}

// ChatName returns the name of a chat as commands and the configuration write it.
func ChatName(a bus.Address) string { return a.Account + "/" + a.Chat }

// audit records in the audit log what the sender of r has decided.
func (r *Request) audit(tx *store.Tx, action, about string) error {
	return audit.Add(tx, audit.NewEntry(r.Message, action, about), r.deps.Now())
}
