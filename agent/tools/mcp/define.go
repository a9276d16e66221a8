package mcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"gateway/agent/llm"
	"gateway/agent/tool"
)

// Limits of what one server may define.
const (
	maxTools   = 128
	maxSchemas = 256 << 10 // bytes of all schemas and descriptions
	maxName    = 64        // bytes of a tool's name; the limit of providers
	maxRefused = 20        // refusals that are reported
)

// A definition is a tool as described by its server.
type definition struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Schema      any    `json:"schema,omitempty"`
	ReadOnly    bool   `json:"read_only,omitempty"`
	Idempotent  bool   `json:"idempotent,omitempty"`
}

// A catalog lists the tools of a server, and whether it has resources and prompts.
type catalog struct {
	Tools     []definition `json:"tools,omitempty"`
	Resources bool         `json:"resources,omitempty"`
	Prompts   bool         `json:"prompts,omitempty"`
	More      bool         `json:"more,omitempty"` // there are more tools, which were not read
}

// same reports whether two catalogs are equal. Two nil catalogs are equal.
func same(a, b *catalog) bool {
	return shortHash(a) == shortHash(b)
}

// sorted returns c with its tools sorted by name, so that the order of the server's list does not
// matter.
func (c catalog) sorted() catalog {
	c.Tools = slices.Clone(c.Tools)
	slices.SortStableFunc(c.Tools, func(a, b definition) int { return cmp.Compare(a.Name, b.Name) })
	return c
}

// effect returns the effect class of d, which tells a resumed turn whether it may repeat a call. It
// trusts the server's hints. Without a hint a call is not repeated.
func (d definition) effect() tool.Effect {
	switch {
	case d.ReadOnly:
		return tool.Pure
	case d.Idempotent:
		return tool.Idempotent
	}
	return tool.Once
}

// A toolset makes the tools that the agent has of one server.
type toolset struct {
	base
	naming
	caller *caller
	shown  *catalog // what publish has published; or nil
}

// publish makes the tools of c available to the agent. Calls must not overlap.
func (s *toolset) publish(ctx context.Context, c catalog) {
	c = c.sorted()
	if same(s.shown, &c) {
		return
	}
	tools, refused := s.define(c)
	if err := s.opts.Set("mcp/"+s.Name, tools); err != nil {
		refused = append(refused, s.redactor.scrub(err.Error()))
	}
	s.shown = &c // after what may panic
	for _, why := range refused {
		s.opts.Logger.WarnContext(ctx, "mcp tool refused", "server", s.Name, "reason", why)
	}
	s.status.update(func() { s.status.state.Tools, s.status.state.Refused = len(tools), refused })
}

// define returns the tools of c, sorted by name, and the reasons for the tools that it refused.
// Refused tools do not count for the limits.
func (s *toolset) define(c catalog) (tools []tool.Tool, refused []string) {
	c = c.sorted()
	refuse := func(name, why string) {
		if len(refused) < maxRefused {
			refused = append(refused, fmt.Sprintf("%q: %s", oneLine(name, 80), why))
		} else if len(refused) == maxRefused {
			refused = append(refused, "and more")
		}
	}
	reader := "" // tool that reads resources
	if s.allows("resources") && c.Resources {
		reader = s.prefix + "resources"
		tools = append(tools, tool.New(reader, "Lists the resources of the MCP server "+
			s.Name+", or reads one by its URI.", tool.Pure, s.resources))
	}
	if s.allows("prompts") && c.Prompts {
		tools = append(tools, tool.New(s.prefix+"prompts", "Lists the prompts (texts with blanks) of "+
			"the MCP server "+s.Name+", or gets one filled in.", tool.Pure,
			func(ctx context.Context, _ tool.Call, args promptsArgs) (tool.Result, error) {
				return s.prompts(ctx, args, reader)
			}))
	}
	names := s.names(c.Tools)
	size, seen := 0, make(map[string]bool)
	for i, d := range c.Tools {
		if !s.allows(d.Name) {
			continue
		}
		schema, err := repairSchema(d.Schema)
		description := cmp.Or(oneLine(d.Description, maxDescription),
			fmt.Sprintf("A tool of the MCP server %s, which does not describe it.", s.Name))
		switch {
		case d.Name == "":
			refuse(d.Name, "it has no name")
		case seen[d.Name]:
			refuse(d.Name, "the server has two tools with this name")
		case names[i] == "":
			refuse(d.Name, "its name is taken")
		case err != nil:
			refuse(d.Name, err.Error())
		case len(seen) == maxTools:
			refuse(d.Name, fmt.Sprintf("the server has more than %d tools", maxTools))
		case size+len(schema)+len(description) > maxSchemas:
			refuse(d.Name, fmt.Sprintf("the server's tools take more than %d bytes", maxSchemas))
		default:
			seen[d.Name] = true
			size += len(schema) + len(description)
			tools = append(tools, s.tool(names[i], reader, description, schema, d))
		}
	}
	if c.More {
		refuse("…", fmt.Sprintf("the server has more than %d tools, or they take more than %d MB",
			maxListed, maxCatalog>>20))
	}
	for i := range tools {
		tools[i].MinRole, tools[i].Timeout = s.MinRole, s.longest()
	}
	slices.SortFunc(tools, func(a, b tool.Tool) int { return cmp.Compare(a.Name, b.Name) })
	return tools, refused
}

// tool returns the tool that calls d. reader is the name of the tool that reads resources, or "".
func (s *toolset) tool(
	name, reader, description string, schema json.RawMessage, d definition,
) tool.Tool {
	return tool.Tool{
		Name: name, Description: description, Schema: schema, Effect: d.effect(),
		Run: func(ctx context.Context, c tool.Call) (tool.Result, error) {
			return (&toolCall{s.caller, reader, name, d, c}).run(ctx)
		},
	}
}

// longest is how long one use of a tool may take: waiting for the connection plus the call. A
// second try, if there is one, has what is left.
func (s Server) longest() time.Duration { return 2*s.Timeout + 5*time.Second }

// A naming chooses the names of a server's tools.
type naming struct {
	prefix string   // prefix of the names
	others []string // other servers' prefixes that begin with this prefix
}

// newNaming returns the naming of one server among all servers.
func newNaming(server string, all []string) naming {
	n := naming{prefix: "mcp_" + server + "_"}
	for _, name := range all {
		if prefix := "mcp_" + name + "_"; prefix != n.prefix && strings.HasPrefix(prefix, n.prefix) {
			n.others = append(n.others, prefix)
		}
	}
	return n
}

// names returns the names of the tools in the same order, or "" for a tool without a possible name.
// The names depend only on the configured servers and the server's own names for its tools.
func (s *naming) names(tools []definition) []string {
	// A tool whose own name fits keeps it, whatever else the server lists.
	first := make(map[string]string) // name to the server's name of the tool
	for _, d := range tools {
		if name := s.prefix + d.Name; fits(name) && s.isOwnName(name) {
			first[name] = d.Name
		}
	}
	// If mending gives two tools the same name, both get a hash. So the order of the list does not
	// matter.
	mended := make(map[string]int)
	for _, d := range tools {
		if name := s.validName(d.Name); first[name] == "" {
			mended[name]++
		}
	}
	names := make([]string, len(tools))
	taken := make(map[string]string)
	for i, d := range tools {
		name := s.validName(d.Name)
		if first[name] != d.Name && (first[name] != "" || mended[name] > 1) || !s.isOwnName(name) {
			name = s.hashed(d.Name)
		}
		if owner, ok := taken[name]; ok && owner != d.Name || !s.isOwnName(name) {
			continue
		}
		taken[name] = d.Name
		names[i] = name
	}
	return names
}

// isOwnName reports whether name can be the name of a tool of this server. The name must not be
// that of one of the two tools that the gateway adds to a server, and must not begin with another
// server's prefix.
func (s *naming) isOwnName(name string) bool {
	if name == s.prefix+"resources" || name == s.prefix+"prompts" {
		return false
	}
	return !slices.ContainsFunc(s.others, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

// fits reports whether providers accept name.
func fits(name string) bool { return len(name) <= maxName && name == llm.PlainName(name) }

// validName returns the name for a tool of the server. If it is too long, validName cuts it and
// adds a hash.
func (s *naming) validName(name string) string {
	full := s.prefix + llm.PlainName(name)
	if name == "" || len(full) > maxName {
		return s.hashed(name)
	}
	return full
}

// hashed returns a unique name for a tool of the server.
func (s *naming) hashed(name string) string {
	sum := sha256.Sum256([]byte(name))
	mark := hex.EncodeToString(sum[:4])
	full := s.prefix + llm.PlainName(name)
	if !s.isOwnName(full + "_") { // it looks like another server's name: begin with the hash
		full = s.prefix + mark + "_" + llm.PlainName(name)
		return full[:min(len(full), maxName)]
	}
	return full[:min(len(full), maxName-len(mark)-1)] + "_" + mark
}
