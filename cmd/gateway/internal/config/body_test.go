package config

import (
	"maps"
	"strings"
	"testing"
)

// TestBody checks that an additional field of requests can have any type, in the file and in a
// variable, and that the output of `config show` means the same when it is read again.
func TestBody(t *testing.T) {
	const file = `[models.a]
model = "m"
[models.a.body]
top_p = 0.9
stop = ["a/b", "\"c\""]
logprobs = true
provider = { order = ["x"], "sort/by" = { price = 1 } }
`
	env := environ(t, "GATEWAY_MODELS__A__BODY__SEED=7", "GATEWAY_MODELS__A__BODY__USER=ann",
		"GATEWAY_MODELS__A__BODY__NIL=null",
		`GATEWAY_MODELS__A__BODY__EXTRA={"deep": [1, {}]}`)
	want := map[string]JSON{
		"top_p": "0.9", "stop": `["a/b","\"c\""]`, "logprobs": "true",
		"provider": `{"order":["x"],"sort/by":{"price":1}}`,
		"seed":     "7", "user": `"ann"`, "nil": `"null"`, "extra": `{"deep":[1,{}]}`,
	}
	if got := mustLoad(t, file, env).Models["a"].Body; !maps.Equal(got, want) {
		t.Errorf("the body has %q, want %q", got, want)
	}

	write(t, "config.toml", file)
	c, err := LoadWithoutSecrets("config.toml", environ(t))
	if err != nil {
		t.Fatal(err)
	}
	shown := c.Explain().TOML(false)
	if !strings.Contains(shown, `provider = {order = ["x"], "sort/by" = {price = 1.0}} # config`) {
		t.Errorf("shown is\n%s", shown)
	}
	again := mustLoad(t, shown, environ(t)).Models["a"].Body
	for _, name := range []string{"seed", "user", "nil", "extra"} {
		delete(want, name)
	}
	if !maps.Equal(again, want) {
		t.Errorf("what is shown means %q, want %q", again, want)
	}
}
