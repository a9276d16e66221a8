//go:build unix

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gateway/channels/whatsapp/whatsapptest"
)

// TestSelfKilled checks a gateway that uses a person's own WhatsApp account while the person
// writes to themselves. Each message is answered once, although a kill -9 comes at every step.
// The gateway does not answer its own answers, although its second account, with the same number,
// receives the messages of the first one.
func TestSelfKilled(t *testing.T) {
	t.Parallel()
	fake := whatsapptest.New(nil)
	url, err := fake.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	w := newWorld(t, worldOptions{answer: repeat, agent: "queue_mode = \"followup\""})
	section := quiet
	accounts := []string{"whatsapp", "second"}
	for _, name := range accounts {
		section += fmt.Sprintf("\n[channels.%s]\ntype = \"whatsapp\"\napi_url = %q\nowners = [%q]\n"+
			"rate_limit = \"off\"", name, url, "+"+fake.BotPhone())
		if err := fake.PairFile(t.Context(),
			filepath.Join(w.home, "whatsapp-"+name+".db")); err != nil {
			t.Fatal(err)
		}
	}
	w.configure(section)
	owner, err := fake.Owner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var notes []string
	note := func(text string) {
		t.Helper()
		notes = append(notes, text)
		if _, err := owner.Say(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	answered := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := fake.Wait(ctx, func() bool { return len(owner.Texts()) >= len(accounts)*len(notes) })
		if err != nil {
			t.Fatalf("the owner reads %q: %v", owner.Texts(), err)
		}
	}
	for _, point := range []string{
		"accepted", "begun", "finished", "sending", "sent", "delivered",
	} {
		p := w.start("GATEWAY_FAULT=" + point + ":2")
		note("note before " + point)
		until(t, "the end at "+point, p.done)
		p = w.start() // several crashes in a row would make the gateway give up the turn
		answered()
		w.rest()
		p.kill()
	}
	p := w.start()
	note("the end") // an answer to an answer would come before the answer to this
	answered()
	var want []string
	for _, text := range notes {
		want = append(want, slices.Repeat([]string{"you said " + text}, len(accounts))...)
	}
	got := owner.Texts()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the owner reads\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, v := range fake.Violations() {
		t.Error("WhatsApp does not know this:", v)
	}
	p.stop()
}
