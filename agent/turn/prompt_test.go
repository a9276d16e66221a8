package turn

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/bus/bustest"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/session"
	"gateway/skills"
	"gateway/store"
)

// prompt returns the system prompt of a direct chat that has no memory.
func (w *world) prompt() string {
	w.t.Helper()
	t := w.turn(bus.Session{})
	t.Address = at("a")
	parts, err := t.conv.systemParts(w.read(), session.Summary{})
	w.must(err)
	return parts.Text()
}

func TestSystemPromptParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tools(act("set", tool.Once, ""), act("look", tool.Pure, ""))
	w.env.Name, w.env.Workspace = "Robin", "/srv/robin"
	w.env.Location = time.FixedZone("Somewhere", 3600)
	w.env.FormatHints = map[string]string{"test": "Hint for test."}
	for i, name := range []string{"IDENTITY.md", "USER.md", "AGENTS.md", "SOUL.md"} {
		w.document(name, fmt.Sprintf("\n text %d \n\n", i))
	}
	w.document("SOUL.md", " \n")                      // empty
	w.document("OTHER.md", "is none of the prompt's") // not a known name
	w.must(os.Mkdir(filepath.Join(w.dir, "TOOLS.md"), 0o700))

	parts := strings.Split(w.prompt(), "\n\n---\n\n")
	identity := "# Robin\n\nYou are Robin, an assistant that people reach by chat.\n\n" +
		"## Format\n\nHint for test.\n" + prompt.Rules + prompt.ForeignRules
	runtime := "## Runtime Context\n\nChannel: test\nChat: direct\nTools: look, set\n" +
		"Time zone: Somewhere\n" +
		"Platform: " + prompt.Platform
	wantLines(t, "prompt", parts, []string{identity, "## AGENTS.md\n\ntext 2",
		"## USER.md\n\ntext 1", "## TOOLS.md\n\n[TOOLS.md can't be read: it is a directory]",
		"## IDENTITY.md\n\ntext 0", runtime})
}

// A sub-agent knows its task and how to work. It does not know who the agent and its people are.
func TestTaskPrompt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range document.PromptOrder {
		w.document(name, "text of "+name)
	}
	scope := memory.OfChat(at("a"))
	w.must(w.env.Documents.Save(scope, document.Memory, "their secret", ""))
	w.must(w.env.Documents.Save(scope, document.Soul, "their persona", ""))
	w.remembers(scope, memory.Fact{Key: "pin", Value: "their fact", Pinned: true})
	run := w.turn(bus.Session{})
	run.Scope = scope
	run.trigger.Origin.Kind = bus.Task
	parts, err := run.conv.systemParts(w.read(), session.Summary{})
	w.must(err)
	text := parts.Text()
	for _, part := range []string{
		"You work for", "whole task", "text of AGENTS.md", "text of TOOLS.md",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("a sub-agent does not read %q", part)
		}
	}
	for _, part := range []string{
		"You are", "their", "text of SOUL.md", "text of USER.md", "memory/",
	} {
		if strings.Contains(text, part) {
			t.Errorf("a sub-agent reads %q:\n%s", part, text)
		}
	}
}

// An answer that consists of the mark HEARTBEAT_OK is not sent. Other text beside the mark is
// sent.
func TestSaidInSilence(t *testing.T) {
	t.Parallel()
	own, chat := &turn{}, &turn{}
	own.trigger.Origin = bus.Origin{Kind: bus.Job, Session: bustest.Session("x/s")}
	chat.trigger.Origin = bus.Origin{Kind: bus.Job}
	for text, want := range map[string]string{
		"HEARTBEAT_OK": "", " HEARTBEAT_OK.\n": "", "**HEARTBEAT_OK**": "", "`HEARTBEAT_OK`": "",
		"HEARTBEAT_OK\n\nHEARTBEAT_OK": "", "": "", "```\nHEARTBEAT_OK\n```": "", "…": "…",
		"\"Heartbeat_ok\"": "", "_HEARTBEAT\\_OK_!": "", "HEARTBEAT_OK ✅": "", "🎂": "🎂",
		"**Open.** *HEARTBEAT_OK*":          "**Open.**",
		"HEARTBEAT_OK: \"open\" and (shut)": "\"open\" and (shut)",
		"The door is open.\n\nHEARTBEAT_OK": "The door is open.",
		"HEARTBEAT_OK The door is open.":    "The door is open.",
		"I say HEARTBEAT_OK if all is well": "I say HEARTBEAT_OK if all is well",
	} {
		if got := own.visibleText(text); got != want {
			t.Errorf("of %q people hear %q, want %q", text, got, want)
		}
		if got := chat.visibleText(text); got != text {
			t.Errorf("in the conversation people hear %q of %q", got, text)
		}
	}
}

// The sizes of the benchmark. The long chat is that of a person who has used the gateway for
// years.
const (
	benchSkills = 200
	benchFacts  = 150
	longChat    = 20_000 // messages
	shortChat   = 200
)

// settled returns the last turn of a chat in a world with many skills. The chat has the given
// number of messages. Messages that do not fit into the prompt have become notes.
func settled(b *testing.B, w *world, messages int) *runner {
	b.Helper()
	old := time.Now().Add(-time.Hour)
	for i := range benchSkills {
		name := fmt.Sprintf("skill-%d", i)
		w.must(os.MkdirAll(filepath.Join(w.dir, "skills", name), 0o700))
		file := "skills/" + name + "/SKILL.md"
		w.document(file, "---\nname: "+name+"\ndescription: What number "+
			fmt.Sprint(i)+" is for, and when to use it rather than another one.\n---\n\nDo it.\n")
		// Recently written files are always read again, because they may change again soon.
		w.must(os.Chtimes(filepath.Join(w.dir, file), old, old))
		w.must(os.Chtimes(filepath.Join(w.dir, filepath.Dir(file)), old, old))
	}
	w.must(os.Chtimes(filepath.Join(w.dir, "skills"), old, old))
	w.document("AGENTS.md", strings.Repeat("How to work here. ", 100))
	root, err := os.OpenRoot(w.dir)
	w.must(err)
	b.Cleanup(func() { w.must(root.Close()) })
	w.env.Skills = skills.New(&skills.Options{Shared: root})
	scope := memory.OfChat(at("0"))
	for i := range benchFacts {
		w.remembers(scope, memory.Fact{Key: fmt.Sprint("thing ", i), Pinned: i%10 == 0,
			Value: fmt.Sprintf("has the number %d and stands in room %d", i*7, i%30)})
	}
	w.tools(act("look", tool.Pure, "seen"), act("read_file", tool.Pure, "text"))
	w.settings.ContextWindow = 64_000 // the list of skills alone has 15,000 tokens
	last := w.talked(messages)
	for size := -1; size != last.conv.size(); { // until nothing more is removed
		size = last.conv.size()
		w.must(last.conv.restore(context.Background()))
	}
	return last
}

// talked writes a conversation into the transcript and returns its last turn, which has not
// ended.
func (w *world) talked(messages int) *runner {
	var last *runner
	key, now := session.KeyOf(at("0")), time.Now()
	w.tx(func(tx *store.Tx) error {
		for i := range messages / 2 {
			last = w.turn(key)
			last.Session, last.Address, last.Scope = key, at("0"), memory.OfChat(at("0"))
			_, err := session.BeginTurn(tx, &last.Turn, "", store.Lease{}, now,
				llm.Message{Role: llm.User, Text: stamp + fmt.Sprintf("Question %d, about thing %d. %s",
					i, i%benchFacts, strings.Repeat("It goes on. ", i%20))})
			if err == nil && i < messages/2-1 {
				err = session.EndTurn(tx, &last.Turn, session.Done, now, llm.Message{
					Role: llm.Assistant, Text: "An answer." + strings.Repeat(" More of it.", i%40)})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	last.First = false
	return last
}

// BenchmarkPrompt builds the prompt of a turn. It reads new messages of the transcript, the
// documents, the skills and the memory, and then creates the request. All caches are warm.
func BenchmarkPrompt(b *testing.B) {
	took := make(map[int]time.Duration)
	for _, messages := range []int{shortChat, longChat} {
		b.Run(fmt.Sprint("messages=", messages), func(b *testing.B) {
			t := settled(b, newWorld(b), messages)
			b.ReportAllocs()
			bytes := 0
			for b.Loop() {
				if err := t.conv.restore(b.Context()); err != nil {
					b.Fatal(err)
				}
				r := t.model.request(b.Context())
				bytes = prompt.Size(r)
			}
			took[messages] = b.Elapsed() / time.Duration(b.N)
			b.ReportMetric(float64(bytes), "prompt-bytes")
		})
	}
	b.Logf("long to short: %.2f", float64(took[longChat])/float64(max(took[shortChat], 1)))
}
