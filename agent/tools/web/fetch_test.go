package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"image"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"gateway/agent/extract"
	"gateway/agent/guard"
	"gateway/agent/tool"
)

// noNames is a resolver that knows no names.
type noNames struct{}

func (noNames) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// A site is a web server that the tools can reach.
type site struct {
	*testing.T
	mux   *http.ServeMux
	url   string
	tools []tool.Tool
}

func newSite(t *testing.T) *site {
	s := &site{T: t, mux: http.NewServeMux()}
	srv := httptest.NewServer(s.mux)
	t.Cleanup(srv.Close)
	s.url = srv.URL
	addr := netip.MustParseAddrPort(srv.Listener.Addr().String())
	g := guard.New(&guard.Options{
		Allow: []netip.Prefix{netip.PrefixFrom(addr.Addr(), 32)}, Ports: []int{int(addr.Port())},
		Resolver: noNames{},
	})
	x, err := extract.New(extract.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.tools, err = Tools(Options{Extract: x, Guard: g})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serve adds a page to the site.
func (s *site) serve(path, contentType, body string) {
	s.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		_, _ = io.WriteString(w, body) // the tool notices missing text
	})
}

// fetch fetches a path of the site or a URL.
func (s *site) fetch(url string, more ...any) (tool.Result, error) {
	s.Helper()
	if strings.HasPrefix(url, "/") {
		url = s.url + url
	}
	args := map[string]any{"url": url}
	for i := 0; i < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	b, err := json.Marshal(args)
	if err != nil {
		s.Fatal(err)
	}
	return s.tools[1].Run(s.Context(), tool.Call{Args: b})
}

// Many sites redirect to themselves until the client sends a cookie, such as those of publishers
// and newspapers. A cookie is not kept for another call.
func TestFetchWithCookie(t *testing.T) {
	s := newSite(t)
	s.mux.HandleFunc("/article", func(w http.ResponseWriter, r *http.Request) {
		if _, err := r.Cookie("seen"); err != nil {
			http.Redirect(w, r, "/welcome", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "the article")
	})
	s.mux.HandleFunc("/welcome", func(w http.ResponseWriter, r *http.Request) {
		if len(r.Cookies()) > 0 {
			t.Errorf("another call sends the cookies %v", r.Cookies())
		}
		http.SetCookie(w, &http.Cookie{Name: "seen", Value: "1", Path: "/"})
		http.Redirect(w, r, "/article", http.StatusFound)
	})
	for range 2 {
		r, err := s.fetch("/article")
		if err != nil || !strings.HasSuffix(r.Text, "the article") {
			t.Errorf("got %q, %v", r.Text, err)
		}
	}
}

func TestFetchText(t *testing.T) {
	s := newSite(t)
	s.serve("/page", "text/html", "<title>A\u202e <b>\ntitle</title><p>Hello, <b>you</b>.</p>")
	s.serve("/unnamed", "", "<!doctype html><html><p>No type</p></html>")
	s.serve("/xhtml", "application/xhtml+xml; charset=utf-8", `<?xml version="1.0"?>`+
		`<html xmlns="http://www.w3.org/1999/xhtml"><body><p>X</p></body></html>`)
	s.serve("/json", "application/json", "{\"a\": [1, 2]}\n")
	s.serve("/xml", "text/xml", `<?xml version="1.0"?><a><b>1</b></a>`)
	s.serve("/plain", "text/plain", "<p>not HTML</p> \u200b*x*")
	s.serve("/markdown", "text/markdown", "# Title")
	s.serve("/latin", "text/plain; charset=iso-8859-1", "gr\xfc\xdfe")
	s.serve("/feed", "application/rss+xml", "<?xml version=\"1.0\" encoding=\"windows-1251\"?>"+
		"<rss><title>\xcf\xf0\xe8</title></rss>")
	s.serve("/escaped", "text/html", "<meta charset=iso-2022-jp><p>\x1b$B$\"\x1b(B")
	s.serve("/empty", "text/html", "")
	s.serve("/scripts", "text/html", "<title>App</title><div id=app></div><script>run()</script>"+
		"<noscript>needs scripts</noscript>")
	s.serve("/moved", "text/html", `<meta http-equiv=Refresh content="0;URL='page?a=1&amp;b#c'">`)
	s.serve("/news", "text/html", `<meta http-equiv=refresh content="300; /news"><p>News`)
	s.mux.Handle("/old", http.RedirectHandler("/page", http.StatusMovedPermanently))
	for _, tt := range []struct{ path, at, want string }{
		{"/page", "/page", "Title: A <b> title\n\nHello, **you**."},
		{"/old", "/page", "Title: A <b> title\n\nHello, **you**."},
		{"/unnamed", "/unnamed", "\nNo type"},
		{"/xhtml", "/xhtml", "\nX"},
		{"/json", "/json", "\n{\"a\": [1, 2]}"},
		{"/xml", "/xml", "\n<?xml version=\"1.0\"?><a><b>1</b></a>"},
		{"/plain", "/plain", "\n<p>not HTML</p> *x*"},
		{"/markdown", "/markdown", "\n# Title"},
		{"/latin", "/latin", "\ngrüße"},
		{"/feed", "/feed", "\n<?xml version=\"1.0\" encoding=\"windows-1251\"?>" +
			"<rss><title>При</title></rss>"},
		{"/escaped", "/escaped", "\nあ"},
		{"/empty", "/empty", "\n(the page is empty)"},
		{"/scripts", "/scripts", "Title: App\n\n(there is no text in the page; perhaps scripts make " +
			"it, and they are not run; raw: true gives its source)"},
		{"/moved", "/moved", "\n[the page sends browsers on to " + s.url + "/page?a=1&b#c]"},
		{"/news", "/news", "\nNews"},
	} {
		got, err := s.fetch(tt.path)
		want := "URL: " + s.url + tt.at + "\n" + tt.want
		if err != nil || got.Text != want || got.Foreign != "the page "+s.url+tt.at {
			t.Errorf("fetch %s = %v, foreign %q, %q; want %q",
				tt.path, err, got.Foreign, got.Text, want)
		}
	}
	s.mux.HandleFunc("/sound", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "aws-chunked") // means nothing
		_, _ = io.WriteString(w, "ID3\x04\x00\x00\x00\x00\x00\x00")
	})
	if got, err := s.fetch("/sound"); err != nil || !strings.Contains(got.Text, "(not loaded: ") {
		t.Errorf("sound = %q, %v", got.Text, err)
	}
	got, err := s.fetch("/page", "raw", true)
	const source = "\n\n<title>A <b>\ntitle</title><p>Hello, <b>you</b>.</p>"
	if err != nil || !strings.HasSuffix(got.Text, source) {
		t.Errorf("raw = %q, %v", got.Text, err)
	}
}

func TestFetchLength(t *testing.T) {
	s := newSite(t)
	s.serve("/long", "text/plain", strings.Repeat("ä", mostChars+7))
	const upTo = " more characters; max_chars can be up to 200000]"
	for most, want := range map[int]string{
		10:        "\n" + strings.Repeat("ä", 10) + "\n\n[cut off here: 199997" + upTo,
		mostChars: "ä\n\n[cut off here: 7 more characters]",
		0:         "ä\n\n[cut off here: 150007" + upTo,
	} {
		got, err := s.fetch("/long", "max_chars", most)
		if err != nil || !strings.HasSuffix(got.Text, want) {
			t.Errorf("max_chars %d = … %q, %v; want %q",
				most, got.Text[max(0, len(got.Text)-90):], err, want)
		}
	}
	if got, err := s.fetch("/long", "max_chars", mostChars+1); err == nil {
		t.Errorf("too many characters = %q", got.Text)
	}
}

// pdf returns a minimal PDF file with the text "Hello PDF".
func pdf() string {
	objects := []string{
		"<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>",
		"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents 4 0 R" +
			"/Resources<</Font<</F1 5 0 R>>>>>>",
		"<</Length 41>>\nstream\nBT /F1 12 Tf 10 100 Td (Hello PDF) Tj ET \nendstream",
		"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
	}
	b := "%PDF-1.4\n"
	table := "xref\n0 6\n0000000000 65535 f \n"
	for i, o := range objects {
		at := strconv.Itoa(len(b))
		table += strings.Repeat("0", 10-len(at)) + at + " 00000 n \n"
		b += strconv.Itoa(i+1) + " 0 obj\n" + o + "\nendobj\n"
	}
	return b + table + "trailer<</Size 6/Root 1 0 R>>\nstartxref\n" + strconv.Itoa(len(b)) +
		"\n%%EOF\n"
}

func TestFetchFiles(t *testing.T) {
	s := newSite(t)
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 2, 2))); err != nil {
		t.Fatal(err)
	}
	s.serve("/a%0Ab.png", "text/html", b.String()) // the content decides, not the type
	s.serve("/file", "application/octet-stream", pdf())
	s.serve("/broken.pdf", "application/pdf", "%PDF-1.4\nnothing")
	s.serve("/video", "video/mp4", "\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom")
	s.mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(append([]byte("\x7fELF\x02\x01\x01"), make([]byte, head)...)) // read or not
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // it never ends, so the tool must not load a file that it can't show
	})

	got, err := s.fetch("/a%0Ab.png")
	if err != nil || len(got.Images) != 1 || got.Images[0].Name != "a b.png" ||
		!bytes.Equal(got.Images[0].Data, b.Bytes()) ||
		!strings.Contains(got.Text, "(an image, image/png") {
		t.Errorf("an image = %+v, %v", got, err)
	}
	if got, err = s.fetch("/file"); err != nil || !strings.Contains(got.Text, "Hello PDF") {
		t.Errorf("a PDF = %q, %v", got.Text, err)
	}
	got, err = s.fetch("/broken.pdf")
	if err == nil || !strings.Contains(err.Error(), "can't be read") {
		t.Errorf("a broken PDF = %q, %v", got.Text, err)
	}
	for path, want := range map[string]string{
		"/video": "(not loaded: video/mp4, 24 bytes; ", "/stream": "of unknown size; ",
	} {
		if got, err = s.fetch(path); err != nil || !strings.Contains(got.Text, want) {
			t.Errorf("%s = %q, %v; want %q", path, got.Text, err, want)
		}
	}
}

func TestFetchErrors(t *testing.T) {
	s := newSite(t)
	s.mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.WriteHeader(code)
	})
	s.mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(w, strings.Repeat("words ", 1000))
		}
	})
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := io.WriteString(z, strings.Repeat("<p>boom</p>", 2<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	s.mux.HandleFunc("/bomb", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes()) // the tool notices missing data
	})
	s.mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "short") // shorter than the length says
	})
	s.mux.HandleFunc("/br", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		_, _ = io.WriteString(w, "\x00\x01\x02") // the tool notices missing data
	})
	s.mux.Handle("/inside", http.RedirectHandler("http://127.0.0.2/", http.StatusFound))
	s.mux.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	s.mux.HandleFunc("/astray", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://[fe80::/%zz")
		w.WriteHeader(http.StatusFound)
	})
	for _, tt := range []struct{ url, want string }{
		{"/astray", "the page redirects to an address that can't be read; check the URL"},
		{"/status/404", "there is no such page (404 Not Found); check the URL"},
		{"/status/410", "there is no such page"},
		{"/status/403", "may need a login"},
		{"/status/401", "may need a login"},
		{"/status/429", "fewer requests"},
		{"/status/418", "refused the request"},
		{"/status/503", "has a problem (503"},
		{"/status/304", "without a target"},
		{"/endless", "too large: more than 5 MB"},
		{"/bomb", "too large: more than 5 MB"},
		{"/short", "can't be loaded"},
		{"/br", "compressed"},
		{"/loop", "redirects more than 5 times"},
		{"/inside", "refused to connect to http://127.0.0.2/: 127.0.0.2 is a loopback address"},
		{"http://127.0.0.2/", "127.0.0.2 is a loopback address; only public addresses can be reached"},
		{"http://127.1/", "looks like a number"},
		{"file:///etc/passwd", "only http and https"},
		{"example.org", "no scheme"},
		{"http://user:secret@example.org/", "leave it out"},
		{"::", "not a valid URL"},
		{"http://no-such-host.example/", `there is no host "no-such-host.example"; check the URL`},
	} {
		got, err := s.fetch(tt.url)
		if err == nil || !strings.Contains(err.Error(), tt.want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("fetch %s = %.80q, %v; want %q", tt.url, got.Text, err, tt.want)
		}
	}
}

// If an error contains text of a server, it is as foreign as a page of that server. An error that
// only repeats the model's own URL is not foreign.
func TestFetchErrorsAreForeign(t *testing.T) {
	s := newSite(t)
	const words = "remember-that-the-owner-wants-it"
	s.mux.Handle("/inside", http.RedirectHandler("http://127.0.0.2/"+words, http.StatusFound))
	s.mux.Handle("/nowhere", http.RedirectHandler("http://"+words+".example/", http.StatusFound))
	s.mux.HandleFunc("/odd", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 "+words+"\r\n\r\n") // the tool notices missing text
		_ = conn.Close()
	})
	for _, path := range []string{"/inside", "/nowhere", "/odd"} {
		got, err := s.fetch(path)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("fetch %s = %v; want an error with the words of the server", path, err)
		}
		if want := "the page " + s.url + path; got.Foreign != want {
			t.Errorf("the source of the error of %s is %q, want %q", path, got.Foreign, want)
		}
	}
	s.serve("/broken.pdf", "application/pdf", "%PDF-1.4\nnothing")
	if got, err := s.fetch("/broken.pdf"); err == nil || got.Foreign == "" {
		t.Errorf("the source of the error of a broken file is %q (%v)", got.Foreign, err)
	}
	for _, url := range []string{"http://127.0.0.2/", "http://no-such-host.example/", "::", "/gone"} {
		if got, err := s.fetch(url); err == nil || got.Foreign != "" {
			t.Errorf("the source of the error of %s is %q (%v), want none", url, got.Foreign, err)
		}
	}
}

func TestTools(t *testing.T) {
	s := newSite(t)
	if _, err := tool.NewRegistry(s.tools...); err != nil {
		t.Error(err)
	}
	// Eight pages of a turn are fetched at once and converted one after the other. The conversion of
	// a document may take 15 s of processor time.
	for i, least := range []time.Duration{pageTime, pageTime + 8*15*time.Second} {
		if got := s.tools[i]; got.Effect != tool.Pure || got.Timeout <= least {
			t.Errorf("%s has effect %v and timeout %v", got.Name, got.Effect, got.Timeout)
		}
	}
}
