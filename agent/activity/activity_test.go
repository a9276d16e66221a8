package activity

import (
	"strings"
	"testing"

	"gateway/agent/llm"
)

func calls(names ...string) (list []llm.ToolCall) {
	for _, n := range names {
		list = append(list, llm.ToolCall{Name: n, Arguments: `{"url":"https://a.example/b"}`})
	}
	return list
}

func TestLine(t *testing.T) {
	for want, list := range map[string][]llm.ToolCall{
		"":                  nil,
		"🔎 reading a page":  calls("web_fetch"),
		"🔎 reading 3 pages": calls("web_fetch", "web_fetch", "web_fetch"),
		"🔎 searching the web, reading 2 pages": calls("web_search", "web_fetch", "web_search",
			"web_fetch"),
		"📄 looking through files":                         calls("glob", "grep", "list_dir"),
		"🔧 using `mcp_x_tool`":                            calls("mcp_x_tool", "mcp_x_tool"),
		"🔧 using `" + strings.Repeat("n", maxName) + "…`": calls(strings.Repeat("n", 5000)),
		"🔧 using `a 'b'`":                                 calls("a\n`b`"),
	} {
		if got := Line(list); got != want {
			t.Errorf("Line = %q, want %q", got, want)
		}
	}
}

func TestLog(t *testing.T) {
	var l Log
	if got := l.Add(Off, calls("exec")); got != "" {
		t.Errorf("off shows %q", got)
	}
	if got := l.Add(Compact, calls("exec", "exec")); got != "⚙️ running 2 commands" {
		t.Errorf("compact shows %q", got)
	}
	l.Add(Full, calls("web_fetch"))
	got := l.Add(Full, []llm.ToolCall{{Name: "x", Arguments: "{\"a\":\"`b`\",\n\"c\":1}"}})
	if want := "🔎 `web_fetch https://a.example/b`\n🔧 `x \"a\":\"'b'\", \"c\":1`"; got != want {
		t.Errorf("full shows %q, want %q", got, want)
	}
	for range 20 {
		got = l.Add(Full, []llm.ToolCall{{Name: "y", Arguments: strings.Repeat("ä", 500)}})
	}
	if n := strings.Count(got, "\n") + 1; n != maxCalls || len([]rune(got)) > maxCalls*(maxArgs+12) {
		t.Errorf("%d lines of %d runes are shown", n, len([]rune(got)))
	}
}
