package gate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels/gate"
	"gateway/store"
)

// owned is the policy of an account whose owner is ann.
var owned = gate.Policy{Access: gate.ByList, Owners: []string{"ann"}}

// questions returns how often ann was asked about groups.
func (d *gateFixture) questions() (n int) {
	for _, m := range d.outboxed("chat of ann") {
		if strings.Contains(m.Text, "What should I do there?") {
			n++
		}
	}
	return n
}

// Owners are asked about a group only if somebody addresses the agent there. They are asked once
// for each group, and about at most five groups at a time.
func TestGroupQuestions(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		d.publish(owned, inGroup("g0", true, message("1", "bob", "nobody knows an owner's chat")))
		if n := len(d.outboxed("chat of ann")); n != 0 {
			t.Errorf("%d messages to an unknown chat", n)
		}
		d.publish(owned, message("2", "ann", "hello"))
		d.publish(owned, inGroup("g1", false, message("3", "bob", "not for the agent")))
		if n := d.questions(); n != 0 {
			t.Errorf("the owner was asked %d times about what was not for the agent", n)
		}
		for i := range 2 {
			d.publish(owned, inGroup("g1", true, message(fmt.Sprint(4+i), "bob", "hey")))
		}
		if n := d.questions(); n != 1 {
			t.Errorf("the owner was asked %d times, want once", n)
		}
		for i := range 20 {
			d.publish(owned, inGroup(fmt.Sprint("x", i), true, message(fmt.Sprint(9+i), "bob", "hey")))
		}
		if n := d.questions(); n != 5 {
			t.Errorf("the owner was asked about %d groups at a time, want 5", n)
		}
		d.publish(owned, inGroup("mine", true, message("40", "ann", "hey")))
		if n := d.questions(); n != 6 {
			t.Errorf("the owner's own group made it %d questions, want 6", n)
		}
		if n := len(d.outboxed("mine")); n != 1 {
			t.Errorf("the owner's group was told %d things, want one", n)
		}
		d.wantInbox("owner hello")
	})
}

// A decision about a group overrides the account's activation and the entry "*". The group's own
// entry in the list overrides the decision.
func TestGroupDecisions(t *testing.T) {
	const named, unnamed = "named", "g"
	for _, tt := range []struct {
		state                   gate.GroupState
		groups                  string
		always                  bool
		chat                    string
		mentioned, notMentioned bool // whether the agent answers
	}{
		{"", "*", false, unnamed, true, false},
		{"", "*", true, unnamed, true, true},
		{gate.GroupAsked, named, true, unnamed, false, false},
		{gate.GroupAsked, "*", false, unnamed, true, false},
		{gate.GroupMention, named, true, unnamed, true, false},
		{gate.GroupAlways, named, false, unnamed, true, true},
		{gate.GroupIgnored, "*", true, unnamed, false, false},
		{gate.GroupIgnored, named, false, named, true, false},
		{gate.GroupAlways, named, false, named, true, true},
		{gate.GroupListedAlways, named, false, named, true, true},
		{gate.GroupListedMention, named, true, named, true, false},
		{gate.GroupListedAlways, named, false, unnamed, false, false},
		{gate.GroupListedAlways, "*", false, unnamed, true, true},
	} {
		atDoor(t, func(d *gateFixture) {
			if tt.state != "" {
				err := d.do(func(tx *store.Tx) error {
					return gate.Groups{}.Set(tx, gate.Group{Account: "tg", Chat: tt.chat, State: tt.state},
						message("", "", "").Time)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			p := gate.Policy{Access: gate.ByList, Groups: []string{tt.groups}, Always: tt.always}
			for _, mentioned := range []bool{true, false} {
				before := len(d.inboxed())
				d.publish(p, inGroup(tt.chat, mentioned, message(fmt.Sprint(mentioned), "bob", "hey")))
				want := map[bool]bool{true: tt.mentioned, false: tt.notMentioned}[mentioned]
				if got := len(d.inboxed()) > before; got != want {
					t.Errorf("%+v: mentioned: %v: answered: %v", tt, mentioned, got)
				}
			}
		})
	}
}

// A group that was admitted stays admitted when the platform gives it another id.
func TestGroupMoves(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		err := d.do(func(tx *store.Tx) error {
			return gate.Groups{}.Set(tx, gate.Group{Account: "tg", Chat: "old",
				State: gate.GroupMention}, message("", "", "").Time)
		})
		if err != nil {
			t.Fatal(err)
		}
		d.exec("INSERT INTO moves (account, chat, before) VALUES ('tg', 'new', 'old')")
		d.publish(owned, inGroup("new", true, message("1", "bob", "hey")))
		d.wantInbox(string(bus.Guest) + " hey")
	})
}

// The new wording of a message that is not answered yet is for the agent, even if it no longer
// addresses the agent. The new wording of any other message is context.
func TestNewWording(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Groups: []string{"g1", "g2"}, Overhear: []string{"g2"}}
		edit := func(group, id, text string) bus.InboundMessage {
			m := inGroup(group, false, message(id+":e", "bob", text))
			m.Edits = id
			return m
		}
		d.publish(p, inGroup("g1", true, message("1", "bob", "cake")), edit("g1", "1", "bread"),
			inGroup("g1", false, message("2", "bob", "hello all")), edit("g1", "2", "hello you"))
		d.wantInbox("guest cake", "guest bread")
		d.exec("UPDATE inbox SET state = 'taken', turn = 1 WHERE state = 'waiting'")
		d.publish(p, edit("g2", "1", "of another group"), edit("g1", "9", "no original"))
		d.wantInbox()
		again := edit("g1", "1", "rolls")
		again.ID += "2"
		d.publish(p, again)
		d.wantInbox("guest rolls")
		d.exec("UPDATE inbox SET state = 'done' WHERE state <> 'heard'")
		late := edit("g1", "1", "too late")
		late.ID += "3"
		d.publish(p, late)
		d.wantInbox()

		// A new wording that is for the agent can get a new wording itself.
		asks := edit("g1", "2", "cake?")
		again = edit("g1", "2", "bread?")
		asks.Addressed, asks.ID, again.ID = true, asks.ID+"2", again.ID+"3"
		d.publish(p, asks, edit("g1", "22", "no original"))
		d.publish(p, again)
		d.wantInbox("guest cake?", "guest bread?")
		asks, again = edit("g1", "1", "tea?"), edit("g1", "1", "milk?")
		asks.Addressed, asks.ID, again.ID = true, asks.ID+"4", again.ID+"5"
		d.publish(p, asks, again)
		d.wantInbox("guest cake?", "guest bread?", "guest tea?", "guest milk?")
		d.exec("UPDATE inbox SET state = 'done' WHERE state = 'waiting'")
		again.ID += "6"
		d.publish(p, again)
		d.wantInbox()

		voice := inGroup("g2", false, message("3", "bob", ""))
		voice.Attachments = []bus.Attachment{{Kind: bus.Voice, Seconds: 5}}
		d.publish(p, voice, edit("g2", "3", "with a caption"))
		other := edit("g2", "3", "with another caption")
		other.ID += "2"
		d.publish(p, other)
		d.wantInbox("guest ")
	})
}

// All parts of an album are for the agent if one of them is, in whichever order they come. Parts of
// other people's albums with the same key are not.
func TestAlbum(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Groups: []string{"g"}}
		part := func(id, sender string, addressed bool) bus.InboundMessage {
			m := inGroup("g", addressed, message(id, sender, "part "+id))
			m.Album = "album"
			return m
		}
		otherPart := func(id string, addressed bool) bus.InboundMessage {
			m := part(id, "bob", addressed)
			m.Album = "other"
			return m
		}
		d.publish(p, part("1", "bob", false), part("2", "eve", false))
		d.wantInbox()
		d.publish(p, part("3", "bob", false), part("4", "bob", true), part("5", "bob", false))
		d.wantInbox("guest part 1", "guest part 3", "guest part 4", "guest part 5")
		d.exec("UPDATE inbox SET state = 'done' WHERE state = 'waiting'")
		d.publish(p, part("1", "bob", false), part("6", "bob", false), part("7", "eve", false))
		d.wantInbox("guest part 6")
		d.publish(p, otherPart("8", false))
		p.Owners = []string{"bob"} // he was let in meanwhile
		time.Sleep(time.Minute)
		d.publish(p, otherPart("9", true))
		d.wantInbox("guest part 6", "owner part 8", "owner part 9")
	})
}

// A message that somebody forwards to a group is for the agent if they have written one that is at
// most two seconds before or after, whichever order the messages come in. The gate knows that after
// a restart, too.
func TestForwardWithComment(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Groups: []string{"g", "voice"}, Overhear: []string{"voice"}}
		start := time.Now()
		at := func(seconds int, m bus.InboundMessage) bus.InboundMessage {
			m.Time = start.Add(time.Duration(seconds) * time.Second)
			return m
		}
		forward := func(seconds int, id, sender string) bus.InboundMessage {
			m := at(seconds, inGroup("g", false, message(id, sender, "news "+id)))
			m.Forwarded = "Eve"
			return m
		}
		question := at(15, inGroup("g", true, message("5", "bob", "true?")))
		d.publish(p, forward(10, "1", "bob"))
		d.publish(p, forward(13, "2", "bob"), forward(13, "3", "ann"),
			at(13, inGroup("g", false, message("4", "bob", "hm"))))
		d.publish(p, question)
		d.wantInbox("guest news 2", "guest true?")
		d.gate = gate.New(d.db, d.inbox, d.outbox, discard)
		d.publish(p, forward(17, "6", "bob"))
		d.publish(p, forward(19, "7", "bob"), forward(17, "8", "ann"),
			at(17, inGroup("g", false, message("9", "bob", "hm"))), forward(22, "10", "bob"))
		d.wantInbox("guest news 2", "guest true?", "guest news 6")
		d.publish(p, question, forward(5, "11", "bob")) // the platform repeats what is older
		d.wantInbox("guest news 2", "guest true?", "guest news 6")

		// Neither a forwarded message nor a command counts as a comment.
		d.publish(p, at(30, inGroup("g", true, message("20", "bob", "and?"))), forward(31, "21", "bob"),
			forward(33, "22", "bob"), at(36, inGroup("g", true, message("23", "bob", "/status"))),
			forward(36, "24", "bob"))
		d.wantInbox("guest news 2", "guest true?", "guest news 6", "guest and?",
			"guest news 21", "guest /status")
		d.exec("DELETE FROM inbox")

		voice := at(40, inGroup("voice", false, message("12", "bob", "")))
		voice.Attachments = []bus.Attachment{{Kind: bus.Voice, Seconds: 5}}
		onVoice := forward(40, "13", "bob")
		onVoice.From.Chat = "voice"
		d.publish(p, voice, onVoice)
		onVoice.ID = "14"
		d.publish(p, onVoice)
		d.wantInbox("guest ")
	})
}

// Messages that are forwarded with a comment, beyond the rate of their sender, stay context. Nobody
// is told.
func TestForwardedBeyondRate(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Groups: []string{"g"}, PerMinute: 2}
		list := []bus.InboundMessage{inGroup("g", true, message("1", "bob", "true?"))}
		for _, id := range []string{"2", "3", "4"} {
			m := inGroup("g", false, message(id, "bob", "news "+id))
			m.Forwarded = "Eve"
			list = append(list, m)
		}
		d.publish(p, list...)
		d.wantInbox("guest true?", "guest news 2")
		heard, err := d.inbox.Ambient(d.db.Read(d.t.Context()), list[0].From, 1000, time.Now())
		if err != nil || len(heard) != 2 {
			t.Errorf("the context has %+v, %v, want two messages", heard, err)
		}
		if told := d.outboxed("g"); len(told) != 0 {
			t.Errorf("the group was told %+v", told)
		}
	})
}

// In the groups that are listed for it, short voice messages are stored in the inbox to be
// transcribed, but nobody sees a mark on them. Beyond the sender's rate, they are only context.
func TestOverheard(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := owned
		p.Groups, p.Overhear, p.PerMinute = []string{"g1", "g2"}, []string{"g1"}, 2
		voice := func(group, id string) bus.InboundMessage {
			m := inGroup(group, false, message(id, "bob", ""))
			m.Attachments = []bus.Attachment{{Kind: bus.Voice, Seconds: 5}}
			return m
		}
		marks := &admittedMessages{}
		d.gate.Notify(marks)
		forwarded, long, captioned := voice("g1", "1"), voice("g1", "2"), voice("g1", "3")
		forwarded.Forwarded, long.Attachments[0].Seconds, captioned.Text = "Eve", 31, "look"
		d.publish(p, forwarded, long, captioned, voice("g2", "4"), voice("elsewhere", "5"))
		d.wantInbox()
		d.publish(p, voice("g1", "6"), voice("g1", "7"), voice("g1", "8"), voice("g1", "9"))
		d.wantInbox("guest ", "guest ")
		time.Sleep(3 * time.Second) // otherwise it would be a comment on what is forwarded
		d.publish(p, inGroup("g1", true, message("10", "bob", "to you")))
		d.wantInbox("guest ", "guest ", "guest to you")
		if n := len(*marks); n != 1 {
			t.Errorf("%d messages were marked, want 1", n)
		}
		if n := len(d.outboxed("g1")); n != 0 {
			t.Errorf("the group was told %d things", n)
		}
		received, err := d.inbox.Waiting(d.db.Read(d.t.Context()), 0)
		if err != nil || received[0].Message.VoiceState != bus.Overheard ||
			received[2].Message.VoiceState != "" {
			t.Errorf("the inbox has %+v: %v", received, err)
		}
	})
}

type admittedMessages []bus.InboundMessage

func (a *admittedMessages) Admitted(messages []bus.InboundMessage) { *a = append(*a, messages...) }
