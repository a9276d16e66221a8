package agent

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gateway/agent/schedule"
	"gateway/bus"
)

// Commands about what is done at set times. Each is about the jobs of the conversation's scope.

const (
	sayNoJobs  = "Nothing is done at set times here: the gateway runs without it."
	sayJobs    = "Use `/jobs` for the list, or `/jobs show|pause|resume|run|remove ID`."
	sayRemind  = "Say when, and what I shall remind you of:\n\n" + remindUses
	remindUses = "- `/remind in 20m to call mum`\n- `/remind tomorrow 9:00 to call mum`\n" +
		"- `/remind 2027-01-31 18:30 to call mum`\n- `/remind every 2h to drink`\n" +
		"- `/remind every day at 8:00 to drink`\n" +
		"- `/remind every monday at 8:00 to go out`\n\n" +
		"`/jobs` lists what is set up. For everything else, just tell me in your own words."
	sayOthersJob = "Only who has set up job %d, or an admin, can do that."
)

// maxEcho is how much of a reminder is repeated, in bytes.
const maxEcho = 200

// listed bounds /jobs: the jobs that are listed, and those of them that have buttons.
const (
	listed       = 50
	listedButton = 4
)

// listJobs answers /jobs.
func (d *Dispatcher) listJobs(c *call) (Say, error) {
	if d.Jobs == nil {
		return Say{Text: sayNoJobs}, nil
	}
	if c.args != "" {
		return d.changeJob(c)
	}
	loc, err := d.Jobs.ZoneOf(c.tx, scopeOf(c.message))
	if err != nil {
		return Say{}, err
	}
	list, err := d.Jobs.List(c.tx, schedule.Filter{Scope: scopeOf(c.message)})
	if err != nil {
		return Say{}, err
	}
	if len(list) == 0 {
		return Say{Text: "There are no jobs. " + sayRemind}, nil
	}
	var say Say
	var b strings.Builder
	fmt.Fprintf(&b, "%s, with times in %s:\n\n", count(len(list), "job"), schedule.ShowZone(loc))
	for i := range list[:min(len(list), listed)] {
		j := &list[i]
		fmt.Fprintf(&b, "- %d: **%s** (%s), %s; %s\n", j.ID, j.Name, j.Kind, j.When,
			j.Status(loc))
		if i < listedButton {
			say.Buttons = append(say.Buttons, jobButtons(j)...)
		}
	}
	if n := len(list) - listed; n > 0 {
		fmt.Fprintf(&b, "- and %d more\n", n)
	}
	say.Text = b.String()
	return say, nil
}

// jobButtons change a job.
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

// changeJob answers /jobs ACTION ID.
func (d *Dispatcher) changeJob(c *call) (Say, error) {
	words := strings.Fields(strings.ToLower(c.args))
	actions := []string{"show", "pause", "resume", "run", "remove"}
	if len(words) != 2 || !slices.Contains(actions, words[0]) {
		return Say{Text: sayJobs}, nil
	}
	id, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return Say{Text: sayJobs}, nil
	}
	m := c.message
	j, err := d.Jobs.Get(c.tx, id)
	switch {
	case errors.Is(err, schedule.ErrNone),
		err == nil && (j.Scope != scopeOf(m) || j.Kind == schedule.Heartbeat):
		return Say{Text: fmt.Sprintf("There is no job %d here; `/jobs` lists them.", id)}, nil
	case err != nil:
		return Say{}, err
	case words[0] == "show":
		return d.showJob(c, &j)
	case !j.MayChange(m.From, m.Sender, m.Person, m.Role):
		return Say{Text: fmt.Sprintf(sayOthersJob, id)}, nil
	}
	return d.alterJob(c, words[0], &j)
}

// alterJob changes how a job stands.
func (d *Dispatcher) alterJob(c *call, action string, j *schedule.Job) (Say, error) {
	now := d.opts.Now()
	var err error
	switch action {
	case "pause":
		err = d.Jobs.Pause(c.tx, j.ID, "", now)
	case "resume":
		err = d.Jobs.Resume(c.tx, j.ID, now)
	case "run":
		err = d.Jobs.RunNow(c.tx, j.ID, now)
	case "remove":
		err = d.Jobs.Remove(c.tx, j.ID, now)
	}
	if errors.Is(err, schedule.ErrOver) || errors.Is(err, schedule.ErrRunning) {
		return Say{Text: fmt.Sprintf("Job %d: %v.", j.ID, err)}, nil
	}
	if err != nil {
		return Say{}, err
	}
	c.after = d.Jobs.Wake
	if action == "remove" {
		return Say{Text: fmt.Sprintf("Job %d, **%s**, is removed.", j.ID, j.Name)}, nil
	}
	changed, err := d.Jobs.Get(c.tx, j.ID)
	if err != nil {
		return Say{}, err
	}
	if action == "run" {
		return Say{Text: fmt.Sprintf("Job %d, **%s**, runs now.", j.ID, j.Name)}, nil
	}
	loc, err := d.Jobs.ZoneOf(c.tx, j.Scope)
	return Say{Text: fmt.Sprintf("Job %d, **%s**: %s.", j.ID, j.Name, changed.Status(loc)),
		Buttons: jobButtons(&changed)}, err
}

// showJob tells all of a job.
func (d *Dispatcher) showJob(c *call, j *schedule.Job) (Say, error) {
	loc, err := d.Jobs.ZoneOf(c.tx, j.Scope)
	if err != nil {
		return Say{}, err
	}
	runs, err := d.Jobs.Runs(c.tx, j.ID)
	if err != nil {
		return Say{}, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Job %d, **%s** (%s), %s; %s\n\n%s\n", j.ID, j.Name, j.Kind, j.When,
		j.Status(loc), clip(j.Text, maxShown))
	for i := range runs[:min(len(runs), 5)] {
		b.WriteString("\n- " + runs[i].Status(loc))
	}
	return Say{Text: b.String(), Buttons: jobButtons(j)}, nil
}

// remind answers /remind WHEN WHAT.
func (d *Dispatcher) remind(c *call) (Say, error) {
	switch {
	case d.Jobs == nil:
		return Say{Text: sayNoJobs}, nil
	case c.args == "":
		return Say{Text: sayRemind}, nil
	}
	m, now := c.message, d.opts.Now()
	loc, err := d.Jobs.ZoneOf(c.tx, scopeOf(m))
	if err != nil {
		return Say{}, err
	}
	when, what, err := schedule.ParseWish(c.args, now, loc, d.Jobs.Least())
	if err != nil {
		return Say{Text: fmt.Sprintf("I don't understand that: %v.\n\n%s", err, sayRemind)}, nil
	}
	if what == "" {
		return Say{Text: "What shall I remind you of? " + sayRemind}, nil
	}
	j := schedule.Job{Kind: schedule.Reminder, Text: what, When: when, To: m.From, Sender: m.Sender,
		Person: m.Person, Role: m.Role, Group: m.Group, Title: m.ChatTitle, Scope: scopeOf(m)}
	err = d.Jobs.Add(c.tx, &j, now)
	if refused, ok := errors.AsType[*schedule.RefusedError](err); ok {
		return Say{Text: "I can't do that: " + refused.Reason + "."}, nil
	}
	if err != nil {
		return Say{}, err
	}
	c.after = d.Jobs.Wake
	first := schedule.ShowTime(j.Next, loc)
	if !when.Once() {
		first = fmt.Sprintf("%s, first %s", when, first)
	}
	return Say{Text: fmt.Sprintf("I will remind you %s: %s\n\nThat is job %d.", first,
		clip(what, maxEcho), j.ID), Buttons: jobButtons(&j)[1:]}, nil
}

// timezone answers /timezone [NAME].
func (d *Dispatcher) timezone(c *call) (Say, error) {
	if d.Jobs == nil {
		return Say{Text: sayNoJobs}, nil
	}
	s, now := scopeOf(c.message), d.opts.Now()
	if c.args == "" {
		loc, err := d.Jobs.ZoneOf(c.tx, s)
		return Say{Text: fmt.Sprintf("The time zone here is %s; it is %s. Change it with "+
			"`/timezone Europe/Berlin`.", schedule.ShowZone(loc), schedule.ShowTime(now, loc))}, err
	}
	loc, err := schedule.FindZone(c.args)
	if err != nil {
		return Say{Text: fmt.Sprintf("I don't know that: %v", err)}, nil
	}
	if err := d.Jobs.SetZone(c.tx, s, loc.String()); err != nil {
		return Say{}, err
	}
	return Say{Text: fmt.Sprintf("The time zone here is %s now; it is %s. What is set up already "+
		"keeps its times.", loc, schedule.ShowTime(now, loc))}, nil
}
