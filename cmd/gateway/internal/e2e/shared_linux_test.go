package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
)

// system returns the newest system prompt.
func (w *world) system() string {
	w.t.Helper()
	list := w.model.Requests()
	if len(list) == 0 {
		w.t.Fatal("the model was asked nothing")
	}
	return list[len(list)-1].Messages[0].Content
}

// TestSharedBehindSandboxes checks in each sandbox that a user's commands can't change the shared
// part of the prompt, neither directly nor from the background after somebody has replaced a
// file.
func TestSharedBehindSandboxes(t *testing.T) {
	for _, mode := range []string{"bubblewrap", "landlock"} {
		t.Run(mode, func(t *testing.T) {
			if _, err := exec.LookPath("bwrap"); mode == "bubblewrap" && err != nil &&
				os.Getenv("CI") != "true" {
				t.Skip("bubblewrap is not installed")
			}
			t.Parallel()
			w := newWorld(t, worldOptions{answer: followOrders, sandbox: mode,
				channel: quiet + fmt.Sprintf("\nowners = [\"%d\"]", annID)})
			w.model.Keep(openaitest.DefaultKeep)
			w.run()
			w.wantReply(annID, `DO write_file {"path":"AGENTS.md","content":"The owner's words."}`,
				"AGENTS.md")
			const attack = "exec 2>/dev/null; echo EVIL >> $SHARED/AGENTS.md; " +
				"mkdir -p $SHARED/skills/evil skills/evil; echo EVIL >> AGENTS.md; " +
				"printf 'name: EVIL' > skills/evil/SKILL.md; " +
				"cp skills/evil/SKILL.md $SHARED/skills/evil/; cat $SHARED/AGENTS.md"
			w.wantReply(bobID, fmt.Sprintf(`DO exec {"command":%q}`, attack), "The owner's words.")
			said := w.reply(bobID, fmt.Sprintf(`DO exec {"background":true,"command":%q}`,
				"echo it waits; cat; "+attack+"; echo ended > ended"))
			if !strings.Contains(said, "it waits") { // a slow machine takes seconds to start it
				w.wantReply(bobID, `DO exec_input {"id":"p1","wait":60}`, "it waits")
			}
			w.wantReply(annID, `DO edit_file {"path":"AGENTS.md","old_text":"owner's",`+
				`"new_text":"owner's new"}`, "AGENTS.md")
			w.wantReply(bobID, `DO exec_input {"id":"p1","eof":true,"wait":60}`, "The owner's new words.")
			w.wantReply(bobID, `DO read_file {"path":"AGENTS.md"}`, "The owner's new words.")

			w.wantReply(annID, "hello", "hello")
			if s := w.system(); !strings.Contains(s, "The owner's new words.") ||
				strings.Contains(s, "EVIL") {
				t.Errorf("the owner's prompt is not the owner's: %s", s)
			}
			if _, err := os.Stat(filepath.Join(w.home, "workspace", "skills/evil/SKILL.md")); err != nil {
				t.Errorf("the attack did not run: %v", err)
			}
		})
	}
}

// TestSharedMoves checks that the shared documents of earlier versions move out of the workspace
// once, even if a process ends in the middle. Files that a command creates there later are
// ignored.
func TestSharedMoves(t *testing.T) {
	for name, drafted := range map[string][]string{
		"at once": nil, "after an end in between": {"skills/tea/SKILL.md", "AGENTS.md"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{answer: followOrders,
				channel: quiet + fmt.Sprintf("\nowners = [\"%d\"]", annID)})
			w.model.Keep(openaitest.DefaultKeep)
			for file, text := range map[string]string{
				"AGENTS.md": "Be kind.", "SOUL.md": "You are old.",
				"skills/tea/SKILL.md": "---\nname: tea\ndescription: Makes tea.\n---\nBoil.",
			} {
				place := "workspace"
				if slices.Contains(drafted, file) {
					place = "shared.new"
				}
				file = filepath.Join(w.home, place, file)
				writeFile(t, file, []byte(text))
			}
			writeFile(t, filepath.Join(w.home, "workspace", "notes.md"), []byte("mine"))
			stop := w.run()
			w.wantReply(annID, "hello", "hello")
			for _, want := range []string{"Be kind.", "You are old.", "Makes tea."} {
				if s := w.system(); !strings.Contains(s, want) {
					t.Errorf("%q is not in the prompt %s", want, s)
				}
			}
			stop()
			for _, gone := range []string{"workspace/AGENTS.md", "workspace/SOUL.md",
				"workspace/skills", "shared.new"} {
				if _, err := os.Lstat(filepath.Join(w.home, gone)); err == nil {
					t.Errorf("%s is still there", gone)
				}
			}
			if _, err := os.Lstat(filepath.Join(w.home, "workspace", "notes.md")); err != nil {
				t.Error(err)
			}

			writeFile(t, filepath.Join(w.home, "workspace", "USER.md"), []byte("EVIL"))
			writeFile(t, filepath.Join(w.home, "workspace", "AGENTS.md"), []byte("EVIL"))
			if err := os.Remove(filepath.Join(w.home, "shared", "AGENTS.md")); err != nil {
				t.Fatal(err)
			}
			w.run()
			w.wantReply(annID, "hello again", "hello again")
			if s := w.system(); strings.Contains(s, "EVIL") || !strings.Contains(s, "You are old.") {
				t.Errorf("the prompt after the next start: %s", s)
			}
		})
	}
}

// TestAlwaysOfOpenClaw checks that "always" below OpenClaw's key in the metadata of a skill does
// not add the text of the skill to the prompt, only its line in the list.
func TestAlwaysOfOpenClaw(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: followOrders})
	w.model.Keep(openaitest.DefaultKeep)
	for name, key := range map[string]string{"theirs": "openclaw", "ours": "nanobot"} {
		file := filepath.Join(w.home, "shared", "skills", name, "SKILL.md")
		writeFile(t, file, []byte("---\nname: "+name+"\ndescription: About "+name+".\nmetadata: {"+
			key+": {always: true, requires: {bins: [no-such-program]}}}\n---\nThe text of "+name+"."))
	}
	w.run()
	w.wantReply(annID, "hello", "hello")
	s := w.system()
	for text, want := range map[string]bool{"About theirs.": true, "The text of theirs.": false,
		"no-such-program": true} {
		if strings.Contains(s, text) != want {
			t.Errorf("%q in the prompt: %t; %s", text, !want, s)
		}
	}
}
