package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// brave implements the Brave Search API, https://api-dashboard.search.brave.com/docs.
type brave struct{ base, key string }

func (s brave) request(ctx context.Context, query string, count int) (*http.Request, error) {
	q := url.Values{"q": {query}, "count": {strconv.Itoa(count)}, "result_filter": {"web"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		s.base+"/res/v1/web/search?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("X-Subscription-Token", s.key)
	return req, nil
}

func (s brave) hits(body []byte) ([]hit, error) {
	var answer struct {
		Web struct {
			Results []struct{ Title, URL, Description string }
		}
	}
	err := getJSON(body, &answer)
	var hits []hit
	for _, r := range answer.Web.Results {
		hits = append(hits, hit{untagged(r.Title), r.URL, untagged(r.Description)})
	}
	return hits, err
}

func (s brave) advice(status int) string {
	if status == http.StatusUnprocessableEntity { // also the status for an invalid token
		return "it refuses the query or the configured key; try other words, else tell the user " +
			"that the operator has to check the key"
	}
	return ""
}

// tavily implements the Tavily Search API, https://docs.tavily.com.
type tavily struct{ base, key string }

func (s tavily) request(ctx context.Context, query string, count int) (*http.Request, error) {
	body, err := json.Marshal(map[string]any{"query": query, "max_results": count})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+"/search",
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+s.key)
	return req, nil
}

func (s tavily) hits(body []byte) ([]hit, error) {
	var answer results
	err := getJSON(body, &answer)
	return answer.hits(), err
}

func (s tavily) advice(status int) string {
	if status == 432 || status == 433 { // limits of the plan and of pay-as-you-go
		return quotaAdvice
	}
	return ""
}

// searxng implements the API of a SearXNG instance, https://docs.searxng.org/dev/search_api.html.
type searxng struct{ base string }

func (s searxng) request(ctx context.Context, query string, _ int) (*http.Request, error) {
	q := url.Values{"q": {query}, "format": {"json"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/search?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	return req, nil
}

func (s searxng) hits(body []byte) ([]hit, error) {
	var answer results
	err := getJSON(body, &answer)
	return answer.hits(), err
}

func (s searxng) advice(status int) string {
	if status == http.StatusForbidden {
		return "it does not give results to programs; tell the user that the operator has to add " +
			"json to search.formats in its settings.yml, and use web_fetch with URLs that you know"
	}
	return ""
}

// results is the answer of Tavily and SearXNG.
type results struct {
	Results []struct{ Title, URL, Content string }
}

func (r results) hits() []hit {
	var hits []hit
	for _, r := range r.Results {
		hits = append(hits, hit{r.Title, r.URL, r.Content})
	}
	return hits
}

// duckduckgo reads DuckDuckGo's page for browsers without scripts. This page is not a stable API,
// and may ask the user to prove that they are a person.
type duckduckgo struct{ base string }

func (s duckduckgo) request(ctx context.Context, query string, _ int) (*http.Request, error) {
	form := url.Values{"q": {query}, "b": {""}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+"/html/",
		strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "text/html")
	req.Header.Set("Referer", s.base+"/")
	return req, nil
}

const personAdvice = "it wants a proof that a person searches, which this tool can't give; don't " +
	"search again for some minutes, use web_fetch with URLs that you know, and tell the user that " +
	"the operator can configure another search provider"

func (s duckduckgo) hits(body []byte) ([]hit, error) {
	if bytes.Contains(body, []byte("anomaly-modal")) ||
		bytes.Contains(body, []byte("challenge-form")) {
		return nil, errors.New(personAdvice)
	}
	doc, _, err := parse(string(body))
	if err != nil {
		return nil, errors.New("its page can't be understood; use web_fetch with URLs that you know")
	}
	var hits []hit
	known := false // it is a page of results, even if it has none
	for n := range doc.Descendants() {
		known = known || hasClass(n, "results") || hasClass(n, "no-results")
		if hasClass(n, "result") && !hasClass(n, "result--ad") {
			if h := duckduckgoHit(n); h.url != "" {
				hits = append(hits, h)
			}
		}
	}
	if !known && len(hits) == 0 {
		return nil, errors.New("its page is not one of results: it may have changed, or refuse " +
			"programs; use web_fetch with URLs that you know")
	}
	return hits, nil
}

func (s duckduckgo) advice(status int) string {
	if status == http.StatusForbidden || status == http.StatusTooManyRequests {
		return personAdvice
	}
	return ""
}

// duckduckgoHit returns the hit in one result's node.
func duckduckgoHit(n *html.Node) hit {
	var h hit
	for d := range n.Descendants() {
		switch {
		case h.url == "" && d.DataAtom == atom.A && hasClass(d, "result__a"):
			h.title, h.url = outerText(d), unwrap(attr(d, "href"))
		case h.snippet == "" && hasClass(d, "result__snippet"):
			h.snippet = outerText(d)
		}
	}
	return h
}

// unwrap returns the target of a result's link, or "" for an advertisement.
func unwrap(href string) string {
	u, err := url.Parse(href)
	if err != nil {
		return ""
	}
	host := strings.ToLower(u.Hostname())
	if host != "" && host != "duckduckgo.com" && !strings.HasSuffix(host, ".duckduckgo.com") {
		return href
	}
	switch {
	case strings.HasPrefix(u.Path, "/l/"):
		target := u.Query().Get("uddg")
		t, err := url.Parse(target)
		if err != nil || t.Path == "/y.js" && strings.HasSuffix(t.Hostname(), "duckduckgo.com") {
			return ""
		}
		return target
	case u.Path == "/y.js":
		return ""
	}
	return href
}

func hasClass(n *html.Node, class string) bool {
	if n.Type != html.ElementNode {
		return false
	}
	for c := range strings.FieldsSeq(attr(n, "class")) {
		if c == class {
			return true
		}
	}
	return false
}
