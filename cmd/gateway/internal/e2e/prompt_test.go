//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"gateway/agent/llm/openai/openaitest"
	"gateway/cmd/gateway/internal/config"
)

// TestPromptSize checks that the beginning of every request (the system prompt and the tools) is
// short and describes every tool. Every request costs money and time for this part. The sizes are
// in characters of JSON, as deploy/bench prints them.
func TestPromptSize(t *testing.T) {
	t.Parallel()
	const mostSystem, mostTools = 4000, 8000
	var once sync.Once
	var first openaitest.Request
	answer := func(r openaitest.Request) openaitest.Reply {
		once.Do(func() { first = r })
		return repeat(r)
	}
	w := newWorld(t, worldOptions{sandbox: "auto", answer: answer})
	w.run()
	w.answers(annID, "hello")
	var request struct {
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(first.Body, &request); err != nil || len(request.Messages) != 2 {
		t.Fatalf("the first request has %d messages, error %v", len(request.Messages), err)
	}
	system := utf8.RuneCount(request.Messages[0].Content) - len(w.home) // its length varies
	tools := utf8.RuneCount(request.Tools)
	t.Logf("system prompt: %d characters, tools: %d", system, tools)
	if system > mostSystem {
		t.Errorf("the system prompt has %d characters, want at most %d", system, mostSystem)
	}
	if tools > mostTools {
		t.Errorf("the tools have %d characters, want at most %d", tools, mostTools)
	}
	for _, name := range config.ToolNames() {
		described := slices.ContainsFunc(first.Tools, func(tool openaitest.Tool) bool {
			return tool.Name == name || strings.Contains(tool.Description, "\n- "+name+": ")
		})
		unconfigured := strings.HasSuffix(name, "_image") // no model for pictures
		if described && unconfigured {
			t.Errorf("the request describes %s, which is not configured", name)
		}
		if !described && !unconfigured && !strings.HasPrefix(name, "exec") { // there may be no sandbox
			t.Errorf("no tool of the request is or describes %s", name)
		}
	}
}

// TestDefaultDocuments checks that the agent has a character and rules from the start. The owner
// replaces them by editing the documents, or turns a document off by emptying it.
func TestDefaultDocuments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	w.model.Keep(openaitest.DefaultKeep)
	w.run()
	system := func(text string) string {
		w.reply(annID, text)
		requests := w.model.Requests()
		return requests[len(requests)-1].Messages[0].Content
	}
	first := system("hello")
	for _, want := range []string{"## SOUL.md\n\nFriendly, brief", "## AGENTS.md\n\n- If a tool",
		"## TOOLS.md\n\n- Find files"} {
		if !strings.Contains(first, want) {
			t.Errorf("the first prompt lacks %q", want)
		}
	}
	if strings.Contains(first, "<!--") || strings.Contains(first, "## USER.md") {
		t.Errorf("the first prompt has a form, or a note to people:\n%s", first)
	}
	soul := filepath.Join(w.home, "shared", "SOUL.md")
	text, err := os.ReadFile(soul)
	if err != nil || !strings.Contains(string(text), "Friendly, brief") {
		t.Errorf("the copy to edit has %q, %v", text, err)
	}
	writeFile(t, soul, []byte("Speak like a pirate.\n"))
	writeFile(t, filepath.Join(w.home, "shared", "TOOLS.md"), nil)
	second := system("hello again")
	if !strings.Contains(second, "## SOUL.md\n\nSpeak like a pirate.") ||
		strings.Contains(second, "Friendly, brief") || strings.Contains(second, "## TOOLS.md") ||
		!strings.Contains(second, "## AGENTS.md\n\n- If a tool") {
		t.Errorf("after the edits the prompt is\n%s", second)
	}
}

// TestRareTool checks that a model can use a rare tool after it has asked for the description.
func TestRareTool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: followOrders})
	w.run()
	w.telegram.Say(annID, annID, `DO more_tools {"tool":"notebook_edit"}`)
	w.await("the description of a rare tool", func() bool {
		return strings.Contains(strings.Join(w.texts(annID), ""), "Jupyter notebook")
	})
	w.telegram.Say(annID, annID, `DO more_tools {"tool":"time","arguments":{"zone":"Asia/Tokyo"}}`)
	w.await("its result", func() bool {
		return strings.Contains(strings.Join(w.texts(annID), ""), "Asia/Tokyo, JST")
	})
}

// TestNanobotArguments checks that tools accept the arguments that nanobot's TOOLS.md describes.
func TestNanobotArguments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: followOrders})
	w.run()
	w.wantReply(annID, `DO write_file {"path":"notes/tea.md","content":"green"}`, "was made")
	for _, x := range []struct{ call, want string }{
		{`list_dir {"path":".","recursive":true,"max_entries":50}`, "notes/tea.md"},
		{`glob {"pattern":"note*","entry_type":"dirs"}`, "notes/"},
		{`grep {"pattern":"gre","fixed_strings":true,"context_after":1}`, "tea.md"},
		{`schedule {"action":"add","message":"tea","cron_expr":"0 9 * * *","tz":"UTC"}`, "0 9 * * *"},
		{`schedule {"action":"add","message":"coffee","every_seconds":7200}`, "every 2h"},
		{`message {"content":"sent by hand"}`, "sent by hand"}, // the last one, as it sends two messages
	} {
		w.wantReply(annID, "DO "+x.call, x.want)
	}
}

// TestNanobotWorkingDir checks that exec accepts nanobot's name for the folder of a command, and
// that the person who approves the command sees the folder.
func TestNanobotWorkingDir(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the sandbox needs Linux")
	}
	t.Parallel()
	w := newWorld(t, worldOptions{answer: followOrders, sandbox: "auto",
		channel: quiet + fmt.Sprintf("\nowners = [%d]\n[tools.exec]\nowner = \"ask\"", annID)})
	w.run()
	w.wantReply(annID, `DO write_file {"path":"notes/tea.md","content":"Sencha"}`, "was made")
	asked := w.reply(annID, `DO exec {"command":"cat tea.md","working_dir":"notes"}`)
	if !strings.Contains(asked, "notes") || w.code(annID) == "" {
		t.Fatalf("the request is %q, want one with the folder", asked)
	}
	w.telegram.Say(annID, annID, "/approve "+w.code(annID))
	w.await("the result", func() bool {
		return strings.Contains(strings.Join(w.texts(annID), ""), "Sencha")
	})
}
