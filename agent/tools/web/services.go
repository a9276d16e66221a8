package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// A service is the protocol of one search service.
type service struct {
	name string // for people

	// request returns a request for about count results.
	request func(ctx context.Context, query string, count int) (*http.Request, error)

	// hits parses the answer to a successful request. An error is for the model.
	hits func(body []byte) ([]hit, error)

	// advice explains error statuses to the model. Others have their usual meaning.
	advice map[int]string
}

// newRequest returns a request with headers, which are pairs of a name and a value.
func newRequest(
	ctx context.Context, method, address, body string, headers ...string,
) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req, nil
}

// brave returns the Brave Search API, https://api-dashboard.search.brave.com/docs.
func brave(base, key string) service {
	request := func(ctx context.Context, query string, count int) (*http.Request, error) {
		q := url.Values{"q": {query}, "count": {strconv.Itoa(count)}, "result_filter": {"web"}}
		return newRequest(ctx, http.MethodGet, base+"/res/v1/web/search?"+q.Encode(), "",
			"Accept", "application/json", "X-Subscription-Token", key)
	}
	return service{"Brave", request, jsonHits, map[int]string{
		// This is also the status for an invalid token.
		http.StatusUnprocessableEntity: "it refuses the query or the configured key; try other " +
			"words, else tell the user that the operator has to check the key",
	}}
}

// tavily returns the Tavily Search API, https://docs.tavily.com.
func tavily(base, key string) service {
	request := func(ctx context.Context, query string, count int) (*http.Request, error) {
		body, err := json.Marshal(map[string]any{"query": query, "max_results": count})
		if err != nil {
			return nil, err
		}
		return newRequest(ctx, http.MethodPost, base+"/search", string(body),
			"Content-Type", "application/json", "Authorization", "Bearer "+key)
	}
	// The statuses are those of the plan's limit and of the limit of pay-as-you-go.
	return service{"Tavily", request, jsonHits, map[int]string{432: quotaAdvice, 433: quotaAdvice}}
}

// searxng returns the API of a SearXNG instance, https://docs.searxng.org/dev/search_api.html. The
// request names no number of results: list cuts them.
func searxng(base string) service {
	request := func(ctx context.Context, query string, _ int) (*http.Request, error) {
		q := url.Values{"q": {query}, "format": {"json"}}
		return newRequest(ctx, http.MethodGet, base+"/search?"+q.Encode(), "",
			"Accept", "application/json")
	}
	return service{"SearXNG", request, jsonHits, map[int]string{
		http.StatusForbidden: "it does not give results to programs; tell the user that the " +
			"operator has to add json to search.formats in its settings.yml, and use web_fetch with " +
			"URLs that you know",
	}}
}

// jsonHits parses the answer of Brave, or of Tavily or SearXNG.
func jsonHits(body []byte) (hits []hit, err error) {
	// Brave nests its results; the other two have them at the top.
	var answer struct {
		Web struct {
			Results []struct{ Title, URL, Description string } // with HTML
		}
		Results []struct{ Title, URL, Content string }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, errors.New("its answer can't be understood; try once more, or web_fetch a page " +
			"that you know")
	}
	for _, r := range answer.Web.Results {
		hits = append(hits, hit{untagged(r.Title), r.URL, untagged(r.Description)})
	}
	for _, r := range answer.Results {
		hits = append(hits, hit{r.Title, r.URL, r.Content})
	}
	return hits, nil
}

// duckduckgo returns DuckDuckGo's page for browsers without scripts. This page is not a stable API,
// and may ask the user to prove that they are a person.
func duckduckgo(base string) service {
	request := func(ctx context.Context, query string, _ int) (*http.Request, error) {
		form := url.Values{"q": {query}, "b": {""}}
		return newRequest(ctx, http.MethodPost, base+"/html/", form.Encode(),
			"Content-Type", "application/x-www-form-urlencoded", "Accept", "text/html",
			"Referer", base+"/")
	}
	return service{"DuckDuckGo", request, duckduckgoHits, map[int]string{
		http.StatusForbidden: personAdvice, http.StatusTooManyRequests: personAdvice,
	}}
}

const personAdvice = "it asks for a proof that a person searches, which this tool can't give; " +
	"don't search again for some minutes, use web_fetch with URLs that you know, and tell the " +
	"user that the operator can configure another search provider"

// duckduckgoHits finds the results by the class names of the page. A page without a list of results
// is an error, so that a changed page does not look like an empty list.
func duckduckgoHits(body []byte) ([]hit, error) {
	// These names occur on the page that asks for a proof instead of showing results.
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
		return nil, errors.New("its page has no list of results: it may have changed, or refuse " +
			"programs; use web_fetch with URLs that you know")
	}
	return hits, nil
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
	// A link to another host is the target itself. The others lead through a page of DuckDuckGo,
	// with the target in the parameter uddg.
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
	return n.Type == html.ElementNode && slices.Contains(strings.Fields(attr(n, "class")), class)
}
