package app

import (
	"gateway/agent/heartbeat"
	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// JobStore returns the store of jobs.
func JobStore(cfg *config.Config) schedule.Store {
	return schedule.Store{MaxJobs: cfg.Schedule.MaxJobs, MinEvery: cfg.Schedule.MinEvery,
		Location: cfg.Gateway.Location}
}

// newScheduler returns the scheduler, which starts due jobs.
func (g *Gateway) newScheduler(cfg *config.Config, inbox *bus.Inbox) *schedule.Scheduler {
	finder := &heartbeat.Finder{DB: g.db, Inbox: inbox, Documents: g.knowledge.documents}
	return schedule.New(g.db, inbox, &schedule.Options{
		Store: JobStore(cfg), Logger: g.log, Admit: g.admitJob,
		Heartbeat:  compressed(cfg.Heartbeat.Every),
		Heartbeats: finder.List, Open: finder.IsOpen,
	})
}

// admitJob returns the role with which a job runs: the role that its maker had when making it, or
// their present role if that is lower. why says why it does not run, or is "".
func (g *Gateway) admitJob(q store.Queryer, j *schedule.Job) (_ bus.Role, why string, err error) {
	m := bus.InboundMessage{From: j.To, Sender: j.Sender, Group: j.Group, Text: j.Text}
	ok, err := g.gate.MayWrite(q, &m)
	if m.Role.AtLeast(j.Role) {
		m.Role = j.Role
	}
	if ok || err != nil {
		return m.Role, "", err
	}
	left, err := g.gate.HasLeft(q, j.To)
	if left {
		return m.Role, schedule.WhyLeft, err
	}
	return m.Role, schedule.WhyRefused, err
}
