// Package web implements the tools "web_search" and "web_fetch".
//
// [Tools] returns both. A [guard.Guard] loads pages, so that no URL from a model or a page leads
// into the operator's network. A page becomes Markdown: its readable part, if there is one, without
// scripts and without anything invisible, such as hidden elements and invisible characters.
// Elements are hidden if their attributes say so; style sheets are not evaluated. The tools also
// read PDF files, office documents and images. No third party is involved. Pages and files are
// decoded in a separate process (see package extract), but not the results of a search service.
//
// Limits for a page: 5 MB, 30 s, five redirects, 2 MiB of text and 100,000 nodes. The package has
// no database tables or files.
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

// Limits of both tools.
const (
	maxBody    = 5 << 20 // bytes, after decompression
	pageTime   = 30 * time.Second
	searchTime = 45 * time.Second
	fetchTime  = 5 * time.Minute // with the conversion, which waits for those of other calls
	maxResult  = 10              // results of a search
)

const userAgent = "Mozilla/5.0 (compatible; gateway)"

// Options are the settings of the tools. All but Extract are optional.
type Options struct {
	// Extract decodes loaded data. Its program must register [Page] under [KindPage]. It is
	// required.
	Extract *extract.Extractor

	Guard  *guard.Guard // for web_fetch and the public search services; default new
	Search SearchOptions
	Logger *slog.Logger // discards by default
}

// SearchOptions select the search service.
type SearchOptions struct {
	// Provider is "brave", "tavily", "searxng" or "duckduckgo". The default is "duckduckgo".
	Provider string

	// Key is the API key for Brave or Tavily, which require one.
	Key string

	// BaseURL replaces the service's address, without a path. SearXNG requires it. Because the
	// operator sets it, it may be private; its redirects are not followed.
	BaseURL string
}

// Tools returns web_search and web_fetch. It returns an error if the search options are not valid.
func Tools(o Options) ([]tool.Tool, error) {
	g := cmp.Or(o.Guard, guard.New(nil))
	log := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	client := g.Client(pageTime)
	p, err := newProvider(o.Search, client)
	if err != nil {
		return nil, fmt.Errorf("web: search: %w", err)
	}
	p.log = log
	f := &fetcher{client: client, extract: o.Extract, log: log}
	tools := []tool.Tool{
		tool.New("web_search", searchDescription, tool.Pure, p.search),
		tool.New("web_fetch", fetchDescription, tool.Pure, f.fetch),
	}
	tools[1].Aliases = map[string]string{"maxChars": "max_chars"} // nanobot's name
	tools[0].Timeout, tools[1].Timeout = searchTime, fetchTime
	return tools, nil
}

// trusted returns the client for a host that the operator has set. The host may have any address.
// The client does not follow redirects.
func trusted() *http.Client {
	return &http.Client{
		Timeout:       pageTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
