package e2e

import (
	"slices"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
)

// TestGroupBecomesSupergroup checks that a listed group stays listed when Telegram turns it into
// a supergroup with another id, and that an answer in progress is sent to the new id.
func TestGroupBecomesSupergroup(t *testing.T) {
	t.Parallel()
	const group, supergroup = -42, -1009876543210
	hold := newHold()
	answer := func(r openaitest.Request) openaitest.Reply {
		hold.wait()
		return repeat(r)
	}
	w := newWorld(t, worldOptions{answer: answer,
		channel: "access = \"allow\"\ngroups = [-42]\nstreaming = false"})
	w.telegram.AddGroup(group, "Garden")
	stop := w.run()
	w.telegram.Say(group, bobID, "@gateway_bot before")
	until(t, "the model", hold.reached)
	w.telegram.Migrate(group, supergroup)
	hold.release()
	w.await("the answer", func() bool { return heard(w, supergroup, "before") })
	w.telegram.Say(supergroup, bobID, "@gateway_bot after")
	w.await("an answer", func() bool { return heard(w, supergroup, "after") })
	stop()
	w.run()
	w.telegram.Say(supergroup, bobID, "@gateway_bot after a restart")
	w.await("an answer", func() bool { return heard(w, supergroup, "after a restart") })
}

// TestOrderInSupergroup checks that the answers in a group keep their order when it becomes a
// supergroup, although the model is slow to answer the message from before, and Telegram delays the
// answer.
func TestOrderInSupergroup(t *testing.T) {
	t.Parallel()
	const group, supergroup = -42, -1009876543210
	hold := newHold()
	answer := func(r openaitest.Request) openaitest.Reply {
		if strings.HasSuffix(lastText(r), "before") {
			hold.wait()
		}
		return repeat(r)
	}
	w := newWorld(t, worldOptions{answer: answer,
		channel: "access = \"allow\"\ngroups = [-42]\nstreaming = false"})
	w.telegram.AddGroup(group, "Garden")
	w.run()
	w.telegram.Say(group, bobID, "@gateway_bot before")
	until(t, "the model", hold.reached)
	w.telegram.Inject(telegramtest.Fault{Chat: group, Method: "sendMessage", Times: 1, RetryAfter: 1})
	w.telegram.Migrate(group, supergroup)
	w.telegram.Say(supergroup, bobID, "@gateway_bot after")
	w.received()
	hold.release()
	w.await("both answers", func() bool { return len(w.texts(supergroup)) == 2 })
	if texts := w.texts(supergroup); !strings.Contains(texts[0], "before") {
		t.Errorf("the answers are %q", texts)
	}
}

// TestEditInGroup checks that a new wording replaces a message of a group that waits for its turn,
// although the new wording itself does not address the bot.
func TestEditInGroup(t *testing.T) {
	t.Parallel()
	const garden, kitchen = -42, -43
	hold := newHold()
	defer hold.release()
	answer := func(r openaitest.Request) openaitest.Reply {
		if strings.HasSuffix(lastText(r), "one") {
			hold.wait()
		}
		return repeat(r)
	}
	w := newWorld(t, worldOptions{answer: answer,
		channel: quiet + "\nowners = [\"7\"]\ngroups = [-42, -43]"})
	w.run()
	groups := map[int64]string{garden: "@gateway_bot ", kitchen: ""}
	for group, mention := range groups {
		w.telegram.AddGroup(group, "Group")
		if mention == "" {
			w.telegram.Say(group, annID, "/activation@gateway_bot always")
			w.await("a reply", func() bool { return heard(w, group, "I answer all messages from now on") })
		}
		w.telegram.Say(group, annID, mention+"one")
		id := w.telegram.Say(group, bobID, mention+"buy cake")
		w.telegram.EditSay(group, id, "buy bread")
	}
	until(t, "the model", hold.reached)
	w.received()
	hold.release()
	for group := range groups {
		w.await("Bob's answer", func() bool { return heard(w, group, "buy") })
		if !heard(w, group, "(user): buy bread") {
			t.Errorf("group %d shows %q", group, w.texts(group))
		}
	}
}

// TestPreviewInSupergroup checks that a growing answer to a message from before a group became a
// supergroup ends in the message in which it began there, although it is addressed to the group.
func TestPreviewInSupergroup(t *testing.T) {
	t.Parallel()
	const group, supergroup = -42, -1009876543210
	start, rest, text := newHold(), newHold(), words("long", 300)
	answer := func(r openaitest.Request) openaitest.Reply {
		if !strings.HasSuffix(lastText(r), "before") {
			return repeat(r)
		}
		start.wait()
		reply := stream(text)
		reply.Hold = func(int) { rest.wait() }
		return reply
	}
	w := newWorld(t, worldOptions{answer: answer, channel: "groups = [-42]\n" + streaming})
	w.telegram.AddGroup(group, "Garden")
	w.run()
	w.telegram.Say(group, bobID, "@gateway_bot before")
	until(t, "the model", start.reached)
	w.telegram.Migrate(group, supergroup)
	w.telegram.Say(supergroup, bobID, "@gateway_bot after")
	w.received()
	start.release()
	w.await("the answer to begin", func() bool { return len(w.texts(supergroup)) == 1 })
	rest.release()
	w.await("the second answer", func() bool { return heard(w, supergroup, "after") })
	if texts := w.texts(supergroup); len(texts) != 2 || texts[0] != text {
		t.Errorf("the supergroup shows %q, want each answer once", texts)
	}
}

// heard reports whether the newest message of the bot in a chat contains a text.
func heard(w *world, chat int64, text string) bool {
	texts := w.texts(chat)
	return len(texts) > 0 && strings.Contains(texts[len(texts)-1], text)
}

// TestDrafts checks an account with drafts. In direct chats, answers grow as drafts. In groups,
// which have no drafts, they grow by edits.
func TestDrafts(t *testing.T) {
	t.Parallel()
	var w *world
	w = newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		if strings.HasSuffix(lastText(r), "two") {
			return w.held(groupID, answerConversations(r))
		}
		reply := answerConversations(r)
		reply.Hold = func(sent int) { // waits until the last piece that was sent is shown
			w.holdUntil("drafts", func() bool { return len(w.telegram.Drafts(annID)) >= min(sent, 2) })
		}
		return reply
	},
		channel: "access = \"open\"\nrate_limit = \"off\"\nedit_interval = \"20ms\"\ndrafts = true"})
	w.telegram.AddGroup(groupID, "Garden")
	w.run()
	w.telegram.Say(annID, annID, "slowly one")
	w.telegram.Say(groupID, annID, "@gateway_bot slowly two")
	w.await("the answers", func() bool {
		return heard(w, annID, "is all") && heard(w, groupID, "is all")
	})
	drafts := w.telegram.Drafts(annID)
	if len(drafts) < 2 || drafts[0].ID != drafts[len(drafts)-1].ID {
		t.Errorf("the drafts are %+v, want several of one answer", drafts)
	}
	if list := w.telegram.History(annID); len(list) != 1 || list[0].Edits != 0 {
		t.Errorf("Ann has %+v, want one message that was never edited", list)
	}
	if list := w.telegram.History(groupID); len(list) != 1 || list[0].Edits == 0 {
		t.Errorf("the group has %+v, want one message that grew", list)
	}
}

// TestStopDraft checks that the button that Telegram shows beside a draft stops the answer.
func TestStopDraft(t *testing.T) {
	t.Parallel()
	var w *world
	w = newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		if !strings.HasSuffix(lastText(r), "slowly") {
			return answerConversations(r)
		}
		return openaitest.Reply{Text: []string{"the beginning ", "and the end"}, Hold: func(int) {
			w.holdUntil("the word of its end", func() bool { return len(w.texts(annID)) > 1 })
		}}
	}, channel: "access = \"open\"\nrate_limit = \"off\"\nedit_interval = \"20ms\"\ndrafts = true"})
	w.run()
	w.telegram.Say(annID, annID, "slowly")
	w.await("a draft", func() bool { return w.telegram.Drafting(annID) != "" })
	w.telegram.StopDraft(annID)
	w.await("the word of its end", func() bool { return len(w.texts(annID)) > 1 })
	w.telegram.Say(annID, annID, "next")
	w.await("the next answer", func() bool { return heard(w, annID, "next") })
	want := []string{"the beginning … (stopped)", "Stopped.", "you said next"}
	if got := w.texts(annID); !slices.Equal(got, want) {
		t.Errorf("the chat shows %q, want %q", got, want)
	}
}

// TestStrangersFilesAreNotFetched checks that files of strangers are not fetched.
func TestStrangersFilesAreNotFetched(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: answerConversations,
		channel: "access = \"allow\"\nowners = [7]\nstreaming = false"})
	w.run()
	w.telegram.SayPhoto(bobID, bobID, "look at this", pixels(300))
	w.telegram.Say(annID, annID, "hello")
	w.await("an answer", func() bool { return heard(w, annID, "hello") })
	if n := w.telegram.Calls("getFile"); n != 0 {
		t.Errorf("%d files of a stranger were fetched", n)
	}
	w.telegram.SayPhoto(annID, annID, "look at that", pixels(300))
	w.await("an answer", func() bool { return heard(w, annID, "look at that") })
	if n := w.telegram.Calls("getFile"); n != 1 {
		t.Errorf("%d files of the owner were fetched, want 1", n)
	}
}

// TestCommandInSupergroup checks that a command finds what a group has, even if it is the first
// message after the group became a supergroup.
func TestCommandInSupergroup(t *testing.T) {
	t.Parallel()
	const group, supergroup = -42, -1009876543210
	w := newWorld(t, worldOptions{answer: repeat,
		channel: "access = \"allow\"\nowners = [7]\ngroups = [-42]\nstreaming = false"})
	w.telegram.AddGroup(group, "Garden")
	w.run()
	w.telegram.Say(group, annID, "@gateway_bot hello")
	w.await("an answer", func() bool { return heard(w, group, "hello") })
	w.telegram.Say(group, annID, "/remind@gateway_bot in 2h to water")
	w.await("an answer", func() bool { return heard(w, group, "water") })
	w.telegram.Migrate(group, supergroup)
	w.telegram.Say(supergroup, annID, "/jobs@gateway_bot")
	w.await("the reminder in the list of jobs", func() bool { return heard(w, supergroup, "water") })
}
