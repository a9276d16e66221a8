package whatsapptest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/proto/waE2E"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/whatsapp"
	"gateway/channels/whatsapp/whatsapptest"
)

func TestMain(m *testing.M) {
	whatsmeow.WACertPubKey = whatsapptest.RootKey
	os.Exit(m.Run())
}

// start returns a server and a context that ends when a test has waited too long.
func start(t *testing.T) (*whatsapptest.Server, string, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	s := whatsapptest.New(nil)
	url, err := s.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, url, ctx
}

func person(
	t *testing.T, ctx context.Context, s *whatsapptest.Server, name string,
) *whatsapptest.Person {
	t.Helper()
	p, err := s.NewPerson(ctx, name, whatsapptest.Known)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPersons checks that people see messages and edits of others in a group, and that they see
// a message once that arrives twice.
func TestPersons(t *testing.T) {
	s, _, ctx := start(t)
	ada, bob := person(t, ctx, s, "Ada"), person(t, ctx, s, "Bob")
	group := s.AddGroup("Friends", false, ada, bob)
	id, err := ada.SayGroup(ctx, group, "one")
	if err != nil {
		t.Fatal(err)
	}
	saw := func(cond func(whatsapptest.Message) bool) {
		t.Helper()
		if err := s.Wait(ctx, func() bool {
			seen := bob.Messages(group)
			return len(seen) == 1 && cond(seen[0])
		}); err != nil {
			t.Fatalf("Bob sees %+v", bob.Messages(group))
		}
	}
	saw(func(m whatsapptest.Message) bool { return m.ID == id && m.Text == "one" && !m.FromBot })
	if err := ada.Edit(ctx, group, id, "two"); err != nil {
		t.Fatal(err)
	}
	saw(func(m whatsapptest.Message) bool { return m.Text == "two" && m.Edits == 1 })
	text := "again"
	if err := ada.SendAgain(ctx, group, id, &waE2E.Message{Conversation: &text}); err != nil {
		t.Fatal(err)
	}
	saw(func(m whatsapptest.Message) bool { return m.Text == "two" && m.Copies == 2 })
	if err := ada.Revoke(ctx, group, id); err != nil {
		t.Fatal(err)
	}
	saw(func(m whatsapptest.Message) bool { return m.Deleted })
	if v := s.Violations(); len(v) != 0 {
		t.Errorf("violations: %q", v)
	}
}

// TestOffline checks that messages that were sent to a person while they were offline arrive in
// order.
func TestOffline(t *testing.T) {
	s, _, ctx := start(t)
	ada, bob := person(t, ctx, s, "Ada"), person(t, ctx, s, "Bob")
	group := s.AddGroup("Friends", false, ada, bob)
	bob.Offline()
	want := []string{"one", "two", "three"}
	for _, text := range want {
		if _, err := ada.SayGroup(ctx, group, text); err != nil {
			t.Fatal(err)
		}
	}
	if bob.Settled() {
		t.Error("nothing waits for Bob")
	}
	if err := bob.Online(); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(ctx, bob.Settled); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range bob.Messages(group) {
		got = append(got, m.Text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("Bob sees %q, want %q", got, want)
	}
}

// TestPairFile checks that another process needs only the linked store.
func TestPairFile(t *testing.T) {
	s, url, ctx := start(t)
	path := filepath.Join(t.TempDir(), "wa.db")
	if err := s.PairFile(ctx, path); err != nil {
		t.Fatal(err)
	}
	if n := s.Devices(); n != 1 || s.DeviceName() != "gateway" {
		t.Errorf("%d devices are linked, the last is %q", n, s.DeviceName())
	}
	ada := person(t, ctx, s, "Ada")
	if _, err := ada.Say(ctx, "before"); err != nil {
		t.Fatal(err)
	}
	if n := s.Pending(); n != 1 {
		t.Errorf("%d messages wait for the bot, want 1", n)
	}
	ch := whatsapp.New("wa", path, &whatsapp.Options{BaseURL: url})
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	in := new(channeltest.Inbox)
	go func() { done <- ch.Run(running, in) }()
	if err := s.Wait(ctx, func() bool { return s.Connected() && s.Pending() == 0 }); err != nil {
		t.Fatal(err)
	}
	if got := in.Messages(); len(got) != 1 || got[0].Text != "before" {
		t.Errorf("received %+v", got)
	}
	to := bus.Address{Account: "wa", Chat: ada.Chat()}
	if _, err := ch.Send(ctx, bus.Part{Key: "1", To: to, Text: "answer"}); err != nil {
		t.Fatal(err)
	}
	answered := func() bool { return slices.Equal(ada.Texts(), []string{"answer"}) }
	if err := s.Wait(ctx, answered); err != nil {
		t.Errorf("Ada sees %q", ada.Texts())
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
}

// TestTakenOver checks that a device that logs in again ends its older connection. The race
// detector checks that the two connections don't use shared data at the same time.
func TestTakenOver(t *testing.T) {
	s, url, ctx := start(t)
	dir := t.TempDir()
	if err := s.PairFile(ctx, filepath.Join(dir, "one.db")); err != nil {
		t.Fatal(err)
	}
	store, err := os.ReadFile(filepath.Join(dir, "one.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "two.db"), store, 0o600); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	run := func(file string) <-chan error {
		done := make(chan error, 1)
		ch := whatsapp.New("wa", filepath.Join(dir, file), &whatsapp.Options{BaseURL: url})
		go func() { done <- ch.Run(running, new(channeltest.Inbox)) }()
		return done
	}
	one := run("one.db")
	if err := s.Wait(ctx, s.Connected); err != nil {
		t.Fatal(err)
	}
	two := run("two.db")
	err = <-one
	if _, ok := errors.AsType[*channels.AccountError](err); !ok {
		t.Errorf("Run of the first = %v, want that another program has the account", err)
	}
	if err := s.Wait(ctx, s.Connected); err != nil {
		t.Errorf("the second is not connected: %v", err)
	}
	stop()
	if err := <-two; !errors.Is(err, context.Canceled) {
		t.Errorf("Run of the second = %v", err)
	}
}

func TestCodesThatFitNobody(t *testing.T) {
	s, url, ctx := start(t)
	if err := s.Scan("nonsense"); err == nil {
		t.Error("a QR code that is none was scanned")
	}
	if err := s.EnterCode("ABCD-EFGH"); err == nil {
		t.Error("a code that nobody waits for was taken")
	}
	ch := whatsapp.New("wa", filepath.Join(t.TempDir(), "wa.db"), &whatsapp.Options{BaseURL: url})
	pairing, stop := context.WithCancel(ctx)
	err := ch.Pair(pairing, s.BotPhone(), func(code channels.PairingCode) {
		if err := s.EnterCode("1111-1111"); err != nil {
			t.Error(err)
		}
		if err := s.Wait(ctx, func() bool { return len(s.Violations()) > 0 }); err != nil {
			t.Error(err)
		}
		stop()
	})
	if !errors.Is(err, context.Canceled) || s.Devices() != 0 {
		t.Errorf("Pair with a wrong code = %v, %d devices are linked", err, s.Devices())
	}
}

// TestTenPersons checks that a server can have ten persons.
func TestTenPersons(t *testing.T) {
	s, _, ctx := start(t)
	var all []*whatsapptest.Person
	for range 10 {
		all = append(all, person(t, ctx, s, "Someone"))
	}
	group := s.AddGroup("Everybody", false, all...)
	if _, err := all[0].SayGroup(ctx, group, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(ctx, func() bool { return len(all[9].Messages(group)) == 1 }); err != nil {
		t.Error(err)
	}
}
