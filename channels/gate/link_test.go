package gate_test

import (
	"slices"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels/gate"
	"gateway/store"
)

// A linked person keeps the ids of the persons that were linked to it, also through further
// links. An account that is unlinked takes along only the ids that no remaining account had.
func TestFormerIDs(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		for _, who := range []string{"ann", "bob", "cid"} {
			if _, _, err := d.approve(d.ask(who)); err != nil {
				t.Fatal(err)
			}
		}
		want := func(person int64, want ...int64) {
			t.Helper()
			got, err := people.FormerIDs(d.db.Read(d.t.Context()), person)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("person %d was %v, %v, want %v", person, got, err, want)
			}
		}
		unlinked := gate.Person{}
		for _, change := range []func(tx *store.Tx) error{
			func(tx *store.Tx) error { return people.Link(tx, 2, 3) },
			func(tx *store.Tx) error { return people.Link(tx, 1, 2) },
		} {
			if err := d.do(change); err != nil {
				t.Fatal(err)
			}
		}
		want(1, 2, 3)
		err := d.do(func(tx *store.Tx) (err error) {
			unlinked, _, err = people.Unlink(tx, "tg", "cid", time.Now())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		want(1, 2)
		want(unlinked.ID, 3)
	})
}

// An account that was unlinked before, and is again, does not take along the number that the other
// account still has. With that, /forget and /export would reach the other person's data.
func TestUnlinkTwice(t *testing.T) {
	atDoor(t, func(d *gateFixture) {
		for _, who := range []string{"ann", "bob"} {
			if _, _, err := d.approve(d.ask(who)); err != nil {
				t.Fatal(err)
			}
		}
		bob := gate.Person{}
		unlink := func(tx *store.Tx) (err error) {
			bob, _, err = people.Unlink(tx, "tg", "bob", time.Now())
			return err
		}
		for _, change := range []func(tx *store.Tx) error{
			func(tx *store.Tx) error { return people.Link(tx, 1, 2) },
			unlink,
			func(tx *store.Tx) error { return people.Link(tx, bob.ID, 1) },
			unlink,
		} {
			if err := d.do(change); err != nil {
				t.Fatal(err)
			}
		}
		list, err := people.List(d.db.Read(d.t.Context()))
		if err != nil || len(list) != 2 || list[0].Sender != "ann" {
			t.Fatalf("the people are %+v, %v", list, err)
		}
		former, err := people.FormerIDs(d.db.Read(d.t.Context()), bob.ID)
		if err != nil || slices.Contains(former, list[0].ID) {
			t.Errorf("person %d was %v, %v, but %d is ann", bob.ID, former, err, list[0].ID)
		}
	})
}

// With session = "person", a message that somebody writes just after a link waits for the answer
// to their message before the link. This is also true for an owner. After an unlink, it does not
// wait.
func TestLinkKeepsOrder(t *testing.T) {
	for name, policy := range map[string]gate.Policy{
		"user":  {Access: gate.ByList},
		"owner": {Access: gate.ByList, Owners: []string{"bob"}},
	} {
		t.Run(name, func(t *testing.T) {
			atDoor(t, func(d *gateFixture) {
				d.inbox.SetScopes(map[string]bus.SessionScope{"tg": bus.PerPerson})
				for _, who := range []string{"ann", "bob"} {
					if _, _, err := d.approve(d.ask(who)); err != nil {
						t.Fatal(err)
					}
				}
				wants := []int64{}
				says := func(id string, want int64) {
					t.Helper()
					d.publish(policy, message(id, "bob", "hi"))
					list, _, _, err := d.inbox.Next(d.db.Read(d.t.Context()), 0)
					if err != nil {
						t.Fatal(err)
					}
					var got []int64
					for _, r := range list {
						got = append(got, r.Message.Origin.Conversation.Person)
					}
					if wants = append(wants, want); !slices.Equal(got, wants) {
						t.Errorf("the messages belong to %v, want %v", got, wants)
					}
				}
				change := func(change func(tx *store.Tx) error) {
					t.Helper()
					if err := d.do(change); err != nil {
						t.Fatal(err)
					}
					d.gate.Invalidate()
				}
				says("1", 2)
				change(func(tx *store.Tx) error { return people.Link(tx, 1, 2) })
				says("2", 2)
				change(func(tx *store.Tx) error {
					_, _, err := people.Unlink(tx, "tg", "bob", time.Now())
					return err
				})
				says("3", 3)
				change(func(tx *store.Tx) error { return people.Link(tx, 1, 3) })
				says("4", 3)
			})
		})
	}
}
