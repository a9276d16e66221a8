//go:build unix

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"go.mau.fi/whatsmeow/types"

	"gateway/agent/llm/openai/openaitest"
)

// A personaChat is one of three places on each platform in which the agent has a different persona:
// the group of the pirate, the group of the tutor, and Ann's direct chat. The texts of a
// personaChat must be in its requests on all platforms, and in no request of another personaChat.
type personaChat struct {
	name  string
	title string   // of the group; empty for the direct chat
	texts []string // parts of its documents and its skill
	tool  string   // a tool that no other personaChat has
}

var corners = []personaChat{
	{"pirate", "Ship", []string{pirateSoul, pirateShip, "steer by the stars"}, "list_dir"},
	{"tutor", "School", []string{tutorSoul, "mark the homework"}, "schedule"},
	{"direct", "", []string{"You are nobody in particular.", "water the flowers"}, "write_file"},
}

// place returns the line with which each message says in which personaChat it was written.
func (c *personaChat) place() string { return "written in the chat " + c.name }

// personaChatsOf returns the personaChats whose messages a request has.
func personaChatsOf(r openaitest.Request) (list []*personaChat) {
	for i := range corners {
		if strings.Contains(string(r.Body), corners[i].place()) {
			list = append(list, &corners[i])
		}
	}
	return list
}

// openPersonaChats creates the groups of the personaChats on each platform, and returns their ids
// by personaChat and platform.
func openPersonaChats(platforms map[string]chatPlatform) map[string]map[string]string {
	tg, dc := platforms["telegram"].(*onTelegram), platforms["discord"].(*onDiscord)
	wa := platforms["whatsapp"].(*onWhatsApp)
	groups := make(map[string]map[string]string)
	for i, c := range corners[:2] {
		id := int64(-101 - i)
		tg.AddGroup(id, c.title)
		channel := strconv.Itoa(41 + i)
		dc.AddChannel("10", channel, c.title)
		groups[c.name] = map[string]string{"telegram": strconv.FormatInt(id, 10), "discord": channel,
			"whatsapp": wa.AddGroup(c.title, false, wa.bob)}
	}
	return groups
}

// sayIn makes Bob write to the bot in a group.
func (s *scene) sayIn(group, text string) {
	s.t.Helper()
	switch o := s.chatPlatform.(type) {
	case *onTelegram:
		id, _ := strconv.ParseInt(group, 10, 64) // group is an id from openPersonaChats
		o.Say(id, bobID, "@gateway_bot "+text)
	case *onDiscord:
		o.Say(group, "8", "<@99> "+text)
	case *onWhatsApp:
		_, err := o.bob.Mention(o.t.Context(), group, "@"+o.BotLID()+" "+text,
			types.NewJID(o.BotLID(), types.HiddenUserServer))
		o.must(err)
	}
}

// readIn returns the messages of the bot in a group.
func (s *scene) readIn(group string) []string {
	switch o := s.chatPlatform.(type) {
	case *onTelegram:
		id, _ := strconv.ParseInt(group, 10, 64) // group is an id from openPersonaChats
		return o.read(id, 0)
	case *onDiscord:
		return o.read(group)
	case *onWhatsApp:
		return o.read(o.bob, group)
	}
	return nil
}

// sayFrom makes the person of a personaChat write to the bot.
func (s *scene) sayFrom(c *personaChat, groups map[string]map[string]string, text string) {
	s.t.Helper()
	text += "\n" + c.place()
	if c.title == "" {
		s.say(text)
	} else {
		s.sayIn(groups[c.name][s.name], text)
	}
}

// readFrom returns the messages of the bot in a personaChat.
func (s *scene) readFrom(c *personaChat, groups map[string]map[string]string) []string {
	if c.title == "" {
		return s.direct()
	}
	return s.readIn(groups[c.name][s.name])
}

// TestPersonasApart checks that two groups with different personas and a direct chat stay apart
// on each platform. All of them talk at the same time, and a kill -9 comes while all wait for the
// model. No request of one contains a document, memory, tool or skill of another.
func TestPersonasApart(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}, 64), make(chan struct{})
	var killed atomic.Bool
	w, platforms := joinPlatforms(t, "access = \"open\"\n",
		func(r openaitest.Request) openaitest.Reply {
			if r.Messages[len(r.Messages)-1].Role != "tool" ||
				!strings.Contains(lastUser(r), "DO time") {
				return followOrders(r)
			}
			if !killed.Load() {
				entered <- struct{}{}
				<-release
			}
			return say("it is late")
		})
	groups := openPersonaChats(platforms)
	w.setCorners(platforms["whatsapp"].(*onWhatsApp), groups)
	p := w.start()
	p.ready()
	w.furnish()
	// ask writes to all personaChats before it waits for the first answer.
	ask := func(s *scene, text string, answered func(c *personaChat, list []string) bool) {
		for i := range corners {
			s.sayFrom(&corners[i], groups, strings.ReplaceAll(text, "CORNER",
				corners[i].name+"-"+s.name))
		}
		for i := range corners {
			s.until("the answers to "+text, func() bool {
				return answered == nil || answered(&corners[i], s.readFrom(&corners[i], groups))
			})
		}
	}
	say := func(text string) func(*personaChat, []string) bool {
		return func(_ *personaChat, list []string) bool { return has(list, text) }
	}
	w.onAll(platforms, func(s *scene) {
		ask(s, `DO remember {"key":"word","value":"word-CORNER.","pinned":true}`, say("the tools said"))
		ask(s, "DO time {}", nil)
	})
	for range len(platforms) * len(corners) {
		until(t, "the requests of all corners", entered)
	}
	p.kill()
	killed.Store(true)
	close(release)
	w.start().ready()
	w.onAll(platforms, func(s *scene) {
		for i := range corners {
			s.until("the answers after the kill", func() bool {
				return has(s.readFrom(&corners[i], groups), "it is late")
			})
		}
		ask(s, "what is the word?", say("what is the word?"))
		ask(s, `DO list_dir {"path":"skills"}`+"\n"+`DO schedule {}`+"\nDO write_file {}\n"+
			`DO recall {"query":"word"}`+readSkills, func(c *personaChat, list []string) bool {
			return !slices.ContainsFunc(corners, func(other personaChat) bool {
				return other.name != c.name && !lacks(list, other.tool)
			})
		})
	})
	w.wantApart()
}

// readSkills orders the model to read the skills of all personaChats. Each personaChat may read
// only its own.
const readSkills = `
DO read_file {"path":"skills/sail/SKILL.md"}
DO read_file {"path":"skills/teach/SKILL.md"}
DO read_file {"path":"skills/garden/SKILL.md"}`

// groupList matches the line of an account's groups in the configuration.
var groupList = regexp.MustCompile(`(?m)^groups = .*$`)

// setCorners writes the configuration of the personaChats.
func (w *world) setCorners(o *onWhatsApp, groups map[string]map[string]string) {
	w.t.Helper()
	w.config = groupList.ReplaceAllString(w.config, `groups = ["*"]`)
	w.model.Keep(10_000)
	chats := func(name string) string {
		return fmt.Sprintf("[\"telegram/%s\", \"discord/%s\", \"whatsapp/%s\"]",
			groups[name]["telegram"], groups[name]["discord"], groups[name]["whatsapp"])
	}
	w.configure(fmt.Sprintf(`
[personas.pirate]
tools = ["time", "remember", "recall", "read_file", "list_dir"]
skills = ["sail"]
[personas.tutor]
tools = ["time", "remember", "recall", "read_file", "schedule"]
skills = ["teach"]
[policies.ship]
chats = %s
persona = "pirate"
[policies.school]
chats = %s
persona = "tutor"
[policies.ann]
people = ["telegram/7", "discord/7", "whatsapp/+%s"]
tools = ["time", "remember", "recall", "read_file", "write_file"]
skills = ["garden"]
`, chats("pirate"), chats("tutor"), o.ann.Phone()))
}

// furnish writes the documents and the skills of the personaChats.
func (w *world) furnish() {
	w.t.Helper()
	w.persona("pirate", "SOUL.md", pirateSoul)
	w.persona("pirate", "SHIP.md", pirateShip)
	w.persona("tutor", "SOUL.md", tutorSoul)
	shared := filepath.Join(w.home, "shared")
	files := map[string]string{"SOUL.md": corners[2].texts[0]}
	for name, does := range map[string]string{
		"sail": corners[0].texts[2], "teach": corners[1].texts[1], "garden": corners[2].texts[1],
	} {
		files["skills/"+name+"/SKILL.md"] =
			fmt.Sprintf("---\nname: %s\ndescription: %s\n---\nTake care.\n", name, does)
	}
	for name, text := range files {
		file := filepath.Join(shared, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		if err == nil {
			err = os.WriteFile(file, []byte(text), 0o600)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// wantApart checks the requests of [TestPersonasApart]: on each platform, each personaChat has its
// own documents, skill, tool and memory, and those of no other personaChat.
func (w *world) wantApart() {
	w.t.Helper()
	word := regexp.MustCompile(`word-[a-z]+-[a-z]+`)
	seen := make(map[string]bool)
	for _, r := range w.model.Requests() {
		chats := personaChatsOf(r)
		if len(chats) != 1 {
			w.t.Errorf("a request has the messages of %d chats: %s", len(chats), r.Body)
			continue
		}
		c, name := chats[0], platformOf(r)
		body := string(r.Body)
		for i := range corners {
			other := &corners[i]
			for _, text := range other.texts {
				found := strings.Contains(body, text)
				if found {
					seen[c.name+name+text] = true
				}
				if found && other.name != c.name {
					w.t.Errorf("a request of the %s has %q of the %s", c.name, text, other.name)
				}
			}
			if r.HasTool(other.tool) != (other.name == c.name) {
				w.t.Errorf("a request of the %s has the tool %s: %v", c.name, other.tool,
					r.HasTool(other.tool))
			}
		}
		for _, found := range word.FindAllString(body, -1) {
			if want := "word-" + c.name + "-" + name; found != want {
				w.t.Errorf("a request of the %s on %s knows %s", c.name, name, found)
			}
			if strings.Contains(r.Messages[0].Content, found) {
				seen[c.name+name] = true
			}
		}
	}
	for _, c := range corners {
		for _, name := range []string{"telegram", "discord", "whatsapp"} {
			for _, text := range append([]string{""}, c.texts...) {
				if !seen[c.name+name+text] {
					w.t.Errorf("no request of the %s on %s has what belongs there: %q", c.name, name, text)
				}
			}
		}
	}
}
