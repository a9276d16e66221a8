//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/discord/discordtest"
	"gateway/channels/telegram/telegramtest"
	"gateway/store"
)

// An unlistedGroup is a group that the configuration does not list, with functions for its
// platform.
type unlistedGroup struct {
	group  string
	has    func() bool           // reports whether the bot is a member
	add    func()                // makes Bob add the bot again
	refuse func(forGood bool)    // makes the platform refuse to let the bot leave
	permit func()                // ends refuse
	asked  func(s *scene, n int) // makes Bob cause the nth question about the group
}

// mentionedOnce returns a function that makes Bob mention the bot in a group for the first
// question. Ann gets the later questions because Bob adds the bot again.
func mentionedOnce(group string) func(*scene, int) {
	return func(s *scene, n int) {
		if n == 1 {
			s.sayIn(group, "let me in")
		}
	}
}

func newUnlistedGroup(platform chatPlatform) unlistedGroup {
	switch o := platform.(type) {
	case *onTelegram:
		o.AddGroup(-101, "Team")
		var ends []func()
		return unlistedGroup{
			group: "-101",
			has:   func() bool { return o.InGroup(-101) },
			add:   func() { o.SetMember(-101, bobID, "member") },
			refuse: func(forGood bool) {
				f := telegramtest.Fault{Method: "leaveChat", Code: 400, Text: "Bad Request: not now"}
				if !forGood {
					o.Inject(telegramtest.Fault{Method: "leaveChat", Times: 1, RetryAfter: 1})
					f.Code, f.Text = 502, "Bad Gateway"
				}
				ends = append(ends, o.Inject(f))
			},
			permit: func() { ends[len(ends)-1]() },
			asked:  mentionedOnce("-101"),
		}
	case *onDiscord:
		o.AddGuild("11", "Team")
		o.AddChannel("11", "41", "talk")
		o.AddChannel("11", "42", "work")
		o.AddChannel("11", "43", "idle")
		var ends []func()
		return unlistedGroup{
			group: "41",
			has:   func() bool { return o.InGuild("11") },
			add:   func() { o.Readmit("11") },
			refuse: func(forGood bool) {
				f := discordtest.Fault{Method: "leaveGuild", Status: 400, Code: 50055,
					Text: "Invalid Guild"}
				if !forGood {
					o.Inject(discordtest.Fault{Method: "leaveGuild", Times: 1, RetryAfter: 1})
					f.Status = 503
				}
				ends = append(ends, o.Inject(f))
			},
			permit: func() { ends[len(ends)-1]() },
			asked:  func(s *scene, _ int) { s.sayIn("41", "let me in") },
		}
	case *onWhatsApp:
		group := o.AddGroup("Team", false, o.bob)
		return unlistedGroup{
			group: group,
			has:   func() bool { return o.InGroup(group) },
			add:   func() { o.Invite(group, o.bob) },
			refuse: func(forGood bool) {
				o.RefuseLeave(map[bool]int{true: 405, false: 503}[forGood])
			},
			permit: func() { o.RefuseLeave(0) },
			asked:  mentionedOnce(group),
		}
	}
	panic("no such platform")
}

// nextSecond waits until the clock shows the next second. Platforms give times in whole seconds,
// so an event in the same second as the leaving may have happened before it.
func nextSecond() {
	now := time.Now()
	time.Sleep(now.Truncate(time.Second).Add(time.Second).Sub(now))
}

// told returns how often Ann reads a text.
func (s *scene) told(text string) (n int) {
	for _, m := range s.direct() {
		if strings.Contains(m, text) {
			n++
		}
	}
	return n
}

// decideToLeave makes Bob cause the nth question about the group, and makes Ann decide that the
// bot leaves it.
func (s *scene) decideToLeave(tm unlistedGroup, n int) {
	s.t.Helper()
	tm.asked(s, n)
	s.until("the question", func() bool { return s.told("What should I do there?") == n })
	// The gateway is about to be killed. On Telegram it would ask again if the question was not
	// marked as sent yet.
	s.rows(0, "outbox WHERE state IN ('waiting', 'sending') AND body LIKE '%What should I do there?%'")
	d, ok := s.chatPlatform.(*onDiscord)
	if !ok {
		s.press("Leave it")
		return
	}
	unknown := discordtest.Fault{Method: "getChannel", Channel: "41", Status: 503}
	if n == 3 { // the server can't be found at first
		restore := d.Inject(unknown)
		s.press("Leave it")
		s.hear("Please try again later.")
		restore()
		s.say("/group leave team / #TALK")
	} else {
		s.press("Leave it")
	}
	s.until("the second question", func() bool { return s.told("Shall I leave it?") == n })
	list := s.direct()
	last := list[len(list)-1]
	if !strings.Contains(last, "leave the server Team as a whole, with all its channels.") ||
		strings.Contains(last, "There I also answer in #work.") != (n == 1) {
		s.t.Errorf("Ann was asked %q", last)
	}
	if n == 2 { // the server can be found, but not after the decision
		defer d.Inject(unknown)()
	}
	s.press("Leave the server Team")
	if n == 2 {
		s.hear("I leave the server `11` and tell you")
	}
}

// TestLeaveGroup checks on each platform that the bot leaves a group when its owner wants it. The
// gateway is killed before the call to the platform and before it has recorded the outcome. Then
// the platform refuses: first for some time, with an outage and a kill, and later for good.
func TestLeaveGroup(t *testing.T) {
	t.Parallel()
	inUnlistedGroups(t, func(s *scene, tm unlistedGroup, p *process) {
		s.leaveAndCrash(p, tm)
		p = s.leaveLater(tm)
		s.leaveInVain(tm)
		if n := s.told("What should I do there?"); n != 3 {
			s.t.Errorf("the owner was asked %d times, want 3", n)
		}
		if list := s.readIn(tm.group); len(list) > 0 {
			s.t.Errorf("the group was told %q", list)
		}
		s.say("/group")
		s.hear("I have left it")
		p.kill()
	}, "GATEWAY_FAULT=leaving:1")
}

// inUnlistedGroups runs test on each platform, with a gateway that knows Ann and, on Discord, a
// channel in which it answers.
func inUnlistedGroups(
	t *testing.T, test func(s *scene, tm unlistedGroup, p *process), env ...string,
) {
	t.Helper()
	for name, open := range map[string]func(w *world) chatPlatform{
		"telegram": func(w *world) chatPlatform { return openTelegram(w.telegram, w.url) },
		"discord":  func(w *world) chatPlatform { return openDiscord(w.t) },
		"whatsapp": func(w *world) chatPlatform { return openWhatsApp(w.t, w.home) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{answer: repeat})
			s := &scene{chatPlatform: open(w), t: t, name: name, w: w}
			w.config = w.config[:strings.Index(w.config, "[channels.telegram]")]
			w.configure("[channels." + name + "]\n" + s.config() + quiet)
			tm := newUnlistedGroup(s.chatPlatform)
			p := w.start(env...)
			p.ready()
			s.until("the gateway", s.ready)
			s.ask("hello", "you said hello")
			if name == "discord" {
				s.sayIn("42", "you, too")
				s.hear("What should I do there?")
				s.press("Answer everything")
				s.until("the hello", func() bool { return has(s.readIn("42"), "Hello!") })
				s.chatPlatform.(*onDiscord).Delete("20", s.chatPlatform.(*onDiscord).History("20")[1].ID)
			}
			test(s, tm, p)
		})
	}
}

// TestStayInGroup checks on each platform that an owner can cancel the decision to leave a group:
// by another decision, which on Discord is about another channel of the server, or by dropping
// the delivery. The gateway is killed in between. After that the bot can still leave.
func TestStayInGroup(t *testing.T) {
	t.Parallel()
	inUnlistedGroups(t, func(s *scene, tm unlistedGroup, p *process) {
		known, leave := tm.group, "/group leave 1" // the first group that Ann was asked about
		if s.name == "discord" {
			known, leave = "42", "/group leave 1 11"
		}
		const pending = "outbox WHERE body LIKE '%\"leave\":%' AND attempts > 0"
		tm.refuse(false)
		s.decideToLeave(tm, 1)
		s.rows(1, pending)
		p.kill()
		p = s.w.start()
		p.ready()
		s.say("/group always 1")
		s.until("the end of the decision", func() bool { // a try may be under way
			return s.told("I don't leave the ")+s.told("I was just leaving the ") == 1
		})
		s.rows(1, pending+" AND state = 'dropped'")
		s.rows(0, "known_groups WHERE state = 'leaving'")
		s.sayIn(known, "are you still there?")
		s.until("an answer", func() bool { return has(s.readIn(known), "are you still there?") })

		s.say(leave)
		s.rows(1, pending+" AND state <> 'dropped'")
		var id string
		s.w.eventually("the delivery", func(db *store.DB) bool {
			for range s.w.query(db, []any{&id}, "SELECT id FROM "+pending+" AND state <> 'dropped'") {
			}
			return id != ""
		})
		s.w.command("outbox", "drop", id)
		s.rows(1, "known_groups WHERE chat = '"+known+"' AND state = 'always'")
		s.rows(0, "known_groups WHERE state = 'leaving'")
		if !tm.has() || s.told("I have left") > 0 {
			s.t.Error("the bot has left")
		}
		tm.permit()
		// As if the delivery had been erased with the conversation of the group.
		s.w.eventually("a group without its delivery", func(db *store.DB) bool {
			return db.Tx(s.t.Context(), func(tx *store.Tx) error {
				_, err := tx.Exec("UPDATE known_groups SET state = 'leaving' WHERE id = 1")
				return err
			}) == nil
		})
		s.say(leave)
		s.until("the end", func() bool { return s.told("I have left") > 0 })
		if tm.has() {
			s.t.Error("the bot is still a member")
		}
		p.kill()
	})
}

// leaveAndCrash makes the bot leave. Process p dies before the call to the platform, and the next
// process dies after it.
func (s *scene) leaveAndCrash(p *process, tm unlistedGroup) {
	s.t.Helper()
	s.decideToLeave(tm, 1)
	p.exited(patience)
	if !tm.has() {
		s.t.Error("the bot has left before it was called")
	}
	s.w.start("GATEWAY_FAULT=left:1").exited(patience)
	if tm.has() || s.told("I have left") > 0 {
		s.t.Errorf("the bot is a member: %v; Ann reads %q", tm.has(), s.direct())
	}
}

// leaveLater makes the bot leave although the platform refuses at first. Then the platform is
// down while the gateway is killed and started again.
func (s *scene) leaveLater(tm unlistedGroup) *process {
	s.t.Helper()
	p := s.w.start()
	p.ready()
	s.until("the first end", func() bool { return s.told("I have left") == 1 })
	s.ask("are you back?", "you said are you back?") // now messages of groups arrive, too
	tm.refuse(false)
	nextSecond()
	tm.add()
	s.decideToLeave(tm, 2)
	s.rows(1, "outbox WHERE body LIKE '%\"leave\":%' AND attempts > 0")
	s.sayIn(tm.group, "are you still there?")
	s.ask("and you?", "you said and you?")
	s.outage(true)
	p.kill()
	tm.permit()
	p = s.w.start()
	p.ready()
	s.outage(false)
	s.until("the second end", func() bool { return s.told("I have left") == 2 })
	if tm.has() {
		s.t.Error("the bot is still a member")
	}
	return p
}

// leaveInVain makes the bot try to leave. The platform refuses for good, until an operator
// retries the delivery.
func (s *scene) leaveInVain(tm unlistedGroup) {
	s.t.Helper()
	s.ask("are you back again?", "you said are you back again?")
	tm.refuse(true)
	nextSecond()
	tm.add()
	s.decideToLeave(tm, 3)
	s.hear("I could not leave")
	s.hear("Please remove me there yourself.")
	if !tm.has() {
		s.t.Error("the bot has left")
	}
	tm.permit()
	s.w.command("outbox", "retry", "--all")
	s.until("the third end", func() bool { return s.told("I have left") == 3 })
	if tm.has() {
		s.t.Error("the bot is still a member")
	}
}

// TestLeaveListedGroup checks /group leave in a group that the configuration lists. An answer
// that comes too late is dropped. A job of the group pauses, and continues when the bot is back.
func TestLeaveListedGroup(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(asked) })
	w := newWorld(t, worldOptions{
		answer: func(r openaitest.Request) openaitest.Reply {
			if strings.Contains(lastText(r), "slowly") {
				enter()
				<-release
			}
			return repeat(r)
		},
		channel: fmt.Sprintf("%s\nowners = [\"7\"]\ngroups = [%d]", allow("7"), teamID),
	})
	w.telegram.AddGroup(teamID, "Team")
	w.run()
	w.answers(annID, "I am here")
	w.telegram.Say(teamID, annID, "/remind@gateway_bot every 1h to eat")
	w.await("a job", func() bool { return heard(w, teamID, "That is job 1.") })
	w.telegram.Say(teamID, bobID, "@gateway_bot slowly")
	until(t, "the request", asked)
	w.telegram.Say(teamID, bobID, "/group@gateway_bot leave")
	w.await("a refusal", func() bool { return heard(w, teamID, "Only") })
	before := len(w.texts(teamID))
	w.telegram.Say(teamID, annID, "/group@gateway_bot leave")
	w.await("the end", func() bool { return heard(w, annID, "I have left the group Team") })
	if !heard(w, annID, "The configuration still lists -100777") || w.telegram.InGroup(teamID) {
		t.Errorf("the bot is a member: %v; Ann reads %q", w.telegram.InGroup(teamID), w.texts(annID))
	}
	close(release)
	w.eventually("the answer is dropped", func(db *store.DB) bool {
		return w.count(db, "outbox WHERE body LIKE '%said%slowly%' AND state = 'dropped'") == 1
	})
	w.command("jobs", "run", "1")
	w.awaitJob(1, "paused")
	if list := w.command("jobs", "list", "--all"); !strings.Contains(list, "I was told to leave") {
		t.Errorf("the jobs are\n%s", list)
	}
	w.wantReply(annID, "/group", "I have left it. The configuration still lists")
	nextSecond()
	w.telegram.SetMember(teamID, bobID, "member")
	w.telegram.Say(teamID, annID, "@gateway_bot welcome back")
	w.await("an answer", func() bool { return heard(w, teamID, "welcome back") })
	w.awaitJob(1, "active")
	if n := len(w.texts(teamID)); n != before+1 {
		t.Errorf("the group reads %q", w.texts(teamID)[before:])
	}
	if n := w.said(annID, "could not deliver"); n != 0 {
		t.Errorf("the owner was told about %d lost answers", n)
	}
	w.wantReply(annID, "/group leave Nobody", "There is no such group.")
	w.wantReply(annID, "/group leave", "Which one?")
	w.wantReply(annID, "/group leave -100777", "I leave the group")
	w.await("the end", func() bool { return w.said(annID, "I have left the group") == 2 })
}

// TestLeaveListedGroupFromElsewhere checks /group leave with the title or the id of a group that
// only the configuration lists, also from another account.
func TestLeaveListedGroupFromElsewhere(t *testing.T) {
	t.Parallel()
	const quietID = teamID - 1 // nobody has written there
	w := newWorld(t, worldOptions{answer: repeat, channel: fmt.Sprintf(
		"%s\nowners = [\"7\"]\ngroups = [%d, %d]", allow("7"), teamID, quietID)})
	w.telegram.AddGroup(teamID, "Team")
	w.telegram.AddGroup(quietID, "Quiet")
	w.run()
	w.answers(annID, "I am here")
	w.telegram.Say(teamID, bobID, "@gateway_bot hello")
	w.await("an answer", func() bool { return heard(w, teamID, "hello") })
	w.wantReply(annID, "/group leave I am here", "There is no such group.")
	w.wantReply(annID, "/group leave team", "I leave the group Team")
	w.await("the end", func() bool { return heard(w, annID, "I have left the group Team") })
	out, err := w.gateway("chat", "-m", fmt.Sprint("/group leave ", quietID))
	if err != nil || !strings.Contains(out, "I leave the group") {
		t.Errorf("the terminal shows %q, %v", out, err)
	}
	w.await("the end", func() bool { return !w.telegram.InGroup(quietID) })
	if w.telegram.InGroup(teamID) {
		t.Error("the bot is still in the first group")
	}
}
