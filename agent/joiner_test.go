package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm/llmtest"
	"gateway/agent/persona"
	"gateway/agent/tool"
	"gateway/agent/turn"
	"gateway/skills"
)

// joins puts a message of another sender into a chat while a turn runs there.
func (w *world) joins(chat, who, text string) {
	w.t.Helper()
	m := w.message(chat, text)
	m.Sender.ID = who
	w.put(m)
	w.settle()
}

// The limits of all authors of a turn apply to its sub-agents, and to the turns that get the
// outcomes of these sub-agents.
func TestPolicyOfJoinerInTask(t *testing.T) {
	inWorld(t, func(w *world) {
		sub := w.spawning(act("look", tool.Pure, always("seen")),
			act("change", tool.Once, always("changed")))
		w.opts.Places = &turn.Places{Table: persona.NewTable(nil, []persona.Policy{{ID: "p",
			People: []string{"test/b"}, Limits: persona.Limits{Deny: []string{"change"}}}})}
		release := make(chan struct{})
		w.model.Queue(held(uses("look"), release), spawns(false, "change it"), llmtest.Say("sent"),
			llmtest.Say("told"))
		sub.Queue(later(uses("change")), llmtest.Say("not possible"))
		w.start()
		w.joins("a", "b", "change it")
		w.sleep(time.Minute)
		w.joins("a", "c", "me too")
		close(release)
		w.wantQuiet()
		w.wantAnswers("a", "sent", "told")
		if got := offered(sub.Requests()[0]); !slices.Equal(got, []string{"look"}) {
			t.Errorf("the sub-agent has the tools %q, want look only", got)
		}
		if got := offered(w.request(4)); slices.Contains(got, "change") {
			t.Errorf("the turn with the outcome has the tools %q", got)
		}
	})
}

// If somebody who joins a turn may not use a skill, the turn may not use it from then on. The
// model can't read the skill in the message that joins, and tools can't open its folder.
func TestSkillsOfJoiner(t *testing.T) {
	inWorld(t, func(w *world) {
		var withheld [][]string
		look := act("look", tool.Pure, always("seen"))
		look.Run = func(_ context.Context, c tool.Call) (tool.Result, error) {
			withheld = append(withheld, c.Limits.Folders)
			return tool.Result{Text: "seen"}, nil
		}
		w.tools(look)
		shared := t.TempDir()
		w.must(os.MkdirAll(filepath.Join(shared, "skills", "vault"), 0o700))
		w.must(os.WriteFile(filepath.Join(shared, "skills", "vault", "SKILL.md"),
			[]byte("---\nname: vault\ndescription: Opens the vault.\n---\n\nTurn it left.\n"), 0o600))
		root, err := os.OpenRoot(shared)
		w.must(err)
		t.Cleanup(func() { w.must(root.Close()) })
		w.deps.Skills = skills.New(&skills.Options{Shared: root})
		w.opts.Places = &turn.Places{Table: persona.NewTable(nil, []persona.Policy{{ID: "p",
			People: []string{"test/b"}, Limits: persona.Limits{Skills: []string{"other"}}}})}
		release := make(chan struct{})
		w.model.Queue(held(uses("look"), release), uses("look"), llmtest.Say("done"))
		w.start()
		w.joins("a", "c", "hello")
		w.sleep(time.Minute)
		w.joins("a", "b", "use $vault")
		close(release)
		w.wantQuiet()
		w.wantAnswers("a", "done")
		for _, m := range w.request(2).Messages {
			if strings.Contains(m.Text, "Turn it left") || strings.Contains(m.Text, "Opens the vault") {
				t.Errorf("the model reads %q", m.Text)
			}
		}
		if len(withheld) != 2 || len(withheld[0]) != 0 ||
			!slices.Contains(withheld[1], "skills/vault") {
			t.Errorf("the folders %q are withheld from the calls, want skills/vault from the second",
				withheld)
		}
	})
}
