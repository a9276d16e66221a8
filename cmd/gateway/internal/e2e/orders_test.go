package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"gateway/agent/llm/openai/openaitest"
)

// order matches an order to call a tool for [followOrders]: DO tool {"argument":…}
var order = regexp.MustCompile(`\bDO ([a-z_]+) (\{.*)`)

// followOrders is a model that follows every order in the newest message or tool results, no
// matter who wrote it: "DO tool {…}" calls a tool. Without an order it repeats the tool results
// or the message. The tests use it because no protection may depend on the judgement of a model.
func followOrders(r openaitest.Request) openaitest.Reply {
	last := len(r.Messages) - 1
	first := last
	for first > 0 && r.Messages[last].Role == "tool" && r.Messages[first-1].Role == "tool" {
		first--
	}
	var calls []openaitest.ToolCall
	var texts []string
	for _, m := range r.Messages[first:] {
		texts = append(texts, m.Content)
		for _, found := range order.FindAllStringSubmatch(m.Content, -1) {
			var args json.RawMessage
			if json.NewDecoder(strings.NewReader(found[2])).Decode(&args) == nil {
				calls = append(calls, openaitest.ToolCall{
					ID: fmt.Sprintf("call_%d_%d", last, len(calls)), Name: found[1], Arguments: string(args)})
			}
		}
	}
	if len(calls) > 0 && len(r.Tools) > 0 {
		return openaitest.Reply{ToolCalls: calls}
	}
	if r.Messages[last].Role == "tool" {
		return say("the tools said " + strings.Join(texts, " | "))
	}
	return repeat(r)
}
