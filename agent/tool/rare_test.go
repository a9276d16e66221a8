package tool

import (
	"fmt"
	"strings"
	"testing"

	"gateway/agent/llm"
	"gateway/bus"
)

// names returns the names of the tools that r describes to a model.
func names(r *Registry) string {
	var list []string
	for _, s := range r.Specs() {
		list = append(list, s.Name)
	}
	return strings.Join(list, " ")
}

// A rare tool has no description in the list of tools. The tool more_tools names and explains it.
func TestRareTools(t *testing.T) {
	carve := echo("carve")
	carve.Rare, carve.MinRole = "carves", bus.User
	burn := echo("burn")
	burn.Rare = "burns"
	r := newRegistry(t, echo("zip"), carve, echo("ask"), burn)
	if got := names(r); got != "ask more_tools zip" {
		t.Errorf("a model is told of %s", got)
	}
	if more := r.Specs()[1]; !strings.HasSuffix(more.Description, "\n- burn: burns\n- carve: carves") {
		t.Errorf("more_tools is described by %q", more.Description)
	}
	if got := names(r.For(bus.Guest)); got != "ask burn zip" {
		t.Errorf("for a guest, who has one rare tool, a model is told of %s", got)
	}

	explain := func(name string) (string, error) {
		args, err := r.Arguments(MoreName, `{"tool":"`+name+`"}`)
		if err != nil {
			t.Fatal(err)
		}
		more, err := r.Lookup(MoreName)
		if err != nil {
			t.Fatal(err)
		}
		got, err := more.Run(t.Context(), Call{Args: args})
		return got.Text, err
	}
	want := carve.Description + "\nArguments: " + string(carve.Schema)
	if got, err := explain("carve"); got != want || err != nil {
		t.Errorf("carve is explained by %q, %v; want %q", got, err, want)
	}
	if got, err := explain("zip"); err == nil {
		t.Errorf("zip, which every request describes, is explained by %q", got)
	}

	if err := r.Set("more", []Tool{echo(MoreName)}); err == nil {
		t.Error("a second tool may be called more_tools")
	}
	_, err := r.Arguments("carve", `{"limit":"many"}`)
	if err == nil || !strings.HasSuffix(err.Error(), "\nArguments of carve: "+string(carve.Schema)) {
		t.Errorf("wrong arguments of a rare tool: %v; want its schema, too", err)
	}
}

// A call of a rare tool through more_tools counts as a call of that tool.
func TestDirect(t *testing.T) {
	carve := echo("carve")
	carve.Rare = "carves"
	burn := echo("burn")
	burn.Rare = "burns"
	r := newRegistry(t, carve, echo("zip"), burn)
	for written, want := range map[string]string{
		`{"tool":"carve","arguments":"{\"path\":\"a\"}"}`:                   `carve {"path":"a"}`,
		`{"tool":"carve","arguments":{"path":"a"}}`:                         `carve {"path":"a"}`,
		"```json\n{\"tool\":\"carve\",\"arguments\":{\"path\":\"a\"}}\n```": `carve {"path":"a"}`,
		`{"tool":"zip","arguments":"{}"}`:                                   `zip {}`,
		`{"tool":"carve"}`:                                                  "",
		`{"tool":"carve","arguments":" "}`:                                  "",
		`{"tool":"crave","arguments":"{}"}`:                                 "",
		`{"tool":"more_tools","arguments":"{}"}`:                            "",
		`{"tool":7,"arguments":7}`:                                          "",
		`{`:                                                                 "",
	} {
		calls := []llm.ToolCall{{ID: "1", Name: "zip", Arguments: written},
			{ID: "2", Name: MoreName, Arguments: written}}
		got := r.Direct(calls)
		if want == "" {
			want = MoreName + " " + written
		}
		if text := got[1].Name + " " + got[1].Arguments; text != want || got[1].ID != "2" {
			t.Errorf("%s is %s, want %s", written, text, want)
		}
		if got[0].Name != "zip" || got[0].Arguments != written || calls[1].Name != MoreName {
			t.Errorf("%s: other calls are changed: %v, %v", written, got, calls)
		}
	}
}

// In the history, the model reads a call of a rare tool as a call of more_tools. It can make each
// call that it reads.
func TestOffered(t *testing.T) {
	carve := echo("carve")
	carve.Rare = "carves"
	burn := echo("burn")
	burn.Rare = "burns"
	calls := func(list ...llm.ToolCall) []llm.Message {
		return []llm.Message{{Role: llm.User, Text: "hi"}, {Role: llm.Assistant, ToolCalls: list}}
	}
	said := calls(llm.ToolCall{ID: "1", Name: "zip", Arguments: "{}"},
		llm.ToolCall{ID: "2", Name: "carve", Arguments: `{"path":"a <b>"}`},
		llm.ToolCall{ID: "3", Name: "burn"}, llm.ToolCall{ID: "4", Name: "gone", Arguments: "{}"})
	r := newRegistry(t, carve, echo("zip"), burn)
	got := r.Offered(said)
	text := ""
	for _, c := range got[1].ToolCalls {
		text += c.ID + " " + c.Name + " " + c.Arguments + "\n"
	}
	const want = "1 zip {}\n" +
		`2 more_tools {"tool":"carve","arguments":"{\"path\":\"a \u003cb\u003e\"}"}` + "\n" +
		`3 more_tools {"tool":"burn","arguments":"{}"}` + "\n4 gone {}\n"
	if text != want {
		t.Errorf("the model reads %s, want %s", text, want)
	}
	back := r.Direct(got[1].ToolCalls)
	if back[1].Name != "carve" || back[1].Arguments != `{"path":"a <b>"}` || back[2].Name != "burn" {
		t.Errorf("called again they are %v", back)
	}
	if said[1].ToolCalls[1].Name != "carve" {
		t.Error("the transcript is changed")
	}
	if one := newRegistry(t, carve); one.Offered(said)[1].ToolCalls[1].Name != "carve" {
		t.Error("a tool that each request describes is not called by itself")
	}
}

// Providers refuse a request with more than 128 tools. Beyond that, tools of MCP servers are rare.
func TestTooManyTools(t *testing.T) {
	var added []Tool
	for n := range 200 {
		added = append(added, echo(fmt.Sprintf("mcp_%03d", n)))
	}
	r := newRegistry(t, echo("zip"), echo("ask"))
	if err := r.Set("mcp", added); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*Registry{"all": r, "owner": r.For(bus.Owner)} {
		got := strings.Fields(names(r))
		if len(got) != 127 || got[0] != "ask" || got[124] != "mcp_123" || got[125] != MoreName ||
			got[126] != "zip" {
			t.Errorf("%s: a model is told of %d tools: %s", name, len(got), got)
		}
		calls := r.Direct([]llm.ToolCall{{Name: MoreName,
			Arguments: `{"tool":"mcp_199","arguments":"{}"}`}})
		if calls[0].Name != "mcp_199" {
			t.Errorf("%s: the call is %v", name, calls)
		}
		back := r.Offered([]llm.Message{{Role: llm.Assistant, ToolCalls: calls}})
		if c := back[0].ToolCalls[0]; c.Name != MoreName {
			t.Errorf("%s: the model reads the call as %v", name, c)
		}
	}
	if err := r.Set("mcp", added[:100]); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(names(r)); len(got) != 102 {
		t.Errorf("a model is told of %d tools, want 102", len(got))
	}
}
