//go:build unix

package e2e

import (
	"strings"
	"testing"
	"time"

	"gateway/channels/discord/discordtest"
)

// TestKillPlatforms is like TestKill, but on platforms that remember what they were sent. People
// must not see anything twice there.
func TestKillPlatforms(t *testing.T) {
	t.Parallel()
	for _, platform := range []struct {
		name  string
		chats int
		open  func(tr *trial) killPlatform
	}{
		{"discord", 30, func(tr *trial) killPlatform { return openKillDiscord(tr) }},
		{"whatsapp", 4, func(tr *trial) killPlatform { return openKillWhatsApp(tr) }},
	} {
		begin := func(t *testing.T) *trial {
			t.Parallel()
			tr := newTrial(t, platform.chats)
			tr.platform = platform.open(tr)
			return tr
		}
		t.Run(platform.name, func(t *testing.T) {
			tr := begin(t)
			tr.meet()
			tr.platform.disturb(tr.ledger.hide)
			for _, point := range []string{
				"accepted", "begun", "finished", "sending", "sent", "delivered",
			} {
				tr.relax()
				tr.endAt(point, 1+tr.rand.IntN(3))
			}
			tr.torment(often(8))
		})
		t.Run(platform.name+" stream", func(t *testing.T) {
			tr := begin(t)
			tr.meet()
			tr.stream()
			tr.torment(often(8))
		})
	}
}

// torment kills the gateway at n random moments while its connection fails repeatedly.
func (tr *trial) torment(n int) {
	tr.t.Helper()
	for range n {
		tr.say(few(3) + tr.rand.IntN(few(10)))
		p := tr.start()
		p.ready()
		tr.pause(p, time.Duration(tr.rand.IntN(500))*time.Millisecond)
		tr.say(few(3) + tr.rand.IntN(few(10)))
		tr.platform.shake(tr.rand)
		tr.killAfter(p, time.Duration(tr.rand.IntN(1500))*time.Millisecond)
	}
	tr.settle()
}

// TestKillHeld kills the gateway while the first messages of a channel, a thread and an unlisted
// channel wait because Discord limits the look-ups of channels. The next process answers the first
// two, once.
func TestKillHeld(t *testing.T) {
	t.Parallel()
	w, s := withDiscordOnly(t, "streaming = false\n", answerConversations)
	d := s.chatPlatform.(*onDiscord)
	d.AddChannel("10", "40", "weeds")
	remove := d.Inject(discordtest.Fault{Method: "getChannel", RetryAfter: time.Hour})
	p := w.start()
	s.until("the gateway", s.ready)
	s.sayGroup("which?", true)
	s.sayThread(1, "roses?")
	d.Say("40", "8", "<@99> nettles?")
	s.until("look-ups", func() bool {
		held := 0
		for _, channel := range []string{"30", "31", "40"} {
			held += min(d.Hits(discordtest.Answer, channel), 1)
		}
		return held == 3
	})
	p.kill()
	remove()
	w.run()
	s.until("answers", func() bool { return len(s.group()) > 0 && len(s.thread(1)) > 0 })
	s.sayGroup("and then?", true)
	s.until("one more answer", func() bool { return has(s.group(), "you said and then?") })
	s.rows(0, "places WHERE cursor LIKE '~%'")
	if len(s.group()) != 2 || !has(s.group(), "you said which?") ||
		len(s.thread(1)) != 1 || !has(s.thread(1), "roses?") {
		t.Errorf("people read %q and %q", s.group(), s.thread(1))
	}
	if list := d.History("40"); len(list) > 0 {
		t.Errorf("in the unlisted channel people read %+v", list)
	}
}

// meet makes each person write and waits for the answers. The gateway can only read missed
// messages of chats that it knows.
func (tr *trial) meet() {
	tr.t.Helper()
	var list []saying
	for chat := range int64(tr.chats) {
		list = append(list, saying{chat + 1, tr.ledger.next(chat+1, 0)})
	}
	p := tr.start()
	p.ready()
	tr.platform.ready()
	tr.platform.say(list)
	tr.ledger.await(tr.t, 0, p.done)
	tr.quiet(p)
	tr.stop(p)
}

// relax lets a process answer everything if one more kill could make the gateway give up a turn.
func (tr *trial) relax() {
	tr.t.Helper()
	if tr.tired {
		p := tr.start()
		p.ready()
		tr.killAfter(p, 0)
	}
}

// move moves the people of tr to another platform. section is the configuration of its account.
func (tr *trial) move(section string) {
	tr.t.Helper()
	common, _, _ := strings.Cut(tr.config, "[channels.")
	tr.config = common + section
	tr.configure(quiet)
}
