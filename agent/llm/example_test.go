package llm_test

import (
	"context"
	"errors"
	"fmt"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
)

// A stream yields pieces of text. Its last event has the whole answer.
func ExampleModel() {
	var model llm.Model = llmtest.New("scripted",
		llmtest.Say("Hello, Ada."), llmtest.Fail(llm.RateLimited))
	req := llm.Request{Messages: []llm.Message{
		{Role: llm.System, Text: "Be brief."},
		{Role: llm.User, Text: "I am Ada."},
	}}
	for range 2 {
		for event, err := range model.Stream(context.Background(), req) {
			if e, ok := errors.AsType[*llm.Error](err); ok {
				fmt.Println("failed:", e.Kind)
			} else if event.Response != nil {
				fmt.Println(event.Response.Message.Text)
			}
		}
	}
	// Output:
	// Hello, Ada.
	// failed: rate limited
}
