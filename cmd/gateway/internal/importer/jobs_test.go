package importer

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"gateway/agent/schedule"
)

// A job with an interval runs at the time at which the other agent would have run it next.
func TestIntervals(t *testing.T) {
	const text = `{"name":%q,"schedule":{"kind":"every","everyMs":86400000%s},
		"payload":{"kind":"agentTurn","message":"look"},"createdAtMs":1763700000000%s}`
	utc := func(day, hour, minute int) time.Time {
		return time.Date(2026, 11, day, hour, minute, 0, 0, time.UTC)
	}
	at := func(day, hour int) string {
		return strconv.FormatInt(utc(day, hour, 30).UnixMilli(), 10)
	}
	for name, test := range map[string]struct {
		anchor, state string
		want          time.Time
	}{
		"anchor":          {`,"anchorMs":` + at(1, 9), "", utc(22, 9, 30)},
		"late anchor":     {`,"anchorMs":` + at(23, 9), "", utc(23, 9, 30)},
		"next run":        {"", at(21, 20), utc(21, 20, 30)},
		"missed run":      {"", at(19, 20), utc(21, 20, 30)},
		"only a creation": {"", "", utc(22, 4, 40)},
	} {
		t.Run(name, func(t *testing.T) {
			if test.state != "" {
				test.state = `,"state":{"nextRunAtMs":` + test.state + `}`
			}
			d := newFixture(t)
			d.write("openclaw.json", "{}", "cron/jobs.json",
				"["+fmt.Sprintf(text, name, test.anchor, test.state)+"]")
			d.run(OpenClaw, false)
			list, err := schedule.List(d.target.DB.Read(t.Context()), schedule.Filter{})
			if err != nil || len(list) != 1 || !list[0].Next.Equal(test.want) {
				t.Errorf("the jobs are %v, %v, want one at %s", list, err, test.want)
			}
		})
	}
}

// nanobot names the topic of a group only in the key of the job's session. That key may also belong
// to another conversation.
func TestTopicOfJob(t *testing.T) {
	const text = `{"name":%q,"schedule":{"kind":"every","everyMs":3600000},"payload":
		{"message":"look","channel":"telegram","to":"-100","sessionKey":%q}}`
	d := newFixture(t)
	d.write("config.json", "{}", "cron/jobs.json", "["+
		fmt.Sprintf(text, "topic", "telegram:-100:topic:7")+","+
		fmt.Sprintf(text, "group", "telegram:-100")+","+
		fmt.Sprintf(text, "other", "telegram:42")+","+
		fmt.Sprintf(text, "all", "unified:default")+"]")
	d.run(Nanobot, false)
	const rest = " chat-telegram+-100 42 active"
	d.wantJobs("topic telegram/-100/7"+rest, "group telegram/-100"+rest, "other telegram/-100"+rest,
		"all telegram/-100"+rest)
}
