package skills

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The bounds of a front matter's structure. Aliases are never expanded, so that these are enough.
const (
	maxAliases = 8
	maxNodes   = 5000
	maxDepth   = 32
	maxList    = 32  // entries of a requirement
	maxEntry   = 128 // characters of one
)

// gatewayKeys are the names under which skills have settings for programs like this one, the one
// that counts most first.
var gatewayKeys = []string{"gateway", "nanobot", "openclaw", "moltbot", "clawdbot", "clawdis"}

// clawKeys are the names that OpenClaw has had. There "always" does not mean that the text is part
// of each prompt, but that the skill is offered whatever it requires, if the system is right.
var clawKeys = gatewayKeys[2:]

// errBound reports a front matter that is larger than that of any honest skill.
var errBound = errors.New("too large")

// plainValue is a line with a value that begins like a text.
var plainValue = regexp.MustCompile(`(?m)^([a-z-]+):[ \t]+([^\s|>"'{].*)$`)

// mend returns a front matter that is not YAML as its author may have meant it: tabs indent, and a
// value with ": " or a bracket in it is a text.
func mend(text string) string {
	text = strings.ReplaceAll(text, "\t", "  ")
	return plainValue.ReplaceAllStringFunc(text, func(line string) string {
		if _, err := readYAML(line); err == nil {
			return line
		}
		key, value, _ := strings.Cut(line, ":")
		return key + ": " + strconv.Quote(oneLine(value)) // Go's escapes are YAML's
	})
}

// readFront reads a front matter, mending it if it must.
func (d *document) readFront(text string) {
	root, err := readYAML("\n" + text) // so that an error names the line of the file
	if err != nil {
		var mended *yaml.Node
		err2 := err
		if !errors.Is(err, errBound) {
			mended, err2 = readYAML(mend(text))
		}
		if err2 != nil {
			d.problem = "its front matter can't be read: " + clip(oneLine(err.Error()), 200)
			return
		}
		d.remark("its front matter is not YAML and was read as it is meant: %s",
			clip(oneLine(err.Error()), 200))
		root = mended
	}
	if root == nil {
		return
	}
	if root.Kind != yaml.MappingNode {
		d.problem = "its front matter has no keys with values"
		return
	}
	top := d.fields(root)
	d.name = oneLine(d.text(top, "name"))
	d.description = oneLine(d.text(top, "description"))
	d.license = clip(oneLine(d.text(top, "license")), maxEntry)
	d.compatibility = clip(oneLine(d.text(top, "compatibility")), 500)
	d.tools = clip(oneLine(d.text(top, "allowed-tools")), maxDescription)
	d.manual = truth(top["disable-model-invocation"])
	d.settings(top)
	metadata := d.mapping("metadata", top["metadata"])
	d.settings(metadata)
	for _, key := range slices.Backward(gatewayKeys) {
		f := d.mapping("metadata."+key, metadata[key])
		always := d.always
		d.settings(f)
		if slices.Contains(clawKeys, key) {
			if d.always = always; says(f, alwaysKeys) {
				d.requires = Requires{OS: d.requires.OS}
			}
		}
	}
}

// alwaysKeys are the spellings of "always".
var alwaysKeys = []string{"always", "always_load", "alwaysLoad"}

// says reports whether one of keys says yes in f.
func says(f map[string]*yaml.Node, keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return truth(f[key]) })
}

// settings takes what a mapping says of when the skill is used. It may stand at the top, in the
// metadata and in a part of it.
func (d *document) settings(f map[string]*yaml.Node) {
	for _, key := range alwaysKeys {
		if n := f[key]; n != nil {
			d.always = truth(n)
		}
	}
	d.take(&d.requires.OS, "os", f["os"])
	requires := d.mapping("requires", f["requires"])
	d.take(&d.requires.Bins, "requires.bins", requires["bins"])
	for _, key := range []string{"any_bins", "anyBins"} {
		d.take(&d.requires.AnyBins, "requires."+key, requires[key])
	}
	d.take(&d.requires.Env, "requires.env", requires["env"])
	d.take(&d.requires.OS, "requires.os", requires["os"])
	d.take(&d.requires.Config, "requires.config", requires["config"])
	for i, os := range d.requires.OS {
		d.requires.OS[i] = system(os)
	}
}

// system returns the name that Go has for a system.
func system(name string) string {
	switch name = strings.ToLower(name); name {
	case "macos", "mac", "osx":
		return "darwin"
	case "win32", "win":
		return "windows"
	}
	return name
}

// take sets list to the texts of n, a list or a single text, if it is there.
func (d *document) take(list *[]string, what string, n *yaml.Node) {
	n = target(n)
	if n == nil {
		return
	}
	var found []string
	switch {
	case n.Kind == yaml.ScalarNode:
		found = strings.FieldsFunc(scalar(n), func(r rune) bool { return r == ',' || r == ' ' })
	case n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			if item = target(item); item == nil || item.Kind != yaml.ScalarNode {
				d.remark("%s has an entry that is not text; it doesn't count", what)
			} else if text := scalar(item); text != "" {
				found = append(found, text)
			}
		}
	default:
		d.remark("%s is neither a list nor a text; it doesn't count", what)
		return
	}
	if len(found) > maxList {
		d.remark("%s has more than %d entries; the rest doesn't count", what, maxList)
		found = found[:maxList]
	}
	*list = nil
	for _, text := range found {
		if text = clip(oneLine(text), maxEntry); text != "" {
			*list = append(*list, text)
		}
	}
}

// fields returns the values of a mapping. The last of several with the same key counts.
func (d *document) fields(n *yaml.Node) map[string]*yaml.Node {
	f := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := target(n.Content[i])
		if key == nil || key.Kind != yaml.ScalarNode {
			continue
		}
		if f[key.Value] != nil {
			d.remark("%q stands there twice; the last one counts", clip(oneLine(key.Value), maxName))
		}
		f[key.Value] = n.Content[i+1]
	}
	return f
}

// mapping returns the values of a mapping, which may be written as a text that is JSON or YAML.
func (d *document) mapping(what string, n *yaml.Node) map[string]*yaml.Node {
	n = target(n)
	if n != nil && n.Kind == yaml.ScalarNode && strings.TrimSpace(scalar(n)) != "" {
		inner, err := readYAML(n.Value)
		if err != nil {
			d.remark("%s can't be read: %s", what, clip(oneLine(err.Error()), 200))
			return nil
		}
		n = inner
	}
	switch {
	case n == nil || n.Kind == yaml.ScalarNode && scalar(n) == "" || len(n.Content) == 0:
		return nil
	case n.Kind != yaml.MappingNode:
		d.remark("%s has no keys with values; it doesn't count", what)
		return nil
	}
	return d.fields(n)
}

// text returns a value that should be a text. The entries of a list are joined.
func (d *document) text(f map[string]*yaml.Node, key string) string {
	n := target(f[key])
	switch {
	case n == nil:
		return ""
	case n.Kind == yaml.ScalarNode:
		return scalar(n)
	case n.Kind == yaml.SequenceNode && len(n.Content) <= maxList:
		var parts []string
		for _, item := range n.Content {
			if item = target(item); item != nil && item.Kind == yaml.ScalarNode {
				parts = append(parts, scalar(item))
			}
		}
		return strings.Join(parts, ", ")
	}
	d.remark("%s is not text; it doesn't count", key)
	return ""
}

// scalar returns the text of a scalar, "" for null.
func scalar(n *yaml.Node) string {
	if n.ShortTag() == "!!null" {
		return ""
	}
	return n.Value
}

// truth reports whether n says yes.
func truth(n *yaml.Node) bool {
	n = target(n)
	if n == nil || n.Kind != yaml.ScalarNode {
		return false
	}
	switch strings.ToLower(strings.TrimSpace(n.Value)) {
	case "true", "yes", "on", "y", "1":
		return true
	}
	return false
}

// target returns the node that an alias stands for, and n if it is not an alias.
func target(n *yaml.Node) *yaml.Node {
	for range maxAliases {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return nil
}

// readYAML reads a YAML text of which nothing is known, and returns nil if there is nothing in it.
func readYAML(text string) (n *yaml.Node, err error) {
	defer func() { // no skill ends a turn, whatever the library makes of it
		if p := recover(); p != nil {
			n, err = nil, fmt.Errorf("%v", p)
		}
	}()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	var aliases, nodes int
	if err := measure(&doc, 0, &aliases, &nodes); err != nil {
		return nil, err
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && scalar(root) == "" {
		return nil, nil
	}
	return root, nil
}

// measure refuses a tree that is beyond the bounds.
func measure(n *yaml.Node, depth int, aliases, nodes *int) error {
	*nodes++
	if n.Kind == yaml.AliasNode {
		*aliases++
	}
	switch {
	case *aliases > maxAliases:
		return fmt.Errorf("%w: more than %d aliases", errBound, maxAliases)
	case *nodes > maxNodes:
		return fmt.Errorf("%w: more than %d values", errBound, maxNodes)
	case depth > maxDepth:
		return fmt.Errorf("%w: nested too deeply", errBound)
	}
	for _, child := range n.Content {
		if err := measure(child, depth+1, aliases, nodes); err != nil {
			return err
		}
	}
	return nil
}
