package web

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/agent/tool"
)

// A fakeSearch is a search service that checks requests as strictly as the real ones. It answers
// a query with the body that is stored for it.
type fakeSearch struct {
	*httptest.Server
	provider string

	mu      sync.Mutex
	answers map[string]string // body by query
	status  int               // status of all answers, if not 0
	tooFast int               // number of further queries that come too fast
	queries int               // number of queries
}

const searchKey = "key-of-the-operator"

func newFakeSearch(t *testing.T, provider string) *fakeSearch {
	f := &fakeSearch{provider: provider, answers: make(map[string]string)}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeSearch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	query, problem := f.query(r)
	body, ok := f.answers[query]
	f.queries++
	f.tooFast--
	switch {
	case problem != "":
		http.Error(w, problem, http.StatusBadRequest)
	case f.tooFast >= 0:
		http.Error(w, "slower", http.StatusTooManyRequests)
	case f.status != 0:
		w.Header().Set("Location", "http://127.0.0.2/")
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, "the status says enough, not "+searchKey) // it sees the status
	case !ok:
		http.Error(w, "no such query", http.StatusNotFound)
	default:
		_, _ = io.WriteString(w, body) // the tool notices missing text
	}
}

// query returns the query of a request, or what is wrong with the request.
func (f *fakeSearch) query(r *http.Request) (query, problem string) {
	want := func(ok bool, what string) {
		if !ok && problem == "" {
			problem = "want " + what
		}
	}
	want(r.Header.Get("User-Agent") == "Mozilla/5.0 (compatible; gateway)", "the user agent")
	q := r.URL.Query()
	switch f.provider {
	case "brave":
		want(r.Method == "GET" && r.URL.Path == "/res/v1/web/search", "GET /res/v1/web/search")
		want(r.Header.Get("X-Subscription-Token") == searchKey, "the key in X-Subscription-Token")
		want(q.Get("count") == "3", "the count")
		query = q.Get("q")
	case "tavily":
		want(r.Method == "POST" && r.URL.Path == "/search", "POST /search")
		want(r.Header.Get("Authorization") == "Bearer "+searchKey, "the key as a bearer")
		want(r.Header.Get("Content-Type") == "application/json", "JSON")
		var body struct {
			Query      string `json:"query"`
			MaxResults int    `json:"max_results"`
		}
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		want(d.Decode(&body) == nil && body.MaxResults == 3, "query and max_results")
		query = body.Query
	case "searxng":
		want(r.Method == "GET" && r.URL.Path == "/sub/search", "GET /sub/search")
		want(q.Get("format") == "json", "format=json")
		want(r.Header.Get("Authorization") == "", "no key")
		query = q.Get("q")
	case "duckduckgo":
		want(r.Method == "POST" && r.URL.Path == "/html/", "POST /html/")
		want(r.Header.Get("Content-Type") == "application/x-www-form-urlencoded", "a form")
		query = r.PostFormValue("q")
	}
	return query, problem
}

// run calls web_search, which is configured for three results.
func (f *fakeSearch) run(t *testing.T, args string) (tool.Result, error) {
	t.Helper()
	o := SearchOptions{Provider: f.provider, BaseURL: f.URL}
	switch f.provider {
	case "brave", "tavily":
		o.Key = searchKey
	case "searxng":
		o.BaseURL += "/sub/"
	}
	tools, err := Tools(Options{Search: o})
	if err != nil {
		t.Fatal(err)
	}
	r, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := r.Arguments("web_search", args)
	if err != nil {
		t.Fatal(err)
	}
	var a searchArgs
	if err := json.Unmarshal(checked, &a); err != nil {
		t.Fatal(err)
	}
	p, err := newProvider(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.log, p.pause = slog.New(slog.DiscardHandler), time.Millisecond
	return p.search(t.Context(), tool.Call{}, a)
}

const threeArgs = `{"query":" tide\n times ","count":3}`

// The answers of the services, all with the same four results.
var searchAnswers = map[string]string{
	"brave": `{"type":"search","query":{},"web":{"type":"search","results":[
		{"title":"A &amp; <strong>B</strong>","url":"https://a.example/?q=1",
		 "description":"one <strong>two</strong>\n\u202ethree"},
		{"title":"again","url":"https://a.example/?q=1","description":""},
		{"title":"bad","url":"javascript:alert(1)","description":"no"},
		{"title":"\u200b","url":"https://b.example/","description":""},
		{"title":"C","url":"https://c.example/","description":"three"},
		{"title":"D","url":"https://d.example/","description":"four"}]}}`,
	"duckduckgo": `<html><body><div id="links" class="results">
		<div class="result results_links result--ad">
		<h2><a class="result__a" href="https://ad.example/">Ad</a></h2></div>
		<div class="result web-result"><h2>
		<a class="result__a" href="https://duckduckgo.com/y.js?ad_domain=x">Ad</a></h2></div>
		<div class="result web-result"><h2>
		<a class="result__a"
		href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fduckduckgo.com%2Fy.js%3Fx&amp;rut=1"
		>Ad</a></h2></div>
		<div class="result web-result"><h2 class="result__title">
		<a rel="nofollow" class="result__a"
		href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fa.example%2F%3Fq%3D1&amp;rut=abc"
		>A &amp; <b>B</b></a></h2>
		<a class="result__snippet" href="//duckduckgo.com/l/?uddg=x">one <b>two</b>
		three</a></div>
		<div class="result web-result"><a class="result__a" href="https://b.example/"></a></div>
		<div class="result web-result"><a class="result__a" href="https://c.example/">C</a>
		<div class="result__snippet">three</div></div>
		<div class="result web-result"><a class="result__a" href="https://d.example/">D</a></div>
		</div></body></html>`,
}

func TestSearch(t *testing.T) {
	const want = "1. A & B\n   https://a.example/?q=1\n   one two three\n" +
		"2. (no title)\n   https://b.example/\n" +
		"3. C\n   https://c.example/\n   three\n"
	common := `{"query":"tide times","results":[
		{"title":"A & B","url":"https://a.example/?q=1","content":"one two\n\nthree","score":0.9},
		{"title":"user","url":"https://u:p@a.example/","content":"no"},
		{"title":"","url":"https://b.example/","content":""},
		{"title":"C","url":"https://c.example/","content":"three"},
		{"title":"D","url":"https://d.example/","content":"four"}]}`
	for provider, name := range map[string]string{
		"brave": "Brave", "tavily": "Tavily", "searxng": "SearXNG", "duckduckgo": "DuckDuckGo",
	} {
		t.Run(provider, func(t *testing.T) {
			f := newFakeSearch(t, provider)
			f.answers["tide times"] = common
			if own := searchAnswers[provider]; own != "" {
				f.answers["tide times"] = own
			}
			got, err := f.run(t, threeArgs)
			if err != nil || got.Text != want || got.Foreign != "search results of "+name {
				t.Errorf("search = %v, foreign %q,\n%swant\n%s", err, got.Foreign, got.Text, want)
			}
		})
	}
}

func TestSearchErrors(t *testing.T) {
	for _, tt := range []struct {
		provider string
		status   int
		want     string
	}{
		{"brave", 401, "refuses the configured key"}, {"brave", 403, "refuses the configured key"},
		{"brave", 422, "refuses the query or the configured key"},
		{"brave", 429, "limit of requests"}, {"brave", 402, "used up"},
		{"brave", 500, "problem of its own"},
		{"brave", 302, "redirects elsewhere"}, {"tavily", 307, "redirects elsewhere"},
		{"tavily", 401, "refuses the configured key"}, {"tavily", 432, "used up"},
		{"tavily", 433, "used up"}, {"tavily", 400, "try other words"},
		{"searxng", 403, "add json to search.formats"}, {"searxng", 429, "limit of requests"},
		{"duckduckgo", 403, "a proof that a person searches"},
		{"duckduckgo", 202, "no list of results"}, {"brave", 200, "can't be understood"},
	} {
		f := newFakeSearch(t, tt.provider)
		f.status, f.answers["tide times"] = tt.status, "{}"
		got, err := f.run(t, threeArgs)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %d = %q, %v; want %q", tt.provider, tt.status, got.Text, err, tt.want)
			continue
		}
		if text := err.Error(); strings.Contains(text, searchKey) || strings.Contains(text, "127.0.0") {
			t.Errorf("%s with %d tells %q", tt.provider, tt.status, text)
		}
	}
}

// TestSearchTooFast checks that a query is repeated if it came too fast, unless the service then
// wants a person.
func TestSearchTooFast(t *testing.T) {
	for _, tt := range []struct {
		provider         string
		tooFast, queries int
	}{
		{"brave", maxRepeats, maxRepeats + 1}, {"tavily", 1, 2}, {"duckduckgo", 1, 1},
		{"brave", maxRepeats + 1, maxRepeats + 1},
	} {
		f := newFakeSearch(t, tt.provider)
		f.answers["tide times"], f.tooFast = "{}", tt.tooFast
		_, err := f.run(t, threeArgs)
		if succeeds := tt.queries > tt.tooFast; f.queries != tt.queries || (err == nil) != succeeds {
			t.Errorf("%s refuses %d queries: %d were sent, %v; want %d", tt.provider, tt.tooFast,
				f.queries, err, tt.queries)
		}
	}
}

func TestSearchAnswers(t *testing.T) {
	for _, tt := range []struct{ provider, body, want, err string }{
		{"brave", `{}`, "Nothing was found.", ""},
		{"tavily", `{"results":[]}`, "Nothing was found.", ""},
		{"searxng", `{"results":null}`, "Nothing was found.", ""},
		{"searxng", `<html>`, "", "can't be understood"},
		{"duckduckgo", `<div class="results"><div class="no-results">None</div></div>`, "Nothing", ""},
		{"duckduckgo", `<html><p>New layout</p>`, "", "it may have changed"},
		{"duckduckgo", `<div class="anomaly-modal__title">Select all squares</div>`, "",
			"a proof that a person searches"},
		{"brave", `{"web":{"results":[]},"x":"` + strings.Repeat("x", maxBody) + `"}`, "", "too large"},
	} {
		f := newFakeSearch(t, tt.provider)
		f.answers["tide times"] = tt.body
		got, err := f.run(t, threeArgs)
		if tt.err == "" && (err != nil || !strings.HasPrefix(got.Text, tt.want)) ||
			tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s answers %.60s: %q, %v; want %q, %q",
				tt.provider, tt.body, got.Text, err, tt.want, tt.err)
		}
	}
	gone := newFakeSearch(t, "searxng")
	gone.Close()
	got, err := gone.run(t, threeArgs)
	if err == nil || !strings.Contains(err.Error(), "no connection") {
		t.Errorf("a service that is gone = %q, %v", got.Text, err)
	}
}

func TestSearchArguments(t *testing.T) {
	f := newFakeSearch(t, "searxng")
	for args, want := range map[string]string{
		`{"query":" "}`:            "the query is empty",
		`{"query":"x","count":11}`: "want 1 to 10",
		`{"query":"x","count":-1}`: "want 1 to 10",
		fmt.Sprintf(`{"query":%q}`, strings.Repeat("ä", maxQuery+1)): "more than 400 characters",
	} {
		if got, err := f.run(t, args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("search %.40s = %q, %v; want %q", args, got.Text, err, want)
		}
	}
}

func TestSearchOptions(t *testing.T) {
	for _, o := range []SearchOptions{
		{}, {Provider: "duckduckgo"}, {Provider: "brave", Key: "k"}, {Provider: "tavily", Key: "k"},
		{Provider: "searxng", BaseURL: "http://10.0.0.1:8080/"},
	} {
		if tools, err := Tools(Options{Search: o}); err != nil || len(tools) != 2 {
			t.Errorf("Tools(%+v) = %d tools, %v", o, len(tools), err)
		}
	}
	for _, o := range []SearchOptions{
		{Provider: "altavista"}, {Provider: "brave"}, {Provider: "tavily"}, {Provider: "searxng"},
		{Provider: "searxng", BaseURL: "search.example.org"}, {BaseURL: "https://u:p@x.example"},
	} {
		if _, err := Tools(Options{Search: o}); err == nil {
			t.Errorf("Tools(%+v) succeeded", o)
		}
	}
}
