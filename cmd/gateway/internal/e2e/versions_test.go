package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/store"
)

// TestVersionsByAuthor checks that the versions of documents tell the changes of people from those
// of the agent, also for the shared documents, and that each change can be taken back alone.
func TestVersionsByAuthor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		last := r.Messages[len(r.Messages)-1]
		_, args, ok := strings.Cut(last.Content, "WRITE ")
		if last.Role == "tool" || !ok {
			return say("done")
		}
		return openaitest.Reply{ToolCalls: []openaitest.ToolCall{{ID: "c1", Name: "write_file",
			Arguments: args}}}
	}, channel: quiet + "\nowners = [\"7\"]"})
	w.run()
	w.wantReply(7, "hello", "done")
	edit := func(text, name string, folders ...string) {
		t.Helper()
		dir := filepath.Join(append([]string{w.home}, folders...)...)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	authors := regexp.MustCompile(`(?m)(\w{10}) .*\b(the agent|a person|the gateway) `)
	log := func(scope string) (ids, list []string) {
		for _, m := range authors.FindAllStringSubmatch(w.command("memory", "log", scope), -1) {
			ids, list = append(ids, m[1]), append(list, m[2])
		}
		return ids, list
	}

	edit("tea by hand\n", "MEMORY.md", "memory", "person-1")
	w.wantReply(7, `WRITE {"path":"memory/USER.md","content":"Ann\n"}`, "done")
	edit("Ann and Bob\n", "USER.md", "memory", "person-1")
	w.wantReply(7, `WRITE {"path":"memory/NOTES.md","content":"tea\n"}`, "done")
	w.eventually("the end of the turn", func(db *store.DB) bool { return w.count(db, "chores") == 0 })
	_, list := log("1")
	if want := []string{"the agent", "a person", "the agent", "a person"}; !slices.Equal(list, want) {
		t.Errorf("the memory was changed by %q, want %q", list, want)
	}

	w.wantReply(7, `WRITE {"path":"SOUL.md","content":"rude\n"}`, "done")
	edit("polite\n", "SOUL.md", "shared")
	w.wantReply(7, `WRITE {"path":"TOOLS.md","content":"none\n"}`, "done")
	ids, list := log("shared")
	want := []string{"the agent", "a person", "the agent", "the gateway"}
	if !slices.Equal(list, want) {
		t.Fatalf("the shared documents were changed by %q, want %q", list, want)
	}
	w.command("memory", "restore", "shared", ids[0])
	for name, want := range map[string]string{"SOUL.md": "polite", "TOOLS.md": "glob and grep"} {
		if text := w.command("memory", "show", "shared", name); !strings.Contains(text, want) {
			t.Errorf("%s is %q, want %q in it", name, text, want)
		}
	}
}
