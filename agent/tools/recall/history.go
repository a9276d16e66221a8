package recall

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"gateway/agent/tool"
	"gateway/memory"
)

// historyArgs are the arguments of history_search. Since is the first moment to search. Until is
// the first moment after that, or the last day if it is a date.
type historyArgs struct {
	Query  string `json:"query" jsonschema:"words, or begin*"`
	Since  string `json:"since,omitempty" jsonschema:"2026-11-22 or RFC 3339"`
	Until  string `json:"until,omitempty"`
	Newest bool   `json:"newest,omitempty" jsonschema:"first, not the best"`
	Limit  int    `json:"limit,omitempty"`
}

// history implements the tool history_search. It searches the messages of earlier conversations and
// the notes on them, the best hits first, or the newest first.
func (r memoryTools) history(ctx context.Context, c tool.Call, a historyArgs) (tool.Result, error) {
	space, err := r.space(c)
	if err != nil {
		return tool.Result{}, err
	}
	if strings.TrimSpace(a.Query) == "" {
		return tool.Result{}, errors.New("the query is empty; say which words to search for")
	}
	in := r.zone(c)
	o := memory.HistoryOptions{Limit: bound(a.Limit), Newest: a.Newest}
	if o.Since, err = parseTime("since", a.Since, 0, in); err != nil {
		return tool.Result{}, err
	}
	if o.Until, err = parseTime("until", a.Until, 1, in); err != nil {
		return tool.Result{}, err
	}
	if !o.Since.IsZero() && !o.Until.IsZero() && !o.Since.Before(o.Until) {
		return tool.Result{}, fmt.Errorf("since %s is not before until %s", a.Since, a.Until)
	}
	// The memory ranks the hits; it returns no more than o.Limit of them.
	hits, err := space.SearchHistory(r.DB.Read(ctx), a.Query, o)
	if err != nil {
		return tool.Result{}, err
	}
	if len(hits) == 0 {
		return tool.Result{Text: "Nothing was found. Other or fewer words may find something."}, nil
	}
	var found lines
	for _, h := range hits {
		who := "noted"
		if h.Kind == memory.KindMessage {
			who = h.Speaker
		}
		// The text is a JSON string, so that it can't imitate the text around it.
		found.add(fmt.Sprintf("- %s %s: %s", h.Time.In(in).Format("2006-01-02 15:04"), who,
			memory.Quote(h.Excerpt)))
	}
	return tool.Result{
		Text:    found.under("What was said and noted, with times in " + in.String() + ":"),
		Foreign: "earlier conversations", // several people may have written in them
	}, nil
}

// parseTime parses an argument, which may be empty. A date means the beginning of that day
// in a zone, plus the given number of days.
func parseTime(name, text string, days int, in *time.Location) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, in); err == nil {
		return t.AddDate(0, 0, days), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%s %q is not a date; want one such as 2026-02-16 or "+
		"2026-02-16T12:51:00+08:00", name, text)
}
