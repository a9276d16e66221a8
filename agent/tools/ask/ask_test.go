package ask

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/tool"
)

func TestAsk(t *testing.T) {
	many := strings.Repeat(`"x",`, maxOptions)
	for _, test := range []struct {
		name, args string
		text       string
		options    []string
		wait       time.Duration
		err        string
	}{
		{name: "plain", args: `{"question":" Which? \n"}`, text: "Which?", wait: time.Hour},
		{name: "options", args: `{"question":"?","options":["red"," two\nwords "],"minutes":5}`,
			text: "?", options: []string{"red", "two words"}, wait: 5 * time.Minute},
		{name: "what does not show", args: `{"question":"?","options":["a\u202eb\u0007\u200b"]}`,
			text: "?", options: []string{"ab"}, wait: time.Hour},
		{name: "longest", args: `{"question":"?","minutes":100000}`, text: "?", wait: maxWait},
		{name: "overflow", args: `{"question":"?","minutes":200000000}`, text: "?", wait: maxWait},
		{name: "no time", args: `{"question":"?","minutes":-1}`, err: "minutes must be positive"},
		{name: "empty", args: `{"question":" \n"}`, err: "the question is empty"},
		{name: "long", args: `{"question":"` + strings.Repeat("x", maxQuestion+1) + `"}`,
			err: "the question is longer than 2000 bytes; shorten it"},
		{name: "many options", args: `{"question":"?","options":[` + many + `"y"]}`,
			err: "9 options are more than 8"},
		{name: "empty option", args: `{"question":"?","options":["\u200b"]}`,
			err: `option "": want 1 to 40 characters`},
		{name: "long option", args: `{"question":"?","options":["` + strings.Repeat("ü", 41) + `"]}`,
			err: fmt.Sprintf("option %q: want 1 to 40 characters", strings.Repeat("ü", 41))},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := New().Run(t.Context(), tool.Call{Args: json.RawMessage(test.args)})
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Errorf("the error is %v, want %s", err, test.err)
				}
				return
			}
			if err != nil || r.Wait == nil {
				t.Fatalf("the result is %+v, %v, want that the turn waits", r, err)
			}
			w := r.Wait
			if w.Text != test.text || !slices.Equal(w.Options, test.options) || w.For != test.wait ||
				w.Outcome {
				t.Errorf("the turn waits for %+v, want %q, %q, %s", *w, test.text, test.options, test.wait)
			}
		})
	}
}
