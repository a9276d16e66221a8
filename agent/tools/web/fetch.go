package web

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"gateway/agent/extract"
	"gateway/agent/extract/document"
	"gateway/agent/guard"
	"gateway/agent/tool"
)

const fetchDescription = "Fetches a public web page as Markdown, PDF and Office documents as " +
	"text, or an image. It can't log in."

// Default and greatest number of characters in a result.
const (
	usualChars = 50_000
	mostChars  = 200_000
)

// fetchArgs are the arguments of web_fetch. A MaxChars of 0 means usualChars. Raw returns the
// source of a web page instead of Markdown.
type fetchArgs struct {
	URL      string `json:"url"`
	MaxChars int    `json:"max_chars,omitempty"`
	Raw      bool   `json:"raw,omitempty"`
}

// A fetcher implements the tool web_fetch.
type fetcher struct {
	client  *http.Client
	extract *extract.Extractor
	log     *slog.Logger
}

// head is the number of bytes of a body from which its type is detected.
const head = 3072

// fetch implements web_fetch. The time limit of get does not include the conversion, which has the
// limits of package extract.
func (f *fetcher) fetch(ctx context.Context, c tool.Call, a fetchArgs) (tool.Result, error) {
	if a.MaxChars < 0 || a.MaxChars > mostChars {
		return tool.Result{}, fmt.Errorf("max_chars is %d; want 1 to %d", a.MaxChars, mostChars)
	}
	p, err := f.get(ctx, a)
	if _, quotes := errors.AsType[serverError](err); quotes {
		return tool.Result{Foreign: source(a.URL)}, err
	}
	if err != nil {
		return tool.Result{}, err
	}
	return f.result(ctx, c, p, a)
}

// get loads the page for the arguments.
func (f *fetcher) get(ctx context.Context, a fetchArgs) (*page, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	start := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSpace(a.URL), nil)
	if err != nil {
		return nil, fmt.Errorf("%.200q is not a valid URL; want one such as "+
			"https://example.org/page", a.URL)
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept", "text/html,application/xhtml+xml,text/markdown;q=0.9,"+
		"application/pdf;q=0.9,text/plain;q=0.9,*/*;q=0.5")
	client := *f.client
	// The cookies live for the redirects of this call only. New never fails.
	client.Jar, _ = cookiejar.New(nil)
	resp, err := client.Do(req)
	if err != nil {
		return nil, explain(err, req.URL.String())
	}
	// Reading has checked the data, so an error of Close does not matter.
	defer func() { _ = resp.Body.Close() }()
	f.log.DebugContext(ctx, "page answered", "status", resp.StatusCode, "took", time.Since(start))
	if err := statusError(resp); err != nil {
		return nil, err
	}
	p, err := load(resp)
	if err != nil {
		return nil, explain(err, req.URL.String())
	}
	return p, nil
}

// source describes the origin of text to the model.
func source(address string) string { return "the page " + oneLine(address, 500) }

// A page is a loaded page.
type page struct {
	url      *url.URL // after redirects
	kind     string   // MIME type, detected from the content
	declared string   // Content-Type header
	body     []byte   // nil if it was not loaded
	size     int64    // bytes; -1 if unknown
}

// load reads a response. It does not read a body whose type the tool can't use.
func load(resp *http.Response) (*page, error) {
	p := &page{
		url: resp.Request.URL, declared: resp.Header.Get("Content-Type"), size: resp.ContentLength,
	}
	// ReadBody refuses bodies with a Content-Encoding that the request did not ask for.
	r := bufio.NewReaderSize(resp.Body, head)
	first, err := r.Peek(head)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	p.kind = document.Type(first, path.Base(p.url.Path))
	if len(first) > 0 && !p.readable() && guard.Compression(resp) == "" {
		return p, nil
	}
	// The reader has taken the first bytes from the body, so ReadBody must read through it.
	resp.Body = struct {
		io.Reader
		io.Closer
	}{r, resp.Body}
	p.body, err = guard.ReadBody(resp, maxBody)
	p.size = int64(len(p.body))
	return p, err
}

// isDocument reports whether package document may be able to extract text from the page.
func (p *page) isDocument() bool {
	return p.kind == "application/pdf" || document.IsZip(p.kind)
}

func (p *page) isText() bool {
	// Text in some encodings does not look like text.
	return document.IsText(p.kind) ||
		p.kind == "application/octet-stream" && strings.HasPrefix(p.declared, "text/")
}

func (p *page) readable() bool { return tool.IsPicture(p.kind) || p.isDocument() || p.isText() }

// isHTML reports whether the page is HTML. It trusts the Content-Type if the body is text. Without
// a useful Content-Type the detected type decides.
func (p *page) isHTML() bool {
	declared, _, err := mime.ParseMediaType(p.declared)
	if err != nil || declared == "" || declared == "application/octet-stream" {
		declared = p.kind
	}
	return p.isText() && (declared == "text/html" || declared == "application/xhtml+xml")
}

// result returns the page in the form for the model.
func (f *fetcher) result(
	ctx context.Context, c tool.Call, p *page, a fetchArgs,
) (tool.Result, error) {
	address := oneLine(p.url.String(), 500)
	r := tool.Result{Foreign: source(p.url.String())}
	title, text := "", ""
	var err error
	switch {
	case len(p.body) == 0 && p.size <= 0 && p.readable():
		text = "(the page is empty)"
	case p.body == nil:
		text = fmt.Sprintf("(not loaded: %s; only text, web pages, PDF, office documents and "+
			"images can be read)", p.describe())
	case tool.IsPicture(p.kind):
		name := oneLine(path.Base(p.url.Path), 100)
		r.Images = []tool.Image{{Name: name, Data: p.body}}
		text = fmt.Sprintf("(an image, %s)", p.describe())
	case p.isDocument():
		text, err = f.document(ctx, c, p)
	case p.isHTML() && !a.Raw:
		title, text, err = f.markdown(ctx, c, p)
	default:
		text = document.Decode(p.body, p.declared)
	}
	if err != nil {
		return tool.Result{Foreign: r.Foreign}, err // the error is about what the page has
	}
	r.Text = "URL: " + address + "\n"
	if title != "" {
		r.Text += "Title: " + title + "\n"
	}
	r.Text += "\n" + shorten(strings.TrimSpace(visible(text)), a.MaxChars)
	return r, nil
}

// describe returns the type and size of a page that is not text.
func (p *page) describe() string {
	if p.size < 0 {
		return p.kind + " of unknown size"
	}
	return fmt.Sprintf("%s, %d bytes", p.kind, p.size)
}

// document returns the text of a PDF or office file.
func (f *fetcher) document(ctx context.Context, c tool.Call, p *page) (string, error) {
	text, err := f.extract.Text(ctx, c.Address.String(), bytes.NewReader(p.body), p.size, p.kind,
		mostChars*utf8.UTFMax)
	switch {
	case errors.Is(err, extract.ErrUnsupported):
		return fmt.Sprintf("(no text can be read from it: %s)", p.describe()), nil
	case err != nil:
		return "", fmt.Errorf("the file can't be read: %w; look for the same content as a web page",
			err)
	case strings.TrimSpace(text) == "":
		return fmt.Sprintf("(there is no text in it, perhaps only pictures: %s)", p.describe()), nil
	}
	return text, nil
}

// markdown returns the title and the readable text of a web page.
func (f *fetcher) markdown(ctx context.Context, c tool.Call, p *page) (
	title, text string, err error,
) {
	data, title, err := f.extract.Do(ctx, extract.Job{
		Kind: KindPage, For: c.Address.String(), Args: pageArgs{p.url.String(), p.declared},
		File: bytes.NewReader(p.body), Size: int64(len(p.body)), Most: maxMarkdown,
	})
	if err != nil {
		return "", "", fmt.Errorf("the page can't be converted: %w; raw: true gives its source", err)
	}
	if text = visible(string(data)); strings.TrimSpace(text) == "" {
		text = "(there is no text in the page; perhaps scripts make it, and they are not run; " +
			"raw: true gives its source)"
	}
	return title, text, nil
}

// shorten cuts text to at most most characters and says so at the end.
func shorten(text string, most int) string {
	most = cmp.Or(most, usualChars)
	kept := prefix(text, most)
	if kept == text {
		return text
	}
	more := utf8.RuneCountInString(text[len(kept):])
	note := fmt.Sprintf("\n\n[cut off here: %d more characters", more)
	if most < mostChars {
		note += fmt.Sprintf("; max_chars can be up to %d", mostChars)
	}
	return kept + note + "]"
}

// statusError returns an error for the model, or nil if the status is a success.
func statusError(resp *http.Response) error {
	code := resp.StatusCode
	status := strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code)))
	switch {
	case code < 300:
		return nil
	case code < 400:
		return fmt.Errorf("the server answered %s without a target; try another URL", status)
	case code == http.StatusNotFound || code == http.StatusGone:
		return fmt.Errorf("there is no such page (%s); check the URL, or find the page with "+
			"web_search", status)
	case code == http.StatusUnauthorized || code == http.StatusForbidden ||
		code == http.StatusUnavailableForLegalReasons:
		return fmt.Errorf("the server does not let us read this page (%s): it may need a login or "+
			"refuse programs; don't try again, use another source", status)
	case code == http.StatusTooManyRequests:
		return fmt.Errorf("the server wants fewer requests (%s); use another source, or try "+
			"again in some minutes", status)
	case code >= 500:
		return fmt.Errorf("the server has a problem (%s); try again later or use another source",
			status)
	}
	return fmt.Errorf("the server refused the request (%s); check the URL or use another source",
		status)
}

// badLocation is the beginning of the error of [http.Client] for a redirect whose Location is not a
// URL. This error has no type.
const badLocation = "failed to parse Location header"

// A serverError is an error whose text may have words of a server: its answer, its certificate, or
// the target of its redirect. They are as foreign as the text of a page.
type serverError struct{ error }

// Unwrap returns the error itself.
func (e serverError) Unwrap() error { return e.error }

// explain returns a network error for the model, without the library's additions. asked is the URL
// that the model gave. The error is a [serverError] if it may have words of a server.
func explain(err error, asked string) error {
	var refused *guard.Error
	var dns *net.DNSError
	var timeout net.Error
	outer, ok := errors.AsType[*url.Error](err)
	about := func(err error) error { // about a URL that the model or a redirect has chosen
		if ok && outer.URL != asked {
			return serverError{err}
		}
		return err
	}
	switch {
	case errors.As(err, &refused):
		return about(refused)
	case errors.Is(err, guard.ErrTooLarge):
		return fmt.Errorf("the page is too large: more than %d MB; look for a smaller one", maxBody>>20)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("the server did not answer completely within %d s; try again later or use "+
			"another source", int(pageTime.Seconds()))
	case errors.As(err, &dns) && dns.IsNotFound:
		return about(fmt.Errorf("there is no host %.100q; check the URL, or find the page with "+
			"web_search", dns.Name))
	}
	if ok {
		err = outer.Err // without the URL, which the model knows
	}
	if strings.HasPrefix(err.Error(), badLocation) {
		return errors.New("the page redirects to an address that can't be read; check the URL or " +
			"use another source")
	}
	return serverError{fmt.Errorf("the page can't be loaded: %s; check the URL or use another source",
		oneLine(err.Error(), 300))}
}
