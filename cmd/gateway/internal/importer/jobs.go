package importer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/memory"
	"gateway/store"
	"gateway/store/plaintext"
)

// jobs imports scheduled jobs.
type jobs struct {
	*run
	found map[jobID]bool // jobs that this import has found
}

// A jobID tells jobs apart. The ids of the other agent mean nothing here.
type jobID struct {
	name, text, when string
	to               bus.Address
}

func idOf(j *schedule.Job) jobID { return jobID{j.Name, j.Text, j.When.String(), j.To} }

// clawState is the database in which OpenClaw keeps its jobs since June 2026.
const clawState = "state/openclaw.sqlite"

// importAll imports the jobs of OpenClaw's database, and those of all files. OpenClaw renames a
// file when it has moved its jobs into the database.
func (m jobs) importAll(ctx context.Context) {
	if m.kind == OpenClaw && m.isFile(clawState) {
		var list []json.RawMessage
		err := withClawBase(ctx, m.Source, clawState, func(b *clawBase) (err error) {
			list, err = b.jobs()
			return err
		})
		m.importList(ctx, clawState, list, err)
	}
	files := []string{m.in("cron/jobs.json"), "cron/jobs.json"}
	for _, name := range slices.Compact(files) { // both are the same file if the workspace has no home
		text, err := m.read(name, maxJSON)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var list []json.RawMessage
		if err == nil {
			list, err = parseJobs(text)
		}
		m.importList(ctx, name, list, err)
	}
}

// importList imports the jobs of a file, unless reading them has failed with err.
func (m jobs) importList(ctx context.Context, name string, list []json.RawMessage, err error) {
	if err != nil {
		m.failed("job", name, err)
		return
	}
	for i, text := range list {
		from := fmt.Sprintf("%s, job %d", name, i+1)
		var j object
		if json.Unmarshal(text, &j) != nil {
			m.failed("job", from, errors.New("want a JSON object"))
			continue
		}
		m.importOne(ctx, from, j)
	}
}

// parseJobs parses a list of jobs, or an object with the list in "jobs". Both forms occur, with or
// without a byte order mark.
func parseJobs(text []byte) (list []json.RawMessage, err error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if err = json.Unmarshal(text, &list); err == nil {
		return list, nil
	}
	o, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	if o["jobs"] == nil {
		return nil, errors.New("it has no jobs")
	}
	if json.Unmarshal(o["jobs"], &list) != nil {
		return nil, errors.New("its jobs are not a list")
	}
	return list, nil
}

// importOne imports one job.
func (m jobs) importOne(ctx context.Context, from string, o object) {
	j, paused, err := m.convert(o)
	name := strings.TrimSpace(from + " " + j.Name)
	if err == nil {
		var here bool
		if here, err = m.hasJob(ctx, j); here {
			m.report("job", name, j.To.String(), Same, j.When.String())
			return
		}
	}
	// A job and its pause are one transaction, so that it can't run in between.
	if err == nil && !m.dry {
		err = m.DB.Tx(ctx, func(tx *store.Tx) error {
			added := j
			if err := m.Jobs.Add(tx, &added, m.Now); err != nil {
				return err
			}
			if paused {
				return m.Jobs.Pause(tx, added.ID, "paused in "+string(m.kind), m.Now)
			}
			return nil
		})
	}
	if err != nil {
		m.failed("job", name, err)
		return
	}
	text := j.When.String()
	if paused {
		text += ", paused"
	}
	m.report("job", name, j.To.String(), New, text)
}

// hasJob reports whether the same job already exists, or was found before.
func (m jobs) hasJob(ctx context.Context, j schedule.Job) (bool, error) {
	if m.found[idOf(&j)] {
		return true, nil
	}
	m.found[idOf(&j)] = true
	// A job that has ended here must not come back with a second import.
	list, err := schedule.List(m.DB.Read(ctx), schedule.Filter{Over: true})
	same := func(here schedule.Job) bool { return idOf(&here) == idOf(&j) }
	return slices.ContainsFunc(list, same), err
}

// jobKinds are the kinds of jobs that an agent does, as the other programs spell them.
var jobKinds = []string{"agent_turn", "system_event", "agentTurn", "systemEvent"}

// convert converts a job of the other agent.
func (m jobs) convert(o object) (j schedule.Job, paused bool, err error) {
	j = schedule.Job{Name: oneLine(o.text("name")), Kind: schedule.Task}
	payload, err := o.table("payload")
	if err != nil {
		return j, false, err
	}
	j.Text = strings.TrimSpace(payload.text("message", "text"))
	kind := cmp.Or(payload.text("kind"), "agent_turn")
	switch {
	case !slices.Contains(jobKinds, kind):
		return j, false, newSkipError("the gateway has no jobs of the kind %q", kind)
	case payload.text("command") != "":
		return j, false, skipError("it runs a command, not the agent")
	case j.Text == "":
		return j, false, skipError("it does not say what to do")
	}
	j.Name = cmp.Or(j.Name, oneLine(j.Text))
	if j.When, err = m.when(o); err != nil {
		return j, false, err
	}
	if delivery, err := o.table("delivery"); err == nil && delivery.text("to") != "" {
		payload = delivery // of OpenClaw
	}
	if j.To, err = m.target(payload); err != nil {
		return j, false, err
	}
	j.OwnSession = true // the other agents run each job in its own session
	m.setPerson(&j)
	return j, !o.flag("enabled", true), nil
}

// oneLine shortens a text to the name of a job: one line of at most 64 runes.
func oneLine(s string) string {
	return plaintext.Line(s, 64)
}

// when parses the schedule of a job. It skips jobs whose time has passed, and schedules that this
// gateway would refuse.
func (m jobs) when(o object) (w schedule.When, err error) {
	s, err := o.table("schedule")
	if err != nil {
		return w, err
	}
	loc := m.Location
	if zone := s.text("tz"); zone != "" {
		if loc, err = time.LoadLocation(zone); err != nil {
			return w, newSkipError("%q is not a time zone", zone)
		}
	}
	switch kind := s.text("kind"); kind {
	case "at":
		at := time.UnixMilli(s.number("atMs", "at_ms"))
		if iso, err := parseTime(s.text("at"), loc); err == nil && !iso.IsZero() {
			at = iso
		}
		if !at.After(m.Now) {
			return w, skipError("its time was " + at.In(loc).Format("2006-01-02 15:04"))
		}
		w, err = schedule.ParseAt(at.Format(time.RFC3339), m.Now, loc)
	case "every":
		every := time.Duration(s.number("everyMs", "every_ms")) * time.Millisecond
		w, err = schedule.ParseEvery(every.String(), m.anchor(o, s, every), m.Jobs.MinEvery)
	case "cron":
		w, err = schedule.ParseCron(s.text("expr"), loc)
	default:
		return w, newSkipError("the gateway has no schedules of the kind %q", kind)
	}
	if err != nil {
		return w, skipError(err.Error())
	}
	return w, nil
}

// anchor returns the time from which the intervals of a job count, so that their phase stays the
// same. OpenClaw counts from anchorMs of the schedule, the others from the end of the last run.
func (m jobs) anchor(o, s object, every time.Duration) time.Time {
	state, _ := o.table("state") // a state of another type tells nothing
	at := time.UnixMilli(cmp.Or(s.number("anchorMs"), state.number("nextRunAtMs", "next_run_at_ms"),
		o.number("createdAtMs", "created_at_ms")))
	if at.After(m.Now) {
		at = at.Add(-every) // the job runs at the end of an interval
	}
	return at
}

// target returns the conversation that gets the results of a job. Without one it is the direct chat
// of the owner.
func (m jobs) target(payload object) (bus.Address, error) {
	channel := cmp.Or(payload.text("channel"), payload.text("originChannel", "origin_channel"))
	to := cmp.Or(payload.text("to"), payload.text("originChatId", "origin_chat_id"))
	key := payload.text("sessionKey", "session_key")
	if key != "" && to == "" {
		return m.book.address(key)
	}
	to = strings.TrimPrefix(to, channel+":") // OpenClaw may repeat it
	if thread := payload.text("threadId"); thread != "" && !strings.Contains(to, ":") {
		to += ":topic:" + thread
	}
	switch {
	case to != "" && channel != "" && channel != "last":
		a, err := m.book.address(channel + ":" + to)
		// Only the key of nanobot's session names a topic.
		own, keyErr := m.book.address(key)
		if err == nil && keyErr == nil && own.Account == a.Account && own.Chat == a.Chat &&
			a.Thread == "" {
			return own, nil
		}
		return a, err
	case m.book.Owner.Chat.Chat != "":
		return m.book.Owner.Chat, nil
	}
	return bus.Address{}, skipError("it has no conversation, and the owner's direct chat is " +
		"not known")
}

// setPerson sets the person of a job: the only person in its conversation, or the owner. Without a
// known person the role is user.
func (m jobs) setPerson(j *schedule.Job) {
	j.Group, j.Role = isGroup(j.To), bus.User
	if p := m.book.person(j.To); p != nil {
		j.Sender, j.Person, j.Role = bus.Sender{ID: p.Sender, Name: p.Name}, p.ID, p.Role
	} else {
		j.Sender, j.Person = m.book.Owner.Sender, m.book.Owner.Person
		for _, p := range m.book.People {
			if p.Account == j.To.Account && p.ID == m.book.Owner.Person {
				j.Sender, j.Role = bus.Sender{ID: p.Sender, Name: p.Name}, p.Role
			}
		}
	}
	if j.Sender.ID == "" {
		j.Sender.ID = j.To.Chat
	}
	if j.Scope = m.book.scopeOf(j.To); j.Scope == "" {
		j.Scope = memory.OfChat(j.To)
	}
}
