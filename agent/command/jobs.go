package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gateway/agent/background"
	"gateway/agent/policy"
	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/store"
	"gateway/store/plaintext"
)

// jobs has the commands about jobs, reminders and time zones. Each works on the jobs of its
// conversation's scope.
type jobs struct{ *Deps }

const (
	sayNoJobs  = "There are no jobs here: the gateway runs without a scheduler."
	sayJobs    = "Use `/jobs` for the list, or `/jobs show|pause|resume|run|remove ID`."
	sayRemind  = "Tell me when, and what to remind you of:\n\n" + remindUses
	remindUses = "- `/remind in 20m to call mum`\n- `/remind tomorrow 9:00 to call mum`\n" +
		"- `/remind 2027-01-31 18:30 to call mum`\n- `/remind every 2h to drink`\n" +
		"- `/remind every day at 8:00 to drink`\n" +
		"- `/remind every monday at 8:00 to go out`\n\n" +
		"`/jobs` lists what is set up. For everything else, just tell me in your own words."
	sayOthersJob = "Only the person who set up job %d, or an admin, can do that."
)

// maxEcho is the maximum part of a reminder that a reply repeats, in bytes.
const maxEcho = 200

// Limits of /jobs: the number of listed jobs, and of those with buttons.
const (
	listed       = 50
	listedButton = 4
)

// list answers /jobs.
func (j jobs) list(ctx context.Context, r *Request) (Reply, error) {
	if j.Jobs == nil {
		return Reply{Text: sayNoJobs}, nil
	}
	if r.Args != "" {
		return j.change(ctx, r)
	}
	read := j.DB.Read(ctx)
	loc, err := j.Jobs.ZoneOf(read, r.scope())
	if err != nil {
		return Reply{}, err
	}
	list, err := schedule.List(read, schedule.Filter{Scope: r.scope()})
	if err != nil {
		return Reply{}, err
	}
	if len(list) == 0 {
		return Reply{Text: "There are no jobs. Examples of reminders:\n\n" + remindUses}, nil
	}
	var reply Reply
	var b strings.Builder
	fmt.Fprintf(&b, "%s, with times in %s:\n\n", background.Count(len(list), "job"),
		schedule.ShowZone(loc))
	for i := range list[:min(len(list), listed)] {
		job := &list[i]
		fmt.Fprintf(&b, "- %d: **%s** (%s), %s; %s\n", job.ID, job.Name, job.Kind, job.When,
			job.Status(loc))
		if i < listedButton {
			reply.Buttons = append(reply.Buttons, jobButtons(job)...)
		}
	}
	if n := len(list) - listed; n > 0 {
		fmt.Fprintf(&b, "- and %d more\n", n)
	}
	reply.Text = b.String()
	return reply, nil
}

// jobButtons returns the buttons that change a job.
func jobButtons(j *schedule.Job) []bus.Button {
	button := func(label, action string) bus.Button {
		return bus.Button{Label: fmt.Sprintf("%s %d", label, j.ID),
			Text: fmt.Sprintf("/jobs %s %d", action, j.ID)}
	}
	first := button("Pause", "pause")
	if j.State == schedule.Paused {
		first = button("Resume", "resume")
	}
	return []bus.Button{first, button("Remove", "remove")}
}

// change answers /jobs ACTION ID.
func (j jobs) change(ctx context.Context, r *Request) (Reply, error) {
	fields := strings.Fields(strings.ToLower(r.Args))
	actions := []string{"show", "pause", "resume", "run", "remove"}
	if len(fields) != 2 || !slices.Contains(actions, fields[0]) {
		return Reply{Text: sayJobs}, nil
	}
	id, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return Reply{Text: sayJobs}, nil
	}
	return r.Commit(ctx, func(tx *store.Tx) (Reply, error) {
		return j.changeIn(tx, r, fields[0], id)
	}, j.Jobs.Wake)
}

// changeIn shows or changes the job with the given id. Jobs of other scopes and heartbeats count as
// missing, so that the numbers give nothing away.
func (j jobs) changeIn(tx *store.Tx, r *Request, action string, id int64) (Reply, error) {
	m := r.Message
	job, err := schedule.Find(tx, id)
	switch {
	case errors.Is(err, schedule.ErrNone),
		err == nil && (job.Scope != r.scope() || job.Kind == schedule.Heartbeat):
		return Reply{Text: fmt.Sprintf("There is no job %d here; `/jobs` lists them.", id)}, nil
	case err != nil:
		return Reply{}, err
	case action == "show":
		return j.show(tx, &job)
	case !job.MayChange(m.From, m.Sender, m.Person, m.Role):
		return Reply{Text: fmt.Sprintf(sayOthersJob, id)}, nil
	}
	err = j.alter(tx, action, id)
	if errors.Is(err, schedule.ErrNoNextRun) || errors.Is(err, schedule.ErrRunning) {
		return Reply{Text: fmt.Sprintf("Job %d: %v.", id, err)}, nil
	}
	if err != nil {
		return Reply{}, err
	}
	return j.altered(tx, action, &job)
}

// alter pauses, resumes, runs or removes a job.
func (j jobs) alter(tx *store.Tx, action string, id int64) error {
	now := j.Now()
	switch action {
	case "pause":
		return j.Jobs.Pause(tx, id, "", now)
	case "resume":
		return j.Jobs.Resume(tx, id, now)
	case "run":
		return j.Jobs.RunNow(tx, id, now)
	}
	return j.Jobs.Remove(tx, id, now)
}

// altered returns the reply after a change of a job. A job is read again, because the change may
// have set another time or state.
func (j jobs) altered(tx *store.Tx, action string, job *schedule.Job) (Reply, error) {
	switch action {
	case "remove":
		return Reply{Text: fmt.Sprintf("Job %d, **%s**, is removed.", job.ID, job.Name)}, nil
	case "run":
		when := "now"
		halted, err := policy.IsHalted(tx)
		if halted {
			when = "when somebody ends the halt with `/resume`"
		}
		return Reply{Text: fmt.Sprintf("Job %d, **%s**, runs %s.", job.ID, job.Name, when)}, err
	}
	changed, err := schedule.Find(tx, job.ID)
	if err != nil {
		return Reply{}, err
	}
	loc, err := j.Jobs.ZoneOf(tx, job.Scope)
	return Reply{Text: fmt.Sprintf("Job %d, **%s**: %s.", job.ID, job.Name, changed.Status(loc)),
		Buttons: jobButtons(&changed)}, err
}

// show returns a full description of a job.
func (j jobs) show(tx *store.Tx, job *schedule.Job) (Reply, error) {
	loc, err := j.Jobs.ZoneOf(tx, job.Scope)
	if err != nil {
		return Reply{}, err
	}
	runs, err := schedule.Runs(tx, job.ID)
	if err != nil {
		return Reply{}, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Job %d, **%s** (%s), %s; %s\n\n%s\n", job.ID, job.Name, job.Kind, job.When,
		job.Status(loc), plaintext.Cut(job.Text, maxShown))
	for i := range runs[:min(len(runs), 5)] {
		b.WriteString("\n- " + runs[i].Status(loc))
	}
	return Reply{Text: b.String(), Buttons: jobButtons(job)}, nil
}

// remind answers /remind WHEN WHAT.
func (j jobs) remind(ctx context.Context, r *Request) (Reply, error) {
	switch {
	case j.Jobs == nil:
		return Reply{Text: sayNoJobs}, nil
	case r.Args == "":
		return Reply{Text: sayRemind}, nil
	}
	m, now := r.Message, j.Now()
	loc, err := j.Jobs.ZoneOf(j.DB.Read(ctx), r.scope())
	if err != nil {
		return Reply{}, err
	}
	when, what, err := schedule.ParseReminder(r.Args, now, loc, j.Jobs.MinInterval())
	if err != nil {
		return Reply{Text: fmt.Sprintf("I don't understand that: %v.\n\n%s", err, sayRemind)}, nil
	}
	if what == "" {
		return Reply{Text: "What should I remind you of? " + sayRemind}, nil
	}
	return r.Commit(ctx, func(tx *store.Tx) (Reply, error) {
		job := schedule.Job{Kind: schedule.Reminder, Text: what, When: when, To: m.From,
			Sender: m.Sender, Person: m.Person, Role: m.Role, Group: m.Group, Title: m.ChatTitle,
			Scope: r.scope()}
		err := j.Jobs.Add(tx, &job, now)
		if refused, ok := errors.AsType[*schedule.RefusedError](err); ok {
			return Reply{Text: "I can't do that: " + refused.Reason + "."}, nil
		}
		first := schedule.ShowTime(job.Next, loc)
		if !when.Once() {
			first = fmt.Sprintf("%s, first %s", when, first)
		}
		// Of the buttons, only the one to remove the reminder is of use at once.
		return Reply{Text: fmt.Sprintf("I will remind you %s: %s\n\nThat is job %d.", first,
			plaintext.Cut(what, maxEcho), job.ID), Buttons: jobButtons(&job)[1:]}, err
	}, j.Jobs.Wake)
}

// timezone answers /timezone [NAME].
func (j jobs) timezone(ctx context.Context, r *Request) (Reply, error) {
	if j.Jobs == nil {
		return Reply{Text: sayNoJobs}, nil
	}
	now := j.Now()
	if r.Args == "" {
		loc, err := j.Jobs.ZoneOf(j.DB.Read(ctx), r.scope())
		if err != nil {
			return Reply{}, err
		}
		return Reply{Text: fmt.Sprintf("The time zone here is %s; it is %s. Change it with "+
			"`/timezone Europe/Berlin`.", schedule.ShowZone(loc), schedule.ShowTime(now, loc))}, nil
	}
	loc, err := schedule.FindZone(r.Args)
	if err != nil {
		return Reply{Text: fmt.Sprintf("I can't set that: %v", err)}, nil
	}
	return r.Commit(ctx, func(tx *store.Tx) (Reply, error) {
		return Reply{Text: fmt.Sprintf("The time zone here is %s now; it is %s. Existing reminders "+
				"and jobs keep their times.", loc, schedule.ShowTime(now, loc))},
			schedule.SetZone(tx, r.scope(), loc.String())
	})
}
