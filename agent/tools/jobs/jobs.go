// Package jobs implements the tool "schedule", with which the agent manages scheduled
// jobs.
//
// A job is written in the transaction that writes the call's result, so that it is created
// exactly once. A job belongs to the scope of its conversation and is visible only there.
// The package owns no tables.
package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gateway/agent/schedule"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/store"
)

// Options are the dependencies of the tool. All are required.
type Options struct {
	Store schedule.Store
	Now   func() time.Time
}

const description = "Reminders and tasks. Use it whenever the user wants something later or " +
	"regularly: nothing else wakes you. Actions: add, list, show, change, pause, resume, " +
	"remove, run (now), timezone (sets the user's zone). add needs text and at, every or " +
	"cron. When it is due you get text as a message; a task sees only that and what it said " +
	"last time."

// arguments are those of all actions together. The action change keeps what it does not find in
// them. At most one of At, Every and Cron may be set.
type arguments struct {
	Action string `json:"action"`
	ID     int64  `json:"id,omitempty"`
	Text   string `json:"text,omitempty"`
	Name   string `json:"name,omitempty"`

	At    string `json:"at,omitempty" jsonschema:"in 20m, tomorrow 09:00"`
	Every string `json:"every,omitempty" jsonschema:"90m, 2w"`
	Cron  string `json:"cron,omitempty"`
	Zone  string `json:"zone,omitempty"`

	// A reminder sends Text; a task gives it to the agent. The session "own" keeps a task out of
	// the conversation, and "chat" lets it see the conversation.
	Kind    string `json:"kind,omitempty" jsonschema:"task; default reminder"`
	Session string `json:"session,omitempty" jsonschema:"chat: sees this conversation"`
}

// jobTools has the functions of the actions. It keeps no state between calls.
type jobTools struct{ Options }

// New returns the tool. Every change is part of the transaction that writes the result, so a call
// without a result may be repeated.
func New(o Options) tool.Tool {
	t := tool.New("schedule", description, tool.Idempotent, jobTools{o}.run)
	t.MinRole = bus.User
	t.Lasts = hasLastingEffect
	t.Aliases = map[string]string{"message": "text", "cron_expr": "cron", "tz": "zone",
		"job_id": "id", "every_seconds": "every=%ss"} // nanobot's names
	return t
}

// hasLastingEffect reports whether a call changes jobs or the time zone. The run of a job may end
// its own job without approval.
func hasLastingEffect(c tool.Call) bool {
	var a arguments
	if json.Unmarshal(c.Args, &a) != nil {
		return false // the call itself reports the error
	}
	switch strings.ToLower(strings.TrimSpace(a.Action)) {
	case "add", "change", "resume":
		return true
	case "pause", "remove":
		return !c.Proactive
	case "timezone":
		return a.Zone != "" // without a zone it only shows the present one
	}
	return false
}

// action performs one action in the transaction that writes the result, and returns the
// text for the model.
type action struct {
	do func(k jobTools, tx *store.Tx, c tool.Call, a arguments) (string, error)

	asked bool // only in a turn that a person began
	id    bool // it is about one job
}

// actions has the actions by name. Those with asked let the agent work later, so a run may not use
// them: otherwise a job could set up more jobs.
var actions = map[string]action{
	"add":      {do: jobTools.add, asked: true},
	"list":     {do: jobTools.list},
	"show":     {do: jobTools.show, id: true},
	"change":   {do: jobTools.change, asked: true, id: true},
	"pause":    {do: jobTools.pause, id: true},
	"resume":   {do: jobTools.resume, asked: true, id: true},
	"remove":   {do: jobTools.remove, id: true},
	"run":      {do: jobTools.runNow, asked: true, id: true},
	"timezone": {do: jobTools.timezone},
}

// run implements the tool. It checks what needs no database, and performs the action in the
// transaction.
func (k jobTools) run(_ context.Context, c tool.Call, a arguments) (tool.Result, error) {
	act, ok := actions[strings.ToLower(strings.TrimSpace(a.Action))]
	switch {
	case !ok:
		return tool.Result{}, fmt.Errorf("there is no action %q; want add, list, show, change, "+
			"pause, resume, remove, run or timezone", a.Action)
	case c.Scope == "":
		return tool.Result{}, errors.New("this conversation has no memory, and so no jobs")
	case act.asked && c.Proactive:
		return tool.Result{}, fmt.Errorf("%s is not possible from inside a scheduled run, where "+
			"nobody has asked for it: tell the user what you would set up", a.Action)
	case act.id && a.ID == 0:
		return tool.Result{}, errors.New("say which job by its id; the action list shows them")
	}
	return tool.Result{Commit: func(tx *store.Tx) (string, error) {
		text, err := act.do(k, tx, c, a)
		// The model reads why a job is refused. All other errors count as errors of the database.
		if refused, ok := errors.AsType[*schedule.RefusedError](err); ok {
			return "", &tool.RefusedError{Reason: refused.Reason}
		}
		// These need the number of the job, because their texts do not name it.
		if slices.ContainsFunc([]error{schedule.ErrNone, schedule.ErrNoNextRun, schedule.ErrRunning},
			func(known error) bool { return errors.Is(err, known) }) {
			return "", &tool.RefusedError{Reason: fmt.Sprintf("job %d: %v", a.ID, err)}
		}
		return text, err
	}}, nil
}

// when returns the time in a, and false if a has none. The zone is that of a, or else of the
// people. It says which clock times are meant.
func (k jobTools) when(q store.Queryer, c tool.Call, a arguments) (schedule.When, bool, error) {
	loc, err := k.zone(q, c, a)
	if err != nil {
		return schedule.When{}, false, err
	}
	var w schedule.When
	now := k.Now().In(loc)
	// Of several times it would be a guess which one is meant.
	switch given := slices.DeleteFunc([]string{a.At, a.Every, a.Cron},
		func(s string) bool { return s == "" }); {
	case len(given) == 0:
		return w, false, nil
	case len(given) > 1:
		return w, false, refuse("want one of at, every and cron, not several")
	case a.At != "":
		w, err = schedule.ParseAt(a.At, now, loc)
	case a.Every != "":
		// The intervals count from now.
		w, err = schedule.ParseEvery(a.Every, now, k.Store.MinInterval())
	default:
		w, err = schedule.ParseCron(a.Cron, loc)
	}
	if err != nil {
		return w, false, refuse("%v", err)
	}
	return w, true, nil
}

// refuse returns an error for the model. The actions run within Commit, whose other errors count as
// errors of the database.
func refuse(format string, args ...any) error {
	return &tool.RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// zone returns the time zone in a, or that of the user.
func (k jobTools) zone(q store.Queryer, c tool.Call, a arguments) (*time.Location, error) {
	if a.Zone == "" {
		return k.Store.ZoneOf(q, c.Scope)
	}
	loc, err := schedule.FindZone(a.Zone)
	if err != nil {
		return nil, refuse("%v", err)
	}
	return loc, nil
}

// add sets up a job for the conversation of the call. The job keeps the speaker and the role of the
// turn, because its runs never have more rights than that.
func (k jobTools) add(tx *store.Tx, c tool.Call, a arguments) (string, error) {
	w, ok, err := k.when(tx, c, a)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", refuse("the time is missing: want one of at, every and cron")
	}
	j := schedule.Job{Name: a.Name, Text: a.Text, When: w, To: c.Address, Sender: c.Sender,
		Person: c.Person, Role: c.Role, Group: c.Group, Title: c.Title, Scope: c.Scope,
		Kind: schedule.Reminder}
	if err := setKind(&j, a, true); err != nil {
		return "", err
	}
	if err := k.Store.Add(tx, &j, k.Now()); err != nil {
		return "", err
	}
	text, err := k.describe(tx, c, &j)
	if err != nil {
		return "", err
	}
	// The new job is counted, too. Without a limit, most is negative and the model is told nothing.
	n, most, err := k.Store.Count(tx, &j)
	if most >= 0 {
		text += fmt.Sprintf(" That is job %d of %d that are allowed.", n, most)
	}
	return "Set up: " + text, err
}

// setKind sets the kind and session of job j from a, if a has them. fresh says that the job is new.
// If the job is new or its kind changes, and a names no session, the session follows the kind:
// tasks run in one of their own, reminders in the chat.
func setKind(j *schedule.Job, a arguments, fresh bool) error {
	switch strings.ToLower(a.Kind) {
	case "":
	case "reminder", "task":
		fresh = fresh || schedule.Kind(strings.ToLower(a.Kind)) != j.Kind
		j.Kind = schedule.Kind(strings.ToLower(a.Kind))
	default:
		return refuse("there is no kind %q; want reminder or task", a.Kind)
	}
	switch strings.ToLower(a.Session) {
	case "":
		if fresh {
			j.OwnSession = j.Kind == schedule.Task
		}
	case "own":
		j.OwnSession = true
	case "chat":
		j.OwnSession = false
	default:
		return refuse("there is no session %q; want own or chat", a.Session)
	}
	return nil
}

// describe describes the state of a job, with times in the user's zone.
func (k jobTools) describe(q store.Queryer, c tool.Call, j *schedule.Job) (string, error) {
	loc, err := k.Store.ZoneOf(q, c.Scope)
	return fmt.Sprintf("job %d %q (%s), %s; %s.", j.ID, j.Name, j.Kind, j.When, j.Status(loc)), err
}

// list returns the jobs of the scope, those of other people in a group, too.
func (k jobTools) list(tx *store.Tx, c tool.Call, _ arguments) (string, error) {
	list, err := schedule.List(tx, schedule.Filter{Scope: c.Scope})
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "There are no jobs.", nil
	}
	var b strings.Builder
	for i := range list {
		line, err := k.describe(tx, c, &list[i])
		if err != nil {
			return "", err
		}
		b.WriteString("- " + line + "\n")
	}
	return b.String(), nil
}

// maxRuns is the number of runs that are shown for a job.
const maxRuns = 5

func (k jobTools) show(tx *store.Tx, c tool.Call, a arguments) (string, error) {
	j, err := k.find(tx, c, a)
	if err != nil {
		return "", err
	}
	text, err := k.describe(tx, c, &j)
	if err != nil {
		return "", err
	}
	loc, err := k.Store.ZoneOf(tx, c.Scope)
	if err != nil {
		return "", err
	}
	runs, err := schedule.Runs(tx, j.ID)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nText: %s\n", text, j.Text)
	for i := range runs[:min(len(runs), maxRuns)] {
		b.WriteString("- " + runs[i].Status(loc) + "\n")
	}
	return b.String(), nil
}

// find returns the job named in a, if it belongs to the conversation's scope. A heartbeat is a job
// of the gateway itself, so it returns [schedule.ErrNone] for one.
func (k jobTools) find(q store.Queryer, c tool.Call, a arguments) (schedule.Job, error) {
	j, err := schedule.Find(q, a.ID)
	if err == nil && (j.Scope != c.Scope || j.Kind == schedule.Heartbeat) {
		err = schedule.ErrNone
	}
	return j, err
}

// own is find for a job that the speaker may change. A run, in which nobody has asked for anything,
// may change only the job to which it belongs.
func (k jobTools) own(q store.Queryer, c tool.Call, a arguments) (schedule.Job, error) {
	j, err := k.find(q, c, a)
	if err == nil && !j.MayChange(c.Address, c.Sender, c.Person, c.Role) {
		err = refuse("only the person who set up job %d, or an admin, may change it; tell the user", a.ID)
	}
	if err == nil && c.Proactive {
		var own bool
		if own, err = isRunOf(q, c, &j); err == nil && !own {
			err = refuse("nobody has asked for this: a scheduled run may end only its own job")
		}
	}
	return j, err
}

// isRunOf reports whether a call comes from a run of j. In the session of a conversation it may be
// a run beside another one of j that waits for somebody.
func isRunOf(q store.Queryer, c tool.Call, j *schedule.Job) (bool, error) {
	switch s := c.Session; {
	case s.Job != 0:
		return s.Job == j.ID && s.Task == "", nil
	case s.Task != "" || s.Hook != "" || j.OwnSession || c.Address != j.To:
		return false, nil
	case s.Run != 0:
		_, r, err := schedule.RunOf(q, s.Run)
		if errors.Is(err, schedule.ErrNone) { // it was erased
			return false, nil
		}
		return r.Job == j.ID, err
	}
	runs, err := schedule.Runs(q, j.ID)
	running := func(r schedule.Run) bool { return r.State == schedule.Running }
	return slices.ContainsFunc(runs, running), err
}

// change replaces the parts of a job that a names. A zone without a time moves the clock times of
// the job into that zone.
func (k jobTools) change(tx *store.Tx, c tool.Call, a arguments) (string, error) {
	j, err := k.own(tx, c, a)
	if err != nil {
		return "", err
	}
	// Without a time the job keeps its own.
	w, ok, err := k.when(tx, c, a)
	if err != nil {
		return "", err
	}
	if ok {
		j.When = w
	} else if a.Zone != "" {
		loc, err := k.zone(tx, c, a)
		if err != nil {
			return "", err
		}
		j.When = j.When.In(loc)
	}
	if a.Text != "" {
		j.Text = a.Text
	}
	if a.Name != "" {
		j.Name = a.Name
	}
	if err := setKind(&j, a, false); err != nil {
		return "", err
	}
	// A higher role of the creator must not carry out the words of the speaker.
	if j.Role.AtLeast(c.Role) { // the new text is the speaker's
		j.Role = c.Role
	}
	if err := k.Store.Change(tx, &j, k.Now()); err != nil {
		return "", err
	}
	text, err := k.describe(tx, c, &j)
	return "Changed: " + text, err
}

// update changes a job that the speaker may change, and describes its new state.
func (k jobTools) update(tx *store.Tx, c tool.Call, a arguments, done string,
	do func(tx *store.Tx, id int64, now time.Time) error,
) (string, error) {
	j, err := k.own(tx, c, a)
	if err != nil {
		return "", err
	}
	if err := do(tx, j.ID, k.Now()); err != nil {
		return "", err
	}
	// do has changed the next time and the state of the job.
	if j, err = k.find(tx, c, a); err != nil {
		return "", err
	}
	text, err := k.describe(tx, c, &j)
	return done + text, err
}

func (k jobTools) pause(tx *store.Tx, c tool.Call, a arguments) (string, error) {
	return k.update(tx, c, a, "Paused: ", func(tx *store.Tx, id int64, now time.Time) error {
		return k.Store.Pause(tx, id, "", now)
	})
}

func (k jobTools) resume(tx *store.Tx, c tool.Call, a arguments) (string, error) {
	return k.update(tx, c, a, "Resumed: ", k.Store.Resume)
}

// runNow adds a run at once. The times of the job stay as they are.
func (k jobTools) runNow(tx *store.Tx, c tool.Call, a arguments) (string, error) {
	return k.update(tx, c, a, "It runs in a moment, besides its times: ", k.Store.RunNow)
}

func (k jobTools) remove(tx *store.Tx, c tool.Call, a arguments) (string, error) {
	j, err := k.own(tx, c, a)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Removed job %d %q.", j.ID, j.Name), k.Store.Remove(tx, j.ID, k.Now())
}

// timezone shows the time zone of the scope, or sets it. Jobs keep the zone with which they were
// set up.
func (k jobTools) timezone(tx *store.Tx, c tool.Call, a arguments) (string, error) {
	loc, err := k.zone(tx, c, a)
	if err != nil {
		return "", err
	}
	now := schedule.ShowTime(k.Now(), loc)
	switch {
	case a.Zone == "":
		return fmt.Sprintf("The time zone is %s; it is %s.", schedule.ShowZone(loc), now), nil
	case c.Proactive:
		return "", refuse("the time zone is not changed from inside a scheduled run")
	}
	return fmt.Sprintf("The time zone is %s from now on; it is %s. Jobs that are there keep "+
		"theirs.", loc, now), schedule.SetZone(tx, c.Scope, loc.String())
}
