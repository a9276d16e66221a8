package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"

	"gateway/agent/guard"
	"gateway/agent/tool"
)

const searchDescription = "Searches the web. Use it for facts that may have changed or that you " +
	"are not sure of; read the best results with web_fetch."

// Limits of a search.
const (
	maxQuery   = 400 // characters; Brave's maximum
	usualCount = 5
	maxSnippet = 500 // characters

	maxRepeats  = 3 // of a query that came too fast
	repeatPause = 1100 * time.Millisecond
)

type searchArgs struct {
	Query string `json:"query"`
	Count int    `json:"count,omitempty"`
}

// A hit is one result of a search. All of it is foreign text.
type hit struct{ title, url, snippet string }

// A provider implements the tool web_search with one service.
type provider struct {
	service
	client *http.Client
	log    *slog.Logger

	pause   time.Duration // between two repeated queries
	waiting chan struct{} // held by the query that is repeated next
}

// newProvider returns a provider. It uses client unless the operator has set a host. Such a host
// may be in the operator's own network, to which client refuses to connect.
func newProvider(o SearchOptions, client *http.Client) (*provider, error) {
	p := &provider{client: client, pause: repeatPause, waiting: make(chan struct{}, 1)}
	at := strings.TrimRight(o.BaseURL, "/")
	if at != "" {
		u, err := url.Parse(at)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return nil, errors.New("the base URL must be one such as https://search.example.org")
		}
		p.client = trusted()
	}
	switch o.Provider {
	case "", "duckduckgo":
		p.service = duckduckgo(cmp.Or(at, "https://html.duckduckgo.com"))
	case "brave":
		p.service = brave(cmp.Or(at, "https://api.search.brave.com"), o.Key)
	case "tavily":
		p.service = tavily(cmp.Or(at, "https://api.tavily.com"), o.Key)
	case "searxng":
		p.service = searxng(at)
		if at == "" {
			return nil, errors.New("searxng needs a base URL")
		}
	default:
		return nil, fmt.Errorf("there is no provider %q; known are brave, duckduckgo, searxng, tavily",
			o.Provider)
	}
	if (o.Provider == "brave" || o.Provider == "tavily") && o.Key == "" {
		return nil, fmt.Errorf("%s needs a key", o.Provider)
	}
	return p, nil
}

// search implements web_search. An error tells the model whether to try again.
func (p *provider) search(ctx context.Context, _ tool.Call, a searchArgs) (tool.Result, error) {
	query := strings.Join(strings.Fields(a.Query), " ")
	count := cmp.Or(a.Count, usualCount)
	switch {
	case query == "":
		return tool.Result{}, errors.New("the query is empty; say what to search for")
	case utf8.RuneCountInString(query) > maxQuery:
		return tool.Result{}, fmt.Errorf("the query has more than %d characters; shorten it to "+
			"what matters", maxQuery)
	case count < 1 || count > maxResult:
		return tool.Result{}, fmt.Errorf("count is %d; want 1 to %d", a.Count, maxResult)
	}
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	start := time.Now()
	body, err := p.ask(ctx, query, count)
	if err != nil {
		return tool.Result{}, err
	}
	hits, err := p.hits(body)
	if err != nil {
		return tool.Result{}, fmt.Errorf("%s: %w", p.name, err)
	}
	p.log.DebugContext(ctx, "searched", "results", len(hits), "took", time.Since(start))
	text := list(hits, count)
	if text == "" {
		return tool.Result{Text: "Nothing was found. Try fewer or other words."}, nil
	}
	return tool.Result{Text: text, Foreign: "search results of " + p.name}, nil
}

// ask sends a query and returns the body of the answer. It repeats what came too fast: a model
// searches for several things at once, and some plans allow one request per second.
func (p *provider) ask(ctx context.Context, query string, count int) ([]byte, error) {
	body, status, err := p.send(ctx, query, count)
	for n := 0; n < maxRepeats && status == http.StatusTooManyRequests && p.advice[status] == "" &&
		p.await(ctx); n++ {
		body, status, err = p.send(ctx, query, count)
	}
	// The status comes first: it explains more than a body that can't be read.
	if status >= 300 {
		return nil, p.statusError(status)
	}
	return body, err
}

// await waits before a query is repeated, one query after the other. It returns false if ctx ends.
func (p *provider) await(ctx context.Context) bool {
	select {
	case p.waiting <- struct{}{}:
		defer func() { <-p.waiting }()
	case <-ctx.Done():
		return false
	}
	select {
	case <-time.After(p.pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// send sends a query once, and returns the body and the status of the answer.
func (p *provider) send(
	ctx context.Context, query string, count int,
) (body []byte, status int, err error) {
	req, err := p.request(ctx, query, count)
	if err != nil {
		return nil, 0, fmt.Errorf("%s can't be asked: %w", p.name, err)
	}
	req.Header.Set("User-Agent", userAgent)
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, 0, p.unreachable(err)
	}
	if body, err = guard.ReadBody(resp, maxBody); err != nil {
		err = p.unreachable(err)
	}
	return body, resp.StatusCode, err
}

// unreachable returns a network error for the model. It leaves out the address, which may belong to
// the operator's network.
func (p *provider) unreachable(err error) error {
	why := "there is no connection to it"
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, guard.ErrTooLarge):
		why = "its answer is too large"
	case errors.As(err, &timeout) && timeout.Timeout():
		why = "it does not answer"
	}
	return fmt.Errorf("%s can't search now: %s; try once more, or web_fetch a page that you know",
		p.name, why)
}

// statusError returns an error for the model from an HTTP status.
func (p *provider) statusError(status int) error {
	advice := p.advice[status]
	switch {
	case advice != "":
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		advice = "it refuses the configured key; tell the user that the operator has to check it, " +
			"and use web_fetch with URLs that you know"
	case status == http.StatusTooManyRequests:
		advice = "its limit of requests is reached; wait a minute before searching again, or use " +
			"web_fetch with URLs that you know"
	case status == http.StatusPaymentRequired:
		advice = quotaAdvice
	case status < 400:
		// Only the client for a host of the operator leaves redirects to the caller.
		advice = "it redirects elsewhere, which is not followed; the operator has to correct its " +
			"address"
	case status >= 500:
		advice = "it has a problem of its own; try again later, or use web_fetch with URLs that you know"
	default:
		advice = "it does not accept the query; try other words"
	}
	return fmt.Errorf("%s can't search (status %d): %s", p.name, status, advice)
}

const quotaAdvice = "the quota of the configured key is used up; tell the user, and use " +
	"web_fetch with URLs that you know"

// list returns at most count hits as a numbered list. It leaves out hits without a usable link and
// repeated links.
func list(hits []hit, count int) string {
	var b strings.Builder
	seen := make(map[string]bool) // links in the list
	for _, h := range hits {
		u, err := url.Parse(strings.TrimSpace(h.url))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			continue
		}
		address := visible(u.String())
		if len(address) > maxAddress || seen[address] || len(seen) == count {
			continue
		}
		seen[address] = true
		title := cmp.Or(oneLine(h.title, maxTitle), "(no title)")
		fmt.Fprintf(&b, "%d. %s\n   %s\n", len(seen), title, address)
		if snippet := oneLine(h.snippet, maxSnippet); snippet != "" {
			fmt.Fprintf(&b, "   %s\n", snippet)
		}
	}
	return b.String()
}

// untagged returns the text of a piece of HTML. The tokenizer also decodes entities such as &amp;.
func untagged(s string) string {
	if !strings.ContainsAny(s, "<&") {
		return s
	}
	var b bytes.Buffer
	z := html.NewTokenizer(strings.NewReader(s))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return b.String()
		case html.TextToken:
			b.Write(z.Text())
		}
	}
}
