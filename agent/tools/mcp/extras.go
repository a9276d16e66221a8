package mcp

import (
	"context"
	"fmt"
	"iter"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"gateway/agent/tool"
)

// maxPage is how many resources or prompts one page lists.
const maxPage = 50

// maxItems is how many entries of a list can be read. A server could otherwise list without end.
const maxItems = 5_000

type resourcesArgs struct {
	URI    string `json:"uri,omitempty" jsonschema:"of one resource; without it, lists all"`
	Offset int    `json:"offset,omitempty" jsonschema:"how many to pass over"`
}

// resources implements the tool that lists the server's resources, or reads the one with the given
// URI. A resource may consist of several contents.
func (s *toolset) resources(
	ctx context.Context, _ tool.Call, args resourcesArgs,
) (tool.Result, error) {
	name := s.prefix + "resources"
	return s.look(ctx, builder{name: name, reader: name}, func(
		ctx context.Context, session *sdk.ClientSession, b *builder,
	) (asks bool, err error) {
		if args.URI == "" {
			text, err := listResources(ctx, session, args.Offset)
			b.add(text)
			return false, err
		}
		r, err := session.ReadResource(ctx, &sdk.ReadResourceParams{URI: args.URI})
		if err != nil {
			return false, err
		}
		for _, c := range r.Contents {
			b.resource(c)
		}
		return r.NeedsInput(), nil
	})
}

// look calls do with a connection and a copy of empty, and returns what do adds to the copy. asks
// says that the server wants input instead of giving an answer.
func (s *toolset) look(ctx context.Context, empty builder, do func(
	ctx context.Context, session *sdk.ClientSession, b *builder,
) (asks bool, err error)) (tool.Result, error) {
	b := empty
	err := s.caller.use(ctx, tool.Pure, func(ctx context.Context, session *sdk.ClientSession) error {
		b = empty // it may be the second try
		asks, err := do(ctx, session, &b)
		if asks {
			b.note("the server asks for input, which this agent does not give")
		}
		return err
	})
	return b.result(s.Server), err
}

// listResources returns one page of the resources, followed by the templates of further ones.
func listResources(
	ctx context.Context, session *sdk.ClientSession, offset int,
) (string, error) {
	p := &pager{offset: max(0, offset)}
	err := collect(p, session.Resources(ctx, nil), func(r *sdk.Resource) string {
		return oneLine(r.URI, 500) + "  " + oneLine(r.Name, 100) + annotation(r.Description, r.MIMEType)
	})
	if err != nil {
		return "", err
	}
	// Many servers have no templates and do not support this request.
	_ = collect(p, session.ResourceTemplates(ctx, nil), func(r *sdk.ResourceTemplate) string {
		return oneLine(r.URITemplate, 500) + "  " + oneLine(r.Name, 100) +
			annotation(r.Description, r.MIMEType) + " [template: fill in what is in braces]"
	})
	return p.text("resources"), nil
}

type promptsArgs struct {
	Name      string            `json:"name,omitempty" jsonschema:"of one; without it, lists all"`
	Arguments map[string]string `json:"arguments,omitempty" jsonschema:"of the prompt"`
	Offset    int               `json:"offset,omitempty" jsonschema:"how many to pass over"`
}

// prompts implements the tool that lists the server's prompts, or returns the messages of the one
// with the given name. reader is the name of the tool that reads resources, or "".
func (s *toolset) prompts(
	ctx context.Context, args promptsArgs, reader string,
) (tool.Result, error) {
	return s.look(ctx, builder{name: s.prefix + "prompts", reader: reader}, func(
		ctx context.Context, session *sdk.ClientSession, b *builder,
	) (asks bool, err error) {
		if args.Name == "" {
			text, err := listPrompts(ctx, session, args.Offset)
			b.add(text)
			return false, err
		}
		r, err := session.GetPrompt(ctx,
			&sdk.GetPromptParams{Name: args.Name, Arguments: args.Arguments})
		if err != nil {
			return false, err
		}
		for _, m := range r.Messages {
			if m != nil {
				b.note("%s:", oneLine(string(m.Role), 20))
				b.content(m.Content)
			}
		}
		return r.NeedsInput(), nil
	})
}

func listPrompts(ctx context.Context, session *sdk.ClientSession, offset int) (string, error) {
	p := &pager{offset: max(0, offset)}
	err := collect(p, session.Prompts(ctx, nil), func(r *sdk.Prompt) string {
		line := oneLine(r.Name, 200) + annotation(r.Description, "")
		for _, a := range r.Arguments {
			if a == nil {
				continue
			}
			line += "\n  " + oneLine(a.Name, 100)
			if a.Required {
				line += " (required)"
			}
			line += annotation(a.Description, "")
		}
		return line
	})
	return p.text("prompts"), err
}

// A pager selects one page of a list.
type pager struct {
	offset, seen int // entries to pass over, and entries passed over or shown
	lines        []string
	more         bool
}

// collect adds the entries that list yields to the page.
func collect[T any](p *pager, list iter.Seq2[*T, error], line func(*T) string) error {
	for item, err := range list {
		if err != nil {
			return err
		}
		if item == nil {
			continue
		}
		// There is at least this entry beyond the page.
		if len(p.lines) == maxPage || p.seen == maxItems {
			p.more = p.seen < maxItems
			return nil
		}
		if p.seen++; p.seen > p.offset {
			p.lines = append(p.lines, line(item))
		}
	}
	return nil
}

// text returns the page. An empty page says how many entries there are.
func (p *pager) text(what string) string {
	if len(p.lines) == 0 {
		return fmt.Sprintf("(there are only %d %s)", p.seen, what)
	}
	text := strings.Join(p.lines, "\n")
	if p.more {
		text += fmt.Sprintf("\n\n(there are more; read on with offset %d)", p.seen)
	}
	return text
}
