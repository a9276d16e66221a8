package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/memory"
	"gateway/store"
)

func jobsCommand(load app.Loader) *cobra.Command {
	return group("jobs", "Show and change reminders and jobs",
		jobsListCommand(load), jobsShowCommand(load), jobsAddCommand(load),
		changeJob(load, "run ID", "Run a job now, in addition to its times",
			"Job %d runs now, if a gateway is running.", schedule.Store.RunNow),
		changeJob(load, "pause ID", "Pause a job", "Job %d is paused.",
			func(s schedule.Store, tx *store.Tx, id int64, now time.Time) error {
				return s.Pause(tx, id, "by an operator", now)
			}),
		changeJob(load, "resume ID", "End a pause; runs that were due meanwhile are skipped",
			"Job %d is active again.", schedule.Store.Resume),
		changeJob(load, "rm ID", "Delete a job; a run in progress continues", "Job %d is removed.",
			schedule.Store.Remove))
}

// jobsListCommand returns the command that lists the jobs of everybody, and finished ones only with
// --all. Times are in the zone of the gateway.
func jobsListCommand(load app.Loader) *cobra.Command {
	var all bool
	cmd := listCommand(load, "list", "List the jobs of all people, the next one due first",
		table{columns: []string{"JOB", "NAME", "KIND", "WHEN", "STATE", "TO", "OF"},
			empty: "There are no jobs."},
		func(d data) (rows [][]any, err error) {
			s := app.JobStore(d.cfg)
			list, err := schedule.List(d.q, schedule.Filter{Over: all})
			for i := range list {
				j := &list[i]
				rows = append(rows, []any{j.ID, excerpt(j.Name), j.Kind, excerpt(j.When.String()),
					excerpt(j.Status(s.Location)), excerpt(j.To.String()), j.Scope})
			}
			return rows, err
		})
	cmd.Flags().BoolVar(&all, "all", false, "include finished jobs")
	return cmd
}

func jobsShowCommand(load app.Loader) *cobra.Command {
	return dataCommand(load, "show ID", "Print a job and its runs", cobra.ExactArgs(1),
		func(cmd *cobra.Command, d data, args []string) error {
			id, err := jobNumber(args[0])
			if err != nil {
				return err
			}
			s := app.JobStore(d.cfg)
			j, err := schedule.Find(d.q, id)
			if err != nil {
				return jobProblem(id, err)
			}
			runs, err := schedule.Runs(d.q, id)
			if err != nil {
				return err
			}
			cmd.Printf("Job %d, %s (%s)\nwhen:  %s\nstate: %s\nto:    %s\nof:    %s\n\n%s\n",
				id, display.OneLine(j.Name), j.Kind, j.When, display.OneLine(j.Status(s.Location)), j.To,
				j.Scope, display.Lines(j.Text))
			for i := range runs {
				cmd.Printf("\nrun %d, %s\n", runs[i].ID, display.Lines(runs[i].Status(s.Location)))
				if said := display.Lines(runs[i].Said); said != "" {
					cmd.Println(said)
				}
			}
			return nil
		})
}

// changeJob returns a command that changes a job.
func changeJob(load app.Loader, use, short, done string,
	do func(s schedule.Store, tx *store.Tx, id int64, now time.Time) error,
) *cobra.Command {
	return dataCommand(load, use, short, cobra.ExactArgs(1),
		inTx(func(tx *store.Tx, d data, args []string) (string, error) {
			id, err := jobNumber(args[0])
			if err == nil {
				err = jobProblem(id, do(app.JobStore(d.cfg), tx, id, time.Now()))
			}
			return fmt.Sprintf(done, id), err
		}))
}

// jobNumber parses the number of a job.
func jobNumber(s string) (int64, error) {
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, app.UsageErrorf("%q is not the number of a job: see gateway jobs list", s)
	}
	return id, nil
}

// jobProblem returns the error for a job that can't be changed, with advice for people.
func jobProblem(id int64, err error) error {
	switch {
	case errors.Is(err, schedule.ErrNone):
		return app.UsageErrorf("job %d: %w; see gateway jobs list", id, err)
	case errors.Is(err, schedule.ErrNoNextRun), errors.Is(err, schedule.ErrRunning):
		return fmt.Errorf("job %d: %w; see gateway jobs show %d", id, err, id)
	}
	return err
}

// newJob has the flags for a new job.
type newJob struct {
	to, name, text, at, every, cron, zone, session string
	reminder                                       bool
}

// jobsAddCommand returns the command that adds a job for the person who wrote last in a
// conversation. A running gateway finds the new job in the database.
func jobsAddCommand(load app.Loader) *cobra.Command {
	var n newJob
	cmd := dataCommand(load, "add", "Schedule something in a conversation, once or repeatedly",
		cobra.NoArgs, inTx(func(tx *store.Tx, d data, _ []string) (string, error) {
			j, err := n.add(tx, d.cfg, time.Now())
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("Job %d, %s, is set up: %s.", j.ID, display.OneLine(j.Name),
				j.Status(j.When.Location())), nil
		}))
	cmd.Long = "Schedule something in a conversation, once or repeatedly.\n" +
		"It runs with the rights of the person who wrote there last."
	f := cmd.Flags()
	f.StringVar(&n.to, "to", "", "conversation that gets the result: account/chat[/thread]")
	f.StringVar(&n.text, "text", "", "the task of the agent, or the text of the reminder")
	f.StringVar(&n.name, "name", "", "short name (default the beginning of the text)")
	f.StringVar(&n.at, "at", "", `once: "in 20m", "tomorrow 09:00", "2027-01-31 18:30"`)
	f.StringVar(&n.every, "every", "", "an interval: 90m, 1d, 2w")
	f.StringVar(&n.cron, "cron", "", `minute hour day month weekday: "0 9 * * 1-5"`)
	f.StringVar(&n.zone, "zone", "", "time zone (default that of the conversation)")
	f.BoolVar(&n.reminder, "reminder", false, "only send the text as a reminder")
	f.StringVar(&n.session, "session", "", "own or chat: whether it sees the conversation "+
		"(default chat for reminders, else own)")
	for _, name := range []string{"to", "text"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag does not exist
		}
	}
	cmd.MarkFlagsOneRequired("at", "every", "cron")
	cmd.MarkFlagsMutuallyExclusive("at", "every", "cron")
	return cmd
}

// add stores the job. It returns a usage error for what the person has to correct.
func (n *newJob) add(tx *store.Tx, cfg *config.Config, now time.Time) (*schedule.Job, error) {
	s := app.JobStore(cfg)
	last, err := n.speaker(tx, cfg)
	if err != nil {
		return nil, err
	}
	// By default a task runs in a session of its own, and a reminder in the conversation.
	j := &schedule.Job{Kind: schedule.Task, OwnSession: true, Name: n.name, Text: n.text,
		To: last.From, Sender: last.Sender, Person: last.Person, Role: last.Role, Group: last.Group,
		Title: last.ChatTitle, Scope: memory.ScopeOf(last)}
	if n.reminder {
		j.Kind, j.OwnSession = schedule.Reminder, false
	}
	switch n.session {
	case "":
	case "own", "chat":
		j.OwnSession = n.session == "own"
	default:
		return nil, app.UsageErrorf("--session %q: want own or chat", n.session)
	}
	// Times without a zone are meant in the zone of the person or the group.
	if j.When, err = n.when(tx, s, j.Scope, now); err != nil {
		return nil, err
	}
	err = s.Add(tx, j, now)
	if _, ok := errors.AsType[*schedule.RefusedError](err); ok {
		err = app.NewUsageError(err)
	}
	return j, err
}

// speaker returns the newest message in the conversation. The job gets its person, role and
// group.
func (n *newJob) speaker(q store.Queryer, cfg *config.Config) (m bus.InboundMessage, err error) {
	to, known := addressOf(cfg, n.to)
	if !known || to.Chat == "" {
		return m, app.UsageErrorf("--to %q: want account/chat, as gateway sessions list shows it", n.to)
	}
	last, ok, err := bus.LastMessage(q, to)
	// A job needs a role to run with, and only a message tells who is there.
	if err == nil && !ok {
		err = fmt.Errorf("nobody has written in %s lately, so the gateway does not know who is there: "+
			"somebody must write to the bot there first", n.to)
	}
	return last.Message, err
}

// when parses the time or the interval of the job.
func (n *newJob) when(
	q store.Queryer, s schedule.Store, of memory.Scope, now time.Time,
) (w schedule.When, err error) {
	loc, err := s.ZoneOf(q, of)
	if err != nil {
		return w, err
	}
	if n.zone != "" {
		if loc, err = schedule.FindZone(n.zone); err != nil {
			return w, app.UsageErrorf("--zone: %w", err)
		}
	}
	// Words such as "tomorrow" depend on the zone.
	switch now = now.In(loc); {
	case n.at != "":
		w, err = schedule.ParseAt(n.at, now, loc)
	case n.every != "":
		w, err = schedule.ParseEvery(n.every, now, s.MinInterval())
	case n.cron != "":
		w, err = schedule.ParseCron(n.cron, loc)
	default:
		err = errors.New("want a value of --at, --every or --cron")
	}
	if err != nil {
		return w, app.NewUsageError(err)
	}
	return w, nil
}
