package gate_test

import (
	"errors"
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
			unlinked, _, err = people.Unlink(tx, "tg", "cid", 0, time.Now())
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
			bob, _, err = people.Unlink(tx, "tg", "bob", 0, time.Now())
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

// While an unlink is prepared, the number of the new person is a former one of the present person,
// whether the account was linked to that person, or another one to the account. Then the new person
// alone has it.
func TestPrepareUnlink(t *testing.T) {
	for _, who := range []string{"ann", "bob"} {
		t.Run(who, func(t *testing.T) {
			atDoor(t, func(d *gateFixture) {
				for _, who := range []string{"ann", "bob"} {
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
				var first, next gate.Person
				prepare := func(p *gate.Person) func(tx *store.Tx) error {
					return func(tx *store.Tx) (err error) {
						var before int64
						*p, before, err = people.PrepareUnlink(tx, "tg", who, time.Now())
						if err == nil && before != 1 {
							t.Errorf("%s is person %d, want 1", who, before)
						}
						return err
					}
				}
				if err := d.do(prepare(new(gate.Person))); !errors.Is(err, gate.ErrNotLinked) {
					t.Errorf("PrepareUnlink of somebody with one account = %v", err)
				}
				link := func(tx *store.Tx) error { return people.Link(tx, 1, 2) }
				if err := d.do(link); err != nil {
					t.Fatal(err)
				}
				for _, change := range []func(tx *store.Tx) error{prepare(&first), prepare(&next)} {
					if err := d.do(change); err != nil {
						t.Fatal(err)
					}
				}
				want(1, 2, first.ID, next.ID)
				err := d.do(func(tx *store.Tx) error {
					p, before, err := people.Unlink(tx, "tg", who, next.ID, time.Now())
					if err == nil && (p.ID != next.ID || before != 1) {
						t.Errorf("%s is person %d after %d, want %d after 1", who, p.ID, before, next.ID)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				if who == "ann" { // bob still is what he was
					want(1, 2)
					want(next.ID, first.ID)
				} else {
					want(1)
					want(next.ID, 2, first.ID)
				}
			})
		})
	}
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
					_, _, err := people.PrepareUnlink(tx, "tg", "bob", time.Now())
					return err
				})
				says("prepared", 2)
				change(func(tx *store.Tx) error {
					_, _, err := people.Unlink(tx, "tg", "bob", 0, time.Now())
					return err
				})
				says("3", 4)
				change(func(tx *store.Tx) error { return people.Link(tx, 1, 4) })
				says("4", 4)
			})
		})
	}
}
