package skills

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"gateway/store/plaintext"
)

// Limits of a front matter's structure. Aliases are never expanded, so these limits are
// enough.
const (
	maxAliases = 8
	maxNodes   = 5000
	maxDepth   = 32
	maxList    = 32  // entries per requirement
	maxEntry   = 128 // characters per entry
)

// gatewayKeys are the names under which skills have settings for programs like this one,
// the preferred one first.
var gatewayKeys = []string{"gateway", "nanobot", "openclaw", "moltbot", "clawdbot", "clawdis"}

// clawKeys are the names that OpenClaw has had. Under these, "always" does not put the
// text into each prompt: it offers the skill regardless of its requirements, if the
// operating system fits.
var clawKeys = gatewayKeys[2:]

// errBound means that a front matter exceeds the limits.
var errBound = errors.New("too large")

// textValue matches a line whose value begins like text, with or without quotes.
var textValue = plaintext.Pattern(`(?m)^([a-z-]+):[ \t]+([^\s|>{].*)$`)

// repair repairs common mistakes in a front matter that is not valid YAML: it replaces tabs
// by spaces, and quotes values that contain ": ", a bracket or quotes in quotes.
func repair(text string) string {
	text = strings.ReplaceAll(text, "\t", "  ")
	return textValue().ReplaceAllStringFunc(text, func(line string) string {
		if _, err := readYAML(line); err == nil {
			return line
		}
		key, value, _ := strings.Cut(line, ":")
		value = plaintext.OneLine(value)
		for _, quote := range []string{`"`, "'"} {
			if !strings.HasPrefix(value, quote) {
				continue
			}
			if strings.Count(value, quote) == 1 {
				return line // the text continues in the next line
			}
			if strings.HasSuffix(value, quote) {
				value = value[1 : len(value)-1]
			}
			break
		}
		return key + ": " + strconv.Quote(value) // YAML has the same escapes as Go
	})
}

// readFront parses a front matter, and repairs it if necessary. It sets d.Problem if even the
// repaired text is not YAML.
func (d *document) readFront(text string) {
	root, err := readYAML("\n" + text) // so that line numbers in errors are those of the file
	if err != nil {
		var repaired *yaml.Node
		err2 := err
		if !errors.Is(err, errBound) {
			repaired, err2 = readYAML(repair(text))
		}
		if err2 != nil {
			d.Problem = "its front matter can't be read: " + plaintext.Line(err.Error(), 200)
			return
		}
		d.remark("its front matter is not YAML and was read as it is meant: %s",
			plaintext.Line(err.Error(), 200))
		root = repaired
	}
	if root == nil {
		return
	}
	if root.Kind != yaml.MappingNode {
		d.Problem = "its front matter has no keys with values"
		return
	}
	top := d.fields(root)
	d.Name = plaintext.OneLine(d.text(top, "name"))
	d.Description = plaintext.OneLine(d.text(top, "description"))
	d.License = plaintext.Line(d.text(top, "license"), maxEntry)
	d.Compatibility = plaintext.Line(d.text(top, "compatibility"), 500)
	d.AllowedTools = plaintext.Line(d.text(top, "allowed-tools"), maxDescription)
	d.Manual = isTrue(top["disable-model-invocation"])
	d.settings(top)
	metadata := d.mapping("metadata", top["metadata"])
	d.settings(metadata)
	// The preferred name comes last, because a later value replaces an earlier one.
	for _, key := range slices.Backward(gatewayKeys) {
		f := d.mapping("metadata."+key, metadata[key])
		always := d.Always
		d.settings(f)
		if slices.Contains(clawKeys, key) {
			d.Always = always
			if slices.ContainsFunc(alwaysKeys, func(key string) bool { return isTrue(f[key]) }) {
				d.Requires = Requires{OS: d.Requires.OS}
			}
		}
	}
}

// alwaysKeys are the spellings of "always".
var alwaysKeys = []string{"always", "always_load", "alwaysLoad"}

// settings reads when the skill is used. The settings may be at the top level, in the
// metadata or in a part of it.
func (d *document) settings(f map[string]*yaml.Node) {
	for _, key := range alwaysKeys {
		if n := f[key]; n != nil {
			d.Always = isTrue(n)
		}
	}
	d.setTexts(&d.Requires.OS, "os", f["os"])
	requires := d.mapping("requires", f["requires"])
	d.setTexts(&d.Requires.Bins, "requires.bins", requires["bins"])
	for _, key := range []string{"any_bins", "anyBins"} {
		d.setTexts(&d.Requires.AnyBins, "requires."+key, requires[key])
	}
	d.setTexts(&d.Requires.Env, "requires.env", requires["env"])
	d.setTexts(&d.Requires.OS, "requires.os", requires["os"])
	d.setTexts(&d.Requires.Config, "requires.config", requires["config"])
	d.setTexts(&d.Requires.Skills, "requires.skills", requires["skills"])
	for i, os := range d.Requires.OS {
		d.Requires.OS[i] = system(os)
	}
}

// system returns Go's name of an operating system.
func system(name string) string {
	switch name = strings.ToLower(name); name {
	case "macos", "mac", "osx":
		return "darwin"
	case "win32", "win":
		return "windows"
	}
	return name
}

// setTexts sets list to the texts of n, a list or a single text, unless n is missing.
func (d *document) setTexts(list *[]string, what string, n *yaml.Node) {
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
				d.remark("%s has an entry that is not text; it is ignored", what)
			} else if text := scalar(item); text != "" {
				found = append(found, text)
			}
		}
	default:
		d.remark("%s is neither a list nor a text; it is ignored", what)
		return
	}
	if len(found) > maxList {
		d.remark("%s has more than %d entries; the rest is ignored", what, maxList)
		found = found[:maxList]
	}
	*list = nil
	for _, text := range found {
		if text = plaintext.Line(text, maxEntry); text != "" {
			*list = append(*list, text)
		}
	}
}

// fields returns the values of a mapping. Of duplicate keys the last is used.
func (d *document) fields(n *yaml.Node) map[string]*yaml.Node {
	f := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := target(n.Content[i])
		if key == nil || key.Kind != yaml.ScalarNode {
			continue
		}
		if f[key.Value] != nil {
			d.remark("%q occurs twice; the last one is used", plaintext.Line(key.Value, maxName))
		}
		f[key.Value] = n.Content[i+1]
	}
	return f
}

// mapping returns the values of a mapping, which may also be a string with JSON or YAML.
func (d *document) mapping(what string, n *yaml.Node) map[string]*yaml.Node {
	n = target(n)
	if n != nil && n.Kind == yaml.ScalarNode && strings.TrimSpace(scalar(n)) != "" {
		inner, err := readYAML(n.Value)
		if err != nil {
			d.remark("%s can't be read: %s", what, plaintext.Line(err.Error(), 200))
			return nil
		}
		n = inner
	}
	switch {
	case n == nil || n.Kind == yaml.ScalarNode && scalar(n) == "" || len(n.Content) == 0:
		return nil
	case n.Kind != yaml.MappingNode:
		d.remark("%s has no keys with values; it is ignored", what)
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
	d.remark("%s is not text; it is ignored", key)
	return ""
}

// scalar returns the text of a scalar, "" for null.
func scalar(n *yaml.Node) string {
	if n.ShortTag() == "!!null" {
		return ""
	}
	return n.Value
}

// isTrue reports whether n is a true value.
func isTrue(n *yaml.Node) bool {
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

// target returns the node of an alias, or n if it is not an alias. It returns nil for a chain of
// more than maxAliases aliases.
func target(n *yaml.Node) *yaml.Node {
	for range maxAliases {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return nil
}

// readYAML parses untrusted YAML. It returns nil for an empty text.
func readYAML(text string) (n *yaml.Node, err error) {
	defer func() { // a panic in the library must not end a turn
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

// measure returns an error if a tree exceeds the limits.
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
