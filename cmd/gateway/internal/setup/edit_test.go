package setup

import (
	"os"
	"slices"
	"strings"
	"testing"

	tomlparser "github.com/pelletier/go-toml/v2"
)

// TestEdit checks that an edit changes only the part of the text that it should.
func TestEdit(t *testing.T) {
	set := func(value any, path string) func(document) (document, error) {
		return func(d document) (document, error) { return d.set(value, strings.Split(path, ".")...) }
	}
	for name, c := range map[string]struct {
		before string
		edit   func(document) (document, error)
		after  string
	}{
		"an empty file": {"", set("x", "agent.model"), "[agent]\nmodel = \"x\"\n"},
		"a new table": {"[a]\nb = 1", set(true, "models.my model.free"),
			"[a]\nb = 1\n\n[models.\"my model\"]\nfree = true\n"},
		"a value between comments": {"# top\n[agent] # here\nmodel = 'old' # mine\nslots = 8\n",
			set(`n"ew`, "agent.model"), "# top\n[agent] # here\nmodel = \"n\\\"ew\" # mine\nslots = 8\n"},
		"a new key after the last": {"[agent]\nslots = 8 # few\n# end\n\n[web]\n",
			set("x", "agent.model"), "[agent]\nslots = 8 # few\nmodel = \"x\"\n# end\n\n[web]\n"},
		"a new key at its default": {"[agent]\n# The one to use.\n#model = \"\"\n# Calls.\n#slots = 64\n",
			set("x", "agent.model"),
			"[agent]\n# The one to use.\n#model = \"\"\nmodel = \"x\"\n# Calls.\n#slots = 64\n"},
		"the default in another table": {"[agent]\n[memory]\n#model = \"\"\n", set("x", "agent.model"),
			"[agent]\nmodel = \"x\"\n[memory]\n#model = \"\"\n"},
		"dotted keys": {"agent.slots = 8\n[web]\n", set("x", "agent.model"),
			"agent.slots = 8\nagent.model = \"x\"\n[web]\n"},
		"dotted keys in a table": {"[channels]\ntelegram.token = \"t\"\n",
			set([]string{"1", "2"}, "channels.telegram.owners"),
			"[channels]\ntelegram.token = \"t\"\ntelegram.owners = [\"1\", \"2\"]\n"},
		"a value of several lines": {"[agent]\nmodel = [\n 1, # one\n]\nslots = 1\n",
			set(2.0, "agent.model"), "[agent]\nmodel = 2.0\nslots = 1\n"},
		"ends of lines of Windows": {"[agent]\r\nslots = 8\r\n", set("x", "agent.model"),
			"[agent]\r\nslots = 8\r\nmodel = \"x\"\r\n"},
		"a table of an array": {"[[a]]\nb = 1\n", set(int64(2), "c.d"), "[[a]]\nb = 1\n\n[c]\nd = 2\n"},
		"an element": {"[c.t]\nowners = [\n  1, # Ann\n]\n", func(d document) (document, error) {
			return d.add("2", "c", "t", "owners")
		}, "[c.t]\nowners = [\n  1, \"2\", # Ann\n]\n"},
		"the first element": {"[c.t]\nowners = []\n", func(d document) (document, error) {
			return d.add("2", "c", "t", "owners")
		}, "[c.t]\nowners = [\"2\"]\n"},
		"a removed key": {"[a]\nb = 1\nc = 2 # two\nd = 3\n", func(d document) (document, error) {
			return d.remove("a", "c")
		}, "[a]\nb = 1\nd = 3\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.edit(document(c.before))
			if err != nil || string(got) != c.after {
				t.Fatalf("got %q, %v; want %q", got, err, c.after)
			}
			var parsed map[string]any
			if err := tomlparser.Unmarshal(got, &parsed); err != nil {
				t.Errorf("the result is not TOML: %v", err)
			}
		})
	}
	inline := document("channels = {telegram = {}}")
	if _, err := inline.set("x", "channels", "telegram", "token"); err == nil {
		t.Error("a key was set within {…}")
	}
}

// TestEditExample checks that keys set in the example file are added to it as lines.
func TestEditExample(t *testing.T) {
	example, err := os.ReadFile("../../../../config.toml.example")
	if err != nil {
		t.Fatal(err)
	}
	d := document(example)
	for _, path := range [][]string{{"agent", "model"}, {"gateway", "timezone"},
		{"models", "openai", "model"}, {"channels", "telegram", "token"}} {
		if d, err = d.set("x", path...); err != nil {
			t.Fatal(err)
		}
	}
	lines := slices.Collect(strings.Lines(string(d)))
	for line := range strings.Lines(string(example)) {
		i := slices.Index(lines, line)
		if i < 0 {
			t.Fatalf("the line %q is gone", line)
		}
		lines = slices.Delete(lines, i, i+1)
	}
	want := []string{"timezone = \"x\"\n", "model = \"x\"\n", "\n", "[models.openai]\n",
		"model = \"x\"\n", "\n", "[channels.telegram]\n", "token = \"x\"\n"}
	if !slices.Equal(lines, want) {
		t.Errorf("the new lines are %q, want %q", lines, want)
	}
}
