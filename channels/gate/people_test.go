package gate_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/gate"
	"gateway/store"
)

var pairing = gate.Policy{Access: gate.ByPairing, Groups: []string{"listed"}}

var people gate.People

// offers returns the codes that strangers were given, in the order of the outbox.
func (d *gateFixture) offers() (codes []string) {
	d.t.Helper()
	list, err := d.outbox.Open(d.db.Read(d.t.Context()), 0)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, o := range list {
		if len(o.Message.Buttons) > 0 {
			continue // this message is for an owner
		}
		code := regexp.MustCompile("`([A-Z2-7]{8})`").FindStringSubmatch(o.Message.Text)
		if code == nil || !strings.HasPrefix(o.Message.To.Chat, "chat of ") {
			d.t.Fatalf("outbox has %q for %v", o.Message.Text, o.Message.To)
		}
		codes = append(codes, code[1])
	}
	return codes
}

// ask makes a stranger write and returns the code that they are given.
func (d *gateFixture) ask(sender string) string {
	d.t.Helper()
	d.publish(pairing, message("ask "+sender, sender, "let me in"))
	codes := d.offers()
	if len(codes) == 0 {
		d.t.Fatalf("%s was given no code", sender)
	}
	return codes[len(codes)-1]
}

func (d *gateFixture) approve(code string) (p gate.Person, to bus.Address, err error) {
	err = d.db.Tx(d.t.Context(), func(tx *store.Tx) error {
		p, to, err = people.Approve(tx, code, d.owned, time.Now())
		return err
	})
	return p, to, err
}

func (d *gateFixture) wantOffers(n int) {
	d.t.Helper()
	if got := len(d.offers()); got != n {
		d.t.Errorf("%d codes were offered, want %d", got, n)
	}
}

// Strangers write, get a code and are approved. Then their messages are admitted. The first one
// becomes the owner.
func TestPairing(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		for i, want := range []bus.Role{bus.Owner, bus.User, bus.User} {
			who := fmt.Sprint("person", i)
			code := d.ask(who)
			p, to, err := d.approve(code)
			if err != nil || p.Role != want || p.Sender != who || p.Account != "tg" ||
				p.Name != "Name of "+who || to != message("", who, "").From {
				t.Errorf("Approve = %+v, %v, %v, want %s %s", p, to, err, want, who)
			}
			time.Sleep(time.Second) // time to notice another process's change
			d.publish(pairing, message("hi "+who, who, who))
			if got := d.inboxed(); !slices.Contains(got, string(want)+" "+who) {
				t.Errorf("inbox has %q, want what %s says", got, who)
			}
		}
		d.wantOffers(3)
		if got := d.inboxed(); len(got) != 3 {
			t.Errorf("inbox has %q, want nothing that was said before", got)
		}
		list, err := people.List(d.db.Read(d.t.Context()))
		if err != nil || len(list) != 3 || list[0].Role != bus.Owner ||
			list[1].Sender != "person1" {
			t.Errorf("List = %+v, %v", list, err)
		}
	})
}

// A stranger who becomes an owner by the configuration keeps their number, because their code is no
// longer valid.
func TestCodeOfOwner(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		code := d.ask("ann")
		owned := pairing
		owned.Owners = []string{"ann"}
		d.publish(owned, message("1", "ann", "now"))
		if _, _, err := d.approve(code); !errors.Is(err, gate.ErrNoPairing) {
			d.t.Errorf("Approve = %v, want ErrNoPairing", err)
		}
	})
}

// An approval by another process takes effect within a second.
func TestApprovalIsNoticed(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		code := d.ask("ann")
		d.publish(pairing, message("1", "ann", "now"))
		if _, _, err := d.approve(code); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		d.publish(pairing, message("2", "ann", "then"))
		d.wantInbox("owner then")
	})
}

// A person who was turned away before is admitted right after the approval.
func TestApprovalHoldsAtOnce(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		if _, _, err := d.approve(d.ask("ann")); err != nil {
			t.Fatal(err)
		}
		d.publish(pairing, message("1", "ann", "hello again"))
		d.wantInbox("owner hello again")
	})
}

// A code is valid for ten minutes, in upper or lower case, and only once.
func TestCode(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration
		enter func(code string) string
		ok    bool
	}{
		{"as given", 0, strings.Clone, true},
		{"in lower case", 0, strings.ToLower, true},
		{"with blanks", 0, func(c string) string { return " " + c + "\n" }, true},
		{"in the last moment", 10*time.Minute - time.Millisecond, strings.Clone, true},
		{"too late", 10 * time.Minute, strings.Clone, false},
		{"wrong", 0, func(c string) string { return "AAAAAAAA" }, false},
		{"beginning", 0, func(c string) string { return c[:7] }, false},
		{"empty", 0, func(string) string { return "" }, false},
		{"pattern", 0, func(string) string { return "%" }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			atDoor(t, func(d *gateFixture) {
				code := d.ask("ann")
				time.Sleep(tt.after)
				_, _, err := d.approve(tt.enter(code))
				if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, gate.ErrNoPairing) {
					t.Errorf("Approve = %v, want ok %v", err, tt.ok)
				}
				if _, _, err := d.approve(code); tt.ok && !errors.Is(err, gate.ErrNoPairing) {
					t.Errorf("second Approve = %v, want %v", err, gate.ErrNoPairing)
				}
				list, err := people.List(d.db.Read(d.t.Context()))
				if want := map[bool]int{true: 1}[tt.ok || tt.after == 0]; err != nil || len(list) != want {
					t.Errorf("List = %+v, %v, want %d", list, err, want)
				}
			})
		})
	}
}

// Each sender gets one code, no matter how many messages they send and how often those are
// delivered.
func TestOneCode(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		first := d.ask("ann")
		select {
		case <-d.outbox.C():
		default:
			t.Error("the router was not woken")
		}
		d.publish(pairing, message("ask ann", "ann", "let me in")) // delivered again
		d.publish(pairing, message("2", "ann", "hello?"), message("3", "ann", "hello?"))
		d.wantOffers(1)
		time.Sleep(10 * time.Minute)
		if second := d.ask("ann"); second == first {
			t.Error("an expired code was given again")
		}
		d.wantOffers(2)
		d.wantInbox()
	})
}

// Many strangers can't keep others from asking: at most sixteen requests are kept, and the
// oldest one is removed. The owner is told of only three.
func TestManyStrangers(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		if _, _, err := d.approve(d.ask("olga")); err != nil { // becomes the owner by pairing
			t.Fatal(err)
		}
		var batch []bus.InboundMessage
		for i := range 20 {
			batch = append(batch, message(fmt.Sprint(i), fmt.Sprint("stranger", i), "hello"))
		}
		d.publish(pairing, batch...)
		d.wantOffers(21)
		if told := d.outboxed("chat of olga"); len(told) != 4 { // the first message is her own code
			t.Errorf("the owner was told %+v, want three strangers", told)
		}
		other := message("1", "ann", "hello")
		other.From.Account = "other"
		d.publish(pairing, other)
		d.wantOffers(22)
		pending, err := people.Pending(d.db.Read(d.t.Context()), time.Now())
		if err != nil || len(pending) != 17 ||
			!pending[0].Expires.Equal(time.Now().Add(10*time.Minute)) {
			t.Fatalf("Pending = %+v, %v, want 17", pending, err)
		}
		time.Sleep(time.Minute)
		d.publish(pairing, message("late", "late", "hello"))
		pending, err = people.Pending(d.db.Read(d.t.Context()), time.Now())
		if err != nil || len(pending) != 17 || pending[16].Sender != "late" {
			t.Errorf("Pending = %+v, %v, want the last one who asked at the end", pending, err)
		}
		if _, _, err := d.approve(pending[16].Code); err != nil {
			t.Errorf("Approve of the one who gave nobody's place up = %v", err)
		}
		time.Sleep(10 * time.Minute)
		if pending, err = people.Pending(d.db.Read(d.t.Context()), time.Now()); len(pending) != 0 {
			t.Errorf("Pending = %+v, %v, want none", pending, err)
		}
	})
}

// Strangers push each other's requests out of the list. Each of them can ask at most three times
// in ten minutes. Their further messages do not even cause a query.
func TestKnocks(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		crowd := func(round int) {
			for i := range 17 {
				m := message(fmt.Sprint(round, "-", i), fmt.Sprint("stranger", i), "hello")
				d.publish(pairing, m)
				time.Sleep(time.Millisecond) // so that one request is the oldest
			}
		}
		for round := range 3 { // each stranger's request replaces the next stranger's
			crowd(round)
			d.wantOffers(17 * (round + 1))
		}
		crowd(3)
		d.wantOffers(51)
		d.exec("DROP TABLE denied") // from now on, storing a request fails
		crowd(4)
		time.Sleep(10 * time.Minute)
		batch := channels.Batch{Messages: []bus.InboundMessage{message("9", "stranger1", "hello")}}
		if err := d.gate.Intake("tg", pairing).Publish(d.t.Context(), batch); err == nil {
			t.Error("a request of ten minutes later was not looked at")
		}
	})
}

// No code is offered in a group, without pairing, or to a person who asks to be forgotten.
func TestNoOffer(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		d.publish(pairing, message("0", "ann", "/Forget me now"))
		d.publish(pairing, inGroup("g", true, message("1", "ann", "hello")),
			inGroup("g", false, message("2", "ann", "hello")))
		d.publish(gate.Policy{Access: gate.ByList}, message("3", "ann", "hello"))
		d.wantOffers(0)
		select {
		case <-d.outbox.C():
			t.Error("the router was woken for nothing")
		default:
		}
	})
}

// A pairing in a direct chat gives no access in a group.
func TestPairingGrantsNothingInGroups(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		if _, _, err := d.approve(d.ask("ann")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		d.publish(pairing, inGroup("g", true, message("1", "ann", "unlisted")))
		d.publish(gate.Policy{Access: gate.ByList}, message("2", "ann", "direct"))
		d.wantInbox("owner direct")
		d.publish(pairing, inGroup("listed", true, message("3", "ann", "listed")))
		d.wantInbox("owner direct", "owner listed")
	})
}

// A pairing is valid only for its account.
func TestPairingHoldsForItsAccount(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		if _, _, err := d.approve(d.ask("ann")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		m := message("1", "ann", "hello")
		m.From.Account = "other"
		d.publish(gate.Policy{Access: gate.ByList}, m)
		d.wantInbox()
	})
}

// A person whose role in the database is damaged is not admitted. Other people are not affected.
func TestDamagedRole(t *testing.T) {
	for _, role := range []string{"", "boss", "Owner", "user ", "\x00"} {
		atDoor(t, func(d *gateFixture) {
			for _, who := range []string{"ann", "bob"} {
				if _, _, err := d.approve(d.ask(who)); err != nil {
					t.Fatal(err)
				}
			}
			d.exec("UPDATE people SET role = $1 WHERE role = 'owner'", role)
			time.Sleep(time.Second)
			list := gate.Policy{Access: gate.ByList, Groups: []string{"g"}}
			d.publish(list, message("1", "ann", "hello"), message("1", "bob", "hello"),
				inGroup("g", true, message("2", "ann", "in the group")))
			d.wantInbox("user hello", "guest in the group")
		})
	}
}

// A person whose row was damaged can ask again and be approved again.
func TestPairAgain(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		if _, _, err := d.approve(d.ask("ann")); err != nil {
			t.Fatal(err)
		}
		d.exec("UPDATE people SET role = 'broken'")
		time.Sleep(time.Second)
		d.publish(pairing, message("again", "ann", "hello?"))
		codes := d.offers()
		if _, _, err := d.approve(codes[len(codes)-1]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		d.publish(pairing, message("2", "ann", "hello"))
		d.wantInbox("owner hello")
	})
}

// A person who is no longer an owner gets no more messages for owners, even before they write
// again.
func TestDismissedOwner(t *testing.T) {
	for name, change := range map[string]func(tx *store.Tx) error{
		"role": func(tx *store.Tx) error { return people.SetRole(tx, 1, bus.Admin) },
		"link": func(tx *store.Tx) error { return people.Link(tx, 2, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			atDoor(t, func(d *gateFixture) {
				for _, who := range []string{"olga", "ann"} { // olga becomes an owner, ann a user
					if _, _, err := d.approve(d.ask(who)); err != nil {
						t.Fatal(err)
					}
				}
				before := len(d.outboxed("chat of olga"))
				if err := d.do(change); err != nil {
					t.Fatal(err)
				}
				d.publish(pairing, message("1", "eve", "let me in"))
				if told := d.outboxed("chat of olga"); len(told) != before {
					t.Errorf("olga was told %+v", told[before:])
				}
				owners, err := gate.OwnerChats(d.db.Read(d.t.Context()), d.gate)
				if err != nil || len(owners) > 0 {
					t.Errorf("OwnerChats = %v, %v, want none", owners, err)
				}
			})
		})
	}
}

// A new role changes nothing for an owner named in the configuration.
func TestConfiguredOwnerStaysOne(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := pairing
		p.Owners = []string{"olga"}
		d.publish(p, message("1", "olga", "hi"))
		err := d.do(func(tx *store.Tx) error { return people.SetRole(tx, 1, bus.Admin) })
		if err != nil {
			t.Fatal(err)
		}
		d.publish(p, message("1", "eve", "let me in"))
		if told := d.outboxed("chat of olga"); len(told) != 1 {
			t.Errorf("the owner was told %+v, want one message", told)
		}
	})
}

// People whom the configuration no longer names as owners get no more messages for owners. That
// does not apply to people at an account that is not configured now, or to people who may have
// one of the listed phone numbers.
func TestDismissOwners(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		p := gate.Policy{Access: gate.ByList, Owners: []string{"olga", "ann"}}
		away := message("1", "olga", "hi")
		away.From.Account = "away"
		d.publish(p, message("1", "olga", "hi"), message("1", "ann", "hi"))
		b := channels.Batch{Messages: []bus.InboundMessage{away}}
		if err := d.gate.Intake("away", p).Publish(d.t.Context(), b); err != nil {
			t.Fatal(err)
		}
		next := gate.New(d.db, d.inbox, d.outbox, discard)
		for _, step := range []struct {
			policy gate.Policy
			want   []string
		}{
			{p, []string{"away", "tg", "tg"}},
			{gate.Policy{Phones: true, Owners: []string{"+491"}}, []string{"away", "tg", "tg"}},
			{gate.Policy{Owners: []string{"ann"}}, []string{"away", "tg"}},
			{gate.Policy{}, []string{"away"}},
		} {
			next.SetPolicy("tg", step.policy)
			if err := gate.DismissOwners(d.t.Context(), next); err != nil {
				t.Fatal(err)
			}
			var got []string
			owners, err := people.OwnersBeside(d.db.Read(d.t.Context()), bus.Address{},
				func(string) bool { return true })
			for _, a := range owners {
				got = append(got, a.Account)
			}
			if slices.Sort(got); err != nil || !slices.Equal(got, step.want) {
				t.Errorf("with %+v owners are told at %q, %v, want %q", step.policy, got, err, step.want)
			}
		}
	})
}

// Owners who have never written to an account learn of its strangers in a chat with another
// account, but not where the strangers are shown anyway.
func TestOwnersElsewhere(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		if _, _, err := d.approve(d.ask("ann")); err != nil {
			t.Fatal(err)
		}
		d.gate.SetPolicy("dc", pairing)
		d.gate.SetPolicy("local", gate.Policy{ShowsPairings: true})
		told := func(sender string) (list []string) {
			m := message("1", sender, "let me in")
			m.From.Account = "dc"
			err := d.gate.Intake("dc", pairing).Publish(d.t.Context(),
				channels.Batch{Messages: []bus.InboundMessage{m}})
			if err != nil {
				t.Fatal(err)
			}
			open, err := d.outbox.Open(d.db.Read(d.t.Context()), 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range open {
				if strings.Contains(o.Message.Text, "Name of "+sender) && len(o.Message.Buttons) > 0 {
					list = append(list, o.Message.To.String())
					if strings.Contains(o.Message.Text, "on dc") == (o.Message.To.Account == "dc") {
						t.Errorf("%s is told %q", o.Message.To, o.Message.Text)
					}
				}
			}
			return list
		}
		if got := told("bob"); !slices.Equal(got, []string{"tg/chat of ann"}) {
			t.Errorf("owners are told of Bob in %q, want Ann's chat on the other account", got)
		}
		d.exec("UPDATE identities SET account = 'local'")
		if got := told("cid"); len(got) > 0 {
			t.Errorf("owners are told of Cid in %q, want nowhere", got)
		}
		d.exec("UPDATE identities SET account = 'dc'")
		if got := told("dan"); !slices.Equal(got, []string{"dc/chat of ann"}) {
			t.Errorf("owners are told of Dan in %q, want Ann's chat there", got)
		}
	})
}
