package schedule

import (
	"fmt"
	"time"
)

// ShowTime returns a time for people in a zone.
func ShowTime(t time.Time, loc *time.Location) string {
	return t.In(loc).Format("Mon 2006-01-02 15:04 MST")
}

// Status describes the state of a job for people, with times in a zone.
func (j *Job) Status(loc *time.Location) string {
	switch {
	case j.State == Paused && j.PauseReason != "":
		return "paused: " + j.PauseReason
	case j.State == Paused:
		return "paused"
	case j.State == Active:
		return "next " + ShowTime(j.Next, loc)
	}
	return "over"
}

// Status describes the state of a run for people, with times in a zone.
func (r *Run) Status(loc *time.Location) string {
	s := fmt.Sprintf("due %s: %s", ShowTime(r.Due, loc), r.State)
	if r.Late {
		s += ", late"
	}
	if r.Attempts > 1 {
		s += fmt.Sprintf(", %d attempts", r.Attempts)
	}
	if !r.Retry.IsZero() {
		s += ", again " + ShowTime(r.Retry, loc)
	}
	if r.Error != "" {
		s += ": " + r.Error
	}
	return s
}
