//go:build unix

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/store"
)

// The documents of the personas in these tests.
const (
	pirateSoul = "You are a pirate with a parrot."
	pirateShip = "The ship is called Pearl."
	tutorSoul  = "You are a patient tutor."
)

// persona writes a document of a persona.
func (w *world) persona(name, document, text string) {
	w.t.Helper()
	dir := filepath.Join(w.home, "personas", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, document), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// crew writes the documents of the personas. It returns the configuration of the personas and of
// the model that one of them uses.
func (w *world) crew() string {
	w.persona("pirate", "SOUL.md", pirateSoul)
	w.persona("pirate", "SHIP.md", pirateShip)
	w.persona("tutor", "SOUL.md", tutorSoul)
	w.model.Keep(openaitest.DefaultKeep)
	return fmt.Sprintf("\n[models.small]\nmodel = \"small-model\"\nbase_url = %q\n"+
		"[personas.tutor]\n[personas.pirate]\nname = \"Bart\"\nmodel = \"small\"\n", w.model.URL)
}

// personaOf returns the persona whose document is in the system prompt of r, or "".
func personaOf(r openaitest.Request) string {
	for name, soul := range map[string]string{"pirate": pirateSoul, "tutor": tutorSoul} {
		if strings.Contains(r.Messages[0].Content, soul) {
			return name
		}
	}
	return ""
}

// says reports whether a message of a person in r contains text.
func says(r openaitest.Request, text string) bool {
	return slices.ContainsFunc(r.Messages, func(m openaitest.Message) bool {
		return m.Role == "user" && strings.Contains(m.Content, text)
	})
}

// lacks reports whether one of texts says that there is no tool with this name. It undoes the
// escapes of some platforms.
func lacks(texts []string, name string) bool {
	plain := strings.NewReplacer(`\`, "", "&#34;", `"`, "&quot;", `"`)
	return slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(plain.Replace(text), "tool \""+name+"\"")
	})
}

// TestPersonas checks on each platform that a group has the persona, the model and the tools of
// its policy, and that direct chats of the same account have those of another policy. A withheld
// tool can't be called by its name, through more_tools, by a job or by a sub-agent. A tool that
// is withheld from a person is withheld in the group and in their direct chat.
func TestPersonas(t *testing.T) {
	t.Parallel()
	w, platforms := joinPlatforms(t, "access = \"open\"\n", followOrders)
	whatsApp := platforms["whatsapp"].(*onWhatsApp)
	w.configure(w.crew() + fmt.Sprintf(`tools = ["list_dir", "time", "schedule", "spawn", "write_file",
	"apply_patch"]
[policies.everybody]
accounts = ["telegram", "discord", "whatsapp"]
persona = "tutor"
deny = ["notebook_edit"]
[policies.groups]
chats = ["telegram/%d", "discord/30", "whatsapp/%s"]
persona = "pirate"
deny = ["write_file", "apply_*"]
[policies.bob]
people = ["telegram/8", "discord/8", "whatsapp/+%s"]
deny = ["list_dir"]
`, groupID, whatsApp.garden, whatsApp.bob.Phone()))
	w.run()
	w.onAll(platforms, func(s *scene) {
		inGroup := func(text, answer string) {
			s.t.Helper()
			s.sayGroup(text, true)
			s.until(answer, func() bool { return lacks(s.group(), answer) })
		}
		inGroup(`DO write_file {"path":"`+s.name+`.txt","content":"x"}`, "write_file")
		inGroup(`DO more_tools {"tool":"apply_patch","arguments":"{\"patch\":\"x\"}"}`,
			"apply_patch")
		inGroup(`DO list_dir {"path":"."}`, "list_dir")
		inGroup(`DO schedule {"action":"add","kind":"task","name":"look","at":"in 1s",`+
			`"text":"DO glob {\"pattern\":\"*\"}"}`, "glob")
		inGroup(`DO spawn {"label":"search","task":"DO grep {\"pattern\":\"x\"}"}`,
			"grep")

		s.sayStranger(`DO list_dir {"path":"."}`)
		s.until("an answer to Bob", func() bool { return lacks(s.stranger(), "list_dir") })
		s.ask(`DO list_dir {"path":"."}`, "the tools said")
		s.say(`DO more_tools {"tool":"notebook_edit","arguments":"{\"path\":\"x\"}"}`)
		s.until("a refusal", func() bool { return lacks(s.direct(), "notebook_edit") })
		s.ask("/status", "Persona: tutor")
		if lacks(s.direct(), "list_dir") {
			s.t.Errorf("%s: Ann lacks the tool that is withheld from Bob: %q", s.name, s.direct())
		}
	})
	w.wantPersonas()
}

// wantPersonas checks the requests of [TestPersonas].
func (w *world) wantPersonas() {
	w.t.Helper()
	counts := make(map[string]int)
	for _, r := range w.model.Requests() {
		system := r.Messages[0].Content
		isTask := strings.Contains(system, "You work for Bart")
		kind := "direct"
		switch {
		case isTask:
			kind = "task"
		case strings.Contains(system, "Chat: the group"):
			kind = "group"
		}
		counts[kind]++
		got := fmt.Sprint(kind, " ", personaOf(r), " ", r.Model, " ",
			strings.Contains(system, "# Bart"), strings.Contains(system, pirateShip))
		want := map[string]string{
			"direct": "direct tutor fake-model false false",
			"group":  "group pirate small-model true true",
			"task":   "task  small-model true false",
		}[kind]
		if got != want {
			w.t.Errorf("a request is %q, want %q; its prompt is\n%s", got, want, system)
		}
		for _, name := range []string{"write_file", "apply_patch", "glob", "grep", "list_dir"} {
			if kind != "direct" && r.HasTool(name) {
				w.t.Errorf("a request (%s) offers %s", kind, name)
			}
		}
	}
	if counts["direct"] == 0 || counts["group"] == 0 || counts["task"] == 0 {
		w.t.Errorf("there were the requests %v, want some of each kind", counts)
	}
}

// groupPersona returns a policy that gives the group a persona. Other chats keep their usual one.
func groupPersona(persona string) string {
	return fmt.Sprintf("[policies.garden]\nchats = [\"telegram/%d\"]\npersona = %q\n", groupID,
		persona)
}

// TestPersonaSurvivesKill checks that a turn which a kill interrupts keeps its persona, even if
// the configuration changes the persona of its chat meanwhile. The next turn has the new persona.
func TestPersonaSurvivesKill(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}, 8), make(chan struct{})
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		if r.Messages[len(r.Messages)-1].Role != "tool" {
			return followOrders(r)
		}
		entered <- struct{}{}
		<-release
		return say("it is late")
	}})
	th := openTelegram(w.telegram, w.url)
	account := quiet + fmt.Sprintf("\ngroups = [%d]", groupID) + w.crew()
	w.configure(account + groupPersona("pirate"))
	p := w.start()
	p.ready()
	th.sayGroup("DO time {}", true)
	until(t, "the model to be asked again", entered)
	p.kill()
	close(release)
	w.configure(account + groupPersona("tutor") + "deny = [\"time\"]\n")
	w.start().ready()
	w.await("the answer", func() bool { return heard(w, groupID, "it is late") })
	th.sayGroup("and now?", true)
	w.await("the next answer", func() bool { return heard(w, groupID, "and now?") })
	w.look(func(db *store.DB) {
		for _, rows := range []string{"persona = 'pirate'", "persona = 'tutor'"} {
			if n := w.count(db, "turns WHERE "+rows); n != 1 {
				t.Errorf("there are %d turns with %s, want 1", n, rows)
			}
		}
	})
	for _, r := range w.model.Requests() {
		want, model := "pirate", "small-model"
		if says(r, "and now?") {
			want, model = "tutor", "fake-model"
		}
		if got := personaOf(r); got != want || r.Model != model {
			t.Errorf("%s was asked as %q, want %s as %q", r.Model, got, model, want)
		}
	}
}

// TestPersonaReload checks that changes of personas, policies and documents apply from the next
// message on, even if there were none before. A mistake in the file changes nothing.
func TestPersonaReload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	th := openTelegram(w.telegram, w.url)
	account := quiet + fmt.Sprintf("\ngroups = [%d]", groupID)
	w.configure(account)
	p := w.start()
	p.ready()
	asked := 0
	want := func(persona, model, also string) {
		t.Helper()
		asked++
		text := fmt.Sprintf("question %d", asked)
		th.sayGroup(text, true)
		w.await("an answer", func() bool { return heard(w, groupID, text) })
		list := w.model.Requests()
		r := list[len(list)-1]
		if got := personaOf(r); got != persona || r.Model != model ||
			!strings.Contains(r.Messages[0].Content, also) {
			t.Errorf("question %d: %s was asked as %q, want %s as %q with %q in\n%s", asked, r.Model, got,
				model, persona, also, r.Messages[0].Content)
		}
	}
	account += w.crew()
	want("", "fake-model", "# gateway")
	w.configure(account + groupPersona("pirate"))
	p.says(reloaded, 1)
	want("pirate", "small-model", pirateShip)
	w.persona("pirate", "SHIP.md", "The ship has sunk.")
	want("pirate", "small-model", "The ship has sunk.")
	w.configure(account + groupPersona("tuto"))
	p.says(notReloaded, 1)
	p.shows(`policies.garden.persona: there is no [personas.tuto]; did you mean \"tutor\"?`)
	want("pirate", "small-model", "# Bart")
	w.configure(account + groupPersona("tutor") + "model = \"small\"\n")
	p.says(reloaded, 2)
	want("tutor", "small-model", "# gateway")
	w.configure(account)
	p.says(reloaded, 3)
	want("", "fake-model", "# gateway")
}

// TestPolicyFollowsGroup checks that the policy of a group still applies after Telegram has
// turned the group into a supergroup with another id, also to its jobs and after a kill. The
// owner is told the new id.
func TestPolicyFollowsGroup(t *testing.T) {
	t.Parallel()
	const group, supergroup = -42, -1009876543210
	w := newWorld(t, worldOptions{answer: followOrders})
	w.configure(quiet + fmt.Sprintf(`
owners = ["7"]
groups = ["*"]
[policies.team]
chats = ["telegram/%d"]
deny = ["list_dir"]
`, group))
	w.telegram.AddGroup(group, "Garden")
	p := w.start()
	p.ready()
	told := func(chat int64, text string) {
		t.Helper()
		before := len(w.texts(chat))
		w.telegram.Say(chat, annID, text)
		w.await("a refusal after "+text, func() bool {
			texts := w.texts(chat)
			return len(texts) > before && lacks(texts[before:], "list_dir")
		})
	}
	w.wantReply(annID, `DO list_dir {"path":"."}`, "the tools said")
	told(group, `@gateway_bot DO list_dir {"path":"."}`)
	w.telegram.Migrate(group, supergroup)
	told(supergroup, `@gateway_bot DO list_dir {"path":"."}`)
	told(supergroup, `@gateway_bot DO schedule {"action":"add","kind":"task","name":"look",`+
		`"at":"in 1s","text":"DO list_dir {\"path\":\".\"}"}`)
	w.await("a message to the owner", func() bool {
		return has(w.texts(annID), fmt.Sprint(supergroup))
	})
	p.kill()
	p = w.start()
	p.ready()
	told(supergroup, `@gateway_bot DO list_dir {"path":"."}`)
	out, err := w.gateway("security")
	if !strings.Contains(out, "GS031") || !strings.Contains(out, fmt.Sprint(supergroup)) {
		t.Errorf("gateway security: %v\n%s\nwant GS031 with the new id", err, out)
	}
	p.kill()
}
