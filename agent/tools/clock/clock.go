// Package clock implements the tool "time", which tells the time in any zone. The messages
// that the agent reads carry their own time, so this tool is for other zones and for long
// turns. The package owns no state.
package clock

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"gateway/agent/tool"
)

const description = "Tells the date and time, with weekday. Messages already carry the time at " +
	"which they were sent."

// timeArgs are the arguments of the tool. Zone is an IANA name, or "".
type timeArgs struct {
	Zone string `json:"zone,omitempty" jsonschema:"such as Europe/Berlin"`
}

// New returns the tool. It gets the time from now. It shows the zone that the call asks
// for, otherwise the caller's zone, otherwise zone.
func New(now func() time.Time, zone *time.Location) tool.Tool {
	run := func(_ context.Context, c tool.Call, args timeArgs) (tool.Result, error) {
		in := cmp.Or(c.Zone, zone)
		if args.Zone != "" {
			var err error
			if in, err = time.LoadLocation(args.Zone); err != nil {
				return tool.Result{}, fmt.Errorf(
					"there is no time zone %q; want an IANA name such as Europe/Berlin or UTC", args.Zone)
			}
		}
		return tool.Result{Text: show(now().In(in))}, nil
	}
	t := tool.New("time", description, tool.Pure, run)
	t.Rare = `tells the time, {} or {"zone":"Europe/Berlin"}`
	return t
}

// show returns t in its own zone and in UTC.
func show(t time.Time) string {
	zone, _ := t.Zone()
	// The name of the zone helps where its abbreviation does not: "CST" has several meanings.
	if name := t.Location().String(); name != "Local" && name != zone {
		zone = name + ", " + zone
	}
	return fmt.Sprintf("%s (%s)\nUTC: %s", t.Format("Monday 2006-01-02 15:04:05 -07:00"), zone,
		t.UTC().Format(time.RFC3339))
}
