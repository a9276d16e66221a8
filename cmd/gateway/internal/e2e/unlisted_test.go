//go:build unix

package e2e

import "testing"

// TestUnlistedGroup checks that the log names an unlisted group once, with the id for the
// configuration.
func TestUnlistedGroup(t *testing.T) {
	t.Parallel()
	const group = -100_777
	w := newWorld(t, worldOptions{answer: repeat, channel: allow("7")})
	w.telegram.AddGroup(group, "Team")
	p := w.start()
	p.ready()
	for range 3 {
		w.telegram.Say(group, annID, "@gateway_bot hello")
	}
	w.answers(annID, "here")
	const line = "message in a group that is not listed is ignored: to answer there, add its id to " +
		"groups of the account"
	p.says(line, 1)
	if n := p.logged(line); n != 1 {
		t.Errorf("the log names the group %d times, want once", n)
	}
	p.shows(`"group":"-100777","title":"Team"`)
}

// TestUsageOfAll checks that a person who is not an admin sees how much of the day's budget for
// everybody is used.
func TestUsageOfAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat, agent: "[budget]\nday_tokens = 1000000"})
	w.start().ready()
	w.answers(bobID, "hello")
	w.answers(bobID, "hello again")
	w.telegram.Say(bobID, bobID, "/usage")
	w.await("the usage", func() bool { return heard(w, bobID, "% of the limit for everybody") })
}
