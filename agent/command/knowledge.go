package command

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"gateway/agent/audit"
	"gateway/agent/background"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/store"
	"gateway/store/plaintext"
)

// knowledge has the commands about what the agent knows. Each works on its conversation's scope and
// shows nothing of other scopes.
type knowledge struct{ *Deps }

// later adds a background task that answers the command, and the entries to the audit log. The
// reply is empty, because the task itself sends the answer.
func (k knowledge) later(
	ctx context.Context, r *Request, w background.Work, state string, entries ...audit.Entry,
) (Reply, error) {
	// The task fills in the text.
	out := r.answer(Reply{})
	task := background.Task{Work: w, State: []byte(state), Notice: &out}
	return r.Commit(ctx, func(tx *store.Tx) (Reply, error) {
		// A task has one answer: a second one would take the place of the first.
		awaited, err := background.Store{}.IsAwaited(tx, w)
		if err != nil || awaited {
			return Reply{Text: sayAwaited}, err
		}
		for _, e := range entries {
			if err := audit.Add(tx, e, k.Now()); err != nil {
				return Reply{}, err
			}
		}
		return Reply{}, background.Store{}.Put(tx, task, k.Now())
	}, k.Background.Wake)
}

const sayAwaited = "Somebody has asked for that just now, and gets the answer."

// compact answers /compact.
func (k knowledge) compact(ctx context.Context, r *Request) (Reply, error) {
	return k.later(ctx, r, background.Work{Kind: background.Compact, Scope: r.scope(),
		Session: r.Session.String(), Ref: r.Seq}, "")
}

// dream answers /dream. It ignores messages that have not become notes yet.
func (k knowledge) dream(ctx context.Context, r *Request) (Reply, error) {
	return k.later(ctx, r, background.Work{Kind: background.Dream, Scope: r.scope()}, "")
}

// changes answers /dream-log [ID].
func (k knowledge) changes(ctx context.Context, r *Request) (Reply, error) {
	text, err := k.Background.Changes(ctx, r.scope(), r.Args)
	return Reply{Text: text}, err
}

// restore answers /dream-restore ID. In a group it changes the memory of all members.
func (k knowledge) restore(ctx context.Context, r *Request) (Reply, error) {
	switch {
	case r.Message.Group && !r.Message.Role.AtLeast(bus.Admin):
		return Reply{Text: "In a group only admins and owners can use `/dream-restore`."}, nil
	case r.Args == "":
		return Reply{Text: "Say which change: `/dream-log` lists them, `/dream-restore ID` takes one " +
			"back."}, nil
	}
	return k.later(ctx, r, background.Work{Kind: background.Undo, Scope: r.scope(), Ref: r.Seq},
		r.Args)
}

// maxShown is the maximum part of a document that /memory shows, in bytes.
const maxShown = 2000

// show answers /memory.
func (k knowledge) show(ctx context.Context, r *Request) (Reply, error) {
	const most = 50
	read, space := k.DB.Read(ctx), k.Memory.In(r.scope())
	facts, err := space.Facts(read, "", most)
	if err != nil {
		return Reply{}, err
	}
	notes, err := space.CountEntries(read)
	if err != nil {
		return Reply{}, err
	}
	text := k.documents(r.scope())
	if len(facts) > 0 {
		text += "**Facts**\n\n" + strings.TrimSpace(memory.Render(facts)) + "\n\n"
	}
	if text == "" && notes == 0 {
		return Reply{Text: "I remember nothing beyond this conversation yet."}, nil
	}
	erases := "`/forget me` erases all of it."
	if r.Message.Group {
		erases = "All of it belongs to this group: the person who runs me can erase it with `gateway " +
			"memory forget`."
	}
	return Reply{Text: fmt.Sprintf("%sI have %s of earlier conversations: `/history`. %s", text,
		background.Count(notes, "note"), erases)}, nil
}

// documents returns the beginnings of a scope's documents.
func (k knowledge) documents(s memory.Scope) string {
	if k.Documents == nil {
		return ""
	}
	var b strings.Builder
	for _, name := range []string{document.User, document.Memory, document.Soul} {
		doc := k.Documents.Doc(s, name)
		if text := doc.Prompt(); text != "" {
			fmt.Fprintf(&b, "**%s**\n\n%s\n\n", name, plaintext.Cut(text, maxShown))
		}
	}
	return b.String()
}

// history answers /history.
func (k knowledge) history(ctx context.Context, r *Request) (Reply, error) {
	const most = 10
	entries, err := k.Memory.In(r.scope()).Newest(k.DB.Read(ctx), 0, most)
	if err != nil {
		return Reply{}, err
	}
	if len(entries) == 0 {
		return Reply{Text: "There are no notes of earlier conversations yet. I write them when a " +
			"conversation is long, idle, or ended with `/new`."}, nil
	}
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "**%s**\n\n%s\n\n", e.Time.In(k.Location).Format(time.DateOnly),
			plaintext.Cut(e.Text, maxShown/2))
	}
	return Reply{Text: strings.TrimSpace(b.String())}, nil
}

// skills answers /skills.
func (k knowledge) skills(_ context.Context, r *Request) (Reply, error) {
	var b strings.Builder
	example := ""
	if k.Skills != nil {
		hidden := k.Sessions.HiddenSkills(r.Message)
		for _, s := range k.Skills.List(string(r.scope())) {
			if hidden != nil && hidden(s.Name) {
				continue
			}
			state := ""
			switch {
			case s.Problem != "":
				state = " (can't be used: " + s.Problem + ")"
			case s.Disabled:
				state = " (switched off)"
			case len(s.Missing) > 0:
				state = " (lacks " + strings.Join(s.Missing, ", ") + ")"
			default:
				example = cmp.Or(example, s.Name)
			}
			fmt.Fprintf(&b, "- `$%s`%s: %s\n", s.Name, state, firstSentence(s.Description))
		}
	}
	if b.Len() == 0 {
		return Reply{Text: "There are no skills."}, nil
	}
	if example != "" {
		fmt.Fprintf(&b, "\nName one in a message, as in `$%s`, and I follow it.", example)
	}
	return Reply{Text: b.String()}, nil
}

// firstSentence returns the first sentence of a description.
func firstSentence(s string) string {
	const most = 200
	if first, _, ok := strings.Cut(s, ". "); ok {
		s = first + "."
	}
	return plaintext.Clip(s, most)
}

// exportPause is how long a person must wait between two exports. An export reads all of their
// data.
const exportPause = time.Hour

// export runs /export: a background task sends the archive. The audit log records who asked for it.
func (k knowledge) export(ctx context.Context, r *Request) (Reply, error) {
	if r.Message.Group {
		return Reply{Text: "Other people read this chat. Send me `/export` in our direct chat."}, nil
	}
	if !k.Sessions.TakesFiles(r.Message.From) {
		return Reply{Text: fmt.Sprintf("I can't send files here. On the gateway's machine, `gateway "+
			"export %d` writes everything into a folder.", r.Message.Person)}, nil
	}
	entry := audit.NewEntry(r.Message, "exported", "their data")
	last, err := audit.Last(k.DB.Read(ctx), entry)
	if err != nil {
		return Reply{}, err
	}
	// A longer wait means that the clock was set back since.
	if wait := last.Add(exportPause).Sub(k.Now()); wait > 0 && wait <= exportPause {
		return Reply{Text: fmt.Sprintf("I have made an export for you less than an hour ago. "+
			"Please ask again in %s.", background.Count(int(wait/time.Minute)+1, "minute"))}, nil
	}
	return k.later(ctx, r, background.Work{Kind: background.Export, Scope: r.scope()}, "", entry)
}

const sayForget = "This erases all that I know about you: our conversations in direct chats, on " +
	"all your platforms, your files, what I remember, and who you are to me. What you said in " +
	"groups stays with the groups. This can't be undone. Afterwards you are a stranger to " +
	"me.\n\nTo do it, send `/forget me now`. `/export` sends you a copy first."

const sayForgotten = "I have forgotten you. It takes a moment until the last traces are gone."

// forget answers /forget.
func (k knowledge) forget(ctx context.Context, r *Request) (Reply, error) {
	switch args := strings.Join(strings.Fields(strings.ToLower(r.Args)), " "); {
	case r.Message.Group:
		return Reply{Text: "Please write that to me in a direct chat."}, nil
	case args == "me":
		return Reply{Text: sayForget, Buttons: []bus.Button{
			{Label: "Erase everything", Text: "/forget me now"}}}, nil
	case args != "me now":
		return Reply{Text: "`/forget me` erases all that I know about you. To have a single fact " +
			"forgotten, just tell me."}, nil
	}
	erasure := k.Sessions.Forget(bus.Received{Seq: r.Seq, Message: r.Message})
	return r.Commit(ctx, func(tx *store.Tx) (Reply, error) {
		return Reply{}, erasure.Erase(tx, r.answer(Reply{Text: sayForgotten}))
	}, erasure.Cancel, k.Background.Wake)
}
