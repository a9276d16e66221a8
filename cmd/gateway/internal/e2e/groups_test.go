//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"gateway/store"
)

// teamID is a group that the configuration does not list.
const teamID = -100_777

// said returns the number of a chat's texts that contain text.
func (w *world) said(chat int64, text string) (n int) {
	for _, t := range w.texts(chat) {
		if strings.Contains(t, text) {
			n++
		}
	}
	return n
}

// pressNewest presses the button with a label in the newest message that has one.
func (w *world) pressNewest(chat, user int64, label string) {
	w.t.Helper()
	history := w.telegram.History(chat)
	for i := len(history) - 1; i >= 0; i-- {
		for _, row := range w.telegram.Buttons(chat, history[i].ID) {
			for _, b := range row {
				if b.Label == label {
					w.telegram.Press(chat, user, history[i].ID, label)
					return
				}
			}
		}
	}
	w.t.Fatalf("chat %d has no button %q", chat, label)
}

// TestGroupFromChat checks a mention of the bot in an unlisted group. The owner is asked once,
// even through a kill, and decides with a button. The group is answered from then on, even after
// a kill.
func TestGroupFromChat(t *testing.T) {
	t.Parallel()
	const question = "What should I do there?"
	w := newWorld(t, worldOptions{answer: repeat, channel: allow("7") + "\nowners = [\"7\"]"})
	w.telegram.AddGroup(teamID, "Team")
	p := w.start()
	p.ready()
	w.answers(annID, "I am here") // now the owner's chat is known
	w.telegram.Say(teamID, bobID, "not for you")
	w.telegram.Say(teamID, bobID, "@gateway_bot let me in")
	w.await("the question", func() bool { return w.said(annID, question) > 0 })
	w.answers(annID, "one moment") // by now the question is marked as sent
	p.kill()
	p = w.start()
	p.ready()
	w.telegram.Say(teamID, bobID, "@gateway_bot let me in again")
	w.answers(annID, "let me think")
	if n := w.said(annID, question); n != 1 {
		t.Errorf("the owner was asked %d times, want once", n)
	}
	if texts := w.texts(teamID); len(texts) != 0 {
		t.Errorf("the group was told %q before the owner has decided", texts)
	}

	w.telegram.Say(teamID, annID, "@gateway_bot why so quiet")
	w.await("a word to the owner", func() bool { return heard(w, teamID, "I don't answer in this") })
	w.pressNewest(annID, annID, "Answer when mentioned")
	w.await("the hello", func() bool { return heard(w, teamID, "Hello! I answer here when") })
	w.telegram.Say(teamID, bobID, "@gateway_bot thank you")
	w.await("an answer", func() bool { return heard(w, teamID, "thank you") })
	p.kill()
	p = w.start()
	p.ready()
	w.telegram.Say(teamID, bobID, "nobody is mentioned")
	w.telegram.Say(teamID, bobID, "@gateway_bot and now")
	w.await("an answer", func() bool { return heard(w, teamID, "and now") })
	if n := w.said(teamID, "said: nobody is mentioned"); n != 0 {
		t.Error("a message that mentions nobody was answered")
	}

	w.telegram.Say(teamID, bobID, "/activation@gateway_bot always")
	w.await("a refusal", func() bool { return heard(w, teamID, "admin") })
	w.telegram.Say(teamID, annID, "/activation@gateway_bot always")
	w.await("a reply", func() bool { return heard(w, teamID, "I answer all messages from now on") })
	w.telegram.Say(teamID, bobID, "just so")
	w.await("an answer", func() bool { return heard(w, teamID, "just so") })

	w.wantReply(annID, "/group ignore 1", "The group Team (-100777): I ignore it from now on.")
	before := len(w.texts(teamID))
	w.telegram.Say(teamID, bobID, "@gateway_bot are you there")
	w.wantReply(annID, "/group", fmt.Sprintf("1: Team (%d) on telegram: I ignore it", teamID))
	w.answers(annID, "that is all")
	if n := len(w.texts(teamID)); n != before {
		t.Errorf("the ignored group was told %q", w.texts(teamID)[before:])
	}
}

// TestGroupJoined checks that the owner is asked when the bot is added to a group, before anybody
// writes.
func TestGroupJoined(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat, channel: allow("7") + "\nowners = [\"7\"]"})
	w.telegram.AddGroup(teamID, "Team")
	w.run()
	w.answers(annID, "I am here")
	w.telegram.SetMember(teamID, bobID, "left")
	w.telegram.SetMember(teamID, bobID, "member")
	w.await("the question", func() bool { return heard(w, annID, "has added me to the group Team") })
	w.pressNewest(annID, annID, "Answer everything")
	w.await("the hello", func() bool { return heard(w, teamID, "Hello! I answer here from now on.") })
	w.telegram.Say(teamID, bobID, "hello, too")
	w.await("an answer", func() bool { return heard(w, teamID, "hello, too") })
}

// TestAllGroups checks groups = ["*"]: all groups are answered except those that an owner
// ignores.
func TestAllGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat,
		channel: allow("7") + "\nowners = [\"7\"]\ngroups = [\"*\"]"})
	w.telegram.AddGroup(teamID, "Team")
	w.run()
	w.telegram.Say(teamID, bobID, "@gateway_bot hello")
	w.await("an answer", func() bool { return heard(w, teamID, "hello") })
	w.telegram.Say(teamID, annID, "/activation@gateway_bot always")
	w.await("a reply", func() bool { return heard(w, teamID, "I answer all messages from now on") })
	w.telegram.Say(teamID, bobID, "just so")
	w.await("an answer", func() bool { return heard(w, teamID, "just so") })
}

// TestGroupUnlisted checks that a choice with /activation does not keep a group approved after it
// was removed from the configuration.
func TestGroupUnlisted(t *testing.T) {
	t.Parallel()
	owned := allow("7") + "\nowners = [\"7\"]"
	listed := owned + fmt.Sprintf("\ngroups = [%d]", teamID)
	w := newWorld(t, worldOptions{answer: repeat, channel: listed})
	w.telegram.AddGroup(teamID, "Team")
	p := w.start()
	p.ready()
	w.telegram.Say(teamID, annID, "@gateway_bot /activation always")
	w.await("a reply", func() bool { return heard(w, teamID, "I answer all messages from now on") })
	w.telegram.Say(teamID, bobID, "just so")
	w.await("an answer", func() bool { return heard(w, teamID, "just so") })
	p.kill()
	w.configure(owned)
	p = w.start()
	p.ready()
	w.telegram.Say(teamID, bobID, "still there?")
	w.telegram.Say(teamID, bobID, "@gateway_bot still there?")
	w.answers(annID, "hello") // by now Telegram has delivered both messages
	w.look(func(db *store.DB) {
		if n := w.count(db, "inbox WHERE body LIKE '%still there%'"); n != 0 {
			t.Errorf("%d messages of a group that is listed no more were accepted", n)
		}
	})
	w.wantReply(annID, "/group", "if the configuration lists it, I answer all messages")
}

// TestIgnoreListedGroup checks an owner's wish to ignore a group that the configuration names.
// The gateway still answers there, and /group says so.
func TestIgnoreListedGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat,
		channel: fmt.Sprintf("%s\nowners = [\"7\"]\ngroups = [%d]", allow("7"), teamID)})
	w.telegram.AddGroup(teamID, "Team")
	w.run()
	w.telegram.Say(teamID, annID, "/activation@gateway_bot always")
	w.await("a reply", func() bool { return heard(w, teamID, "I answer all messages from now on") })
	const want = "I still answer there, because the configuration names it"
	w.wantReply(annID, "/group ignore 1", "The group Team (-100777): "+want)
	w.wantReply(annID, "/group", fmt.Sprintf("1: Team (%d) on telegram: %s", teamID, want))
	w.telegram.Say(teamID, bobID, "@gateway_bot are you there")
	w.await("an answer", func() bool { return heard(w, teamID, "are you there") })
}
