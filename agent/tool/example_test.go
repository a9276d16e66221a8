package tool_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"gateway/agent/tool"
)

// The arguments of a tool are a struct. The registry checks a model's arguments against it and
// repairs mistakes if no guess is necessary.
func ExampleNew() {
	type args struct {
		Word  string `json:"word" jsonschema:"what to repeat"`
		Times int    `json:"times" jsonschema:"how often"`
	}
	repeat := tool.New("repeat", "Repeats a word.", tool.Pure,
		func(ctx context.Context, call tool.Call, a args) (tool.Result, error) {
			return tool.Result{Text: strings.Repeat(a.Word, a.Times)}, nil
		})
	tools, err := tool.NewRegistry(repeat)
	if err != nil {
		log.Fatal(err)
	}
	checked, err := tools.Arguments("repeat", `{"word": "ha", "times": "3"}`)
	if err != nil {
		log.Fatal(err)
	}
	result, err := repeat.Run(context.Background(), tool.Call{Args: checked})
	fmt.Println(result.Text, err)

	_, err = tools.Lookup("repaet")
	fmt.Println(err)
	// Output:
	// hahaha <nil>
	// there is no tool "repaet"; did you mean "repeat"?; the tools are: repeat
}
