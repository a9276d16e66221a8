package openaitest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// A known list of tools gives the same result as an unknown one. The rest of the request is still
// checked.
func TestKnownTools(t *testing.T) {
	const ask = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[`
	offered := func(name string) string {
		return `,"tools":[{"type":"function","function":{"name":"` + name + `","description":"d",` +
			`"parameters":{"type":"object","properties":{}}}}]}`
	}
	say := func(text string) string {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return `{"role":"user","content":` + string(quoted) + `}`
	}
	var b toolbox
	bodies := []string{
		ask + say("x") + "]" + offered("f"),
		ask + say("y") + "]" + offered("f"),
		ask + say("y") + "]" + offered("g"),
		ask + say("z") + "]" + offered("f"),
		ask + "]" + offered("f"),                                  // no messages
		ask + say("x") + offered("f"),                             // the list of messages does not end
		ask + `{"role":"user","content":"x` + offered("f"),        // the text does not end
		ask + say("x"+offered("f")) + "]" + offered("f"),          // a text that looks like tools
		ask + say("x"+offered("f")) + "]}",                        // the same text, but no tools
		strings.Replace(ask, `"m"`, `""`, 1) + "]" + offered("f"), // no model
		ask + say("x") + `],"tools":[]}`,
		offered("f"),
	}
	for i := range 2 * maxOffers {
		bodies = append(bodies, ask+say("x")+"]"+offered(fmt.Sprintf("f%d", i)))
	}
	for _, body := range append(bodies, bodies...) {
		got, err := b.parse([]byte(body))
		want, _, wantErr := parse([]byte(body))
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: %v, want %v", body, err, wantErr)
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", body, got, want)
		}
	}
	if n := len(b.known); n != maxOffers {
		t.Errorf("%d lists are known, want %d", n, maxOffers)
	}
}
