// Package web has the tools "web_search" and "web_fetch".
//
// [Tools] returns both. Pages are fetched through a [guard.Guard], so that no URL of a model or
// of a page leads into the operator's network. A page becomes Markdown: its readable part if
// there is one, without scripts and without what people who look at it would not see, such as
// hidden elements and invisible characters. That is told by attributes; style sheets are not
// evaluated. PDF, office documents and images are read, too; no third party takes part. All of
// that is decoded in a process of its own (see package extract).
//
// Limits: 5 MB, 30 s and five redirects for a page; 2 MiB of its text and 100,000 of its nodes
// are looked at. The package owns no tables or files.
package web

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"gateway/agent/extract"
	"gateway/agent/guard"
	"gateway/agent/tool"
)

// The bounds of both tools.
const (
	maxBody   = 5 << 20 // bytes, after decompression
	pageTime  = 30 * time.Second
	toolTime  = 45 * time.Second // with the conversion
	maxResult = 10               // of a search
)

// Options are what the tools work with, and what is optional about them.
type Options struct {
	// Extract decodes what was loaded; its program knows [Page] as [KindPage]. It is required.
	Extract *extract.Extractor

	Guard     *guard.Guard // of web_fetch and of the public search services; by default a new one
	Search    SearchOptions
	UserAgent string       // by default a plain one that names no version
	Logger    *slog.Logger // discards by default
}

// SearchOptions say which service searches.
type SearchOptions struct {
	// Provider is "brave", "tavily", "searxng" or "duckduckgo", which is the default.
	Provider string

	// Key is that of Brave or Tavily, without which they can't be used.
	Key string

	// BaseURL replaces the address of the service, without a path; SearXNG has no other. It is
	// the operator's word: it may be private, and its redirects are not followed.
	BaseURL string
}

// Tools returns web_search and web_fetch. An error means that the search options do not fit.
func Tools(o Options) ([]tool.Tool, error) {
	g := o.Guard
	if g == nil {
		g = guard.New(nil)
	}
	log := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	agent := cmp.Or(o.UserAgent, "Mozilla/5.0 (compatible; gateway)")
	client := g.Client(pageTime)
	p, err := newProvider(o.Search, client)
	if err != nil {
		return nil, fmt.Errorf("web: search: %w", err)
	}
	p.agent, p.log = agent, log
	f := &fetcher{client: client, extract: o.Extract, agent: agent, log: log}
	tools := []tool.Tool{
		tool.New("web_search", searchDescription, tool.Pure, p.search),
		tool.New("web_fetch", fetchDescription, tool.Pure, f.fetch),
	}
	for i := range tools {
		tools[i].Timeout = toolTime
	}
	return tools, nil
}

// trusted returns the client for a host that the operator has named: it may be anywhere, but
// what it redirects to may not.
func trusted() *http.Client {
	return &http.Client{
		Timeout:       pageTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
